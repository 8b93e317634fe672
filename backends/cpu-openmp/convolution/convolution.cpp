// Convolution and its gradients on contiguous arrays of the compute type. Other operands are copied
// to such arrays first. 16-bit floats compute in float32, so that sums are rounded once.
#include "mytorch/abi_ops/convolution.h"

#include <algorithm>
#include <type_traits>

#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/convolution/im2col_gemm.h"
#include "backends/cpu-openmp/convolution/implicit_gemm.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::convolution_geometry;
using sdk::ConvolutionGeometry;
using sdk::TensorView;

// The compute type. bool computes as int32, which counts.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, bool>, int32_t, sdk::Widened<T>>;

// An operand as a contiguous array of T. finish() copies an output back to its tensor.
template <class T>
class Operand {
 public:
  Operand(mt_ctx& ctx, const TensorView& tensor, bool read) : ctx_(ctx), tensor_(tensor) {
    if (!tensor) return;
    if (tensor.is<T>() && tensor.is_contiguous()) {
      data_ = tensor.data<T>();
      return;
    }
    int64_t stride = 1;
    for (int d = tensor.ndim() - 1; d >= 0; --d) {
      strides_[d] = stride;
      stride *= tensor.size(d);
    }
    copy_ = *tensor.get();
    copy_.dl.dtype = sdk::dtype_of<T>;
    copy_.dl.strides = strides_;
    copy_.dl.byte_offset = 0;
    copy_.dl.data = data_ = sdk::scratch<T>(ctx, tensor.numel());
    copy_.flags = MT_TENSOR_CONTIGUOUS;
    copied_ = true;
    if (read) move(ctx, tensor, &copy_);
  }
  Operand(const Operand&) = delete;

  T* data() const { return data_; }
  void finish() {
    if (copied_) move(ctx_, &copy_, tensor_);
  }

 private:
  mt_ctx& ctx_;
  TensorView tensor_;
  T* data_ = nullptr;
  bool copied_ = false;
  mt_tensor copy_;
  int64_t strides_[8];
};

// Calls f(TypeTag) with the compute type.
template <class F>
void with_compute(mt_dtype dtype, F&& f) {
  sdk::visit_dtype(dtype,
                   [&](auto tag) { f(sdk::TypeTag<Compute<typename decltype(tag)::type>>{}); });
}

// Fills a tensor of shape (N, channels, ...) with its bias, or zeros.
template <class T>
void fill(const TensorView& tensor, T* data, const T* bias, int64_t channels) {
  const int64_t n = tensor.numel();
  const int64_t plane = n == 0 ? 1 : n / (tensor.size(0) * channels);
  for (int64_t i = 0; i < n; ++i) data[i] = bias == nullptr ? T{} : bias[i / plane % channels];
}

// The output of a convolution from its input.
void run_forward(mt_ctx& ctx, const ConvolutionGeometry& g, const TensorView& input,
                 const TensorView& weight, const TensorView& bias, const TensorView& out) {
  if (out.numel() == 0) return;
  with_compute(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    Operand<T> to(ctx, out, false);
    const Operand<T> b(ctx, bias, true);
    if (g.empty()) {
      fill(out, to.data(), b.data(), g.groups * g.out_channels);
    } else {
      const Operand<T> from(ctx, input, true);
      const Operand<T> w(ctx, weight, true);
      bool done = false;
      if constexpr (std::is_floating_point_v<T>) {
        done = implicit_forward(ctx, g, from.data(), w.data(), b.data(), to.data());
      }
      if (!done) {
        im2col_forward<T>(ctx, g, from.data(), w.data(), b.data(), to.data());
      }
    }
    to.finish();
  });
}

// The gradient of the input from that of the output, which is also the transposed convolution.
void run_backward_input(mt_ctx& ctx, const ConvolutionGeometry& g, const TensorView& output,
                        const TensorView& weight, const TensorView& bias, const TensorView& out) {
  if (out.numel() == 0) return;
  with_compute(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    Operand<T> to(ctx, out, false);
    const Operand<T> b(ctx, bias, true);
    if (g.empty()) {
      fill(out, to.data(), b.data(), g.groups * g.in_channels);
    } else {
      const Operand<T> from(ctx, output, true);
      const Operand<T> w(ctx, weight, true);
      bool done = false;
      if constexpr (std::is_floating_point_v<T>) {
        done = implicit_backward_input(ctx, g, from.data(), w.data(), b.data(), to.data());
      }
      if (!done) {
        im2col_backward_input<T>(ctx, g, from.data(), w.data(), b.data(), to.data());
      }
    }
    to.finish();
  });
}

// The gradient of the weight.
void run_backward_weight(mt_ctx& ctx, const ConvolutionGeometry& g, const TensorView& input,
                         const TensorView& output, const TensorView& out) {
  if (out.numel() == 0) return;
  with_compute(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    Operand<T> to(ctx, out, false);
    if (g.empty()) {
      std::fill_n(to.data(), out.numel(), T{});
    } else {
      const Operand<T> x(ctx, input, true);
      const Operand<T> y(ctx, output, true);
      bool done = false;
      if constexpr (std::is_floating_point_v<T>) {
        done = implicit_backward_weight(ctx, g, x.data(), y.data(), to.data());
      }
      if (!done) {
        im2col_backward_weight<T>(ctx, g, x.data(), y.data(), to.data());
      }
    }
    to.finish();
  });
}

void convolution(mt_ctx& ctx, const mt_args_convolution& args) {
  const TensorView input = args.input;
  const TensorView out = args.out;
  const TensorView weight = args.weight;
  if (args.transposed != 0) {
    run_backward_input(ctx, convolution_geometry(out, weight, input, args), input, weight,
                       args.bias, out);
  } else {
    run_forward(ctx, convolution_geometry(input, weight, out, args), input, weight, args.bias, out);
  }
}

void backward_input(mt_ctx& ctx, const mt_args_convolution_backward_input& args) {
  const TensorView grad = args.grad_output;
  const TensorView out = args.out;
  const TensorView weight = args.weight;
  if (args.transposed != 0) {
    run_forward(ctx, convolution_geometry(grad, weight, out, args), grad, weight, nullptr, out);
  } else {
    run_backward_input(ctx, convolution_geometry(out, weight, grad, args), grad, weight, nullptr,
                       out);
  }
}

void backward_weight(mt_ctx& ctx, const mt_args_convolution_backward_weight& args) {
  const bool transposed = args.transposed != 0;
  const TensorView input = transposed ? args.grad_output : args.input;
  const TensorView output = transposed ? args.input : args.grad_output;
  const TensorView out = args.out;
  run_backward_weight(ctx, convolution_geometry(input, out, output, args), input, output, out);
}

}  // namespace

void register_convolution(KernelEntries& kernels) {
  // Row-major operands only: the host converts other operands, and reports the conversions; before
  // that, it tries backends with channels-last kernels.
  kernels.push_back(sdk::kernel<&convolution>("implicit_gemm"));
  kernels.push_back(sdk::kernel<&backward_input>("implicit_gemm"));
  kernels.push_back(sdk::kernel<&backward_weight>("implicit_gemm"));
}

}  // namespace mytorch::cpu
