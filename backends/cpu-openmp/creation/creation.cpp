// Ranges. Each value is computed from its index, start + step * i, so that errors do not
// accumulate. Floating types compute in double and round once.
#include <cstdint>
#include <type_traits>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/arange.h"
#include "mytorch/backend.h"
#include "mytorch/backend/philox.h"

namespace mytorch::cpu {
namespace {

void arange(mt_ctx& ctx, const mt_args_arange_start_step& args) {
  const sdk::TensorView out = args.out;
  const int64_t stride = out.ndim() == 0 ? 0 : out.stride(0);
  sdk::visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = std::conditional_t<sdk::is_float_type<T>, double, int64_t>;
    const E start = sdk::to<E>(args.start);
    const E step = sdk::to<E>(args.step, E(1));
    T* data = out.data<T>();
    sdk::parallel_for(ctx, 0, out.numel(), 32768, [&](int64_t begin, int64_t end) noexcept {
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_same_v<E, double>) {
          data[i * stride] = sdk::convert<T>(start + sdk::philox::mul(step, static_cast<E>(i)));
        } else {
          const uint64_t value =
              static_cast<uint64_t>(start) + static_cast<uint64_t>(step) * static_cast<uint64_t>(i);
          data[i * stride] = sdk::convert<T>(static_cast<int64_t>(value));
        }
      }
    });
  });
}

}  // namespace

void register_creation(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&arange>("loop", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
