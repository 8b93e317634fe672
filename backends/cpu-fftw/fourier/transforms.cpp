// The transforms of tensors: one pass over their lines for each dimension.
#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backends/cpu-fftw/common/columns.h"
#include "backends/cpu-fftw/common/lanes.h"
#include "backends/cpu-fftw/common/memory.h"
#include "backends/cpu-fftw/fourier/rows.h"
#include "backends/cpu-fftw/registry.h"
#include "mytorch/abi_ops/_fft_c2c.h"
#include "mytorch/abi_ops/_fft_c2r.h"
#include "mytorch/abi_ops/_fft_r2c.h"
#include "mytorch/backend.h"
#include "mytorch/backend/fourier.h"

namespace mytorch::fftw {
namespace {

using sdk::TensorView;

// Lines that are copied together when their elements are apart, because neighbors share cache
// lines; fewer if they have more points than kMostLoaded.
constexpr int64_t kLines = 32, kMostLoaded = int64_t{1} << 18;

// Results of this many bytes are written past the caches.
constexpr int64_t kStreamed = int64_t{1} << 24;

template <class T>
void scale(T* x, int64_t n, T factor) {
  if (factor == 1) return;
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <class Number, class T>
constexpr bool kIsReal = std::is_same_v<Number, T>;

// As pass(), for many lines, in the lanes of vectors.
template <class T, class Row, class Lines>
void pass_in_lanes(mt_ctx& ctx, const Lines& lines, const typename Row::In* first_in,
                   typename Row::Out* first_out, const Row& row, T factor, bool streams) {
  using In = typename Row::In;
  using Out = typename Row::Out;
  constexpr bool real_in = kIsReal<In, T>, real_out = kIsReal<Out, T>;
  constexpr int64_t group = kSideBySide<T>;
  const int64_t size_in = lines.size[0], size_out = lines.size[1];
  const LineGeometry in = {lines.step[0], lines.loop.inner_stride(0)};
  const LineGeometry out = {lines.step[1], lines.loop.inner_stride(1)};
  const bool loads = !suits_lanes(in), stores = !suits_lanes(out);
  const int64_t points_in = real_in ? size_in / 2 : size_in;
  const int64_t points_out = real_out ? size_out / 2 : size_out;
  const int64_t points = row.batch_points();
  const int64_t bytes = 2 * padded_bytes<Point<T>>(points) +
                        padded_bytes<In>(loads ? group * size_in : 0) +
                        padded_bytes<Out>(stores ? group * size_out : 0);
  Team(ctx).each(lines.count(), row.points(), [&](int64_t begin, int64_t end) {
    Memory memory(bytes);
    Point<T>* const a = memory.take<Point<T>>(points);
    Point<T>* const b = memory.take<Point<T>>(points);
    In* const rows_in = loads ? memory.take<In>(group * size_in) : nullptr;
    Out* const rows_out = stores ? memory.take<Out>(group * size_out) : nullptr;
    lines.loop.for_each_run(begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
      for (int64_t i = 0; i < count; i += group) {
        const int64_t n = std::min(group, count - i);
        const In* x = first_in + at[0] + i * in.next;
        Out* const y = first_out + at[1] + i * out.next;
        if (loads) load(x, in.step, in.next, size_in, n, rows_in, size_in);
        load_points<T, real_in>(reinterpret_cast<const T*>(loads ? rows_in : x),
                                loads ? LineGeometry{1, size_in} : in, n, points_in, a);
        Point<T>* const result = row.run_batch(a, b);
        scale(reinterpret_cast<T*>(result), 2 * group * points_out, factor);
        store_points<T, real_out>(result, n, points_out,
                                  reinterpret_cast<T*>(stores ? rows_out : y),
                                  stores ? LineGeometry{1, size_out} : out, streams && !stores);
        if (stores) store(rows_out, size_out, y, out.step, out.next, size_out, n);
      }
    });
  });
}

// Transforms the lines of `from` along a dimension into those of `to`, which may be the same
// memory, and multiplies by `factor`.
template <class T, class Row>
void pass(mt_ctx& ctx, const TensorView& from, const TensorView& to, int dim, const Row& row,
          T factor) {
  using In = typename Row::In;
  using Out = typename Row::Out;
  const auto lines = sdk::make_lines<2>({from, to}, dim);
  const int64_t size_in = lines.size[0], size_out = lines.size[1];
  const int64_t step_in = lines.step[0], step_out = lines.step[1];
  const int64_t next_in = lines.loop.inner_stride(0), next_out = lines.loop.inner_stride(1);
  const In* const first_in = from.data<const In>();
  Out* const first_out = to.data<Out>();
  const bool same = from.raw() == to.raw();
  // Fewer lines would leave most lanes without work.
  if (row.has_batch() && 2 * lines.count() >= kSideBySide<T>) {
    const bool large = lines.count() * size_out >= kStreamed / static_cast<int64_t>(sizeof(Out));
    return pass_in_lanes<T>(ctx, lines, first_in, first_out, row, factor, large && !same);
  }
  const bool rows_in = !same && (step_in == 1 || size_in == 1);
  const bool rows_out = step_out == 1 || size_out == 1;
  constexpr int64_t kPartsOut = sizeof(Out) / sizeof(T);
  const auto scale_row = [&](Out* x, int64_t count) {
    scale(reinterpret_cast<T*>(x), count * kPartsOut, factor);
  };

  // Fewer lines than threads: each line on all of them.
  const Team all(ctx);
  const bool alone = lines.count() < all.size() && row.points() > kGrain;
  // Short lines are transformed together, also the last ones, so that bits do not depend on where
  // the ranges of threads begin.
  const bool short_lines = row.together() > 1;
  const int64_t group =
      short_lines ? row.together() : std::clamp<int64_t>(kMostLoaded / row.points(), 1, kLines);
  const int64_t pitch_in = short_lines ? size_in : (size_in + 15) / 16 * 16 + 16;
  const int64_t pitch_out = short_lines ? size_out : (size_out + 15) / 16 * 16 + 16;

  const int64_t bytes = padded_bytes<In>(group * pitch_in) + padded_bytes<Out>(group * pitch_out) +
                        padded_bytes<Complex<T>>(row.work());

  const auto run = [&](const Team& team, Memory& memory, int64_t begin, int64_t end) {
    In* const in = memory.take<In>(group * pitch_in);
    Out* const out = memory.take<Out>(group * pitch_out);
    Complex<T>* const work = memory.take<Complex<T>>(row.work());
    if (short_lines) std::fill_n(in, group * pitch_in, In());

    const auto transform_together = [&](const In* x, Out* y, int64_t n) {
      const bool whole = n == group;
      const bool here = whole && rows_in && next_in == size_in && is_aligned(x);
      const bool there = whole && rows_out && next_out == size_out && is_aligned(y);
      if (!here) load(x, step_in, next_in, size_in, n, in, pitch_in);
      Out* const target = there ? y : out;
      row.run_together(here ? x : in, target);
      scale_row(target, n * size_out);
      if (!there) store(out, pitch_out, y, step_out, next_out, size_out, n);
    };
    const auto transform_each = [&](const In* x, Out* y, int64_t n) {
      if (!rows_in) load(x, step_in, next_in, size_in, n, in, pitch_in);
      for (int64_t j = 0; j < n; ++j) {
        const In* source = rows_in ? x + j * next_in : in + j * pitch_in;
        if (!is_aligned(source)) {
          std::copy_n(source, size_in, in);
          source = in;
        }
        Out* const there = y + j * next_out;
        const bool direct = rows_out && (Row::kStoresAnywhere || is_aligned(there));
        Out* const target = direct ? there : out + j * pitch_out;
        row.run(team, source, target, work);
        scale_row(target, size_out);
        if (rows_out && target != there) std::copy_n(target, size_out, there);
      }
      if (!rows_out) store(out, pitch_out, y, step_out, next_out, size_out, n);
    };
    lines.loop.for_each_run(begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
      for (int64_t i = 0; i < count; i += group) {
        const int64_t n = std::min(group, count - i);
        const In* const x = first_in + at[0] + i * next_in;
        Out* const y = first_out + at[1] + i * next_out;
        short_lines ? transform_together(x, y, n) : transform_each(x, y, n);
      }
    });
  };
  if (alone) {
    Memory memory(sdk::scratch<char>(ctx, bytes));
    return run(all, memory, 0, lines.count());
  }
  all.each(lines.count(), row.points(), [&](int64_t begin, int64_t end) {
    Memory memory(bytes);
    run(Team(), memory, begin, end);
  });
}

// ---- the arguments ----

// Lengths for which the squares of indices and FFTW's sizes have no overflow.
const char* size_reason(const TensorView& points, const mt_int_list& dim) {
  for (const int d : sdk::fourier_dims(dim, points)) {
    if (points.size(d) > int64_t{1} << 30) return "a dimension has more than 2^30 elements";
  }
  return nullptr;
}

const char* c2c_supports(const mt_args__fft_c2c& args) { return size_reason(args.self, args.dim); }
const char* r2c_supports(const mt_args__fft_r2c& args) { return size_reason(args.self, args.dim); }
const char* c2r_supports(const mt_args__fft_c2r& args) { return size_reason(args.out, args.dim); }

// Calls f(T()) with the type of the parts, from that of a complex tensor.
template <class F>
void visit_parts(const TensorView& complex, F&& f) {
  if (complex.dtype().bits == 64) return f(float());
  f(double());
}

// ---- kernels ----

void c2c(mt_ctx& ctx, const mt_args__fft_c2c& args) {
  const TensorView self = args.self, out = args.out;
  if (out.numel() == 0) return;
  const std::vector<int> dims = sdk::fourier_dims(args.dim, self);
  visit_parts(out, [&](auto part) {
    using T = decltype(part);
    const T factor = static_cast<T>(sdk::fourier_factor(args.normalization, self, dims));
    // From the last dimension on, which is mostly contiguous.
    for (size_t i = dims.size(); i-- > 0;) {
      const ComplexRow<T> row(self.size(dims[i]), args.forward != 0);
      const bool first = i + 1 == dims.size();
      pass<T>(ctx, first ? self : out, out, dims[i], row, i == 0 ? factor : T(1));
    }
  });
}

void r2c(mt_ctx& ctx, const mt_args__fft_r2c& args) {
  const TensorView self = args.self, out = args.out;
  if (out.numel() == 0) return;
  const std::vector<int> dims = sdk::fourier_dims(args.dim, self);
  visit_parts(out, [&](auto part) {
    using T = decltype(part);
    const T factor = static_cast<T>(sdk::fourier_factor(args.normalization, self, dims));
    const int last = dims.back();
    const RealRow<T> real(self.size(last), args.onesided == 0);
    pass<T>(ctx, self, out, last, real, dims.size() == 1 ? factor : T(1));
    for (size_t i = dims.size() - 1; i-- > 0;) {
      const ComplexRow<T> row(self.size(dims[i]), true);
      pass<T>(ctx, out, out, dims[i], row, i == 0 ? factor : T(1));
    }
  });
}

void c2r(mt_ctx& ctx, const mt_args__fft_c2r& args) {
  const TensorView out = args.out;
  TensorView self = args.self;
  if (out.numel() == 0) return;
  const std::vector<int> dims = sdk::fourier_dims(args.dim, self);
  visit_parts(self, [&](auto part) {
    using T = decltype(part);
    const T factor = static_cast<T>(sdk::fourier_factor(args.normalization, out, dims));
    // The other dimensions of a copy.
    mt_tensor copy = *self.get();
    std::vector<int64_t> strides(static_cast<size_t>(self.ndim()));
    if (dims.size() > 1) {
      int64_t step = 1;
      for (int d = self.ndim(); d-- > 0;) {
        strides[static_cast<size_t>(d)] = step;
        step *= self.size(d);
      }
      copy.dl.data = sdk::scratch<Complex<T>>(ctx, self.numel());
      copy.dl.byte_offset = 0;
      copy.dl.strides = strides.data();
      copy.flags = 0;
    }
    for (size_t i = dims.size() - 1; i-- > 0;) {
      const ComplexRow<T> row(self.size(dims[i]), false);
      pass<T>(ctx, self, &copy, dims[i], row, T(1));
      self = &copy;
    }
    const HalfRow<T> half(args.last_dim_size);
    pass<T>(ctx, self, out, dims.back(), half, factor);
  });
}

constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_COMPLEX;

}  // namespace

void register_transforms(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&c2c, &c2c_supports>("fftw", kTakes));
  kernels.push_back(sdk::kernel<&r2c, &r2c_supports>("fftw", kTakes));
  kernels.push_back(sdk::kernel<&c2r, &c2r_supports>("fftw", kTakes));
}

}  // namespace mytorch::fftw
