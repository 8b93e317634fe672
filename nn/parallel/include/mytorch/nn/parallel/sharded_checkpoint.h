// Checkpoints that the ranks of a group write and read together, each its parts. What n ranks have
// written, any other number of ranks can read, split in another way.
//
// A checkpoint is a folder on a file system that all ranks see, with a safetensors file of each
// rank (part-00000-of-00004.safetensors). The metadata of a file say where its tensors belong: for
// each name, "dim begin end sizes...", and of a block " of " the sizes of the tensor " at " where
// it begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"

namespace mytorch::nn {

// This rank's part of a tensor.
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
// "optimizer.NAME". Those of a ColumnParallelLinear or another split layer are written by hand:
// {"model.up.weight", {4 * width, width}, 0, rank * rows, (rank + 1) * rows, up.weight}.
std::vector<TensorPart> parts_of(const Module& module);
std::vector<TensorPart> parts_of(const FullyShardedDataParallel& model);
std::vector<TensorPart> parts_of(const optim::Optimizer& optimizer,
                                 const FullyShardedDataParallel& model);

// Writes a checkpoint. What several ranks have is written once, and must be equal on them, bit for
// bit. The folder appears, or replaces an earlier one, when all files are complete: if a rank
// fails, all throw its Error(kIo), and an earlier checkpoint is unchanged. Collective over the
// group, which has all ranks that write the folder.
void save_parts(const std::string& folder, const std::vector<TensorPart>& parts,
                const distributed::Group& group = {});
// Fills the tensors of `parts` from a checkpoint, converting types. Throws Error(kValue) for a name
// that it does not have and Error(kShape) for other sizes, on this rank; changes nothing if it
// throws. Reads no more than what overlaps. Not collective.
void load_parts(const std::string& folder, const std::vector<TensorPart>& parts);

// Save and load a model and, unless it is null, its optimizer. Saving is collective over `group`,
// by default the model's; loading, into any number of ranks, is not. If the model's group has not
// all ranks of the program, save_sharded() throws Error(kValue) unless `group` says who writes.
void save_sharded(const std::string& folder, const FullyShardedDataParallel& model,
                  const optim::Optimizer* optimizer = nullptr,
                  const distributed::Group& group = {});
void load_sharded(const std::string& folder, FullyShardedDataParallel& model,
                  optim::Optimizer* optimizer = nullptr);

}  // namespace mytorch::nn
