// scatter and scatter_add. Elements that meet at one target differ only along `dim`, so lines along
// it are independent: threads share the lines, and each goes along `dim` in order, which makes the
// result that of a row-major loop. A single long line is shared by its targets instead.
#include "mytorch/abi_ops/scatter.h"

#include <array>
#include <type_traits>

#include "backends/cpu-openmp/indexing/indexing.h"
#include "backends/cpu-openmp/indexing/move.h"
#include "backends/cpu-openmp/indexing/range.h"
#include "backends/cpu-openmp/scan/lines.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

struct Set {
  template <class T>
  static void put(T& to, T value) {
    to = value;
  }
};

struct Add {
  template <class T>
  static void put(T& to, T value) {
    if constexpr (std::is_same_v<T, bool>) {
      to = to || value;
    } else if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      to = static_cast<T>(static_cast<U>(static_cast<U>(to) + static_cast<U>(value)));
    } else {
      to += value;
    }
  }
};

struct Call {
  const char* op;
  int64_t dim;
  TensorView index, src;
};

// How the loop over an index sees its three operands, all of the index's shape.
template <class Op, class W, class T>
void scatter_lines(mt_ctx& ctx, const Call& call, W* out, const TensorView& out_view) {
  const TensorView& index = call.index;
  if (index.numel() == 0) return;
  // Operands of other shapes are seen through the index's shape; 0-dim ones as one element.
  mt_tensor shaped[2] = {*out_view.get(), *call.src.get()};
  int64_t no_strides[1] = {0};
  int64_t one[1] = {1};
  mt_tensor flat_index = *index.get();
  const int64_t size =
      out_view.ndim() == 0
          ? 1
          : out_view.size(static_cast<int>(call.dim < 0 ? call.dim + out_view.ndim() : call.dim));
  const int64_t number = out_view.ndim() == 0 || call.dim >= 0 ? std::max<int64_t>(call.dim, 0)
                                                               : call.dim + out_view.ndim();
  int64_t along = 0;
  if (out_view.ndim() != 0) along = out_view.stride(static_cast<int>(number));
  for (mt_tensor* t : {&shaped[0], &shaped[1], &flat_index}) {
    if (t->dl.ndim != 0) continue;
    t->dl.ndim = 1;
    t->dl.shape = one;
    t->dl.strides = no_strides;
  }
  const auto lines = make_lines<3>({&flat_index, &shaped[0], &shaped[1]}, number);
  const int64_t length = lines.size[0];
  const int64_t is = lines.step[0], ss = lines.step[2];
  const int64_t in = lines.loop.inner_stride(0), on = lines.loop.inner_stride(1);
  const int64_t sn = lines.loop.inner_stride(2);
  const int64_t* which = index.data<const int64_t>();
  const T* src = call.src.data<const T>();
  const auto run = [&](int64_t begin, int64_t end, int64_t low, int64_t high) {
    lines.for_each(begin, end, [&](const std::array<int64_t, 3>& at, int64_t n) {
      const int64_t* w = which + at[0];
      W* o = out + at[1];
      const T* s = src + at[2];
      const auto put = [&](int64_t k, int64_t i) {
        const int64_t value = w[k * is + i * in];
        if (!in_range(value, size)) fail_index(call.op, value, number, size);
        if (value < low || value >= high) return;
        Op::put(o[value * along + i * on], sdk::convert<W>(s[k * ss + i * sn]));
      };
      if (n > 1 && std::abs(in) < std::abs(is)) {
        for (int64_t k = 0; k < length; ++k) {
          for (int64_t i = 0; i < n; ++i) put(k, i);
        }
      } else {
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t k = 0; k < length; ++k) put(k, i);
        }
      }
    });
  };
  if (lines.count() == 1 && ctx.num_threads > 1 && length >= 65536 && size >= 4096) {
    // Every thread reads all of the indices, and keeps those of its own targets.
    sdk::parallel_for(ctx, 0, size, 2048, [&](int64_t low, int64_t high) { run(0, 1, low, high); });
    return;
  }
  const int64_t grain = 1 + 8192 / std::max<int64_t>(length, 1);
  sdk::parallel_for(ctx, 0, lines.count(), grain,
                    [&](int64_t begin, int64_t end) { run(begin, end, 0, size); });
}

// out starts as self; in an in-place call it is self already. A source that is the output itself
// must be read before it is overwritten.
Call prepare(mt_ctx& ctx, const char* op, const TensorView& self, int64_t dim,
             const IndexOperand& index, const TensorView& src, const TensorView& out,
             mt_tensor& src_copy, int64_t* strides) {
  Call call{op, dim, index.view(), src};
  if (src.raw() == out.raw() && src.numel() != 0) {
    src_copy = *src.get();
    int64_t stride = 1;
    for (int d = src.ndim() - 1; d >= 0; --d) {
      strides[d] = stride;
      stride *= src.size(d);
    }
    src_copy.dl.strides = strides;
    src_copy.dl.data = sdk::scratch<char>(ctx, src.numel() * src.itemsize());
    src_copy.dl.byte_offset = 0;
    src_copy.flags = MT_TENSOR_DENSE;
    move(ctx, src, &src_copy);
    call.src = &src_copy;
  }
  if (self.raw() != out.raw()) move(ctx, self, out);
  return call;
}

void scatter(mt_ctx& ctx, const mt_args_scatter_src& args) {
  const TensorView out = args.out;
  const IndexOperand index(ctx, args.index);
  mt_tensor src;
  int64_t strides[sdk::kMaxDims];
  const Call call =
      prepare(ctx, "scatter", args.self, args.dim, index, args.src, out, src, strides);
  sdk::visit_itemsize(out.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    scatter_lines<Set, T, T>(ctx, call, out.data<T>(), out);
  });
}

void scatter_add(mt_ctx& ctx, const mt_args_scatter_add& args) {
  const TensorView out = args.out;
  const IndexOperand index(ctx, args.index);
  mt_tensor src;
  int64_t strides[sdk::kMaxDims];
  const Call call =
      prepare(ctx, "scatter_add", args.self, args.dim, index, args.src, out, src, strides);
  sdk::visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sdk::is_reduced_float<T>) {
      // Sums of 16-bit numbers are kept in float32 and rounded once.
      mt_tensor wide = *out.get();
      int64_t dense[sdk::kMaxDims];
      int64_t stride = 1;
      for (int d = out.ndim() - 1; d >= 0; --d) {
        dense[d] = stride;
        stride *= out.size(d);
      }
      float* sums = sdk::scratch<float>(ctx, out.numel());
      wide.dl.data = sums;
      wide.dl.byte_offset = 0;
      wide.dl.dtype = sdk::dtype_of<float>;
      wide.dl.strides = dense;
      wide.flags = MT_TENSOR_DENSE;
      move(ctx, out, &wide);
      scatter_lines<Add, float, T>(ctx, call, sums, &wide);
      move(ctx, &wide, out);
    } else {
      scatter_lines<Add, T, T>(ctx, call, out.data<T>(), out);
    }
  });
}

}  // namespace

void register_scatter(Candidates& candidates) {
  candidates.push_back(
      sdk::kernel<&scatter>("scatter.src", MT_HASH_scatter_src, "lines", 0, MT_TAKES_STRIDED));
  candidates.push_back(
      sdk::kernel<&scatter_add>("scatter_add", MT_HASH_scatter_add, "lines", 0, MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
