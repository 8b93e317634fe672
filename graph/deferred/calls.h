// What the journal of deferred tensors consists of (journal.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "dispatcher/table/op.h"
#include "graph/steps/kept_args.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

struct Call;

// The last call that wrote to a block, and those before it.
struct Write {
  std::shared_ptr<Write> before;  // null: the block had no elements yet
  std::shared_ptr<const Call> call;
  int depth = 0;  // of calls on other blocks, from which this one follows
  ~Write() {      // not by recursion: there may be many
    while (before != nullptr && before.use_count() == 1) before = std::move(before->before);
  }
};
using Content = std::shared_ptr<Write>;

// Memory of a tensor, by the number that it has.
struct Block {
  uint64_t number = 0;  // 0: none, of a tensor without elements
  uint64_t bytes = 0;
  Content content;
};

struct Geometry {
  Geometry(const mt_tensor& tensor, int64_t offset);
  ScalarType dtype;
  std::vector<int64_t> sizes, strides;
  int64_t offset;  // elements
};

// An operand of a call, in a block that it had then.
struct Operand {
  Block block;  // its content is null if the call writes to no other block
  Geometry geometry;
  bool written = false;
  mt_tensor header = {};  // stands for the operand in the arguments
  mt_storage storage = {};
};

// A call of a kernel, or a function that writes to the first operand.
struct Call {
  const OpEntry* entry = nullptr;
  std::unique_ptr<KeptArgs> args;
  std::deque<Operand> operands;
  size_t written = 0;            // the first operand that is written
  std::deque<mt_tensor> hosts;   // operands that were tensors of one element on the host
  std::vector<Tensor> elements;  // theirs
  std::function<void(const Tensor&)> write;
};

// Runs the calls on memory of a device. Returns the memory of the block, as bytes.
Tensor replay(const Block& block, Device device);
// Returns a tensor in such memory.
Tensor view_of(const Tensor& memory, const Geometry& geometry);

}  // namespace mytorch::graph
