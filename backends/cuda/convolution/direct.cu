// Direct convolutions by their definition, one thread or block per output element, for types that
// cuDNN does not support and calls that it declines.
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/convolution/convolution.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Strides of (batch, channel, three spatial dimensions), or of (out, in, three) for the weight.
struct Strides {
  int64_t at[5] = {};

  explicit Strides(const TensorView& x) {
    at[0] = x.stride(0);
    at[1] = x.stride(1);
    for (int d = 2; d < x.ndim(); ++d) at[5 - x.ndim() + d] = x.stride(d);
  }
#ifdef __CUDACC__
  __device__ __forceinline__ int64_t place(int64_t n, int64_t c, int64_t x, int64_t y,
                                           int64_t z) const {
    return n * at[0] + c * at[1] + x * at[2] + y * at[3] + z * at[4];
  }
#endif
};

struct Operands {
  sdk::ConvolutionGeometry g;
  Strides input, weight, output;
};

// The coordinates of element i of (batch, channels, spatial).
struct Place {
  int64_t n, c, x[3];

  __device__ Place(int64_t i, int64_t channels, const sdk::Spatial& size) {
    for (int d = 2; d >= 0; --d) {
      x[d] = i % size[d];
      i /= size[d];
    }
    c = i % channels;
    n = i / channels;
  }
};

template <class T>
__global__ void __launch_bounds__(256)
    output_elements(Operands o, int64_t numel, const T* input, const T* weight, const T* bias,
                    int64_t bias_step, T* output) {
  const sdk::ConvolutionGeometry& g = o.g;
  for (int64_t i = first_element(); i < numel; i += grid_step()) {
    const Place s(i, g.groups * g.out_channels, g.output);
    const int64_t first = s.c / g.out_channels * g.in_channels;
    Sum<T> sum = bias == nullptr ? Sum<T>(0) : as_sum(bias[s.c * bias_step]);
    for (int64_t c = 0; c < g.in_channels; ++c) {
      for (int64_t k0 = 0; k0 < g.kernel[0]; ++k0) {
        const int64_t b0 = g.window(0).place(s.x[0], k0);
        if (b0 < 0 || b0 >= g.input[0]) continue;
        for (int64_t k1 = 0; k1 < g.kernel[1]; ++k1) {
          const int64_t b1 = g.window(1).place(s.x[1], k1);
          if (b1 < 0 || b1 >= g.input[1]) continue;
          for (int64_t k2 = 0; k2 < g.kernel[2]; ++k2) {
            const int64_t b2 = g.window(2).place(s.x[2], k2);
            if (b2 < 0 || b2 >= g.input[2]) continue;
            sum += as_sum(input[o.input.place(s.n, first + c, b0, b1, b2)]) *
                   as_sum(weight[o.weight.place(s.c, c, k0, k1, k2)]);
          }
        }
      }
    }
    output[o.output.place(s.n, s.c, s.x[0], s.x[1], s.x[2])] = sum_as<T>(sum);
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    input_elements(Operands o, int64_t numel, const T* output, const T* weight, const T* bias,
                   int64_t bias_step, T* input) {
  const sdk::ConvolutionGeometry& g = o.g;
  // The output position whose window has element b at tap k; false if there is none.
  const auto window = [&](int d, int64_t b, int64_t k, int64_t& s) {
    s = b + g.padding[d] - k * g.dilation[d];
    if (s < 0 || s % g.stride[d] != 0) return false;
    s /= g.stride[d];
    return s < g.output[d];
  };
  for (int64_t i = first_element(); i < numel; i += grid_step()) {
    const Place b(i, g.groups * g.in_channels, g.input);
    const int64_t group = b.c / g.in_channels, own = b.c % g.in_channels;
    Sum<T> sum = bias == nullptr ? Sum<T>(0) : as_sum(bias[b.c * bias_step]);
    for (int64_t c = group * g.out_channels; c < (group + 1) * g.out_channels; ++c) {
      int64_t s0, s1, s2;
      for (int64_t k0 = 0; k0 < g.kernel[0]; ++k0) {
        if (!window(0, b.x[0], k0, s0)) continue;
        for (int64_t k1 = 0; k1 < g.kernel[1]; ++k1) {
          if (!window(1, b.x[1], k1, s1)) continue;
          for (int64_t k2 = 0; k2 < g.kernel[2]; ++k2) {
            if (!window(2, b.x[2], k2, s2)) continue;
            sum += as_sum(output[o.output.place(b.n, c, s0, s1, s2)]) *
                   as_sum(weight[o.weight.place(c, own, k0, k1, k2)]);
          }
        }
      }
    }
    input[o.input.place(b.n, b.c, b.x[0], b.x[1], b.x[2])] = sum_as<T>(sum);
  }
}

constexpr int kWeightShares = 128;  // threads that share the sum for one element of the weight

template <class T>
__global__ void __launch_bounds__(kWeightShares)
    weight_elements(Operands o, int64_t numel, const T* input, const T* output, T* weight) {
  const sdk::ConvolutionGeometry& g = o.g;
  __shared__ Sum<T> parts[kWeightShares];
  const int64_t plane = g.output[0] * g.output[1] * g.output[2];
  for (int64_t i = blockIdx.x; i < numel; i += gridDim.x) {
    const Place w(i, g.in_channels, g.kernel);  // n: the output channel
    const int64_t channel = w.n / g.out_channels * g.in_channels + w.c;
    Sum<T> sum = 0;
    for (int64_t j = threadIdx.x; j < g.batch * plane; j += kWeightShares) {
      const Place s(j, 1, g.output);
      int64_t b[3];
      bool inside = true;
      for (int d = 0; d < 3; ++d) {
        b[d] = g.window(d).place(s.x[d], w.x[d]);
        inside = inside && b[d] >= 0 && b[d] < g.input[d];
      }
      if (!inside) continue;
      sum += as_sum(input[o.input.place(s.n, channel, b[0], b[1], b[2])]) *
             as_sum(output[o.output.place(s.n, w.n, s.x[0], s.x[1], s.x[2])]);
    }
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int half = kWeightShares / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      weight[o.weight.place(w.n, w.c, w.x[0], w.x[1], w.x[2])] = sum_as<T>(parts[0]);
    }
    __syncthreads();
  }
}

template <class T>
__global__ void add_channels(Strided<2> loop, T* out, const T* bias) {
  for (int64_t i = first_element(); i < loop.numel; i += grid_step()) {
    int64_t at[2];
    loop.offsets(i, at);
    out[at[0]] = sum_as<T>(as_sum(out[at[0]]) + as_sum(bias[at[1]]));
  }
}

}  // namespace

void convolve_direct(mt_ctx& ctx, const Convolution& call) {
  const TensorView out = call.result();
  const int64_t numel = out.numel();
  if (numel == 0) return;
  const Operands o{call.geometry, Strides(call.input), Strides(call.weight), Strides(call.output)};
  visit_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* input = call.input.data<T>();
    T* weight = call.weight.data<T>();
    T* output = call.output.data<T>();
    const T* bias = call.bias ? call.bias.data<T>() : nullptr;
    const int64_t step = call.bias ? call.bias.stride(0) : 0;
    if (call.computed == Convolution::kOutput) {
      launch(ctx, "output_elements", output_elements<T>, grid_for(ctx, numel, 256), o, numel, input,
             weight, bias, step, output);
    } else if (call.computed == Convolution::kInput) {
      launch(ctx, "input_elements", input_elements<T>, grid_for(ctx, numel, 256), o, numel, output,
             weight, bias, step, input);
    } else {
      launch(ctx, "weight_elements", weight_elements<T>,
             grid_for(ctx, numel * kWeightShares, kWeightShares), o, numel, input, output, weight);
    }
  });
}

void add_bias(mt_ctx& ctx, const TensorView& out, const TensorView& bias) {
  sdk::check_ndim(static_cast<size_t>(out.ndim()));
  int64_t strides[sdk::kMaxDims] = {};
  strides[1] = bias.stride(0);
  const Strided<2> loop(sdk::StridedLoop<2>(out.shape(), {out.get()->dl.strides, strides}));
  visit_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "add_channels", add_channels<T>, grid_for(ctx, loop.numel, 256), loop,
           out.data<T>(), static_cast<const T*>(bias.raw()));
  });
}

}  // namespace mytorch::cuda
