// Lines are sorted as (key, position) pairs: by insertion where short, by comparison in between,
// and by radix, one pass per byte of the key that varies, where long.
#include <algorithm>
#include <array>
#include <utility>

#include "backends/cpu-openmp/registry.h"
#include "backends/cpu-openmp/scan/lines.h"
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

// Least significant byte first. Returns where the result lies: `items` or `other`.
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

// The first k in order. Few of many go through a heap whose top is the worst of the kept: most
// elements then cost one comparison.
template <class P>
void select_items(P* items, int64_t n, int64_t k) {
  if (k >= n) {
    std::sort(items, items + n);
  } else if (k <= n / 8) {
    std::make_heap(items, items + k);
    for (int64_t i = k; i < n; ++i) {
      if (!(items[i] < items[0])) continue;
      std::pop_heap(items, items + k);
      items[k - 1] = items[i];
      std::push_heap(items, items + k);
    }
    std::sort_heap(items, items + k);
  } else {
    std::nth_element(items, items + k, items + n);
    std::sort(items, items + k);
  }
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
  const auto lines = make_lines<3>({self, values, indices}, request.dim);
  const int64_t n = lines.size[0];
  const int64_t keep = request.keep;
  if (n == 0 || keep == 0) return;
  const int64_t next_in = lines.loop.inner_stride(0);
  const int64_t next_value = lines.loop.inner_stride(1);
  const int64_t next_index = lines.loop.inner_stride(2);
  const int64_t step_in = lines.step[0], step_value = lines.step[1], step_index = lines.step[2];
  const T* in = self.data<const T>();
  const int64_t grain = 1 + 2048 / n;
  parallel_with_scratch<P>(
      ctx, lines.count(), grain, 2 * n, [&](P* items, int64_t begin, int64_t end) {
        P* other = items + n;
        lines.for_each(begin, end, [&](const std::array<int64_t, 3>& at, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            const T* from = in + at[0] + i * next_in;
            for (int64_t k = 0; k < n; ++k) {
              items[k] = P(sort_key(from[k * step_in], request.descending), k);
            }
            const P* sorted = items;
            if (request.all) {
              sorted = sort_items(items, other, n, static_cast<int>(sizeof(SortKey<T>)));
            } else {
              select_items(items, n, keep);
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
  // A 0-dim tensor gives its element, whatever k.
  const int64_t keep = TensorView(args.self).ndim() == 0 ? 1 : args.k;
  order(ctx, {args.self, args.values, args.indices, args.dim, keep, args.largest != 0, false});
}

}  // namespace

void register_sorting(Candidates& candidates) {
  candidates.push_back(
      sdk::kernel<&sort>("sort.stable", MT_HASH_sort_stable, "radix", 0, MT_TAKES_STRIDED));
  candidates.push_back(sdk::kernel<&topk>("topk", MT_HASH_topk, "select", 0, MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
