// Tensors that have a shape, a type and a place in memory, but no memory, as those of PyTorch's
// device "meta"; and a journal of the calls of kernels on them, from which their elements follow
// later, as in torchdistx's deferred_init.
//
// The device "meta" allocates addresses that nothing lies at. It takes every kernel call that
// another device would, at the same point, behind promotion, broadcasting and the draw of a random
// call number, and keeps it instead of running it. What operators consist of, and how many random
// numbers they draw, is therefore as on other devices, and so is what a replay gives: random
// numbers are functions of seed, call number and index (mytorch/generator.h).
//
// The journal is a tree of immutable parts: what a block of memory holds follows from what it held
// before, and from what other blocks held when they were read. A part lives as long as a tensor
// follows from it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "core/runtime/deferred_memory.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

// Returns the device, which the first call registers.
Device deferred_device();

inline bool is_deferred(const Tensor& tensor) {
  return tensor.defined() && mytorch::is_deferred(*tensor.impl());
}

// Adds a call to the journal of a deferred tensor: `write` gets a tensor of its shape, strides and
// type, with memory. It may be called several times, or never, and must write the same each time.
void defer_write(const Tensor& tensor, std::function<void(const Tensor& memory)> write);

// Gives deferred tensors memory.
class Materializer {
 public:
  explicit Materializer(Device device) : device_(device) {}
  // Returns a tensor of the same shape, strides and type, with the elements that the calls so far
  // have given. Those of tensors that share memory share the memory that they get here.
  Tensor operator()(const Tensor& tensor);

 private:
  const Device device_;
  std::map<uint64_t, Tensor> blocks_;
};

}  // namespace mytorch::graph
