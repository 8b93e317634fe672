// The QR factorization, and the product of its reflectors.
#include <algorithm>
#include <cstdint>

#include "backends/cpu-lapack/common/routines.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/registry.h"
#include "mytorch/abi_ops/geqrf.h"
#include "mytorch/abi_ops/linalg_householder_product.h"
#include "mytorch/abi_ops/linalg_qr.h"
#include "mytorch/backend.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::lapack {
namespace {

using sdk::Matrices;

// Columns that LAPACK updates together; its blocked routines want this many times the columns as
// work area.
constexpr int64_t kBlock = 64;

const char* qr_supports(const mt_args_geqrf& args) { return size_reason(args.self); }

void qr(mt_ctx& ctx, const mt_args_geqrf& args) {
  const auto batch = sdk::batch_shape(args.self);
  sdk::visit_matrix_type(sdk::TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.self, batch);
    const Matrices<T> to(args.a, batch), factors(args.tau, batch, 1);
    const int64_t m = from.rows(), n = from.columns(), k = std::min(m, n);
    if (k == 0) return;
    const bool in_place = to.in_columns();
    const int64_t work = n * kBlock;
    each_matrix<T>(ctx, from.count(), k, k + work + (in_place ? 0 : m * n),
                   [&](int64_t b, T* memory) {
                     T* tau = memory;
                     T* a = in_place ? to.at(b) : memory + k + work;
                     from.load(b, a);
                     geqrf<T>(static_cast<int>(m), static_cast<int>(n), a, leading(m), tau,
                              memory + k, static_cast<int>(work));
                     to.store(b, a);
                     factors.store(b, tau);
                   });
  });
}

const char* both_supports(const mt_args_linalg_qr& args) {
  if (const char* reason = size_reason(args.A)) return reason;
  return args.mode[0] == 'r' && args.mode[1] == 0 ? nullptr : size_reason(args.Q);
}

// Q and R of one matrix after the other, while it is in the cache.
void both(mt_ctx& ctx, const mt_args_linalg_qr& args) {
  const auto batch = sdk::batch_shape(args.A);
  const bool wants_q = args.mode[1] != 0;  // not "r"
  sdk::visit_matrix_type(sdk::TensorView(args.A).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.A, batch);
    const Matrices<T> to_r(args.R, batch), to_q = wants_q ? Matrices<T>(args.Q, batch) : to_r;
    const int64_t m = from.rows(), n = from.columns(), k = std::min(m, n), rows = to_r.rows();
    const int64_t columns = std::max(wants_q ? to_q.columns() : 0, n);
    if (from.count() == 0 || m == 0) return;
    const int64_t work = std::max<int64_t>(columns, 1) * kBlock;
    each_matrix<T>(ctx, from.count(), k, k + work + m * columns, [&](int64_t b, T* memory) {
      T *tau = memory, *area = memory + k, *a = area + work;
      from.load(b, a);
      if (k != 0) {
        geqrf<T>(static_cast<int>(m), static_cast<int>(n), a, leading(m), tau, area,
                 static_cast<int>(work));
      }
      T* r = to_r.at(b);
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < rows; ++i) {
          r[i * to_r.row_stride() + j * to_r.column_stride()] = i <= j ? a[j * m + i] : T(0);
        }
      }
      if (!wants_q || to_q.columns() == 0) return;
      for (T* x = a + k * m; x < a + columns * m; ++x) *x = 0;  // no vectors beyond
      orgqr<T>(static_cast<int>(m), static_cast<int>(to_q.columns()), static_cast<int>(k), a,
               leading(m), tau, area, static_cast<int>(work));
      to_q.store(b, a);
    });
  });
}

const char* product_supports(const mt_args_linalg_householder_product& args) {
  return size_reason(args.input);
}

void product_of_reflectors(mt_ctx& ctx, const mt_args_linalg_householder_product& args) {
  const auto batch = sdk::batch_shape(args.input);
  sdk::visit_matrix_type(sdk::TensorView(args.input).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.input, batch), factors(args.tau, batch, 1);
    const Matrices<T> to(args.out, batch);
    const int64_t m = from.rows(), n = from.columns(), k = factors.rows();
    if (m == 0 || n == 0) return;
    const bool in_place = to.in_columns();
    const int64_t work = n * kBlock;
    each_matrix<T>(ctx, from.count(), n, k + work + (in_place ? 0 : m * n),
                   [&](int64_t b, T* memory) {
                     T* tau = memory;
                     factors.load(b, tau);
                     T* a = in_place ? to.at(b) : memory + k + work;
                     from.load(b, a);
                     orgqr<T>(static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), a,
                              leading(m), tau, memory + k, static_cast<int>(work));
                     to.store(b, a);
                   });
  });
}

}  // namespace

void register_qr(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&both, &both_supports>("geqrf_orgqr", kMatrices));
  kernels.push_back(sdk::kernel<&qr, &qr_supports>("geqrf", kMatrices));
  kernels.push_back(sdk::kernel<&product_of_reflectors, &product_supports>("orgqr", kMatrices));
}

}  // namespace mytorch::lapack
