// bmm, mm, addmm, baddbmm, linear and linear_gelu_forward. Each operator is registered once for
// every proposal of cuBLASLt, best guess first, so that measured choice (docs/choice.md) can find
// the fastest one for a shape.
#include <array>
#include <cstdint>
#include <string_view>

#include "backends/cuda/matrix/product.h"
#include "backends/cuda/registry.h"
#include "mytorch/abi_ops/addmm.h"
#include "mytorch/abi_ops/baddbmm.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/linear.h"
#include "mytorch/abi_ops/linear_gelu_forward.h"
#include "mytorch/abi_ops/mm.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// The last two dimensions; the first of three is the batch.
Matrix matrix(const TensorView& x) {
  return {x.raw(), x.stride(-2), x.stride(-1), x.ndim() == 3 ? x.stride(0) : 0};
}

Product product(const TensorView& a, const TensorView& b, const TensorView& out, int rank) {
  Product p;
  p.dtype = out.dtype();
  p.m = a.size(-2);
  p.k = a.size(-1);
  p.n = b.size(-1);
  p.batch = out.ndim() == 3 ? out.size(0) : 1;
  p.a = matrix(a);
  p.b = matrix(b);
  p.c = matrix(out);
  p.rank = rank;
  return p;
}

template <int kRank>
void mm(mt_ctx& ctx, const mt_args_mm& args) {
  multiply(ctx, product(args.self, args.mat2, args.out, kRank));
}

template <int kRank>
void bmm(mt_ctx& ctx, const mt_args_bmm& args) {
  multiply(ctx, product(args.self, args.mat2, args.out, kRank));
}

// beta * self + alpha * product; `self` broadcasts to the product's shape.
void added(mt_ctx& ctx, Product p, const TensorView& self, const TensorView& out,
           const mt_scalar& beta, const mt_scalar& alpha) {
  std::array<int64_t, 3> strides{};
  sdk::broadcast_strides(self, out.shape(), strides.data() + (3 - out.ndim()));
  p.self = {self.raw(), strides[1], strides[2], strides[0]};
  p.beta = beta;
  p.alpha = alpha;
  multiply(ctx, p);
}

template <int kRank>
void addmm(mt_ctx& ctx, const mt_args_addmm& args) {
  added(ctx, product(args.mat1, args.mat2, args.out, kRank), args.self, args.out, args.beta,
        args.alpha);
}

template <int kRank>
void baddbmm(mt_ctx& ctx, const mt_args_baddbmm& args) {
  added(ctx, product(args.batch1, args.batch2, args.out, kRank), args.self, args.out, args.beta,
        args.alpha);
}

// Leading dimensions of the input that collapse into one become the rows; a second one becomes a
// batch; others are looped over.
template <int kRank>
void linear(mt_ctx& ctx, const mt_args_linear& args) {
  const TensorView input = args.input;
  const TensorView weight = args.weight;
  const TensorView out = args.out;
  const TensorView bias = args.bias;
  const bool table =
      weight.ndim() == 2;  // else the weight is a vector, and the output has no last dimension
  Product p;
  p.dtype = out.dtype();
  p.rank = kRank;
  p.k = input.size(-1);
  p.n = table ? weight.size(0) : 1;
  p.b = {weight.raw(), weight.stride(-1), table ? weight.stride(0) : 0, 0};
  if (bias) {
    p.self = {bias.raw(), 0, bias.ndim() == 1 ? bias.stride(0) : 0, 0};
    p.beta = {{.i = 1}, MT_SCALAR_INT, 0};
  }
  const Matrix from = {input.raw(), 0, input.stride(-1), 0};
  const Matrix to = {out.raw(), 0, table ? out.stride(-1) : 1, 0};
  const sdk::StridedLoop<2> rows(input.shape().first(static_cast<size_t>(input.ndim() - 1)),
                                 {input.get()->dl.strides, out.get()->dl.strides});
  const int64_t numel = rows.numel();
  if (numel == 0) return;
  const int dims = rows.ndim();
  p.m = rows.inner_size();
  p.batch = dims >= 2 ? rows.shape()[static_cast<size_t>(dims - 2)] : 1;
  const int64_t together = p.m * p.batch;
  for (int64_t i = 0; i < numel; i += together) {
    rows.for_each_run(i, i + 1, [&](const std::array<int64_t, 2>& at, int64_t) {
      p.a = p.at(from, at[0]);
      p.c = p.at(to, at[1]);
    });
    p.a.row = rows.inner_stride(0);
    p.c.row = rows.inner_stride(1);
    if (dims >= 2) {
      p.a.batch = rows.stride(0, dims - 2);
      p.c.batch = rows.stride(1, dims - 2);
    }
    multiply(ctx, p);
  }
}

// One fused kernel, if the library has one: tanh gelu of 16-bit floats.
template <int kRank>
void linear_gelu(mt_ctx& ctx, const mt_args_linear_gelu_forward& args) {
  const TensorView input = args.input, weight = args.weight, bias = args.bias, out = args.output;
  const TensorView kept = args.linear;
  if (std::string_view(args.approximate) != "tanh" || out.dtype().bits != 16 ||
      weight.ndim() != 2 || out.numel() == 0 || !out.is_contiguous() ||
      (args.keep_linear != 0 && !kept.is_contiguous())) {
    throw sdk::Declined{};
  }
  const sdk::StridedLoop<1> rows(input.shape().first(static_cast<size_t>(input.ndim() - 1)),
                                 {input.get()->dl.strides});
  if (rows.ndim() > 1) throw sdk::Declined{};
  Product p;
  p.dtype = out.dtype();
  p.rank = kRank;
  p.m = rows.numel();
  p.n = weight.size(0);
  p.k = input.size(-1);
  p.a = {input.raw(), rows.inner_stride(0), input.stride(-1), 0};
  p.b = {weight.raw(), weight.stride(1), weight.stride(0), 0};
  p.c = {out.raw(), p.n, 1, 0};
  if (bias) {
    p.self = {bias.raw(), 0, bias.ndim() == 1 ? bias.stride(0) : 0, 0};
    p.beta = {{.i = 1}, MT_SCALAR_INT, 0};
  }
  p.gelu = true;
  if (args.keep_linear != 0) p.before = kept.raw();
  if (p.k == 0 || !multiply_lt(ctx, p)) throw sdk::Declined{};
}

template <int kRank>
void register_rank(KernelEntries& kernels, const char* name) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&bmm<kRank>>(name, kTakes, -kRank));
  kernels.push_back(sdk::kernel<&mm<kRank>>(name, kTakes, -kRank));
  kernels.push_back(sdk::kernel<&addmm<kRank>>(name, kTakes, -kRank));
  kernels.push_back(sdk::kernel<&baddbmm<kRank>>(name, kTakes, -kRank));
  kernels.push_back(sdk::kernel<&linear<kRank>>(name, kTakes, -kRank));
  kernels.push_back(sdk::kernel<&linear_gelu<kRank>>(name, kTakes, -kRank));
}

}  // namespace

void register_matrix(KernelEntries& kernels) {
  register_rank<0>(kernels, "cublaslt");
  register_rank<1>(kernels, "cublaslt_2");
  register_rank<2>(kernels, "cublaslt_3");
  register_rank<3>(kernels, "cublaslt_4");
  register_linear_gelu_backward(kernels);
}

}  // namespace mytorch::cuda
