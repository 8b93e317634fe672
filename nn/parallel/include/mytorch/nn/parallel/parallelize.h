// Splits the layers of a finished model over the ranks of a group (tensor parallelism), by a table
// of names. The model's own forward goes on to work:
//
//   nn::models::GPT2LMHeadModel model(config);                // the same on all ranks
//   nn::parallelize(model, nn::gpt2_plan(), mesh.group("tp"));
//   nn::optim::AdamW optimizer(model.parameters());           // made afterwards
//   model.loss(ids, targets).backward();                      // the loss is the same on all ranks
//
// Each rank keeps its part of each split parameter, under its name. All ranks have the same input.
// Losses and gradients are those of one rank, also with dropout, if the ranks' generators are in
// the same state.
//
// The order with other wrappers: first parallelize; then DistributedDataParallel or
// FullyShardedDataParallel over the ranks that have the same part (mesh.group("dp")); a pipeline's
// stages are parallelized by each rank for its own.
//
// The layers of tensor_parallel.h do the same for models that are written for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/optim/clip.h"

namespace mytorch::nn {

enum class ParallelStyle {
  // Linear: by output features, which the ranks' results then lack, as the first product of an MLP.
  // Dropout: of features that are split so; drops what one rank would drop.
  kColumn,
  // Linear: by input features, of which each rank has its own, as the second product of an MLP. The
  // result, a sum over the ranks, is whole; the bias is replicated.
  kRow,
  // MultiheadAttention, and modules that are HeadParallel: each rank has some of the heads, and of
  // keys and values, which may be fewer. Their projections are split by columns, and those of the
  // output by rows.
  kHeads,
  // Embedding: by rows. Linear, as the head of a language model: by output features, which are then
  // joined, so that the result is whole. The ranks need not divide either: the last rank's rows
  // beyond the last are zeros. A weight that both share has to be split in both.
  kVocabulary,
  // LayerNorm, RMSNorm, Dropout: of parts of sequences, if ParallelizeArgs::sequence_dim splits
  // them; otherwise the rule is left out. Embedding, such as of positions, whose indices are those
  // of whole sequences. The parameters are replicated.
  kSequence,
  // Any module: stays whole on all ranks, as those without a rule. For exceptions to a later rule.
  kReplicate,
};

// A style for the modules whose names, as named_modules() has them, match a pattern: components
// between points, where `*` stands for any one component, and `**` for any number of them, also
// none. "**.h.*.mlp.c_fc" are the layers of that name of all blocks.
struct ParallelRule {
  std::string pattern;
  ParallelStyle style;
  bool optional = false;  // whether it may match nothing
};
// The first rule that matches a module is the one that holds for it.
using ParallelPlan = std::vector<ParallelRule>;

// The plans of nn::models: heads, the products of MLPs, and the vocabulary of embedding and head;
// those of GPT-2 and Llama also split sequences, if the arguments say so. They fit parts of the
// models that have the same names, such as GPT2Model.
ParallelPlan gpt2_plan();
ParallelPlan llama_plan();
ParallelPlan bert_plan();
// Of nn::TransformerEncoderLayer and DecoderLayer, in nn::TransformerEncoder, Decoder, Transformer
// or another model. `layers` is a pattern of their names; "" for a single layer. With split
// sequences, any module "norm" is taken for that behind a stack of layers, and the caller splits
// what goes into a stack, by part_of_rank(), and joins what comes out, by join_ranks().
ParallelPlan transformer_plan(const std::string& layers = "**.layers.*");

struct ParallelizeArgs {
  // Whether rules that match nothing are errors; false for the stages of a pipeline.
  bool strict = true;
  // Whether parameters and buffers are first made those of the group's rank 0.
  bool sync_parameters = true;
  // If given, the dimension of features along which sequences are split between the split layers,
  // -2 of (N, L, E): each rank has its part of what norms, dropout and residuals work on, whose
  // length the ranks have to divide. In place of sums over ranks, sequences are gathered and
  // scattered. All norms and dropouts there need a rule of kSequence. KVCache does not take such
  // sequences.
  std::optional<int64_t> sequence_dim = {};
  // Whether nothing is changed: the result says what would be.
  bool dry_run = false;
};

// Splits a module over a group (default: distributed::world()). Returns what it did: a line for
// each module, with the sizes of its parameters before and after. Gradients are cleared. Optimizers
// and wrappers that know the parameters are made afterwards. Collective unless `dry_run`.
//
// Throws, before it changes anything: Error(kValue) that names the rule or the module, for rules
// that match nothing, styles that do not fit a module, sizes or heads that the ranks do not divide,
// a parameter that modules share and that they do not split alike, modules that are split already,
// and modules whose hooks a copy or clone shares (register hooks after copying, or parallelize
// before); Error(kUnsupported) for parametrized modules and options of Embedding that need all
// rows.
std::string parallelize(Module& module, const ParallelPlan& plan,
                        const distributed::Group& group = {}, const ParallelizeArgs& options = {});

// ---- the state of a model that may be split ----

// Returns whole parameters, and buffers, by the module's names, on the CPU, as state_dict() would
// have them without parallelize(). (state_dict() has this rank's parts.) Collective.
TensorMap whole_state_dict(const Module& module);
// Takes this rank's parts of such a state. Throws as Module::load_state_dict. Not collective.
//
// To write and read files, of any number of ranks: save_parts(folder, parts_of(model)), which knows
// of split parameters (sharded_checkpoint.h).
LoadReport load_whole_state_dict(Module& module, const TensorMap& state, bool strict = true);

struct ClipGradNormArgs {
  double norm_type = 2;
  // The ranks of a pipeline, which have other parameters, if the module is one of its stages.
  distributed::Group stages = {};
};
// Scales the gradients as nn::optim::clip_grad_norm_, by the norm of the whole model's. Collective.
// Throws Error(kValue) for a negative or NaN `max_norm`, and for an order that is not above 0.
// (A FullyShardedDataParallel has a method for its own.)
optim::GradientNorm clip_grad_norm_(Module& module, double max_norm,
                                    const ClipGradNormArgs& options = {});

}  // namespace mytorch::nn
