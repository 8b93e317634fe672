// Running sums, products, extrema and logarithms of sums. Floating types accumulate in double, as
// in ATen, because the rounding errors of a running sum accumulate.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <type_traits>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/cummax.h"
#include "mytorch/abi_ops/cummin.h"
#include "mytorch/abi_ops/cumprod.h"
#include "mytorch/abi_ops/cumsum.h"
#include "mytorch/abi_ops/logcumsumexp.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

template <class T>
using Wide = std::conditional_t<sdk::is_float_type<T>, double, int64_t>;

// A fold starts as `Fold<T>()`, takes elements with add(), and gives the result so far as value().
// One that also has append() takes what another fold made of the elements after its own. Unsigned
// numbers wrap on overflow; signed ones are undefined.
template <class T>
struct Sum {
  using State = std::conditional_t<sdk::is_float_type<T>, double, uint64_t>;
  State state = 0;

  void add(Wide<T> x) { state += static_cast<State>(x); }
  void append(const Sum& next) { state += next.state; }
  Wide<T> value() const { return static_cast<Wide<T>>(state); }
};

template <class T>
struct Product {
  using State = std::conditional_t<sdk::is_float_type<T>, double, uint64_t>;
  State state = 1;

  void add(Wide<T> x) { state *= static_cast<State>(x); }
  Wide<T> value() const { return static_cast<Wide<T>>(state); }
};

// The sum is relative to the maximum.
template <class T>
struct LogSumExp {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;

  void add(double x) {
    if (x == max) {
      sum += 1;
    } else if (x > max) {
      sum = sum * std::exp(max - x) + 1;
      max = x;
    } else {
      sum += std::exp(x - max);
    }
  }
  double value() const { return max + std::log(sum); }
};

// Scans kLines lines at once, whose folds are independent of each other. Not inlined, so that the
// loop has all registers.
template <class Fold, int64_t kLines, class T>
[[gnu::noinline]] void scan_lines(const T* in, int64_t in_step, int64_t in_next, T* out,
                                  int64_t out_step, int64_t out_next, int64_t size) {
  Fold folds[kLines] = {};
  for (int64_t k = 0; k < size; ++k) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLines; ++i) {
      folds[i].add(sdk::convert<Wide<T>>(in[k * in_step + i * in_next]));
      out[k * out_step + i * out_next] = sdk::convert<T>(folds[i].value());
    }
  }
}

// A long line is scanned in pieces that start anew, to which the sum of those before is added, so
// that threads can share it. A piece does not follow from the number of threads, nor do the bits.
constexpr int64_t kPiece = 16384;
constexpr int64_t kLongLine = 4 * kPiece;

// Appends the n elements of a piece to `before`, and returns their fold.
template <class Fold, class T>
[[gnu::noinline]] Fold scan_piece(const T* in, int64_t in_step, T* out, int64_t out_step, int64_t n,
                                  const Fold& before) {
  Fold piece;
  for (int64_t k = 0; k < n; ++k) {
    piece.add(sdk::convert<Wide<T>>(in[k * in_step]));
    Fold all = before;
    all.append(piece);
    out[k * out_step] = sdk::convert<T>(all.value());
  }
  return piece;
}

template <class Fold, class T>
[[gnu::noinline]] Fold fold_piece(const T* in, int64_t in_step, int64_t n) {
  Fold piece;
  for (int64_t k = 0; k < n; ++k) piece.add(sdk::convert<Wide<T>>(in[k * in_step]));
  return piece;
}

// On the context's threads if `share`, else on the calling one.
template <class Fold, class T>
void scan_long_line(mt_ctx& ctx, bool share, const T* in, int64_t in_step, T* out, int64_t out_step,
                    int64_t size) {
  const int64_t pieces = (size + kPiece - 1) / kPiece;
  const auto length = [&](int64_t i) { return std::min(kPiece, size - i * kPiece); };
  Fold before;
  if (!share) {
    for (int64_t i = 0; i < pieces; ++i) {
      before.append(scan_piece(in + i * kPiece * in_step, in_step, out + i * kPiece * out_step,
                               out_step, length(i), before));
    }
    return;
  }
  Fold* const folds = sdk::scratch<Fold>(ctx, pieces);
  sdk::parallel_for(ctx, 0, pieces - 1, 1, [&](int64_t begin, int64_t end) noexcept {
    for (int64_t i = begin; i < end; ++i) {
      folds[i] = fold_piece<Fold>(in + i * kPiece * in_step, in_step, kPiece);
    }
  });
  for (int64_t i = 0; i < pieces; ++i) {  // each becomes the fold of those before it
    const Fold all = before;
    if (i + 1 < pieces) before.append(folds[i]);
    folds[i] = all;
  }
  sdk::parallel_for(ctx, 0, pieces, 1, [&](int64_t begin, int64_t end) noexcept {
    for (int64_t i = begin; i < end; ++i) {
      scan_piece(in + i * kPiece * in_step, in_step, out + i * kPiece * out_step, out_step,
                 length(i), folds[i]);
    }
  });
}

int64_t grain_of(int64_t size) { return 1 + 16384 / std::max<int64_t>(size, 1); }

// In place if the operands are one tensor.
template <class Fold, class T>
void scan(mt_ctx& ctx, const TensorView& from, const TensorView& to, int64_t dim) {
  const auto lines = sdk::make_lines<2>({to, from}, dim);
  const int64_t size = lines.size[0];
  const int64_t out_step = lines.step[0], in_step = lines.step[1];
  const int64_t out_next = lines.loop.inner_stride(0), in_next = lines.loop.inner_stride(1);
  if constexpr (requires(Fold f) { f.append(f); }) {
    // Neighboring columns are scanned together, for their cache lines.
    const bool columns = lines.count() > 1 && std::abs(in_next) < std::abs(in_step);
    if (size >= kLongLine && !columns) {
      const bool share = lines.count() < ctx.num_threads;
      const auto scan_line = [&](const std::array<int64_t, 2>& at) {
        scan_long_line<Fold>(ctx, share, from.data<const T>() + at[1], in_step,
                             to.data<T>() + at[0], out_step, size);
      };
      if (share) return lines.loop.for_each(scan_line);
      sdk::parallel_for(ctx, 0, lines.count(), 1, [&](int64_t begin, int64_t end) noexcept {
        lines.loop.for_each_run(begin, end, [&](std::array<int64_t, 2> at, int64_t n) {
          for (int64_t i = 0; i < n; ++i, at[0] += out_next, at[1] += in_next) scan_line(at);
        });
      });
      return;
    }
  }
  sdk::parallel_for(
      ctx, 0, lines.count(), grain_of(size), [&](int64_t begin, int64_t end) noexcept {
        for_each_group(lines, begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
          T* out = to.data<T>() + at[0];
          const T* in = from.data<const T>() + at[1];
          int64_t i = 0;
          const auto run = [&](auto count) {
            scan_lines<Fold, decltype(count)::value>(in + i * in_next, in_step, in_next,
                                                     out + i * out_next, out_step, out_next, size);
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

template <template <class> class Fold, class Args>
void scan_converted(mt_ctx& ctx, const Args& args) {
  const TensorView out = args.out;
  const bool same = sdk::same_dtype(TensorView(args.self).dtype(), out.dtype());
  if (!same) move(ctx, args.self, out);
  sdk::visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    scan<Fold<T>, T>(ctx, same ? TensorView(args.self) : out, out, args.dim);
  });
}

void cumsum(mt_ctx& ctx, const mt_args_cumsum& args) { scan_converted<Sum>(ctx, args); }

void cumprod(mt_ctx& ctx, const mt_args_cumprod& args) { scan_converted<Product>(ctx, args); }

void logcumsumexp(mt_ctx& ctx, const mt_args_logcumsumexp& args) {
  const TensorView out = args.out;
  sdk::visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    scan<LogSumExp<T>, T>(ctx, args.self, out, args.dim);
  });
}

// The last of equal elements, and of NaN, gives the index.
template <bool largest, class Args>
void extremum(mt_ctx& ctx, const Args& args) {
  const TensorView self = args.self, values = args.values, indices = args.indices;
  const auto lines = sdk::make_lines<3>({values, self, indices}, args.dim);
  const int64_t size = lines.size[0];
  sdk::visit_dtype(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    sdk::parallel_for(
        ctx, 0, lines.count(), grain_of(size), [&](int64_t begin, int64_t end) noexcept {
          for_each_group(lines, begin, end, [&](const std::array<int64_t, 3>& at, int64_t n) {
            for (int64_t i = 0; i < n; ++i) {
              T* out = values.data<T>() + at[0] + i * lines.loop.inner_stride(0);
              const T* in = self.data<const T>() + at[1] + i * lines.loop.inner_stride(1);
              int64_t* index = indices.data<int64_t>() + at[2] + i * lines.loop.inner_stride(2);
              Wide<T> best = 0;
              int64_t best_at = 0;
              for (int64_t k = 0; k < size; ++k) {
                const auto x = sdk::convert<Wide<T>>(in[k * lines.step[1]]);
                const bool wins = (largest ? x >= best : x <= best) || x != x;
                if (k == 0 || wins) {
                  best = x;
                  best_at = k;
                }
                out[k * lines.step[0]] = sdk::convert<T>(best);
                index[k * lines.step[2]] = best_at;
              }
            }
          });
        });
  });
}

void cummax(mt_ctx& ctx, const mt_args_cummax& args) { extremum<true>(ctx, args); }

void cummin(mt_ctx& ctx, const mt_args_cummin& args) { extremum<false>(ctx, args); }

}  // namespace

void register_scan(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&cumsum>("lines", MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
  kernels.push_back(sdk::kernel<&cumprod>("lines", MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
  kernels.push_back(sdk::kernel<&cummax>("lines", MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
  kernels.push_back(sdk::kernel<&cummin>("lines", MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
  kernels.push_back(sdk::kernel<&logcumsumexp>("lines", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
