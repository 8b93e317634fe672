// Solves with triangular matrices.
#include <cstdint>

#include "backends/cpu-lapack/common/routines.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/registry.h"
#include "mytorch/abi_ops/linalg_solve_triangular.h"
#include "mytorch/backend.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::lapack {
namespace {

using sdk::Matrices;

const char* triangular_supports(const mt_args_linalg_solve_triangular& args) {
  if (const char* reason = size_reason(args.self)) return reason;
  return size_reason(args.out);
}

void triangular(mt_ctx& ctx, const mt_args_linalg_solve_triangular& args) {
  const auto batch = sdk::batch_shape(args.out);
  sdk::visit_matrix_type(sdk::TensorView(args.out).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> triangles(args.self, batch), right(args.B, batch);
    const Matrices<T> to(args.out, batch);
    const int64_t n = triangles.rows(), m = to.rows(), c = to.columns();
    if (n == 0 || m == 0 || c == 0) return;
    // A row-major triangle is its transpose's other triangle by columns, so neither is copied.
    const bool by_columns = triangles.in_columns();
    const bool by_rows = !by_columns && (triangles.column_stride() == 1 || n == 1) &&
                         (triangles.row_stride() == n || n == 1);
    const bool given = by_columns || by_rows, in_place = to.in_columns();
    const bool upper = (args.upper != 0) != by_rows;
    const int64_t of_triangle = given ? 0 : n * n;
    each_matrix<T>(ctx, to.count(), n, of_triangle + (in_place ? 0 : m * c),
                   [&](int64_t b, T* memory) {
                     if (!given) triangles.load(b, memory);
                     const T* a = given ? triangles.at(b) : memory;
                     T* x = in_place ? to.at(b) : memory + of_triangle;
                     right.load(b, x);
                     trsm<T>(args.left ? 'L' : 'R', upper ? 'U' : 'L', by_rows ? 'T' : 'N',
                             args.unitriangular ? 'U' : 'N', static_cast<int>(m),
                             static_cast<int>(c), a, leading(n), x, leading(m));
                     to.store(b, x);
                   });
  });
}

}  // namespace

void register_triangular(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&triangular, &triangular_supports>("trsm", kMatrices));
}

}  // namespace mytorch::lapack
