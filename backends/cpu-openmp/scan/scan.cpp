// Running sums. Floating types add up in double, as in ATen: a running sum is the one place where
// rounding errors pile up in order.
#include "backends/cpu-openmp/scan/scan.h"

#include <cstdint>
#include <type_traits>

#include "backends/cpu-openmp/indexing/move.h"
#include "backends/cpu-openmp/scan/lines.h"
#include "mytorch/abi_ops.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// In place where the operands are one tensor.
template <class T>
void scan(mt_ctx& ctx, const TensorView& from, const TensorView& to, int64_t dim) {
  // Unsigned sums wrap without being undefined.
  using Sum = std::conditional_t<sdk::is_float_type<T>, double, uint64_t>;
  using Wide = std::conditional_t<sdk::is_float_type<T>, double, int64_t>;
  const auto lines = make_lines<2>({to, from}, dim);
  const int64_t size = lines.size[0];
  const int64_t out_step = lines.step[0], in_step = lines.step[1];
  const int64_t out_next = lines.loop.inner_stride(0), in_next = lines.loop.inner_stride(1);
  const int64_t grain = 1 + 16384 / std::max<int64_t>(size, 1);
  sdk::parallel_for(ctx, 0, lines.count(), grain, [&](int64_t begin, int64_t end) noexcept {
    lines.for_each(begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
      T* out = to.data<T>() + at[0];
      const T* in = from.data<const T>() + at[1];
      Sum sums[kLinesTogether] = {};
      const auto step = [&](int64_t k, int64_t i) {
        sums[i] += static_cast<Sum>(sdk::convert<Wide>(in[k * in_step + i * in_next]));
        out[k * out_step + i * out_next] = sdk::convert<T>(static_cast<Wide>(sums[i]));
      };
      // Side by side, the sums of several lines do not wait for each other.
      for (int64_t k = 0; k < size; ++k) {
        if (n == kLinesTogether) {
          for (int64_t i = 0; i < kLinesTogether; ++i) step(k, i);
        } else {
          for (int64_t i = 0; i < n; ++i) step(k, i);
        }
      }
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

void register_scan(Candidates& candidates) {
  candidates.push_back(sdk::kernel<&cumsum>("cumsum", MT_HASH_cumsum, "lines", 0,
                                            MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
}

}  // namespace mytorch::cpu
