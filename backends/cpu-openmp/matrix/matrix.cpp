#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/gemm/gemm.h"
#include "backends/cpu-openmp/matrix/inner_product.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/addmm.h"
#include "mytorch/abi_ops/baddbmm.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/linear.h"
#include "mytorch/abi_ops/mm.h"
#include "mytorch/abi_ops/vdot.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Throws an Error for a status of gemm() other than MT_OK.
void check(int status, const char* op) {
  if (status != MT_OK) {
    throw sdk::Error(status, std::string("[") + op + "] the matrix product failed");
  }
}

// C = A B of the last two dimensions, batched over the first of three dimensions.
GemmProblem product(const TensorView& a, const TensorView& b, const TensorView& c) {
  GemmProblem p;
  p.dtype = c.dtype();
  p.m = a.size(-2);
  p.k = a.size(-1);
  p.n = b.size(-1);
  p.a = {a.raw(), a.stride(-2), a.stride(-1)};
  p.b = {b.raw(), b.stride(-2), b.stride(-1)};
  p.c = {c.raw(), c.stride(-2), c.stride(-1)};
  if (c.ndim() == 3) {
    p.batch = c.size(0);
    p.a_batch_stride = a.stride(0);
    p.b_batch_stride = b.stride(0);
    p.c_batch_stride = c.stride(0);
  }
  return p;
}

void bmm(mt_ctx& ctx, const mt_args_bmm& args) {
  check(gemm(&ctx, product(args.self, args.mat2, args.out)), "bmm");
}

void mm(mt_ctx& ctx, const mt_args_mm& args) {
  check(gemm(&ctx, product(args.self, args.mat2, args.out)), "mm");
}

// The same product with rows and columns exchanged: C^T = B^T A^T.
GemmProblem flipped(const GemmProblem& p) {
  GemmProblem q = p;
  q.m = p.n;
  q.n = p.m;
  q.a = {p.b.data, p.b.col_stride, p.b.row_stride};
  q.b = {p.a.data, p.a.col_stride, p.a.row_stride};
  q.c = {p.c.data, p.c.col_stride, p.c.row_stride};
  q.a_batch_stride = p.b_batch_stride;
  q.b_batch_stride = p.a_batch_stride;
  return q;
}

bool equals(const mt_scalar& scalar, int64_t value) {
  return scalar.kind == MT_SCALAR_FLOAT ? scalar.v.d == static_cast<double>(value)
                                        : scalar.v.i == value;
}

// out = beta * self + alpha * out, `self` broadcast; without `with_self`, out = alpha * out.
void blend(mt_ctx& ctx, const TensorView& self, const TensorView& out, const mt_scalar& beta,
           const mt_scalar& alpha, bool with_self) {
  const auto loop = sdk::make_loop<2>(out.shape(), {out, with_self ? self : out});
  sdk::visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool>) {
      throw sdk::Error(MT_ERROR_TYPE, "[addmm] bool has no sum of products");
    } else {
      // Unsigned arithmetic wraps; signed overflow would be undefined.
      using W = typename std::conditional_t<std::is_integral_v<T>, std::type_identity<uint64_t>,
                                            std::type_identity<sdk::Widened<T>>>::type;
      const W b =
          static_cast<W>(sdk::to<std::conditional_t<sdk::is_float_type<T>, W, int64_t>>(beta));
      const W a =
          static_cast<W>(sdk::to<std::conditional_t<sdk::is_float_type<T>, W, int64_t>>(alpha));
      T* to = out.data<T>();
      const T* from = self.data<const T>();
      sdk::parallel_for(ctx, 0, loop.numel(), 16384, [&](int64_t begin, int64_t end) noexcept {
        loop.for_each_run(begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
          T* y = to + at[0];
          const T* x = from + at[1];
          const int64_t ys = loop.inner_stride(0);
          const int64_t xs = loop.inner_stride(1);
          for (int64_t i = 0; i < n; ++i) {
            W value = a * static_cast<W>(y[i * ys]);
            if (with_self) value = b * static_cast<W>(x[i * xs]) + value;
            y[i * ys] = T(value);
          }
        });
      });
    }
  });
}

// out = beta * self + alpha * product. `self` broadcasts to the product's shape.
void added(mt_ctx& ctx, const TensorView& self, GemmProblem p, const TensorView& out,
           const mt_scalar& beta, mt_scalar alpha, const char* op) {
  if (p.k != 0 && sdk::is_floating(out.dtype())) {  // before the sums are rounded
    p.alpha = sdk::to<double>(alpha);
    alpha.kind = MT_SCALAR_INT;
    alpha.v.i = 1;
  }
  const bool plain = equals(alpha, 1) || p.k == 0;
  // A product replaces its output, so it cannot read it, except to add to it.
  if (out.numel() == 0) return;
  const bool in_place = self.raw() == out.raw();
  if (out.raw() == p.a.data || out.raw() == p.b.data) throw sdk::Declined{};
  if (in_place && !equals(beta, 0) && (!plain || !equals(beta, 1))) throw sdk::Declined{};
  // With beta 0, a NaN in self has no effect.
  if (equals(beta, 0)) {
    check(gemm(&ctx, p), op);
    if (!plain) blend(ctx, self, out, beta, alpha, false);
    return;
  }
  if (!plain || !equals(beta, 1)) {
    check(gemm(&ctx, p), op);
    blend(ctx, self, out, beta, alpha, true);
    return;
  }
  std::array<int64_t, sdk::kMaxDims> strides;
  sdk::broadcast_strides(self, out.shape(), strides.data());
  const int ndim = out.ndim();
  const bool one_batch = ndim == 2 || p.batch == 1 || strides[0] == 0;
  if (in_place) {
    p.accumulate = true;
  } else if (one_batch && (strides[ndim - 2] == 0 || p.m == 1)) {
    p.bias = self.raw();
    p.bias_stride = strides[ndim - 1];
  } else if (one_batch && (strides[ndim - 1] == 0 || p.n == 1)) {
    p = flipped(p);
    p.bias = self.raw();
    p.bias_stride = strides[ndim - 2];
  } else {
    move(ctx, self, out);
    p.accumulate = true;
  }
  check(gemm(&ctx, p), op);
}

void addmm(mt_ctx& ctx, const mt_args_addmm& args) {
  added(ctx, args.self, product(args.mat1, args.mat2, args.out), args.out, args.beta, args.alpha,
        "addmm");
}

void baddbmm(mt_ctx& ctx, const mt_args_baddbmm& args) {
  added(ctx, args.self, product(args.batch1, args.batch2, args.out), args.out, args.beta,
        args.alpha, "baddbmm");
}

// The leading dimensions of the input collapse if the strides allow it. A single remaining
// dimension is the rows of a matrix, two are a batch of matrices, and further ones are a loop over
// batches.
void linear(mt_ctx& ctx, const mt_args_linear& args) {
  const TensorView input = args.input;
  const TensorView weight = args.weight;
  const TensorView out = args.out;
  const TensorView bias = args.bias;
  GemmProblem p;
  p.dtype = out.dtype();
  p.k = input.size(-1);
  p.n = weight.ndim() == 2 ? weight.size(0) : 1;
  const int64_t out_step = weight.ndim() == 2 ? out.stride(-1) : 1;
  // weight^T, (in, out)
  p.b = {weight.raw(), weight.stride(-1), weight.ndim() == 2 ? weight.stride(0) : 0};
  if (bias) {
    p.bias = bias.raw();
    p.bias_stride = bias.ndim() == 1 ? bias.stride(0) : 0;
  }
  const auto at = [&](const TensorView& tensor, int64_t offset) {
    return static_cast<void*>(tensor.data<char>() + offset * tensor.itemsize());
  };
  const size_t lead = static_cast<size_t>(input.ndim() - 1);
  const sdk::StridedLoop<2> rows(input.shape().first(lead),
                                 {input.get()->dl.strides, out.get()->dl.strides});
  if (rows.numel() == 0) return;
  const int dims = rows.ndim();
  p.m = rows.inner_size();
  const int64_t in_row = rows.inner_stride(0);
  const int64_t out_row = rows.inner_stride(1);
  if (dims >= 2) {
    p.batch = rows.shape()[static_cast<size_t>(dims - 2)];
    p.a_batch_stride = rows.stride(0, dims - 2);
    p.c_batch_stride = rows.stride(1, dims - 2);
  }
  const int64_t together = p.m * p.batch;
  std::array<int64_t, 2> offset{};
  std::array<int64_t, sdk::kMaxDims> index{};
  for (int64_t i = 0; i < rows.numel(); i += together) {
    p.a = {at(input, offset[0]), in_row, input.stride(-1)};
    p.c = {at(out, offset[1]), out_row, out_step};
    check(gemm(&ctx, p), "linear");
    for (int d = dims - 3; d >= 0; --d) {
      offset[0] += rows.stride(0, d);
      offset[1] += rows.stride(1, d);
      if (++index[static_cast<size_t>(d)] < rows.shape()[static_cast<size_t>(d)]) break;
      index[static_cast<size_t>(d)] = 0;
      offset[0] -= rows.shape()[static_cast<size_t>(d)] * rows.stride(0, d);
      offset[1] -= rows.shape()[static_cast<size_t>(d)] * rows.stride(1, d);
    }
  }
}

// The complex numbers of a piece of an inner product. Vectors add in T within a piece, and pieces
// in double. The size is fixed, so that bits do not depend on the number of threads.
constexpr int64_t kPiece = 2048;
constexpr int64_t kPieces = 16;  // for one thread

// Returns n complex numbers from element `first` on as a contiguous array: in place, or in
// `buffer`.
template <class T>
const T* piece_of(const TensorView& tensor, int64_t first, int64_t n, T* buffer) {
  const int64_t step = 2 * tensor.stride(0);
  const T* from = static_cast<const T*>(tensor.raw()) + first * step;
  if (step == 2) return from;
  for (int64_t i = 0; i < n; ++i) {
    buffer[2 * i] = from[i * step];
    buffer[2 * i + 1] = from[i * step + 1];
  }
  return buffer;
}

template <class T>
void vdot_of(mt_ctx& ctx, const TensorView& self, const TensorView& other, const TensorView& out) {
  const int64_t count = self.numel(), pieces = (count + kPiece - 1) / kPiece;
  std::vector<double> sums(static_cast<size_t>(2 * pieces), 0.0);
  const auto add = inner_products<T>().conjugated;
  sdk::parallel_for(ctx, 0, pieces, kPieces, [&](int64_t begin, int64_t end) noexcept {
    T buffers[2][2 * kPiece];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * kPiece, n = std::min(kPiece, count - first);
      add(piece_of(self, first, n, buffers[0]), piece_of(other, first, n, buffers[1]), n,
          &sums[static_cast<size_t>(2 * i)]);
    }
  });
  // Eight sums at a time, which do not wait for each other.
  double parts[8] = {};
  for (size_t i = 0; i < sums.size(); ++i) parts[i % 8] += sums[i];
  T* to = static_cast<T*>(out.raw());
  to[0] = static_cast<T>((parts[0] + parts[2]) + (parts[4] + parts[6]));
  to[1] = static_cast<T>((parts[1] + parts[3]) + (parts[5] + parts[7]));
}

const char* vdot_supports(const mt_args_vdot& args) {
  return sdk::is_complex(args.self->dl.dtype) ? nullptr : "only complex numbers";
}

// Inner products of complex vectors in one pass. Those of real vectors are products of matrices.
void vdot(mt_ctx& ctx, const mt_args_vdot& args) {
  const TensorView self = args.self, other = args.other, out = args.out;
  if (self.itemsize() == 2 * sizeof(float)) {
    vdot_of<float>(ctx, self, other, out);
  } else {
    vdot_of<double>(ctx, self, other, out);
  }
}

}  // namespace

void register_matrix(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&bmm>("packed_gemm", kTakes));
  kernels.push_back(sdk::kernel<&mm>("packed_gemm", kTakes));
  kernels.push_back(sdk::kernel<&addmm>("packed_gemm", kTakes | MT_TAKES_ALIAS));
  kernels.push_back(sdk::kernel<&baddbmm>("packed_gemm", kTakes | MT_TAKES_ALIAS));
  kernels.push_back(sdk::kernel<&linear>("packed_gemm", kTakes));
  kernels.push_back(sdk::kernel<&vdot, &vdot_supports>("one_pass", kTakes | MT_TAKES_COMPLEX));
}

}  // namespace mytorch::cpu
