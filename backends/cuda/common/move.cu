#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/move.h"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

template <class From, class To>
__global__ void move_elements(Strided<2> loop, To* to, const From* from) {
  for (int64_t i = first_element(); i < loop.numel; i += grid_step()) {
    int64_t at[2];
    loop.offsets(i, at);
    if constexpr (std::is_same_v<From, To>) {
      to[at[0]] = from[at[1]];
    } else {
      to[at[0]] = convert<To>(from[at[1]]);
    }
  }
}

template <class T>
__global__ void clear_elements(Strided<1> loop, T* to) {
  for (int64_t i = first_element(); i < loop.numel; i += grid_step()) {
    int64_t at[1];
    loop.offsets(i, at);
    to[at[0]] = T(0);
  }
}

template <class From, class To>
void start_move(mt_ctx& ctx, const TensorView& from, const TensorView& to) {
  const auto loop = make_strided<2>(to.shape(), {to, from});
  launch(ctx, "move_elements", move_elements<From, To>, grid_for(ctx, loop.numel, 256), loop,
         to.data<To>(), from.data<From>());
}

}  // namespace

void move(mt_ctx& ctx, const TensorView& from, const TensorView& to) {
  if (to.numel() == 0) return;
  if (sdk::same_dtype(from.dtype(), to.dtype())) {
    if (sdk::same_shape(from, to) && from.is_contiguous() && to.is_contiguous()) {
      use_device(ctx);
      CUDA(cudaMemcpyAsync(to.raw(), from.raw(), static_cast<size_t>(to.numel() * to.itemsize()),
                           cudaMemcpyDeviceToDevice, stream_of(ctx)));
      return;
    }
    if (to.itemsize() == 16) return start_move<double2, double2>(ctx, from, to);  // complex128
    sdk::visit_itemsize(to.itemsize(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      start_move<T, T>(ctx, from, to);
    });
  } else if (to.is<float>() && from.is<sdk::Half>()) {
    start_move<__half, float>(ctx, from, to);
  } else if (to.is<float>() && from.is<sdk::BFloat16>()) {
    start_move<__nv_bfloat16, float>(ctx, from, to);
  } else if (from.is<float>() && to.is<sdk::Half>()) {
    start_move<float, __half>(ctx, from, to);
  } else if (from.is<float>() && to.is<sdk::BFloat16>()) {
    start_move<float, __nv_bfloat16>(ctx, from, to);
  } else {
    throw sdk::Error(MT_ERROR_INTERNAL, std::string("no conversion from ") +
                                            sdk::dtype_name(from.dtype()) + " to " +
                                            sdk::dtype_name(to.dtype()) + " inside a kernel");
  }
}

void clear(mt_ctx& ctx, const TensorView& to) {
  if (to.numel() == 0) return;
  const auto loop = make_strided<1>(to.shape(), {to});
  if (loop.ndim == 0 || (loop.ndim == 1 && loop.stride[0][0] == 1)) {
    use_device(ctx);
    CUDA(cudaMemsetAsync(to.raw(), 0, static_cast<size_t>(to.numel() * to.itemsize()),
                         stream_of(ctx)));
    return;
  }
  sdk::visit_itemsize(to.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "clear_elements", clear_elements<T>, grid_for(ctx, loop.numel, 256), loop,
           to.data<T>());
  });
}

ContiguousScratch::ContiguousScratch(mt_ctx& ctx, const TensorView& like, mt_dtype dtype)
    : tensor_(*like.get()) {
  sdk::check_ndim(static_cast<size_t>(like.ndim()));
  int64_t stride = 1;
  for (int d = like.ndim() - 1; d >= 0; --d) {
    strides_[d] = stride;
    stride *= like.size(d);
  }
  tensor_.dl.strides = strides_;
  tensor_.dl.dtype = dtype;
  tensor_.dl.byte_offset = 0;
  tensor_.dl.data = scratch_bytes(ctx, static_cast<size_t>(stride * sdk::itemsize(dtype)));
  tensor_.flags = MT_TENSOR_CONTIGUOUS;
}

}  // namespace mytorch::cuda
