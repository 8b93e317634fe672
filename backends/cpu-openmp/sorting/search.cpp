// Binary search in sorted lines, and the indices of repeated elements.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/interleave_indices.h"
#include "mytorch/abi_ops/searchsorted.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

constexpr int64_t kRun = 1024;  // elements that are tested for being in order

// NaN is the largest, as in sort.
template <class T>
bool below(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return (a < b) | ((b != b) & (a == a));
  return a < b;
}

template <bool kAfter, class T>
bool precedes(T value, T x) {
  return kAfter ? !below(x, value) : below(value, x);
}

// Returns how many of the elements of a line precede x.
template <bool kAfter, class W, class T>
int64_t count_of(const T* line, int64_t n, W x) {
  const auto is_before = [&](int64_t i) { return precedes<kAfter>(sdk::convert<W>(line[i]), x); };
  // No branch depends on the elements.
  int64_t first = 0;
  for (int64_t rest = n; rest > 0;) {
    const int64_t half = (rest + 1) / 2;
    first += is_before(first + half - 1) ? half : 0;
    rest -= half;
  }
  return first;
}

// Stores the counts of elements that are in order themselves, between those of the first and the
// last one. Steps along the line or to the next element, without a branch that depends on them.
template <bool kAfter, class W, class T, class Out>
void merge(const T* line, int64_t first, int64_t last, const T* x, int64_t count, Out* to) {
  for (int64_t i = 0; i < count;) {
    to[i] = static_cast<Out>(first);
    const bool before =
        first < last && precedes<kAfter>(sdk::convert<W>(line[first]), sdk::convert<W>(x[i]));
    first += before ? 1 : 0;
    i += before ? 0 : 1;
  }
}

template <class W, class T>
bool in_order(const T* x, int64_t count) {
  bool ordered = true;
  for (int64_t i = 1; i < count; ++i) {
    ordered &= !below(sdk::convert<W>(x[i]), sdk::convert<W>(x[i - 1]));
  }
  return ordered;
}

template <bool kAfter, class T, class Out>
void search(mt_ctx& ctx, const TensorView& lines, const TensorView& elements,
            const TensorView& out) {
  using W = sdk::Widened<T>;
  const int64_t n = lines.size(-1);
  const int64_t each = lines.ndim() == 1 ? out.numel() : out.size(-1);  // elements of a line
  const T* const sorted = lines.data<const T>();
  const T* const x = elements.data<const T>();
  Out* const to = out.data<Out>();
  sdk::parallel_for(ctx, 0, out.numel(), 2048, [&](int64_t begin, int64_t end) noexcept {
    while (begin < end) {
      const int64_t row = begin / each;
      const int64_t stop = row * each + each < end ? row * each + each : end;
      const T* const line = sorted + row * n;
      while (begin < stop) {
        const int64_t count = stop - begin < kRun ? stop - begin : kRun;
        const auto at = [&](int64_t i) {
          return count_of<kAfter>(line, n, sdk::convert<W>(x[begin + i]));
        };
        if (count > 8 && in_order<W>(x + begin, count)) {
          const int64_t first = at(0), end = at(count - 1);
          if (end - first <= 4 * count) {
            merge<kAfter, W>(line, first, end, x + begin, count, to + begin);
            begin += count;
            continue;
          }
        }
        for (int64_t i = 0; i < count; ++i) to[begin + i] = static_cast<Out>(at(i));
        begin += count;
      }
    }
  });
}

const char* searchsorted_supports(const mt_args_searchsorted& args) {
  return args.sorter == nullptr ? nullptr : "only of sequences that are sorted themselves";
}

void searchsorted(mt_ctx& ctx, const mt_args_searchsorted& args) {
  const TensorView lines = args.sorted_sequence, elements = args.self, out = args.out;
  if (out.numel() == 0) return;
  const bool after = args.right != 0 || (args.side != nullptr && args.side[0] == 'r');
  sdk::visit_dtype(lines.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto run = [&](auto index) {
      using Out = decltype(index);
      after ? search<true, T, Out>(ctx, lines, elements, out)
            : search<false, T, Out>(ctx, lines, elements, out);
    };
    if (args.out_int32 != 0) return run(int32_t());
    run(int64_t());
  });
}

// Each task looks for the index of its first result, and goes on from there.
void interleave_indices(mt_ctx& ctx, const mt_args_interleave_indices& args) {
  const TensorView out = args.out, all = args.ends;
  const int64_t* const ends = all.data<const int64_t>();
  const int64_t n = all.numel();
  int64_t* const to = out.data<int64_t>();
  std::atomic<bool> rising{true};
  sdk::parallel_for(ctx, 0, n, 32768, [&](int64_t begin, int64_t end) noexcept {
    int64_t before = begin == 0 ? 0 : ends[begin - 1];
    for (int64_t i = begin; i < end; before = ends[i++]) {
      if (ends[i] < before) return rising.store(false);
    }
  });
  if (!rising)
    throw sdk::Error(MT_ERROR_VALUE, "[repeat_interleave] repeats has a negative number");
  const int64_t sum = n == 0 ? 0 : ends[n - 1];
  if (sum != out.numel()) {
    throw sdk::Error(MT_ERROR_VALUE, "[repeat_interleave] output_size is " +
                                         std::to_string(out.numel()) +
                                         ", but the sum of repeats is " + std::to_string(sum));
  }
  sdk::parallel_for(ctx, 0, out.numel(), 16384, [&](int64_t begin, int64_t end) noexcept {
    int64_t index = count_of<true, int64_t>(ends, n, begin);
    while (begin < end) {
      const int64_t stop = index < n ? std::min(ends[index], end) : end;
      while (begin < stop) to[begin++] = index;
      ++index;
    }
  });
}

}  // namespace

void register_search(KernelEntries& kernels) {
  kernels.push_back(
      sdk::kernel<&searchsorted, &searchsorted_supports>("halving", MT_TAKES_MIXED_DTYPES));
  kernels.push_back(sdk::kernel<&interleave_indices>("runs"));
}

}  // namespace mytorch::cpu
