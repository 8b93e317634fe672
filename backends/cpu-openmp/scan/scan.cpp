// Running sums. Floating types accumulate in double, as in ATen, because the rounding errors of a
// running sum accumulate.
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/cumsum.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Sums kLines lines at once, whose additions are independent of each other. Not inlined, so that
// the loop has all registers.
template <int64_t kLines, class T>
[[gnu::noinline]] void scan_lines(const T* in, int64_t in_step, int64_t in_next, T* out,
                                  int64_t out_step, int64_t out_next, int64_t size) {
  // Unsigned sums wrap; signed ones are undefined.
  using Sum = std::conditional_t<sdk::is_float_type<T>, double, uint64_t>;
  using Wide = std::conditional_t<sdk::is_float_type<T>, double, int64_t>;
  Sum sums[kLines] = {};
  for (int64_t k = 0; k < size; ++k) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLines; ++i) {
      sums[i] += static_cast<Sum>(sdk::convert<Wide>(in[k * in_step + i * in_next]));
      out[k * out_step + i * out_next] = sdk::convert<T>(static_cast<Wide>(sums[i]));
    }
  }
}

// In place if the operands are one tensor.
template <class T>
void scan(mt_ctx& ctx, const TensorView& from, const TensorView& to, int64_t dim) {
  const auto lines = sdk::make_lines<2>({to, from}, dim);
  const int64_t size = lines.size[0];
  const int64_t out_step = lines.step[0], in_step = lines.step[1];
  const int64_t out_next = lines.loop.inner_stride(0), in_next = lines.loop.inner_stride(1);
  const int64_t grain = 1 + 16384 / std::max<int64_t>(size, 1);
  sdk::parallel_for(ctx, 0, lines.count(), grain, [&](int64_t begin, int64_t end) noexcept {
    for_each_group(lines, begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
      T* out = to.data<T>() + at[0];
      const T* in = from.data<const T>() + at[1];
      int64_t i = 0;
      const auto run = [&](auto count) {
        scan_lines<decltype(count)::value>(in + i * in_next, in_step, in_next, out + i * out_next,
                                           out_step, out_next, size);
        i += count;
      };
      if (n == kLinesTogether && std::abs(in_next) < std::abs(in_step)) {
        run(std::integral_constant<int64_t, kLinesTogether>());  // the columns of a cache line
      }
      while (i + 4 <= n) run(std::integral_constant<int64_t, 4>());
      while (i < n) run(std::integral_constant<int64_t, 1>());
    });
  });
}

void cumsum(mt_ctx& ctx, const mt_args_cumsum& args) {
  const TensorView out = args.out;
  const bool same = sdk::same_dtype(TensorView(args.self).dtype(), out.dtype());
  if (!same) move(ctx, args.self, out);
  sdk::visit_dtype(out.dtype(), [&](auto tag) {
    scan<typename decltype(tag)::type>(ctx, same ? TensorView(args.self) : out, out, args.dim);
  });
}

}  // namespace

void register_scan(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&cumsum>("lines", MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
}

}  // namespace mytorch::cpu
