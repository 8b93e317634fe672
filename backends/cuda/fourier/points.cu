#include <cstdint>
#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/fourier/points.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

template <class T>
struct Point {
  T real, imaginary;
};

__device__ inline float scaled(float x, float factor) { return x * factor; }
__device__ inline double scaled(double x, double factor) { return x * factor; }
template <class T>
__device__ inline Point<T> scaled(Point<T> x, T factor) {
  return {x.real * factor, x.imaginary * factor};
}

template <class To>
__device__ inline To as_point(To x) {
  return x;
}
template <class To, class T>
__device__ inline To as_point(T x) requires(!std::is_same_v<To, T>) {
  return {x, 0};
}

template <class From, class To, class T>
__global__ void copy_points_kernel(Strided<2> loop, To* to, const From* from, T factor) {
  for (int64_t i = first_element(); i < loop.numel; i += grid_step()) {
    int64_t at[2];
    loop.offsets(i, at);
    to[at[0]] = as_point<To>(scaled(from[at[1]], factor));
  }
}

template <class T>
__global__ void make_real_kernel(Strided<1> loop, Point<T>* to) {
  for (int64_t i = first_element(); i < loop.numel; i += grid_step()) {
    int64_t at[1];
    loop.offsets(i, at);
    to[at[0]].imaginary = 0;
  }
}

template <class T, class From, class To>
void write_points(mt_ctx& ctx, const TensorView& from, const TensorView& to, double factor) {
  const auto loop = make_strided<2>(to.shape(), {to, from});
  launch(ctx, "copy_points", copy_points_kernel<From, To, T>, grid_for(ctx, loop.numel, 256), loop,
         to.data<To>(), from.data<const From>(), static_cast<T>(factor));
}

template <class T>
void copy_of_type(mt_ctx& ctx, const TensorView& from, const TensorView& to, double factor) {
  if (!sdk::is_complex(to.dtype())) return write_points<T, T, T>(ctx, from, to, factor);
  if (!sdk::is_complex(from.dtype())) return write_points<T, T, Point<T>>(ctx, from, to, factor);
  write_points<T, Point<T>, Point<T>>(ctx, from, to, factor);
}

template <class T>
void make_real(mt_ctx& ctx, const TensorView& x, int64_t offset) {
  const auto loop = make_strided<1>(x.shape(), {x});
  launch(ctx, "make_ends_real", make_real_kernel<T>, grid_for(ctx, loop.numel, 256), loop,
         x.data<Point<T>>() + offset);
}

}  // namespace

void copy_points(mt_ctx& ctx, const TensorView& from, const TensorView& to, double factor) {
  if (to.numel() == 0) return;
  const bool single = to.dtype().bits == (sdk::is_complex(to.dtype()) ? 64 : 32);
  single ? copy_of_type<float>(ctx, from, to, factor) : copy_of_type<double>(ctx, from, to, factor);
}

void make_ends_real(mt_ctx& ctx, const TensorView& x, int dim, bool last) {
  mt_tensor end = *x.get();
  int64_t shape[sdk::kMaxDims];
  for (int d = 0; d < x.ndim(); ++d) shape[d] = d == dim ? 1 : x.size(d);
  end.dl.shape = shape;
  end.flags = 0;
  const auto at = [&](int64_t index) {
    const int64_t offset = index * x.stride(dim);
    x.dtype().bits == 64 ? make_real<float>(ctx, &end, offset)
                         : make_real<double>(ctx, &end, offset);
  };
  at(0);
  if (last && x.size(dim) > 1) at(x.size(dim) - 1);
}

}  // namespace mytorch::cuda
