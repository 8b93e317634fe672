// scatter, scatter_add and scatter_reduce. Elements with the same target differ only along `dim`,
// so lines along it are independent. Threads divide the lines and process each in order, which
// gives the result of a row-major loop. The targets of a single long line are divided instead. The
// initial values of a line are copied just before elements are added, so that it stays in the
// cache.
#include "mytorch/abi_ops/scatter.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <type_traits>

#include "backends/cpu-openmp/common/index_range.h"
#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/indexing/indexing.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "mytorch/abi_ops/scatter_reduce.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

constexpr int64_t kStep =
    8;  // elements of a contiguous line put in one step: a cache line of indices
constexpr int64_t kAhead = 512;  // elements; hardware prefetchers stop at pages

struct Set {
  template <class T>
  static void put(T& to, T value) {
    to = value;
  }
};

struct Add {
  template <class T>
  static void put(T& to, T value) {
    to = sdk::wrapping_add(to, value);
  }
};

template <class T>
T multiplied(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a && b;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));  // wraps
  } else {
    return static_cast<T>(static_cast<sdk::Widened<T>>(a) * static_cast<sdk::Widened<T>>(b));
  }
}

struct Multiply {
  template <class T>
  static constexpr T start() {
    return T(1);
  }
  template <class T>
  static void put(T& to, T value) {
    to = multiplied(to, value);
  }
};

// NaN wins.
template <bool kLargest>
struct Extremum {
  template <class T>
  static constexpr T start() {
    using Limits = std::numeric_limits<T>;
    if constexpr (std::is_floating_point_v<T>) {
      return kLargest ? -Limits::infinity() : Limits::infinity();
    } else {
      return kLargest ? Limits::lowest() : Limits::max();
    }
  }
  template <class T>
  static void put(T& to, T value) {
    const bool wins = (kLargest ? value > to : value < to) || value != value;
    to = wins ? value : to;  // without a branch, which would be mispredicted
  }
};

// What elements are combined with if the old one does not count.
template <class Op>
struct Start {
  template <class T>
  static void put(T& to, T /*value*/) {
    to = Op::template start<T>();
  }
};

// The operands of a call, all with the same number of dimensions. The loop has the shape of the
// index; the other operands are also read in this shape.
class ScatterCall {
 public:
  ScatterCall(mt_ctx& ctx, const char* op, int64_t dim, const TensorView& index,
              const TensorView& src, const TensorView& self, const TensorView& out)
      : op_(op), tensors_{*index.get(), *src.get(), *self.get(), *out.get()} {
    // A source that aliases the output is copied before it is overwritten.
    if (src.raw() == out.raw() && src.numel() != 0) {
      tensors_[1] = contiguous_copy(ctx, src, src.dtype(), strides_);
    }
    static constexpr int64_t kOne[1] = {1}, kNone[1] = {0};
    for (mt_tensor& tensor : tensors_) {
      if (tensor.dl.ndim != 0) continue;  // a 0-dim tensor is one element
      tensor.dl.ndim = 1;
      tensor.dl.shape = const_cast<int64_t*>(kOne);
      tensor.dl.strides = const_cast<int64_t*>(kNone);
    }
    dim_ = dim < 0 ? dim + this->out().ndim() : dim;
    // The output starts as self: copied here if the index does not cover all lines, else line by
    // line. An empty index may have any sizes.
    for (int d = 0; d < this->out().ndim(); ++d) {
      const bool covers = d == dim_ || this->index().size(d) == this->out().size(d);
      if (covers && index.numel() != 0) continue;
      if (self.raw() != out.raw()) move(ctx, self, out);
      tensors_[2] = tensors_[3];
      break;
    }
  }
  ScatterCall(const ScatterCall&) = delete;

  const char* op() const { return op_; }
  int64_t dim() const { return dim_; }
  TensorView index() const { return &tensors_[0]; }
  TensorView src() const { return &tensors_[1]; }
  TensorView self() const { return &tensors_[2]; }
  TensorView out() const { return &tensors_[3]; }

 private:
  const char* op_;
  int64_t dim_;
  mt_tensor tensors_[4];
  int64_t strides_[sdk::kMaxDims];
};

// Calls f(line, element) for all elements of n lines; neighboring lines are processed together.
template <class F>
void for_each_of_lines(int64_t n, int64_t next, int64_t length, int64_t step, F&& f) {
  if (n > 1 && std::abs(next) < std::abs(step)) {
    for (int64_t k = 0; k < length; ++k) {
      for (int64_t i = 0; i < n; ++i) f(i, k);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < length; ++k) f(i, k);
    }
  }
}

// Lines of T are updated in place. Sums of 16-bit floats are accumulated in rows of W, float32, and
// rounded once. With `anew`, an operation that has a start begins there instead of at the old
// elements.
template <class Op, class W, class T>
void scatter_lines(mt_ctx& ctx, const ScatterCall& call, bool anew = false) {
  constexpr bool kBeside = !std::is_same_v<W, T>;
  const auto lines =
      sdk::make_lines<4>({call.index(), call.src(), call.self(), call.out()}, call.dim());
  const auto& step = lines.step;
  const std::array<int64_t, 4> next = {lines.loop.inner_stride(0), lines.loop.inner_stride(1),
                                       lines.loop.inner_stride(2), lines.loop.inner_stride(3)};
  const int64_t length = lines.size[0], size = lines.size[3];
  const bool copies = call.self().raw() != call.out().raw();
  // Elements [low, high) of lines [begin, end).
  const auto run = [&](W* rows, int64_t begin, int64_t end, int64_t low, int64_t high) {
    const int64_t part = high - low;
    for_each_group(lines, begin, end, [&](const std::array<int64_t, 4>& at, int64_t n) {
      const int64_t* index = call.index().data<const int64_t>() + at[0];
      const T* src = call.src().data<const T>() + at[1];
      const T* self = call.self().data<const T>() + at[2] + low * step[2];
      T* out = call.out().data<T>() + at[3] + low * step[3];
      const auto put = [&](auto op, W* to, int64_t to_step, int64_t value, T x) {
        if (in_range(value, low, high)) [[likely]] {
          op.put(to[(value - low) * to_step], sdk::convert<W>(x));
        } else if (!in_range(value, size)) {
          fail_index(call.op(), value, call.dim(), size);
        }
      };
      const auto put_by = [&](auto op, W* to, int64_t to_step, int64_t to_next) {
        const int64_t is = step[0], in = next[0], ss = step[1], sn = next[1];
        const int64_t* at_index = index;
        const T* at_src = src;
        if (is != 1 || ss != 1 || to_step != 1) {
          for_each_of_lines(n, in, length, is, [&](int64_t i, int64_t k) {
            put(op, to + i * to_next, to_step, index[k * is + i * in], src[k * ss + i * sn]);
          });
          return;
        }
        for (int64_t i = 0; i < n; ++i, at_index += in, at_src += sn, to += to_next) {
          int64_t k = 0;
          for (; k + kStep <= length; k += kStep) {
            __builtin_prefetch(at_index + k + kAhead);
#pragma GCC unroll 8
            for (int64_t j = k; j < k + kStep; ++j) put(op, to, 1, at_index[j], at_src[j]);
          }
          for (; k < length; ++k) put(op, to, 1, at_index[k], at_src[k]);
        }
      };
      const auto put_all = [&](W* to, int64_t to_step, int64_t to_next) {
        if constexpr (requires { Op::template start<W>(); }) {
          if (anew) put_by(Start<Op>(), to, to_step, to_next);
        }
        put_by(Op(), to, to_step, to_next);
      };
      if constexpr (kBeside) {
        load_lines(self, step[2], next[2], part, n, rows, part);
        put_all(rows, 1, part);
        store_lines(rows, part, out, step[3], next[3], part, n);
      } else {
        if (copies && step[2] == 1 && step[3] == 1) {
          for (int64_t i = 0; i < n; ++i) std::copy_n(self + i * next[2], part, out + i * next[3]);
        } else if (copies) {
          for_each_of_lines(n, next[3], part, step[3], [&](int64_t i, int64_t k) {
            out[k * step[3] + i * next[3]] = self[k * step[2] + i * next[2]];
          });
        }
        put_all(out, step[3], next[3]);
      }
    });
  };
  const int64_t count = call.index().numel() == 0 ? 0 : lines.count();
  // Of a line. Sizes may be absurd if there is none.
  const int64_t work = count == 0 ? 0 : length + (copies || kBeside ? size : 0);
  if (count == 1 && work >= 65536 && size >= 4096) {
    // Every thread reads all indices and uses those of its own targets.
    W* row = kBeside ? sdk::scratch<W>(ctx, size) : nullptr;
    sdk::parallel_for(ctx, 0, size, 2048, [&](int64_t low, int64_t high) {
      run(kBeside ? row + low : nullptr, 0, 1, low, high);
    });
    return;
  }
  const int64_t grain = 1 + 8192 / std::max<int64_t>(work, 1);
  parallel_with_scratch<W>(
      ctx, count, grain, kBeside ? std::min(count, kLinesTogether) * size : 0,
      [&](W* rows, int64_t begin, int64_t end) { run(rows, begin, end, 0, size); });
}

void scatter(mt_ctx& ctx, const mt_args_scatter_src& args) {
  const IndexOperand index(ctx, args.index);
  const ScatterCall call(ctx, "scatter", args.dim, index.view(), args.src, args.self, args.out);
  sdk::visit_itemsize(call.out().itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    scatter_lines<Set, T, T>(ctx, call);
  });
}

void scatter_add(mt_ctx& ctx, const mt_args_scatter_add& args) {
  const IndexOperand index(ctx, args.index);
  const ScatterCall call(ctx, "scatter_add", args.dim, index.view(), args.src, args.self, args.out);
  sdk::visit_dtype(call.out().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    scatter_lines<Add, sdk::Widened<T>, T>(ctx, call);
  });
}

const char* scatter_reduce_supports(const mt_args_scatter_reduce_two& args) {
  const std::string_view reduce = args.reduce;
  return reduce == "sum" || reduce == "mean" ? "sums and means, which scatter_add computes"
                                             : nullptr;
}

void scatter_reduce(mt_ctx& ctx, const mt_args_scatter_reduce_two& args) {
  const IndexOperand index(ctx, args.index);
  const ScatterCall call(ctx, "scatter_reduce", args.dim, index.view(), args.src, args.self,
                         args.out);
  const std::string_view reduce = args.reduce;
  sdk::visit_dtype(call.out().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const bool anew = args.include_self == 0;
    if (reduce == "prod") {
      scatter_lines<Multiply, W, T>(ctx, call, anew);
    } else if (reduce == "amax") {
      scatter_lines<Extremum<true>, W, T>(ctx, call, anew);
    } else {
      scatter_lines<Extremum<false>, W, T>(ctx, call, anew);
    }
  });
}

}  // namespace

void register_scatter(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&scatter>("lines", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&scatter_add>("lines", MT_TAKES_STRIDED));
  kernels.push_back(
      sdk::kernel<&scatter_reduce, &scatter_reduce_supports>("lines", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
