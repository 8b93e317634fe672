// Products of two matrices or two batches of matrices, and sums with them. These kernels are the
// last choice, so that the smallest products, which take a tenth of a microsecond, find a kernel
// that takes every call first in the table. Measured choice finds the products that benefit.
#include <algorithm>

#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/matrix/product.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/addmm.h"
#include "mytorch/abi_ops/baddbmm.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/mm.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using sdk::TensorView;

const char* product_reason(const TensorView& a, const TensorView& b, const TensorView& c) {
  for (const TensorView& operand : {a, b, c}) {
    if (const char* reason = matrix_reason(operand)) return reason;
    if (!sdk::same_dtype(operand.dtype(), c.dtype())) return "[dtype] the operands' types differ";
  }
  if (c.size(-1) != 1 && c.stride(-1) != 1) return "the rows of the result are not contiguous";
  return nullptr;
}

// c = a b
void multiply(mt_ctx& ctx, uint64_t kind, const TensorView& a, const TensorView& b,
              const TensorView& c) {
  run(ctx, Key(kind, {a.get(), b.get(), c.get()}), {a, b, c}, [&] {
    const Desc of_a = describe_matrix(a), of_b = describe_matrix(b), of_c = describe_matrix(c);
    Plan plan(matmul(attributes(), of_a, of_b, Desc(), of_c));
    plan.input(DNNL_ARG_SRC, of_a);
    plan.input(DNNL_ARG_WEIGHTS, of_b);
    plan.output(DNNL_ARG_DST, of_c);
    return plan;
  });
}

double number(const mt_scalar& scalar) { return sdk::to<double>(scalar); }

template <class Args>
const char* sum_reason(const TensorView& self, const TensorView& a, const TensorView& b,
                       const Args& args) {
  if (const char* reason = product_reason(a, b, args.out)) return reason;
  const double beta = number(args.beta);
  if (beta != 0 && beta != 1) return "beta is neither 0 nor 1";
  if (beta == 0) return nullptr;
  if (!sdk::is_dtype<float>(self.dtype())) return float_type_reason(self.dtype());
  if (!self.is_contiguous()) return "the added operand is not contiguous";
  return self.numel() == 0 ? "an operand has no elements" : nullptr;
}

// c = beta self + alpha a b. `self` is added in the epilogue, broadcast in dimensions of size 1.
template <class Args>
void sum(mt_ctx& ctx, uint64_t kind, const TensorView& self, const TensorView& a,
         const TensorView& b, const Args& args) {
  const TensorView c = args.out;
  const float alpha = static_cast<float>(number(args.alpha));
  const bool adds = number(args.beta) != 0;
  Key key(kind, {a.get(), b.get(), c.get(), adds ? self.get() : nullptr});
  key.number(double{alpha});
  run(ctx, key, {a, b, c, adds ? self : TensorView()}, [&] {
    const Desc of_a = describe_matrix(a), of_b = describe_matrix(b), of_c = describe_matrix(c);
    Attr attr = attributes();
    dnnl::post_ops after;
    if (alpha != 1) append_linear(after, alpha);
    Desc of_self;
    if (adds) {
      const size_t n = static_cast<size_t>(c.ndim()),
                   missing = n - static_cast<size_t>(self.ndim());
      Dims shape(n, 1);
      std::copy(self.shape().begin(), self.shape().end(),
                shape.begin() + static_cast<int64_t>(missing));
      of_self = describe_contiguous(self.dtype(), shape);
      after.append_binary(dnnl::algorithm::binary_add, of_self);
    }
    attr.set_post_ops(after);
    Plan plan(matmul(attr, of_a, of_b, Desc(), of_c));
    plan.input(DNNL_ARG_SRC, of_a);
    plan.input(DNNL_ARG_WEIGHTS, of_b);
    plan.output(DNNL_ARG_DST, of_c);
    if (adds) {
      plan.input(DNNL_ARG_ATTR_MULTIPLE_POST_OP(after.len() - 1) | DNNL_ARG_SRC_1, of_self);
    }
    return plan;
  });
}

// ---- the operators ----------------------------------------------------------------------------

template <class Args>
const char* product_supports(const Args& args) {
  return product_reason(args.self, args.mat2, args.out);
}
template <class Args, uint64_t kKind>
void product(mt_ctx& ctx, const Args& args) {
  multiply(ctx, kKind, args.self, args.mat2, args.out);
}

const char* addmm_supports(const mt_args_addmm& args) {
  return sum_reason(args.self, args.mat1, args.mat2, args);
}
void addmm(mt_ctx& ctx, const mt_args_addmm& args) {
  sum(ctx, MT_HASH_addmm, args.self, args.mat1, args.mat2, args);
}
const char* baddbmm_supports(const mt_args_baddbmm& args) {
  return sum_reason(args.self, args.batch1, args.batch2, args);
}
void baddbmm(mt_ctx& ctx, const mt_args_baddbmm& args) {
  sum(ctx, MT_HASH_baddbmm, args.self, args.batch1, args.batch2, args);
}

}  // namespace

void register_matrix(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&product<mt_args_mm, MT_HASH_mm>, &product_supports<mt_args_mm>>(
      "onednn_matmul", kTakes, kLast));
  kernels.push_back(sdk::kernel<&product<mt_args_bmm, MT_HASH_bmm>, &product_supports<mt_args_bmm>>(
      "onednn_matmul", kTakes, kLast));
  kernels.push_back(sdk::kernel<&addmm, &addmm_supports>("onednn_matmul", kTakes, kLast));
  kernels.push_back(sdk::kernel<&baddbmm, &baddbmm_supports>("onednn_matmul", kTakes, kLast));
}

}  // namespace mytorch::onednn
