// Which parts of a checkpoint's tensors the ranks have, and which rank writes each tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"

namespace mytorch::nn::checkpoint {

// Returns the message of what the function throws, or "".
template <class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Throws Error(kIo) on all ranks if one has an error: its own, or that of the first one that has
// one, whose message names the rank. Collective.
void agree(const distributed::Group& group, const std::string& error, const std::string& folder);

// Elements of a tensor, and who has them.
struct Piece {
  struct Holder {
    int rank;
    size_t part;  // the number among its parts
  };
  TensorPart place = {};  // without elements
  std::vector<Holder> holders = {};

  const Holder* holder(int rank) const {
    for (const Holder& each : holders) {
      if (each.rank == rank) return &each;
    }
    return nullptr;
  }
};

struct PlannedTensor {
  std::string name;
  ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<Piece> pieces;  // which together have all of its elements
  int writer = -1;

  int64_t bytes() const;
  // Who gives the writer a piece: itself if it has it.
  const Piece::Holder& source(const Piece& piece) const {
    const Piece::Holder* own = piece.holder(writer);
    return own != nullptr ? *own : piece.holders.front();
  }
};

// Returns the tensors by name, the same on all ranks. Throws Error(kIo) on all of them if parts are
// not within their tensors, are named alike on a rank, differ where they should not, or lack
// elements of a tensor. Collective.
std::vector<PlannedTensor> plan_tensors(const std::vector<TensorPart>& parts,
                                        const distributed::Group& group, const std::string& folder);

// Returns the tensors that this rank writes, whole and in host memory, by their numbers in the
// plan: the other ranks send what they have of them. If `copies`, the results share no memory with
// the parts, and those of a device are pinned, where it has such memory. Collective.
std::vector<std::pair<size_t, Tensor>> gather_tensors(const std::vector<PlannedTensor>& plan,
                                                      const std::vector<TensorPart>& parts,
                                                      const distributed::Group& group, bool copies);

}  // namespace mytorch::nn::checkpoint
