// Class indices and their scores, as operands of losses.
#pragma once

#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// A number on the device, or that of a HOST operand, read on the host.
struct Number {
  const void* data = nullptr;
  uint32_t key = 0;
  double value = 1;

  Number() = default;
  explicit Number(const mt_tensor* tensor) {
    const sdk::TensorView x = tensor;
    if (x.is_host()) {
      value = sdk::scalar_value<double>(tensor);
    } else {
      data = x.raw();
      key = sdk::dtype_key(x.dtype());
    }
  }
#ifdef __CUDACC__
  template <class W>
  __device__ __forceinline__ W get() const {
    return data != nullptr ? load_any<W>(data, 0, key) : static_cast<W>(value);
  }
#endif
};

// The strides of `scores`, of shape (N, C, ...) or (C), without the class dimension. They belong to
// the targets' shape.
inline void without_classes(const sdk::TensorView& scores, int64_t* strides) {
  const int class_dim = scores.ndim() == 1 ? 0 : 1;
  sdk::select_dims(~(uint64_t{1} << class_dim), scores.strides(), strides);
}

// A loop over the targets, their scores without the class dimension, and a third tensor of the
// targets' shape.
struct Targets {
  Strided<3> loop;
  const void* target;
  uint32_t target_key;
  int64_t class_stride, ignore_index;
  const void* weight = nullptr;  // optional
  uint32_t weight_key = 0;
  int64_t weight_stride = 0;

  // `third` is optional.
  Targets(const sdk::TensorView& scores, const sdk::TensorView& targets,
          const sdk::TensorView& third, const sdk::TensorView& weights, int64_t ignored)
      : target(targets.raw()), target_key(sdk::dtype_key(targets.dtype())), ignore_index(ignored) {
    sdk::check_ndim(static_cast<size_t>(scores.ndim()));
    const int class_dim = scores.ndim() == 1 ? 0 : 1;
    class_stride = scores.stride(class_dim);
    int64_t strides[sdk::kMaxDims], none[sdk::kMaxDims] = {};
    without_classes(scores, strides);
    const bool same = third && third.ndim() == targets.ndim();
    loop = Strided<3>(sdk::StridedLoop<3>(
        targets.shape(),
        {targets.get()->dl.strides, strides, same ? third.get()->dl.strides : none},
        sdk::Order::kRowMajor));
    if (!weights) return;
    weight = weights.raw();
    weight_key = sdk::dtype_key(weights.dtype());
    weight_stride = weights.stride(0);
  }
#ifdef __CUDACC__
  template <class W>
  __device__ __forceinline__ W weight_of(int64_t t) const {
    return weight == nullptr ? W(1) : load_any<W>(weight, t * weight_stride, weight_key);
  }
#endif
};

}  // namespace mytorch::cuda
