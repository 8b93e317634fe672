// Models that are made without memory for their parameters and buffers.
//
// The idea is that of PyTorch's `with torch.device("meta")` and of torchdistx's deferred_init.
#pragma once

#include <utility>

#include "mytorch/device.h"
#include "mytorch/nn/module.h"

namespace mytorch::nn {

// While it exists, tensors that this thread makes without naming a device have shape, strides and
// type, but no memory: they are on the device "meta". What is done to them is noted down instead.
//
//   Model model = nn::deferred_init([] { return Model(); });  // of any size
//   nn::FullyShardedDataParallel parallel(model);             // draws unit by unit, keeps its
//   parts
//
// Materialized later, they have the elements that they would have now: random numbers are those of
// the generators as they were, which go on as if the numbers had been drawn. An operator that reads
// what the host gave, such as a copy of loaded values, keeps a copy of that.
//
// To read such a tensor is an Error(kValue) that says how to materialize it. An operator on it and
// on tensors of other devices throws Error(kDevice); one whose result's shape depends on elements,
// as of nonzero, throws. Scopes nest.
class DeferredInit {
 public:
  DeferredInit();
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;
  DeferredInit& operator=(const DeferredInit&) = delete;

 private:
  const Device outer_;
};

// Returns what `make` returns, called under DeferredInit.
template <class F>
auto deferred_init(F&& make) {
  const DeferredInit deferred;
  return std::forward<F>(make)();
}

bool is_deferred(const Tensor& tensor);
// Whether any parameter or buffer is.
bool is_deferred(const Module& module);

// Returns a tensor on `device` with the elements of a deferred one; another tensor as it is.
Tensor materialize(const Tensor& tensor, Device device = kCPU);
// Gives the deferred parameters and buffers of a module their elements, on `device`. They remain
// the same tensors, so that optimizers which were given them train them; tied ones remain tied.
void materialize(Module& module, Device device = kCPU);
// The same with undefined elements, for a module that is loaded next. Buffers that its state has
// not (register_buffer) get theirs.
void to_empty(Module& module, Device device = kCPU);

}  // namespace mytorch::nn
