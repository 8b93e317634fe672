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

using sdk::Convolution;
using sdk::ConvolutionGeometry;
using sdk::TensorView;

// The compute type. bool computes as int32, which counts.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, bool>, int32_t, sdk::Widened<T>>;

// An operand as a contiguous array of T. finish() copies an output back to its tensor.
template <class T>
class ConvolutionOperand {
 public:
  ConvolutionOperand(mt_ctx& ctx, const TensorView& tensor, bool read)
      : ctx_(ctx), tensor_(tensor) {
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
  ConvolutionOperand(const ConvolutionOperand&) = delete;

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

// Fills a tensor of shape (N, channels, ...) with its bias, or zeros.
template <class T>
void fill(const TensorView& tensor, T* data, const T* bias, int64_t channels) {
  const int64_t n = tensor.numel();
  const int64_t plane = n == 0 ? 1 : n / (tensor.size(0) * channels);
  for (int64_t i = 0; i < n; ++i) data[i] = bias == nullptr ? T{} : bias[i / plane % channels];
}

// The output of a convolution, or its input: the gradient, which is also the transposed
// convolution.
template <class T>
void run_forward_or_back(mt_ctx& ctx, const Convolution& call, T* to) {
  const ConvolutionGeometry& g = call.geometry;
  const bool forward = call.computed == Convolution::kOutput;
  const ConvolutionOperand<T> bias(ctx, call.bias, true);
  if (g.empty()) {
    return fill(call.result(), to, bias.data(),
                g.groups * (forward ? g.out_channels : g.in_channels));
  }
  const ConvolutionOperand<T> from(ctx, forward ? call.input : call.output, true);
  const ConvolutionOperand<T> weight(ctx, call.weight, true);
  if constexpr (std::is_floating_point_v<T>) {
    const auto implicit = forward ? &implicit_forward<T> : &implicit_backward_input<T>;
    if (implicit(ctx, g, from.data(), weight.data(), bias.data(), to)) return;
  }
  const auto by_im2col = forward ? &im2col_forward<T> : &im2col_backward_input<T>;
  by_im2col(ctx, g, from.data(), weight.data(), bias.data(), to);
}

// The gradient of the weight.
template <class T>
void run_backward_weight(mt_ctx& ctx, const Convolution& call, T* to) {
  const ConvolutionGeometry& g = call.geometry;
  if (g.empty()) {
    std::fill_n(to, call.weight.numel(), T{});
    return;
  }
  const ConvolutionOperand<T> input(ctx, call.input, true);
  const ConvolutionOperand<T> output(ctx, call.output, true);
  if constexpr (std::is_floating_point_v<T>) {
    if (implicit_backward_weight(ctx, g, input.data(), output.data(), to)) return;
  }
  im2col_backward_weight<T>(ctx, g, input.data(), output.data(), to);
}

void run(mt_ctx& ctx, const Convolution& call) {
  const TensorView out = call.result();
  if (out.numel() == 0) return;
  sdk::visit_dtype(out.dtype(), [&](auto tag) {
    using T = Compute<typename decltype(tag)::type>;
    ConvolutionOperand<T> to(ctx, out, false);
    if (call.computed == Convolution::kWeight) {
      run_backward_weight(ctx, call, to.data());
    } else {
      run_forward_or_back(ctx, call, to.data());
    }
    to.finish();
  });
}

template <class Args>
void convolution(mt_ctx& ctx, const Args& args) {
  run(ctx, Convolution(args));
}

}  // namespace

void register_convolution(KernelEntries& kernels) {
  // Row-major operands only: the host converts other operands, and reports the conversions; before
  // that, it tries backends with channels-last kernels.
  kernels.push_back(sdk::kernel<&convolution<mt_args_convolution>>("implicit_gemm"));
  kernels.push_back(sdk::kernel<&convolution<mt_args_convolution_backward_input>>("implicit_gemm"));
  kernels.push_back(
      sdk::kernel<&convolution<mt_args_convolution_backward_weight>>("implicit_gemm"));
}

}  // namespace mytorch::cpu
