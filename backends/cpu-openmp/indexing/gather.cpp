// gather is a loop over the index in memory order: self has stride 0 along `dim`, and the index
// value selects its element. index_select copies whole blocks instead.
#include "mytorch/abi_ops/gather.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backends/cpu-openmp/common/index_range.h"
#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/common/take_rows.h"
#include "backends/cpu-openmp/indexing/indexing.h"
#include "mytorch/abi_ops/index_select.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// The dimension that a kernel indexes. A 0-dim tensor has one element along dimension 0.
struct Dim {
  int64_t number = 0, size = 1, stride = 0;

  Dim(const TensorView& tensor, int64_t dim) {
    if (tensor.ndim() == 0) return;
    number = dim < 0 ? dim + tensor.ndim() : dim;
    size = tensor.size(static_cast<int>(number));
    stride = tensor.stride(static_cast<int>(number));
  }
};

// to[i * ts] = from[i * fs + index[i * is] * along] for n elements.
template <class T>
void pick(T* to, int64_t ts, const int64_t* index, int64_t is, const T* from, int64_t fs,
          const Dim& dim, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t value = index[i * is];
    if (!in_range(value, dim.size)) fail_index("gather", value, dim.number, dim.size);
    to[i * ts] = from[i * fs + value * dim.stride];
  }
}

// Computes to[i] = from[index[i]], four elements at a time. Prefetches the elements of the next run
// at `next`, because hardware prefetchers do not follow indices. Not inlined, so that the loop has
// all registers.
template <class T>
[[gnu::noinline]] void pick_neighbours(T* to, const int64_t* index, const T* from, const T* next,
                                       const Dim& dim, int64_t n) {
  constexpr int64_t kStep = 4;
  const int64_t ahead = dim.size * kStep / n;
  // 1 or 0, so that four indices take one branch.
  const auto valid = [&](int64_t at) -> int { return in_range(at, dim.size) ? 1 : 0; };
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep, next += ahead) {
    const int64_t a = index[i], b = index[i + 1], c = index[i + 2], d = index[i + 3];
    if ((valid(a) & valid(b) & valid(c) & valid(d)) == 0) {
      break;  // pick() reports the index
    }
    __builtin_prefetch(next);
    const T x = from[a], y = from[b], z = from[c], w = from[d];
    to[i] = x, to[i + 1] = y, to[i + 2] = z, to[i + 3] = w;
  }
  pick(to + i, 1, index + i, 1, from, 0, dim, n - i);
}

void gather(mt_ctx& ctx, const mt_args_gather& args) {
  const TensorView self = args.self;
  const TensorView out = args.out;
  const IndexOperand operand(ctx, args.index);
  const TensorView index = operand.view();
  const Dim dim(self, args.dim);
  sdk::check_ndim(static_cast<size_t>(out.ndim()));
  int64_t fixed[sdk::kMaxDims];  // the strides of self; 0 along dim
  for (int d = 0; d < out.ndim(); ++d) {
    fixed[d] = d == dim.number || d >= self.ndim() ? 0 : self.stride(d);
  }
  // A 0-dim index of a 1-dim self, or the reverse, has a single element along dim.
  const sdk::StridedLoop<3> loop(
      out.shape(),
      {out.get()->dl.strides, index.ndim() == out.ndim() ? index.get()->dl.strides : fixed, fixed});
  const int64_t ts = loop.inner_stride(0), is = loop.inner_stride(1), fs = loop.inner_stride(2);
  const bool neighbours = ts == 1 && is == 1 && fs == 0 && dim.stride == 1;
  const int64_t to_next = loop.ndim() < 2 ? 0 : loop.stride(2, loop.ndim() - 2);
  sdk::visit_itemsize(self.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    sdk::parallel_for(ctx, 0, loop.numel(), 8192, [&](int64_t begin, int64_t end) {
      loop.for_each_run(begin, end, [&](const std::array<int64_t, 3>& at, int64_t n) {
        T* to = out.data<T>() + at[0];
        const int64_t* which = index.data<const int64_t>() + at[1];
        const T* from = self.data<const T>() + at[2];
        if (neighbours) {
          pick_neighbours(to, which, from, from + to_next, dim, n);
        } else {
          pick(to, ts, which, is, from, fs, dim, n);
        }
      });
    });
  });
}

// Slices of fewer elements would leave threads without work.
constexpr int64_t kFewElements = 64;

void index_select(mt_ctx& ctx, const mt_args_index_select& args) {
  const TensorView self = args.self;
  const TensorView out = args.out;
  const IndexOperand operand(ctx, args.index);
  const TensorView index = operand.view();
  const Dim dim(self, args.dim);
  const Dim out_dim(out, args.dim);
  const int64_t count = index.numel();
  const int64_t index_stride = index.ndim() == 0 ? 0 : index.stride(0);
  const int64_t* which = index.data<const int64_t>();
  check_indices(ctx, "index_select", which, index_stride, count, dim.number, dim.size);
  if (out.numel() == 0) return;
  // A loop over a slice. It is inside the loop over the index if slices are contiguous blocks, else
  // outside.
  const sdk::StridedLoop<2> slice = sdk::make_lines<2>({out, self}, args.dim).loop;
  const int64_t ts = slice.inner_stride(0), fs = slice.inner_stride(1);
  const int64_t run = slice.inner_size();
  const bool blocks = ts == 1 && fs == 1 && run >= 8;
  const int64_t pieces = slice.numel() / run;  // the runs of a slice
  sdk::visit_itemsize(self.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = out.data<T>();
    const T* from = self.data<const T>();
    if (blocks) {
      const auto row_bytes = [](const Dim& d) {
        return d.stride * static_cast<int64_t>(sizeof(T));
      };
      const int64_t bytes = run * static_cast<int64_t>(sizeof(T));
      const bool stream =
          out.numel() * static_cast<int64_t>(sizeof(T)) >= kStreamBytes && bytes >= kStreamRow;
      sdk::parallel_for(
          ctx, 0, pieces * count, 1 + 32768 / bytes, [&](int64_t begin, int64_t end) noexcept {
            for (int64_t i = begin; i < end;) {
              const int64_t first = i / count * count;
              const int64_t last = std::min(end, first + count);
              slice.for_each_run(i / count * run, i / count * run + 1,
                                 [&](const std::array<int64_t, 2>& at, int64_t) {
                                   take_rows(reinterpret_cast<char*>(to + at[0]),
                                             row_bytes(out_dim),
                                             reinterpret_cast<const char*>(from + at[1]),
                                             row_bytes(dim), bytes, i - first, last - first, stream,
                                             [&](int64_t j) { return which[j * index_stride]; });
                                 });
              i = last;
            }
            if (stream) stream_fence();
          });
      return;
    }
    const auto take = [&](T* t, const T* f, int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) {
        t[j * out_dim.stride] = f[which[j * index_stride] * dim.stride];
      }
    };
    if (slice.numel() < kFewElements) {  // the threads share the index
      slice.for_each([&](const std::array<int64_t, 2>& at) {
        sdk::parallel_for(ctx, 0, count, 8192, [&](int64_t first, int64_t last) noexcept {
          take(to + at[0], from + at[1], first, last);
        });
      });
      return;
    }
    sdk::parallel_for(
        ctx, 0, slice.numel(), 1 + 16384 / count, [&](int64_t begin, int64_t end) noexcept {
          slice.for_each_run(begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
            for (int64_t i = 0; i < n; ++i)
              take(to + at[0] + i * ts, from + at[1] + i * fs, 0, count);
          });
        });
  });
}

}  // namespace

void register_gather(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&gather>("memory_order", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&index_select>("blocks", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
