// Each kernel reads its operands into contiguous vectors of double or int64, computes, and writes
// the results. The kernels favor simplicity over speed, because the chip is simulated.
#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "mytorch/abi_ops/arange.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/cat.h"
#include "mytorch/abi_ops/copy_.h"
#include "mytorch/abi_ops/cumsum.h"
#include "mytorch/abi_ops/fill_.h"
#include "mytorch/abi_ops/gather.h"
#include "mytorch/abi_ops/nonzero.h"
#include "mytorch/abi_ops/normal_.h"
#include "mytorch/abi_ops/random_.h"
#include "mytorch/abi_ops/scatter.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "mytorch/abi_ops/sort.h"
#include "mytorch/abi_ops/uniform_.h"
#include "mytorch/backend/philox.h"
#include "operand.h"
#include "operators.h"
#include "windows.h"

namespace npu {
namespace {

namespace philox = sdk::philox;

// ---- copies and fills --------------------------------------------------------------------------

void convert_into(const Operand& from, Operand& to) {
  sdk::visit_dtype(to.dtype, [&](auto to_tag) {
    using To = typename decltype(to_tag)::type;
    sdk::visit_dtype(from.dtype, [&](auto from_tag) {
      using From = typename decltype(from_tag)::type;
      auto* out = reinterpret_cast<To*>(to.data());
      const auto* in = reinterpret_cast<const From*>(from.data());
      Odometer at(to.shape, {to.strides, from.strides_in(to.shape)});
      for (int64_t i = 0, n = to.numel(); i < n; ++i, at.next()) {
        out[at.offset(0)] = sdk::convert<To>(in[at.offset(1)]);
      }
    });
  });
}

void copy_(mt_ctx& ctx, const mt_args_copy_& args) {
  launch(ctx,
         [from = Operand(args.src), to = Operand(args.self)]() mutable { convert_into(from, to); });
}

void fill_(mt_ctx& ctx, const mt_args_fill_& args) {
  launch(ctx, [from = Operand(args.value), to = Operand(args.self)]() mutable {
    convert_into(from, to);
  });
}

void arange(mt_ctx& ctx, const mt_args_arange_start_step& args) {
  launch(ctx, [out = Operand(args.out), start = args.start, step = args.step]() mutable {
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      const E first = sdk::to<E>(start);
      const E by = sdk::to<E>(step, E(1));
      std::vector<E> values(static_cast<size_t>(out.numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = first + by * static_cast<E>(i);
      write(values, out);
    });
  });
}

// ---- random numbers ----------------------------------------------------------------------------

// Sets element i in row-major order to value(stream, i), which is equal on every backend.
template <class F>
void fill_randomly(mt_ctx& ctx, const mt_tensor* self, const mt_random& generator, F value) {
  launch(ctx, [to = Operand(self), stream = philox::Stream(generator), value]() mutable {
    sdk::visit_dtype(to.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      auto* data = reinterpret_cast<T*>(to.data());
      Odometer at(to.shape, {to.strides});
      for (int64_t i = 0, n = to.numel(); i < n; ++i, at.next()) {
        data[at.offset(0)] = value(tag, stream, i);
      }
    });
  });
}

// Fills a floating-point tensor; the host refuses other types.
template <class F>
void fill_with_floats(mt_ctx& ctx, const mt_tensor* self, const mt_random& generator, F draw) {
  fill_randomly(ctx, self, generator, [draw](auto tag, const auto& stream, int64_t i) {
    using T = typename decltype(tag)::type;
    if constexpr (sdk::is_float_type<T>) return draw(T(), stream, i);
    return T();
  });
}

void uniform_(mt_ctx& ctx, const mt_args_uniform_& args) {
  fill_with_floats(ctx, args.self, args.generator,
                   [from = args.from, to = args.to](auto zero, const auto& stream, int64_t i) {
                     return philox::uniform<decltype(zero)>(stream, i, from, to);
                   });
}

void normal_(mt_ctx& ctx, const mt_args_normal_& args) {
  fill_with_floats(ctx, args.self, args.generator,
                   [mean = args.mean, std = args.std](auto zero, const auto& stream, int64_t i) {
                     return philox::normal<decltype(zero)>(stream, i, mean, std);
                   });
}

void random_(mt_ctx& ctx, const mt_args_random__from& args) {
  fill_randomly(ctx, args.self, args.generator,
                [from = args.from, to = args.to](auto tag, const auto& stream, int64_t i) {
                  using T = typename decltype(tag)::type;
                  const auto low = static_cast<uint64_t>(from);
                  const uint64_t range =
                      to.present != 0
                          ? static_cast<uint64_t>(to.value) - low
                          : static_cast<uint64_t>(philox::largest_random<T>()) - low + 1;
                  return philox::integer<T>(stream, i, from, range);
                });
}

// ---- products ----------------------------------------------------------------------------------

void bmm(mt_ctx& ctx, const mt_args_bmm& args) {
  launch(ctx, [a = Operand(args.self), b = Operand(args.mat2), out = Operand(args.out)]() mutable {
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      const std::vector<E> left = read<E>(a);
      const std::vector<E> right = read<E>(b);
      const int64_t rows = a.size(1);
      const int64_t depth = a.size(2);
      const int64_t columns = b.size(2);
      std::vector<E> sums(static_cast<size_t>(out.numel()), E(0));
      for (int64_t row = 0; row < a.size(0) * rows; ++row) {
        E* sum = sums.data() + row * columns;
        for (int64_t k = 0; k < depth; ++k) {
          const E x = left[static_cast<size_t>(row * depth + k)];
          const E* y = right.data() + (row / rows * depth + k) * columns;
          for (int64_t j = 0; j < columns; ++j) sum[j] = plus(sum[j], times(x, y[j]));
        }
      }
      write(sums, out);
    });
  });
}

// ---- along a dimension -------------------------------------------------------------------------

// A tensor viewed as (outer, size, inner) around a dimension.
struct Along {
  Along(const Operand& tensor, int64_t dim) {
    const auto ndim = static_cast<int64_t>(tensor.shape.size());
    for (int64_t d = 0; d < ndim; ++d) {
      const int64_t at = dim < 0 ? dim + ndim : dim;
      (d < at ? outer : d == at ? size : inner) *= tensor.shape[static_cast<size_t>(d)];
    }
  }
  // Calls f(at) for each line along the dimension; at(k) is the position of its k-th element.
  template <class F>
  void for_each_line(F&& f) const {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        f([=, this](int64_t k) { return static_cast<size_t>((o * size + k) * inner + i); });
      }
    }
  }
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
};

void cat(mt_ctx& ctx, const mt_args_cat& args) {
  std::vector<Operand> tensors;
  for (int64_t i = 0; i < args.tensors.size; ++i) tensors.emplace_back(args.tensors.data[i]);
  launch(ctx, [tensors, dim = args.dim, out = Operand(args.out)]() mutable {
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      std::vector<E> values(static_cast<size_t>(out.numel()));
      const Along all(out, dim);
      int64_t begin = 0;
      for (const Operand& tensor : tensors) {
        if (tensor.shape.size() != out.shape.size()) continue;  // legacy empty tensor of shape (0,)
        const std::vector<E> part = read<E>(tensor);
        const Along own(tensor, dim);
        const int64_t run = own.size * own.inner;
        for (int64_t o = 0; o < own.outer; ++o) {
          std::copy_n(part.begin() + o * run, run,
                      values.begin() + (o * all.size + begin) * all.inner);
        }
        begin += own.size;
      }
      write(values, out);
    });
  });
}

void cumsum(mt_ctx& ctx, const mt_args_cumsum& args) {
  launch(ctx, [from = Operand(args.self), dim = args.dim, out = Operand(args.out)]() mutable {
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      std::vector<E> values = read<E>(from);
      const Along along(from, dim);
      along.for_each_line([&](auto at) {
        for (int64_t k = 1; k < along.size; ++k) {
          values[at(k)] = plus(values[at(k - 1)], values[at(k)]);
        }
      });
      write(values, out);
    });
  });
}

void sort(mt_ctx& ctx, const mt_args_sort_stable& args) {
  launch(ctx, [from = Operand(args.self), dim = args.dim, descending = args.descending != 0,
               values = Operand(args.values), indices = Operand(args.indices)]() mutable {
    visit_domain(from.dtype, [&](auto zero) {
      using E = decltype(zero);
      const std::vector<E> keys = read<E>(from);
      std::vector<E> sorted(keys.size());
      std::vector<int64_t> places(keys.size());
      const Along along(from, dim);
      std::vector<int64_t> order(static_cast<size_t>(along.size));
      along.for_each_line([&](auto at) {
        const auto less = [&](int64_t a, int64_t b) {
          const E x = keys[at(a)];
          const E y = keys[at(b)];
          return x == x && (y != y || x < y);  // NaN is larger than every number
        };
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          return descending ? less(b, a) : less(a, b);
        });
        for (int64_t k = 0; k < along.size; ++k) {
          sorted[at(k)] = keys[at(order[static_cast<size_t>(k)])];
          places[at(k)] = order[static_cast<size_t>(k)];
        }
      });
      if (values.present) write(sorted, values);
      if (indices.present) write(places, indices);
    });
  });
}

// ---- by index ----------------------------------------------------------------------------------

// Calls f(at, same) for each element of `index`. `at` is the selected offset in a contiguous tensor
// of the shape of `indexed`; `same` is the element's offset in a contiguous tensor of shape
// `beside`. An index out of range throws an error, which the stream keeps.
template <class F>
void for_each_index(const char* op, const Operand& indexed, int64_t dim, const Operand& index,
                    const Sizes& beside, F&& f) {
  const std::vector<int64_t> values = read<int64_t>(index);
  // Treats a 0-dim tensor as one of shape (1,).
  const Sizes shape = indexed.shape.empty() ? Sizes{1} : indexed.shape;
  const Sizes over = index.shape.empty() ? Sizes{1} : index.shape;
  const Sizes own = beside.empty() ? Sizes{1} : beside;
  const auto along = static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(shape.size()) : dim);
  const auto contiguous = [](const Sizes& sizes) {
    Sizes strides(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
    return strides;
  };
  Sizes to = contiguous(shape);
  const int64_t step = std::exchange(to[along], 0);
  Odometer at(over, {to, contiguous(own)});
  for (const int64_t value : values) {
    if (value < 0 || value >= shape[along]) {
      throw sdk::Error(MT_ERROR_VALUE, "[" + std::string(op) + "] index " + std::to_string(value) +
                                           " is out of range for dimension " +
                                           std::to_string(along) + " of size " +
                                           std::to_string(shape[along]));
    }
    f(static_cast<size_t>(at.offset(0) + value * step), static_cast<size_t>(at.offset(1)));
    at.next();
  }
}

void gather(mt_ctx& ctx, const mt_args_gather& args) {
  launch(ctx, [self = Operand(args.self), dim = args.dim, index = Operand(args.index),
               out = Operand(args.out)]() mutable {
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      const std::vector<E> from = read<E>(self);
      std::vector<E> values(static_cast<size_t>(index.numel()));
      for_each_index("gather", self, dim, index, index.shape,
                     [&](size_t at, size_t i) { values[i] = from[at]; });
      write(values, out);
    });
  });
}

template <class Args>
void scatter_with(mt_ctx& ctx, const Args& args, const char* op, bool adds) {
  launch(ctx, [self = Operand(args.self), dim = args.dim, index = Operand(args.index),
               src = Operand(args.src), out = Operand(args.out), op, adds]() mutable {
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      std::vector<E> values = read<E>(self);
      const std::vector<E> from = read<E>(src);
      for_each_index(op, self, dim, index, src.shape, [&](size_t at, size_t i) {
        values[at] = adds ? plus(values[at], from[i]) : from[i];
      });
      write(values, out);
    });
  });
}
void scatter(mt_ctx& ctx, const mt_args_scatter_src& args) {
  scatter_with(ctx, args, "scatter", false);
}
void scatter_add(mt_ctx& ctx, const mt_args_scatter_add& args) {
  scatter_with(ctx, args, "scatter_add", true);
}

// The shape of the result depends on the data, so the host waits for the count.
void nonzero(mt_ctx& ctx, const mt_args_nonzero& args) {
  const Operand self = args.self;
  std::vector<int64_t> rows;
  int64_t count = 0;
  launch(ctx, [&] {
    const std::vector<double> values = read<double>(self);
    Odometer at(self.shape, {self.strides});
    for (const double value : values) {
      if (value != 0) {
        ++count;
        rows.insert(rows.end(), at.index().begin(), at.index().end());
      }
      at.next();
    }
  });
  static_cast<Stream*>(ctx.stream)->record()->wait();
  const int64_t shape[] = {count, static_cast<int64_t>(self.shape.size())};
  const mt_tensor* made = ctx.make_output(&ctx, 0, shape, 2);
  if (made == nullptr) {
    throw sdk::Error(MT_ERROR_OUT_OF_MEMORY, "[nonzero] no memory for the output");
  }
  launch(ctx, [rows, out = Operand(made)]() mutable { write(rows, out); });
}

}  // namespace

std::span<const mt_kernel_entry> kernels() {
  // The kernels accept any strides and types. copy_ and fill_ also broadcast; they do not accept
  // aliases, because they may write wider elements than they read.
  constexpr uint32_t kAny = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;
  constexpr uint32_t kCopies = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES | MT_TAKES_BROADCAST;
  static constexpr mt_kernel_entry kPlain[] = {
      sdk::kernel<&copy_>("chip", kCopies),    sdk::kernel<&fill_>("chip", kCopies),
      sdk::kernel<&arange>("chip", kAny),      sdk::kernel<&uniform_>("chip", kAny),
      sdk::kernel<&normal_>("chip", kAny),     sdk::kernel<&random_>("chip", kAny),
      sdk::kernel<&bmm>("chip", kAny),         sdk::kernel<&cat>("chip", kAny),
      sdk::kernel<&cumsum>("chip", kAny),      sdk::kernel<&sort>("chip", kAny),
      sdk::kernel<&gather>("chip", kAny),      sdk::kernel<&scatter>("chip", kAny),
      sdk::kernel<&scatter_add>("chip", kAny), sdk::kernel<&nonzero>("chip", kAny),
  };
  static const std::vector<mt_kernel_entry>* const all = [] {
    auto* list = new std::vector<mt_kernel_entry>(std::begin(kPlain), std::end(kPlain));
    add_window_kernels(*list);
    add_operator_kernels(*list);
    return list;
  }();
  return *all;
}

}  // namespace npu
