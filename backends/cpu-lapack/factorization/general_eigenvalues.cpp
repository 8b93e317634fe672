// Eigenvalues and eigenvectors of general matrices, by the QR algorithm.
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "backends/cpu-lapack/common/routines.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/registry.h"
#include "mytorch/abi_ops/linalg_eig_forward.h"
#include "mytorch/backend.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::lapack {
namespace {

using sdk::Matrices;

const char* eig_supports(const mt_args_linalg_eig_forward& args) { return size_reason(args.self); }

// The results of one matrix, as the routine gives them for T.
template <class T>
struct Eigen {
  using Real = sdk::RealOf<T>;
  using Complex = std::complex<Real>;

  Eigen(int64_t n, bool vectors) : size(static_cast<int>(n)), wants(vectors) {
    T wanted = 0;
    Real part = 0;  // a query writes to it
    run(nullptr, &part, nullptr, &wanted, -1);
    work = work_length(wanted);
  }
  // `parts` are 2 n numbers: the parts of the values of a real matrix, memory for a complex one.
  int run(T* a, Real* parts, T* vectors, T* area, int64_t length) {
    const char job = wants ? 'V' : 'N';
    if constexpr (sdk::is_complex_number<T>) {
      return geev<T>('N', job, size, a, size, values.data(), static_cast<T*>(nullptr), size,
                     vectors, size, area, static_cast<int>(length), parts);
    } else {
      return geev<T>('N', job, size, a, size, parts, parts + size, static_cast<T*>(nullptr), size,
                     vectors, size, area, static_cast<int>(length));
    }
  }
  // Element i of eigenvector j. Those of a conjugate pair of a real matrix are two columns: the
  // real and the imaginary parts of the one with the positive imaginary part.
  Complex element(const T* vectors, const Real* parts, int64_t i, int64_t j) const {
    const int64_t n = size;
    if constexpr (sdk::is_complex_number<T>) {
      return vectors[j * n + i];
    } else {
      const Real imaginary = parts[n + j];
      if (imaginary > 0) return {vectors[j * n + i], vectors[(j + 1) * n + i]};
      if (imaginary < 0) return {vectors[(j - 1) * n + i], -vectors[j * n + i]};
      return vectors[j * n + i];
    }
  }

  int size;
  bool wants;
  int64_t work = 0;
  std::vector<Complex> values;
};

void eig(mt_ctx& ctx, const mt_args_linalg_eig_forward& args) {
  const auto batch = sdk::batch_shape(args.self);
  const bool vectors = args.compute_v != 0;
  sdk::visit_matrix_type(sdk::TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = sdk::RealOf<T>;
    using Complex = std::complex<Real>;
    const Matrices<const T> from(args.self, batch);
    const Matrices<Complex> to_values(args.eigenvalues, batch, 1);
    const int64_t n = from.rows();
    if (n == 0 || from.count() == 0) return;
    const Matrices<Complex> to = vectors ? Matrices<Complex>(args.eigenvectors, batch) : to_values;
    const int64_t work = Eigen<T>(n, vectors).work;
    each_matrix<T>(ctx, from.count(), n, 2 * n * n + 2 * n + work, [&](int64_t b, T* memory) {
      T *a = memory, *found = a + n * n, *area = found + n * n + 2 * n;
      Real* parts = reinterpret_cast<Real*>(found + n * n);
      from.load(b, a);
      Real sum = 0;  // NaN if an element is not finite, with which the algorithm may not end
      for (int64_t i = 0; i < n * n; ++i) sum += zero_unless_finite(a[i]);
      if (sum != 0) sdk::fail_matrix("linalg_eig", args.self, b, sdk::kNotFinite);
      Eigen<T> eigen(n, vectors);
      eigen.values.resize(static_cast<size_t>(n));
      if (eigen.run(a, parts, found, area, work) != 0) {
        sdk::fail_matrix("linalg_eig", args.self, b, "the algorithm failed to converge");
      }
      if constexpr (!sdk::is_complex_number<T>) {
        for (int64_t i = 0; i < n; ++i) {
          eigen.values[static_cast<size_t>(i)] = {parts[i], parts[n + i]};
        }
      }
      const std::vector<int64_t> order = sdk::order_of_eigenvalues(eigen.values.data(), n);
      std::vector<Complex> column(static_cast<size_t>(n));
      for (int64_t j = 0; j < n; ++j) {
        column[static_cast<size_t>(j)] =
            eigen.values[static_cast<size_t>(order[static_cast<size_t>(j)])];
      }
      to_values.store(b, column.data());
      for (int64_t j = 0; vectors && j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) {
          column[static_cast<size_t>(i)] =
              eigen.element(found, parts, i, order[static_cast<size_t>(j)]);
        }
        const Complex factor = sdk::unique_factor(column.data(), n);
        Complex* out = to.at(b) + j * to.column_stride();
        for (int64_t i = 0; i < n; ++i) {
          out[i * to.row_stride()] = factor * column[static_cast<size_t>(i)];
        }
      }
    });
  });
}

}  // namespace

void register_general_eigenvalues(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&eig, &eig_supports>("geev", kMatrices));
}

}  // namespace mytorch::lapack
