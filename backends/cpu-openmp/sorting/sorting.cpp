// Sorts lines as (key, position) pairs: short lines by insertion, longer ones by comparison, and
// long ones by radix, with a pass for each byte of the key that varies. topk of few elements makes
// pairs only of the elements that reach a threshold.
#include <algorithm>
#include <array>
#include <utility>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/registry.h"
#include "backends/cpu-openmp/sorting/keys.h"
#include "mytorch/abi_ops/sort.h"
#include "mytorch/abi_ops/topk.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

constexpr int64_t kInsertion = 24;
constexpr int64_t kRadix = 512;

template <class P>
void insertion_sort(P* items, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const P item = items[i];
    int64_t j = i;
    for (; j > 0 && item < items[j - 1]; --j) items[j] = items[j - 1];
    items[j] = item;
  }
}

// Sorts by the least significant byte first. Returns `items` or `other`, which has the result.
template <class P>
P* radix_sort(P* items, P* other, int64_t n, int key_bytes) {
  int64_t counts[8][256] = {};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = items[i].key();
    for (int b = 0; b < key_bytes; ++b) ++counts[b][(key >> (8 * b)) & 255];
  }
  for (int b = 0; b < key_bytes; ++b) {
    int64_t* count = counts[b];
    if (count[(items[0].key() >> (8 * b)) & 255] == n) continue;  // the same byte everywhere
    int64_t begin = 0;
    for (int v = 0; v < 256; ++v) begin += std::exchange(count[v], begin);
    for (int64_t i = 0; i < n; ++i) {
      other[count[(items[i].key() >> (8 * b)) & 255]++] = items[i];
    }
    std::swap(items, other);
  }
  return items;
}

template <class P>
P* sort_items(P* items, P* other, int64_t n, int key_bytes) {
  if (n <= kInsertion) {
    insertion_sort(items, n);
  } else if (n < kRadix) {
    std::sort(items, items + n);
  } else {
    return radix_sort(items, other, n, key_bytes);
  }
  return items;
}

constexpr int64_t kScan = 64;       // elements of a line that are tested together
constexpr int64_t kChampions = 64;  // champions that are challenged together
constexpr int64_t kFewOfMany = 4;   // elements for each group, at least

template <class T>
constexpr int64_t kLine = 64 / sizeof(T);  // elements of a cache line

// Returns the number of groups in which to find k elements: enough that the k best elements seldom
// share a group.
int64_t groups_of(int64_t k) { return (4 * k + kChampions - 1) / kChampions * kChampions; }

// Returns whether x sorts before y; neither is NaN.
template <bool kDescending, class T>
bool before(T x, T y) {
  using W = sdk::Widened<T>;
  return kDescending ? static_cast<W>(x) > static_cast<W>(y)
                     : static_cast<W>(x) < static_cast<W>(y);
}

// The two loops over every element, which the compiler vectorizes.
template <bool kDescending, class T>
void challenge(T* __restrict champions, const T* __restrict x) {
  for (int64_t i = 0; i < kChampions; ++i) {
    champions[i] = before<kDescending>(x[i], champions[i]) ? x[i] : champions[i];
  }
}
// Returns whether any of kScan neighbors may reach `bar`.
template <bool kDescending, class T>
bool any_reaches(const T* x, T bar) {
  SortKey<T> any = 0;
  for (int64_t i = 0; i < kScan; ++i)
    any |= static_cast<SortKey<T>>(!before<kDescending>(bar, x[i]));
  return any != 0;
}

// Finds the first k of n neighbors, in order. If k is small, two passes suffice. In the first pass,
// elements challenge the champion of their group; the k-th best champion is the threshold `bar`,
// which at least k elements reach, and not many more. The second pass, over elements in the caches,
// collects these elements and prefetches the next line. A champion may be any element of its group,
// so only the keys handle NaNs. Not inlined, so that the loops have all registers.
template <bool kDescending, class T, class P>
[[gnu::noinline]] void select_items(const T* x, const T* next, int64_t n, int64_t k, P* items,
                                    T* champions) {
  const auto item = [&](int64_t i) { return P(sort_key(x[i], kDescending), i); };
  const int64_t groups = groups_of(k);
  int64_t count = 0;
  if (groups <= n / kFewOfMany) {
    std::copy_n(x, groups, champions);
    for (int64_t i = groups; i + groups <= n; i += groups) {
      for (int64_t g = 0; g < groups; g += kChampions) {
        challenge<kDescending>(champions + g, x + i + g);
      }
    }
    for (int64_t g = 0; g < groups; ++g) items[g] = P(sort_key(champions[g], kDescending), g);
    std::nth_element(items, items + k - 1, items + groups);
    const T bar = champions[items[k - 1].position()];
    const auto worst = items[k - 1].key();
    for (int64_t i = 0; i < n; i += kScan) {
      const int64_t end = std::min(i + kScan, n);
      for (int64_t j = i; j < end; j += kLine<T>) __builtin_prefetch(next + j);
      if (end - i == kScan && !any_reaches<kDescending>(x + i, bar)) continue;
      for (int64_t j = i; j < end; ++j) {
        if (before<kDescending>(bar, x[j])) continue;
        items[count] = item(j);
        if (items[count].key() <= worst) ++count;
      }
    }
  } else {
    for (; count < n; ++count) items[count] = item(count);
  }
  if (count > k) std::nth_element(items, items + k, items + count);
  std::sort(items, items + k);
}

struct Request {
  TensorView self, values, indices;  // the outputs may be absent
  int64_t dim;
  int64_t keep;  // of each line
  bool descending;
  bool all;
};

template <class T, class P>
void order_lines(mt_ctx& ctx, const Request& request) {
  const TensorView& self = request.self;
  const TensorView values = request.values ? request.values : request.indices;
  const TensorView indices = request.indices ? request.indices : request.values;
  const auto lines = sdk::make_lines<3>({self, values, indices}, request.dim);
  const int64_t n = lines.size[0];
  const int64_t keep = request.keep;
  if (n == 0 || keep == 0) return;
  const int64_t next_in = lines.loop.inner_stride(0);
  const int64_t next_value = lines.loop.inner_stride(1);
  const int64_t next_index = lines.loop.inner_stride(2);
  const int64_t step_in = lines.step[0], step_value = lines.step[1], step_index = lines.step[2];
  const T* in = self.data<const T>();
  const int64_t grain = 1 + 2048 / n;
  // The items and as many items for sorting, or the elements of a line and the champions.
  parallel_with_scratch<P>(
      ctx, lines.count(), grain, 3 * n, [&](P* items, int64_t begin, int64_t end) {
        T* const line = reinterpret_cast<T*>(items + n);
        for_each_group(lines, begin, end, [&](const std::array<int64_t, 3>& at, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            const T* from = in + at[0] + i * next_in;
            const P* sorted = items;
            if (request.all) {
              for (int64_t k = 0; k < n; ++k) {
                items[k] = P(sort_key(from[k * step_in], request.descending), k);
              }
              sorted = sort_items(items, items + n, n, static_cast<int>(sizeof(SortKey<T>)));
            } else {
              const T* x = from;
              if (step_in != 1) {
                for (int64_t k = 0; k < n; ++k) line[k] = from[k * step_in];
                x = line;
              }
              if (request.descending) {
                select_items<true>(x, from + next_in, n, keep, items, line + n);
              } else {
                select_items<false>(x, from + next_in, n, keep, items, line + n);
              }
            }
            if (request.values) {
              T* to = request.values.data<T>() + at[1] + i * next_value;
              for (int64_t k = 0; k < keep; ++k) {
                to[k * step_value] = from[sorted[k].position() * step_in];
              }
            }
            if (request.indices) {
              int64_t* to = request.indices.data<int64_t>() + at[2] + i * next_index;
              for (int64_t k = 0; k < keep; ++k) to[k * step_index] = sorted[k].position();
            }
          }
        });
      });
}

void order(mt_ctx& ctx, const Request& request) {
  if (!request.values && !request.indices) return;
  sdk::visit_dtype(request.self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int ndim = request.self.ndim();
    const int along = static_cast<int>(request.dim < 0 ? request.dim + ndim : request.dim);
    const int64_t n = ndim == 0 ? 1 : request.self.size(along);
    if constexpr (sizeof(SortKey<T>) == 4) {
      if (n <= int64_t{1} << 32) return order_lines<T, Packed>(ctx, request);
    }
    order_lines<T, Wide>(ctx, request);
  });
}

void sort(mt_ctx& ctx, const mt_args_sort_stable& args) {
  const TensorView self = args.self;
  const int along = static_cast<int>(args.dim < 0 ? args.dim + self.ndim() : args.dim);
  order(ctx, {self, args.values, args.indices, args.dim, self.ndim() == 0 ? 1 : self.size(along),
              args.descending != 0, true});
}

void topk(mt_ctx& ctx, const mt_args_topk& args) {
  // A 0-dim tensor yields its element for any k.
  const int64_t keep = TensorView(args.self).ndim() == 0 ? 1 : args.k;
  order(ctx, {args.self, args.values, args.indices, args.dim, keep, args.largest != 0, false});
}

}  // namespace

void register_sorting(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&sort>("radix", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&topk>("select", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
