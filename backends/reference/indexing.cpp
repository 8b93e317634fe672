// Kernels with index values: gather, scatter, scatter_add, nonzero.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/reference/exact.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/iterate.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

// Returns the row-major strides of a shape.
std::vector<int64_t> contiguous_strides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride = sdk::wrapping_mul(stride, shape[d]);
  }
  return strides;
}

// Throws Error(MT_ERROR_VALUE) unless 0 <= value < size.
void check_index(const char* op, int64_t value, int64_t dim, int64_t size) {
  if (value >= 0 && value < size) return;
  throw sdk::Error(MT_ERROR_VALUE, "[" + std::string(op) + "] index " + std::to_string(value) +
                                       " is out of range for dimension " + std::to_string(dim) +
                                       " of size " + std::to_string(size));
}

// Calls f(at, same) for each element of `index` in row-major order: `at` is the row-major position
// in `indexed` that the index value selects, and `same` that of the index element in a tensor of
// shape `beside`, which may be larger than the index. Throws Error(MT_ERROR_VALUE) for index values
// out of range.
template <class F>
void for_each_index(const char* op, const sdk::TensorView& indexed, int64_t dim,
                    const sdk::TensorView& index, std::span<const int64_t> beside, F&& f) {
  const std::vector<int64_t> values = read_index(index);
  size_t i = 0;
  if (index.ndim() == 0 || indexed.ndim() == 0) {  // a 0-dim tensor counts as one element
    for (; i < values.size(); ++i) {
      check_index(op, values[i], 0, indexed.numel());
      f(static_cast<size_t>(values[i]), i);
    }
    return;
  }
  const int along = sdk::wrap_dim(dim, indexed.ndim());
  std::vector<int64_t> to = contiguous_strides(indexed.shape());
  std::vector<int64_t> from = contiguous_strides(beside);
  from.resize(to.size(), 1);  // of a 0-dim tensor beside a vector
  // Along `dim`, the index value takes the place of the index.
  const int64_t step = std::exchange(to[static_cast<size_t>(along)], 0);
  const sdk::StridedLoop<2> loop(index.shape(), {to.data(), from.data()}, sdk::Order::kRowMajor);
  loop.for_each([&](const std::array<int64_t, 2>& at) {
    const int64_t value = values[i++];
    check_index(op, value, along, indexed.size(along));
    f(static_cast<size_t>(at[0] + value * step), static_cast<size_t>(at[1]));
  });
}

}  // namespace

void gather(mt_ctx& /*ctx*/, const mt_args_gather& args) {
  const sdk::TensorView self = args.self;
  const sdk::TensorView index = args.index;
  sdk::visit_itemsize(self.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::vector<T> values = read_elements<T>(self);
    std::vector<T> out(static_cast<size_t>(index.numel()));
    for_each_index("gather", self, args.dim, index, index.shape(),
                   [&](size_t at, size_t i) { out[i] = values[at]; });
    write_elements(out, args.out);
  });
}

void scatter(mt_ctx& /*ctx*/, const mt_args_scatter_src& args) {
  const sdk::TensorView self = args.self;
  const sdk::TensorView src = args.src;
  sdk::visit_itemsize(self.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> out = read_elements<T>(self);
    const std::vector<T> values = read_elements<T>(src);
    for_each_index("scatter", self, args.dim, args.index, src.shape(),
                   [&](size_t at, size_t i) { out[at] = values[i]; });
    write_elements(out, args.out);
  });
}

void scatter_add(mt_ctx& /*ctx*/, const mt_args_scatter_add& args) {
  const sdk::TensorView self = args.self;
  const sdk::TensorView src = args.src;
  visit_domain(self.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    const std::vector<E> values = read_exact<E>(src, self.dtype());
    std::vector<Sum<E>> sums;
    for (const E start : read_exact<E>(self, self.dtype())) sums.emplace_back().add(start);
    for_each_index("scatter_add", self, args.dim, args.index, src.shape(),
                   [&](size_t at, size_t i) { sums[at].add(values[i]); });
    write_exact(sums, args.out);
  });
}

void nonzero(mt_ctx& ctx, const mt_args_nonzero& args) {
  const sdk::TensorView self = args.self;
  std::vector<int64_t> rows;
  int64_t count = 0;
  sdk::visit_dtype(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Elements elements(self);
    const std::vector<int64_t> strides = contiguous_strides(self.shape());
    for (int64_t i = 0; i < elements.count(); ++i) {
      if (!sdk::convert<bool>(*static_cast<const T*>(elements[i]))) continue;
      ++count;
      for (int d = 0; d < self.ndim(); ++d) {
        rows.push_back(i / strides[static_cast<size_t>(d)] % self.size(d));
      }
    }
  });
  const int64_t shape[] = {count, self.ndim()};
  const mt_tensor* out = ctx.make_output(&ctx, 0, shape, 2);
  if (out == nullptr) {
    throw sdk::Error(MT_ERROR_OUT_OF_MEMORY, "[nonzero] no memory for the output");
  }
  write_exact(rows, out);
}

}  // namespace mytorch::reference
