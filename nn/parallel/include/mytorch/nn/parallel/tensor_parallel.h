// Layers whose weights are split over the ranks of a group, so that together they compute what one
// rank would. All ranks have the same input, except where the layers say otherwise.
//
// In a transformer, the first product of an attention or of an MLP is split by columns and the
// second by rows; between them every rank has some of the heads or of the hidden features, and a
// block needs one all-reduce in forward and one in backward for each of the two:
//
//   nn::ColumnParallelLinear up(width, 4 * width, {.group = mesh.group("tp")});
//   nn::RowParallelLinear down(4 * width, width, {.group = mesh.group("tp")});
//   Tensor y = down(gelu(up(x)));
//
// With sequence_parallel, what lies between blocks (norms, dropout, residuals) is split along the
// sequence: each all-reduce becomes an all-gather before the first product and a reduce-scatter
// after the second.
//
// nn::parallelize (parallelize.h) splits the layers of models that are written for one rank.
//
// The loss is the same on all ranks, and gradients are those of one rank's loss: of replicated
// parameters equal on all ranks, of split ones their parts. (The gradients of the collective
// operators, such as mytorch::all_reduce, are of the sum of all ranks' losses.)
#pragma once

#include <cstdint>
#include <optional>

#include "mytorch/distributed.h"
#include "mytorch/generator.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/module.h"

namespace mytorch::nn {

// ---- changes of layout. `dim` may be negative; where it is split, its size is a multiple of the
// group's, or Error(kShape) is thrown ----

// Returns `x`; backward adds up the ranks' gradients.
Tensor copy_to_ranks(const Tensor& x, const distributed::Group& group);
// Returns the sum of the ranks' tensors; backward passes the gradient on.
Tensor sum_of_ranks(const Tensor& x, const distributed::Group& group);
// Returns this rank's part along a dimension; backward gathers the parts' gradients.
Tensor part_of_rank(const Tensor& x, int64_t dim, const distributed::Group& group);
// Returns the ranks' parts, joined along a dimension; backward takes this rank's part of the
// gradient, which is the same on all ranks.
Tensor join_ranks(const Tensor& x, int64_t dim, const distributed::Group& group);
// The same for a result of which each rank computes with all, but its own way: backward adds up the
// ranks' gradients and takes this rank's part.
Tensor gather_sequence(const Tensor& x, int64_t dim, const distributed::Group& group);
// Returns this rank's part of the sum of the ranks' tensors; backward gathers the gradients.
Tensor scatter_sum(const Tensor& x, int64_t dim, const distributed::Group& group);

// Returns dropout, in training, of this rank's part of a tensor that is split along a dimension,
// such as a sequence: drops what one rank would drop of the whole tensor, if the ranks' generators
// are in the same state. Draws the numbers of the whole tensor.
Tensor dropout_of_ranks(const Tensor& x, double p, int64_t dim, const distributed::Group& group,
                        const std::optional<Generator>& generator = {});

// Makes each backward add up the gradients of the module's parameters over the ranks. For
// replicated modules between sequence-parallel layers, such as norms, which see a part of the
// sequence. Once for a module.
void sum_gradients_of_ranks(Module& module, const distributed::Group& group);

// ---- layers ----

struct ColumnParallelArgs {
  bool bias = true;
  // Whether results are joined, so that every rank has all features.
  bool gather_output = false;
  // Whether the input is split along `sequence_dim`; the result is not.
  bool sequence_parallel = false;
  int64_t sequence_dim = 0;
  distributed::Group group = {};  // default: distributed::world()
};

// A Linear of which each rank has some of the output features: (..., in) to (..., out / ranks).
// weight is (out / ranks, in), bias (out / ranks). They are this rank's parts of what Linear(in,
// out) would have, if the default generator is in the same state on all ranks. Throws
// Error(kValue) if `out` is no multiple of the ranks.
//
// Backward reduces the gradient of the input while it computes that of the weight. It is not
// differentiable again.
class ColumnParallelLinear final : public Layer<ColumnParallelLinear> {
 public:
  using Layer::Layer;
  ColumnParallelLinear(int64_t in_features, int64_t out_features, ColumnParallelArgs options = {});
  // Takes this rank's part of a layer.
  explicit ColumnParallelLinear(const Linear& whole, ColumnParallelArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  Tensor weight;
  Tensor bias;  // undefined without bias

 private:
  ColumnParallelArgs options_;
};

struct RowParallelArgs {
  bool bias = true;
  // Whether each rank has its part of the input features, as from a ColumnParallelLinear; or all of
  // them, of which the layer takes a part.
  bool input_is_parallel = true;
  // Whether the result is split along `sequence_dim`.
  bool sequence_parallel = false;
  int64_t sequence_dim = 0;
  distributed::Group group = {};  // default: distributed::world()
};

// A Linear of which each rank has some of the input features: (..., in / ranks) to (..., out), the
// sum over the ranks. weight is (out, in / ranks); bias, (out), is replicated, and added once.
// Initialized as ColumnParallelLinear. Throws Error(kValue) if `in` is no multiple of the ranks.
class RowParallelLinear final : public Layer<RowParallelLinear> {
 public:
  using Layer::Layer;
  RowParallelLinear(int64_t in_features, int64_t out_features, RowParallelArgs options = {});
  explicit RowParallelLinear(const Linear& whole, RowParallelArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  Tensor weight;
  Tensor bias;  // undefined without bias

 private:
  RowParallelArgs options_;
};

struct VocabParallelArgs {
  bool sequence_parallel = false;  // whether the result is split along `sequence_dim`
  int64_t sequence_dim = 0;
  distributed::Group group = {};  // default: distributed::world()
};

// An Embedding of which each rank has some of the rows: indices (...) to (..., width). weight is
// (rows, width) with rows = num_embeddings / ranks, rounded up; the last rank's rows beyond
// num_embeddings are zeros, without gradients. Initialized as ColumnParallelLinear.
class VocabParallelEmbedding final : public Layer<VocabParallelEmbedding> {
 public:
  using Layer::Layer;
  VocabParallelEmbedding(int64_t num_embeddings, int64_t width, VocabParallelArgs options = {});
  explicit VocabParallelEmbedding(const Embedding& whole, VocabParallelArgs options = {});
  Tensor forward(const Tensor& indices) override;
  std::string describe() const override;

  Tensor weight;

 private:
  VocabParallelArgs options_;
  int64_t num_embeddings_ = 0;
};

// Returns the mean cross-entropy of logits that are split over the vocabulary, (n, classes /
// ranks), and targets (n), int64, from 0 to classes - 1: the logits are not gathered. Targets of
// `ignore_index` do not count. Computes in float32, and of float64 in that. NaN if a target is out
// of range, or none counts.
Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& target,
                                    const distributed::Group& group = {},
                                    int64_t ignore_index = -100);

}  // namespace mytorch::nn
