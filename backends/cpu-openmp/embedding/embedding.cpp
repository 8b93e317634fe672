// Rows of a table. The gradient is summed in the order of the indices. Threads divide its columns,
// so that no thread waits for another, whatever the indices are.
#include "mytorch/abi_ops/embedding.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backends/cpu-openmp/common/index_range.h"
#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/common/take_rows.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/embedding_dense_backward.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Returns a loop over the indices and the corresponding rows of a tensor with one more dimension.
sdk::StridedLoop<2> rows_of(const TensorView& index, const TensorView& rows) {
  return sdk::StridedLoop<2>(index.shape(), {index.get()->dl.strides, rows.get()->dl.strides},
                             sdk::Order::kRowMajor);
}

void embedding(mt_ctx& ctx, const mt_args_embedding& args) {
  const TensorView weight = args.weight;
  const TensorView out = args.out;
  const IndexOperand operand(ctx, args.indices);
  const TensorView index = operand.view();
  const auto loop = rows_of(index, out);
  const int64_t width = weight.size(1), table = weight.size(0);
  const int64_t row = weight.stride(0), from_step = weight.stride(1), to_step = out.stride(-1);
  sdk::visit_itemsize(weight.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t bytes = width * static_cast<int64_t>(sizeof(T));
    const bool contiguous = from_step == 1 && to_step == 1;
    const bool stream = loop.numel() * bytes >= kStreamBytes && bytes >= kStreamRow;
    const int64_t place = loop.inner_stride(0), to_row = loop.inner_stride(1);
    sdk::parallel_for(
        ctx, 0, loop.numel(), 1 + 32768 / (bytes + 1), [&](int64_t begin, int64_t end) {
          loop.for_each_run(begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
            const int64_t* which = index.data<const int64_t>() + at[0];
            for (int64_t i = 0; i < n; ++i) {
              const int64_t value = which[i * place];
              if (!in_range(value, table)) fail_index("embedding", value, 0, table);
            }
            const T* from = weight.data<const T>();
            T* to = out.data<T>() + at[1];
            if (contiguous) {
              take_rows(reinterpret_cast<char*>(to), to_row * static_cast<int64_t>(sizeof(T)),
                        reinterpret_cast<const char*>(from), row * static_cast<int64_t>(sizeof(T)),
                        bytes, 0, n, stream, [&](int64_t i) { return which[i * place]; });
              return;
            }
            for (int64_t i = 0; i < n; ++i) {
              for (int64_t k = 0; k < width; ++k) {
                to[i * to_row + k * to_step] = from[which[i * place] * row + k * from_step];
              }
            }
          });
          if (contiguous && stream) stream_fence();
        });
  });
}

// Sums into `table`, contiguous rows of W.
template <class T, class W>
void add_rows(mt_ctx& ctx, const mt_args_embedding_dense_backward& args, const TensorView& index,
              W* table, int64_t table_row, int64_t table_step) {
  const TensorView grad = args.grad_output;
  const int64_t width = grad.size(-1), rows = args.num_weights;
  const auto loop = rows_of(index, grad);
  const int64_t* data = index.data<const int64_t>();
  int64_t* counts = nullptr;
  if (args.scale_grad_by_freq != 0) {
    counts = sdk::scratch<int64_t>(ctx, rows);
    std::fill(counts, counts + rows, 0);
  }
  loop.for_each([&](const std::array<int64_t, 2>& at) {
    const int64_t value = data[at[0]];
    if (!in_range(value, rows)) fail_index("embedding_dense_backward", value, 0, rows);
    if (counts != nullptr) ++counts[value];
  });
  const int64_t step = grad.stride(-1);
  // At least a cache line of columns, and at least enough work for a thread.
  const int64_t grain = std::max<int64_t>(16, 16384 / (index.numel() + rows + 1));
  sdk::parallel_for(ctx, 0, width, grain, [&](int64_t first, int64_t last) noexcept {
    for (int64_t r = 0; r < rows; ++r) {
      W* to = table + r * table_row;
      for (int64_t k = first; k < last; ++k) to[k * table_step] = W{};
    }
    loop.for_each([&](const std::array<int64_t, 2>& at) {
      const int64_t value = data[at[0]];
      if (args.padding_idx >= 0 && value == args.padding_idx) return;
      W* to = table + value * table_row;
      const T* from = grad.data<const T>() + at[1];
      if (counts != nullptr) {
        const W count = static_cast<W>(counts[value]);
        for (int64_t k = first; k < last; ++k) {
          to[k * table_step] += sdk::convert<W>(from[k * step]) / count;
        }
      } else if (step == 1 && table_step == 1) {
        for (int64_t k = first; k < last; ++k) to[k] += sdk::convert<W>(from[k]);
      } else {
        for (int64_t k = first; k < last; ++k) {
          to[k * table_step] += sdk::convert<W>(from[k * step]);
        }
      }
    });
  });
}

void embedding_dense_backward(mt_ctx& ctx, const mt_args_embedding_dense_backward& args) {
  const TensorView out = args.out;
  if (!sdk::is_floating(out.dtype())) throw sdk::Declined{};
  const IndexOperand operand(ctx, args.indices);
  sdk::visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    if constexpr (std::is_same_v<T, W>) {
      add_rows<T, W>(ctx, args, operand.view(), out.data<T>(), out.stride(0), out.stride(1));
    } else {
      mt_tensor wide = *out.get();
      int64_t strides[2] = {out.size(1), 1};
      W* sums = sdk::scratch<W>(ctx, out.numel());
      wide.dl.dtype = sdk::dtype_of<W>;
      wide.dl.data = sums;
      wide.dl.byte_offset = 0;
      wide.dl.strides = strides;
      wide.flags = MT_TENSOR_CONTIGUOUS;
      add_rows<T, W>(ctx, args, operand.view(), sums, strides[0], 1);
      move(ctx, &wide, out);
    }
  });
}

}  // namespace

void register_embedding(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&embedding>("rows", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&embedding_dense_backward>("columns", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
