// Tensors inside autograd::vmap, which stand for a batch of tensors. Core knows them by a flag.
#pragma once

#include "mytorch/tensor.h"

namespace mytorch {

struct BatchTable {
  Tensor (*detach)(const Tensor& batched);
  Tensor (*value)(const Tensor& batched);
  // Throws: `op` reads the values of a batched tensor.
  void (*refuse_read)(const char* op);
};
// Set once, while the autograd library is initialized. There are no batched tensors before.
extern const BatchTable* batch_table;

inline bool is_batched(const TensorImpl* impl) { return (impl->layer_flags & kLayerBatch) != 0; }

// Returns a tensor with the elements of all examples, in any shape.
inline Tensor all_examples(const Tensor& tensor) {
  return tensor.defined() && is_batched(tensor.impl()) ? batch_table->value(tensor) : tensor;
}

// Throws Error(kUnsupported) if the tensor is batched, before its values are read.
inline void check_not_batched(const Tensor& tensor, const char* op) {
  if (tensor.defined() && is_batched(tensor.impl())) [[unlikely]]
    batch_table->refuse_read(op);
}

}  // namespace mytorch
