// Checkpoints that the ranks of a group write and read together, each its parts. What n ranks have
// written, any other number of ranks can read, split in another way.
//
// A checkpoint is a folder on a file system that all ranks see, with a safetensors file of each
// rank. Each tensor is whole in one of them, so that other tools read them, too: those of a model
// are, under their own names, in model-00001-of-00004.safetensors and so on, and
// model.safetensors.index.json says which of these has which, as Hugging Face's tools write and
// read models (https://huggingface.co/docs/transformers/big_models). Everything else, as an
// optimizer's state, is in state-00001-of-00004.safetensors with state.safetensors.index.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/nn/parallel/zero_redundancy_optimizer.h"
#include "mytorch/nn/serialize.h"

namespace mytorch::nn {

// This rank's part of a tensor, or one of several.
struct TensorPart {
  static constexpr int64_t kWhole = -2, kFlat = -1;
  std::string name;
  std::vector<int64_t> sizes;  // of the whole tensor
  // The rows [begin, end) along a dimension; or, of kFlat, these elements in row-major order; or,
  // of kWhole, all of it, which all ranks have.
  int64_t dim = kWhole;
  int64_t begin = 0, end = 0;
  Tensor tensor = {};
  // If a tensor of `sizes` is itself a block of a larger one (block_of): the sizes of that one, and
  // where the block begins in each dimension.
  std::vector<int64_t> outer_sizes = {}, origin = {};
};

// Returns the same part of a tensor with `size` rows along a dimension, of which `part.sizes` were
// a block of those that begin at `begin`. For each dimension along which ranks split a tensor
// before something else splits their blocks: of a layer that is split over tensor-parallel ranks
// and then by a FullyShardedDataParallel, block_of(part, 0, rank * rows, ranks * rows). Throws
// Error(kValue) if the block is not within.
TensorPart block_of(TensorPart part, int64_t dim, int64_t begin, int64_t size);

// Parts for the functions below: of a module whose parameters are whole, or split by a
// FullyShardedDataParallel, as "model.NAME"; of an optimizer of such parameters, as
// "optimizer.NAME". The module may have been split by parallelize(), also before it was sharded.
// Those of a ColumnParallelLinear or another split layer are written by hand: {"model.up.weight",
// {4 * width, width}, 0, rank * rows, (rank + 1) * rows, up.weight}.
std::vector<TensorPart> parts_of(const Module& module);
std::vector<TensorPart> parts_of(const optim::Optimizer& optimizer, const Module& module);
std::vector<TensorPart> parts_of(const FullyShardedDataParallel& model);
std::vector<TensorPart> parts_of(const optim::Optimizer& optimizer,
                                 const FullyShardedDataParallel& model);

// Of a ZeroRedundancyOptimizer, the state that this rank keeps, and the numbers that all have.
template <class O>
std::vector<TensorPart> parts_of(const ZeroRedundancyOptimizer<O>& optimizer);

// Writes a checkpoint. The parts of all ranks together must have all elements of each tensor. What
// several ranks have is written once, and must be equal on them, bit for bit. Each tensor is sent
// to one of the ranks that have some of it, which writes it; a rank has as many bytes of them in
// host memory as it writes, about the same on all.
//
// The folder appears, or replaces an earlier one, when all files are complete and on the disk. If a
// rank fails, all throw Error(kIo) with its message, nothing remains of the new one, and an earlier
// checkpoint is unchanged. If the program is killed, a complete checkpoint remains, which
// load_parts() finds by the folder's name. Collective over the group, which has all ranks that
// write the folder.
void save_parts(const std::string& folder, const std::vector<TensorPart>& parts,
                const distributed::Group& group = {});
// Whether load_parts() finds a checkpoint there.
bool has_checkpoint(const std::string& folder);
// Fills the tensors of `parts` from a checkpoint, converting types. `folder` may also be a model in
// Hugging Face's format: a folder with model.safetensors or model.safetensors.index.json, or the
// path of either; its tensor "NAME" is "model.NAME". Throws Error(kValue) for a name that it does
// not have and Error(kShape) for other sizes, on this rank; changes nothing if it throws. Reads the
// bytes of these parts, and no others but for gaps of some KiB. Not collective.
void load_parts(const std::string& folder, const std::vector<TensorPart>& parts);

// Save and load a model and, unless it is null, its optimizer. Saving is collective over `group`,
// by default the model's; loading, into any number of ranks, is not. If the model's group has not
// all ranks of the program, save_sharded() throws Error(kValue) unless `group` says who writes.
// load_sharded() takes what load_parts() takes: no rank holds more of the model than its part.
void save_sharded(const std::string& folder, const FullyShardedDataParallel& model,
                  const optim::Optimizer* optimizer = nullptr,
                  const distributed::Group& group = {});
void load_sharded(const std::string& folder, FullyShardedDataParallel& model,
                  optim::Optimizer* optimizer = nullptr);
// Reads what parts_of(optimizer) wrote: the state of this rank's parameters, and nothing else.
template <class O>
void load_sharded(const std::string& folder, ZeroRedundancyOptimizer<O>& optimizer);
// The same of a module that is not sharded, but may have been split by parallelize(): by any number
// of ranks when it was saved, and another one when it is loaded. `group`, by default all ranks, has
// the ranks that write.
void save_sharded(const std::string& folder, const Module& module,
                  const optim::Optimizer* optimizer = nullptr,
                  const distributed::Group& group = {});
void load_sharded(const std::string& folder, Module& module, optim::Optimizer* optimizer = nullptr);

// A checkpoint that is being written while the ranks do something else.
//
//   nn::CheckpointSave saving;
//   while (...) {
//     train_one_epoch();
//     saving = nn::save_async("run", parallel, &optimizer);  // when the one before is complete
//   }
//   saving.wait();
class CheckpointSave {
 public:
  CheckpointSave() = default;  // nothing is written
  // Returns when the checkpoint is in its place. Throws as save_parts(), on all ranks, and again
  // whenever it is called again. Collective over the group that writes.
  void wait();
  // Whether this rank has written its files, or failed to. When all have, the checkpoint is put in
  // its place, without waiting for wait().
  bool done() const;

  struct State;
  explicit CheckpointSave(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// Begin to write a checkpoint as save_parts() and save_sharded() do. When they return, the tensors
// have been copied to host memory, pinned if they are a device's, and may be changed; a thread of
// each rank writes the files. A group writes one checkpoint at a time: they, save_parts() and
// save_sharded() first wait for the one before, and throw its error unless wait() has. A program
// waits for the last one before it leaves the group.
CheckpointSave save_async(const std::string& folder, const std::vector<TensorPart>& parts,
                          const distributed::Group& group = {});
CheckpointSave save_async(const std::string& folder, const FullyShardedDataParallel& model,
                          const optim::Optimizer* optimizer = nullptr,
                          const distributed::Group& group = {});

// ---- implementation ----

namespace detail {
// Returns the state of an optimizer in a checkpoint, without that of parameters of `all` that are
// not in `own`.
TensorMap read_state(const std::string& folder, const std::vector<Tensor>& all,
                     const std::vector<Tensor>& own);
}  // namespace detail

template <class O>
std::vector<TensorPart> parts_of(const ZeroRedundancyOptimizer<O>& optimizer) {
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    parts.push_back({"optimizer." + name, tensor.sizes().vec(), TensorPart::kWhole, 0, 0, tensor});
  }
  return parts;
}

template <class O>
void load_sharded(const std::string& folder, ZeroRedundancyOptimizer<O>& optimizer) {
  optimizer.load_state_dict(
      detail::read_state(folder, optimizer.parameters(), optimizer.local().parameters()));
}

}  // namespace mytorch::nn
