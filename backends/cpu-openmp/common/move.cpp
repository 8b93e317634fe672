#include "backends/cpu-openmp/common/move.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backends/cpu-openmp/simd/convert.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kGrain = 32768;
constexpr int64_t kBuffer = 256;

template <class T>
void copy_run(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t n) {
  if (to_step == 1 && from_step == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
  }
}

}  // namespace

void move(mt_ctx& ctx, const sdk::TensorView& from, const sdk::TensorView& to) {
  const auto loop = sdk::make_loop<2>(to.shape(), {to, from});
  const int64_t to_step = loop.inner_stride(0);
  const int64_t from_step = loop.inner_stride(1);
  if (sdk::same_dtype(from.dtype(), to.dtype())) {
    sdk::visit_itemsize(to.itemsize(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      sdk::parallel_for(ctx, 0, loop.numel(), kGrain, [&](int64_t begin, int64_t end) noexcept {
        loop.for_each_run(begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
          copy_run(to.data<T>() + at[0], to_step, from.data<const T>() + at[1], from_step, n);
        });
      });
    });
    return;
  }
  const simd::ConvertFn convert = simd::get_convert(from.dtype(), to.dtype());
  if (convert == nullptr) throw sdk::Error(MT_ERROR_TYPE, "no conversion between these dtypes");
  sdk::visit_itemsize(from.itemsize(), [&](auto from_tag) {
    using F = typename decltype(from_tag)::type;
    sdk::visit_itemsize(to.itemsize(), [&](auto to_tag) {
      using T = typename decltype(to_tag)::type;
      sdk::parallel_for(ctx, 0, loop.numel(), kGrain, [&](int64_t begin, int64_t end) noexcept {
        F in[kBuffer];
        T out[kBuffer];
        loop.for_each_run(begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
          T* t = to.data<T>() + at[0];
          const F* f = from.data<const F>() + at[1];
          if (to_step == 1 && from_step == 1) return convert(f, t, n);
          for (int64_t i = 0; i < n; i += kBuffer) {
            const int64_t some = std::min(kBuffer, n - i);
            copy_run(in, 1, f + i * from_step, from_step, some);
            convert(in, out, some);
            copy_run(t + i * to_step, to_step, out, 1, some);
          }
        });
      });
    });
  });
}

mt_tensor contiguous_copy(mt_ctx& ctx, const sdk::TensorView& from, mt_dtype dtype,
                          int64_t* strides) {
  sdk::check_ndim(static_cast<size_t>(from.ndim()));
  int64_t stride = 1;
  for (int d = from.ndim() - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= from.size(d);
  }
  mt_tensor copy = *from.get();
  copy.dl.dtype = dtype;
  copy.dl.data = sdk::scratch<char>(ctx, from.numel() * sdk::itemsize(dtype));
  copy.dl.byte_offset = 0;
  copy.dl.strides = strides;
  copy.flags = MT_TENSOR_CONTIGUOUS;
  move(ctx, from, &copy);
  return copy;
}

IndexOperand::IndexOperand(mt_ctx& ctx, const mt_tensor* index) : tensor_(index) {
  const sdk::TensorView view = index;
  if (view.is<int64_t>()) return;
  copy_ = contiguous_copy(ctx, view, sdk::dtype_of<int64_t>, strides_);
  tensor_ = &copy_;
}

}  // namespace mytorch::cpu
