#include "operators.h"

#include <cmath>

#include "mytorch/backend.h"
#include "mytorch/backend/operator.h"
#include "operand.h"

namespace npu {
namespace {

// npu::rms_norm(Tensor x, *, float eps=1e-6) -> Tensor
struct RmsNormArgs {
  mt_args_header header;
  const mt_tensor* x;
  double eps;
  const mt_tensor* out;
};

// npu::rms_norm_backward(Tensor grad, Tensor x, *, float eps=1e-6) -> Tensor
struct RmsNormBackwardArgs {
  mt_args_header header;
  const mt_tensor* grad;
  const mt_tensor* x;
  double eps;
  const mt_tensor* out;
};

void infer_rms_norm(const RmsNormArgs& args, mt_result* results) {
  const sdk::TensorView x = args.x;
  if (x.shape().empty()) {
    throw sdk::Error(MT_ERROR_SHAPE, "[npu::rms_norm] x has no dimension to normalize");
  }
  if (!sdk::is_floating(x.dtype())) {
    throw sdk::Error(MT_ERROR_TYPE, "[npu::rms_norm] x must be floating");
  }
  sdk::describe(results[0], x.shape(), x.dtype());
}

void infer_rms_norm_backward(const RmsNormBackwardArgs& args, mt_result* results) {
  const sdk::TensorView x = args.x;
  const sdk::TensorView grad = args.grad;
  if (Sizes(x.shape().begin(), x.shape().end()) !=
      Sizes(grad.shape().begin(), grad.shape().end())) {
    throw sdk::Error(MT_ERROR_SHAPE, "[npu::rms_norm_backward] grad and x differ in shape");
  }
  infer_rms_norm({args.header, args.x, args.eps, nullptr}, results);
}

// Returns 1 / sqrt(mean(x^2) + eps) of a row.
double scale_of(const double* x, int64_t n, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return 1 / std::sqrt(sum / static_cast<double>(n) + eps);
}

void rms_norm(mt_ctx& ctx, const RmsNormArgs& args) {
  launch(ctx, [from = Operand(args.x), eps = args.eps, out = Operand(args.out)]() mutable {
    std::vector<double> x = read<double>(from);
    const int64_t n = from.size(-1);
    for (auto row = x.begin(); row != x.end(); row += n) {
      const double scale = scale_of(&*row, n, eps);
      for (int64_t i = 0; i < n; ++i) row[i] *= scale;
    }
    write(x, out);
  });
}

// Computes s * grad - s^3 * x * mean(grad * x) with s = scale_of(x).
void rms_norm_backward(mt_ctx& ctx, const RmsNormBackwardArgs& args) {
  launch(ctx, [g = Operand(args.grad), from = Operand(args.x), eps = args.eps,
               out = Operand(args.out)]() mutable {
    const std::vector<double> grad = read<double>(g);
    std::vector<double> x = read<double>(from);
    const int64_t n = from.size(-1);
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(n)) {
      double* row = &x[at];
      const double scale = scale_of(row, n, eps);
      double dot = 0;
      for (int64_t i = 0; i < n; ++i) dot += grad[at + static_cast<size_t>(i)] * row[i];
      dot *= scale * scale * scale / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) {
        row[i] = scale * grad[at + static_cast<size_t>(i)] - dot * row[i];
      }
    }
    write(x, out);
  });
}

}  // namespace

std::span<const mt_operator> operators() {
  // A gradient operator must precede the operator that uses it.
  static constexpr mt_operator kOperators[] = {
      sdk::custom_operator<&infer_rms_norm_backward>(
          "npu::rms_norm_backward(Tensor grad, Tensor x, *, float eps=1e-6) -> Tensor",
          "The gradient of npu::rms_norm.", "none"),
      sdk::custom_operator<&infer_rms_norm>("npu::rms_norm(Tensor x, *, float eps=1e-6) -> Tensor",
                                            "x / sqrt(mean(x^2) + eps) along the last dimension.",
                                            "npu::rms_norm_backward"),
  };
  return kOperators;
}

void add_operator_kernels(std::vector<mt_kernel_entry>& kernels) {
  constexpr uint32_t kAny = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;
  kernels.push_back(sdk::kernel_of<&rms_norm>("npu::rms_norm", 0, "chip", kAny));
  kernels.push_back(sdk::kernel_of<&rms_norm_backward>("npu::rms_norm_backward", 0, "chip", kAny));
}

}  // namespace npu
