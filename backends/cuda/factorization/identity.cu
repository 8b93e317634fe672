// The vectors of matrices without elements.
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/factorization/passes.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

template <class T>
__global__ void identity_elements(Strided<1> batch, int64_t m, int64_t n, FirstMatrix<T> to) {
  for (int64_t e = first_element(); e < batch.numel * m * n; e += grid_step()) {
    int64_t at[1];
    batch.offsets(e / (m * n), at);
    const int64_t i = e % m, j = e / m % n;
    to.data[at[0] + i * to.row + j * to.column] = number<T>(i == j ? 1 : 0);
  }
}

}  // namespace

void set_identity(mt_ctx& ctx, const TensorView& to) {
  if (to.numel() == 0) return;
  const auto batch = batch_loop<1>(sdk::batch_shape(to), {to}, {2});
  visit_any_matrix_type(to.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "identity_elements", identity_elements<T>, grid_for(ctx, to.numel(), 256), batch,
           to.size(-2), to.size(-1), FirstMatrix<T>(to));
  });
}

}  // namespace mytorch::cuda
