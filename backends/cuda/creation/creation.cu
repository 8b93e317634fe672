// Ranges: each value is computed from its own index, start + step * i, so that errors do not
// accumulate. Floating-point types compute in double and round once.
#include <cstdint>
#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/arange.h"
#include "mytorch/backend/kernel.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cuda {
namespace {

template <class T, class E>
__global__ void range(T* to, int64_t n, int64_t stride, E start, E step) {
  for (int64_t i = first_element(); i < n; i += grid_step()) {
    if constexpr (std::is_same_v<E, double>) {
      to[i * stride] = convert<T>(__dadd_rn(start, __dmul_rn(step, static_cast<double>(i))));
    } else {
      to[i * stride] = convert<T>(static_cast<int64_t>(
          static_cast<uint64_t>(start) + static_cast<uint64_t>(step) * static_cast<uint64_t>(i)));
    }
  }
}

void arange(mt_ctx& ctx, const mt_args_arange_start_step& args) {
  const sdk::TensorView out = args.out;
  const int64_t n = out.numel();
  if (n == 0) return;
  const int64_t stride = out.ndim() == 0 ? 0 : out.stride(0);
  visit_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = std::conditional_t<is_float<T>, double, int64_t>;
    launch(ctx, "range", range<T, E>, grid_for(ctx, n, 256), out.data<T>(), n, stride,
           sdk::to<E>(args.start), sdk::to<E>(args.step, E(1)));
  });
}

}  // namespace

void register_creation(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&arange>("range", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
