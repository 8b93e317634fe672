// Kernels along one dimension: cat, cumsum, sort.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "backends/reference/exact.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {

void cat(mt_ctx& /*ctx*/, const mt_args_cat& args) {
  const sdk::TensorView out = args.out;
  const int64_t dim = args.dim < 0 ? args.dim + out.ndim() : args.dim;
  int64_t begin = 0;
  for (int64_t i = 0; i < args.tensors.size; ++i) {
    const sdk::TensorView tensor = args.tensors.data[i];
    if (tensor.numel() == 0) {
      // Empty 1-dim tensors are skipped; others have no elements but may have a size along `dim`.
      if (tensor.ndim() == out.ndim()) begin += tensor.size(static_cast<int>(dim));
      continue;
    }
    // The part of `out` that this tensor is copied to.
    mt_tensor part = *out.get();
    part.dl.shape = tensor.get()->dl.shape;
    part.dl.data = out.data<char>() + begin * out.stride(static_cast<int>(dim)) * out.itemsize();
    part.dl.byte_offset = 0;
    part.flags = 0;
    copy(tensor, &part);
    begin += tensor.size(static_cast<int>(dim));
  }
}

void cumsum(mt_ctx& /*ctx*/, const mt_args_cumsum& args) {
  const sdk::TensorView out = args.out;
  const Along along(args.self, args.dim);
  visit_domain(out.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    std::vector<E> values = read_exact<E>(args.self, out.dtype());
    for (int64_t o = 0; o < along.outer; ++o) {
      for (int64_t i = 0; i < along.inner; ++i) {
        Sum<E> sum;
        for (int64_t k = 0; k < along.size; ++k) {
          E& value = values[static_cast<size_t>((o * along.size + k) * along.inner + i)];
          sum.add(value);
          value = sum.value();
        }
      }
    }
    write_exact(values, out);
  });
}

void sort(mt_ctx& /*ctx*/, const mt_args_sort_stable& args) {
  const sdk::TensorView self = args.self;
  const Along along(self, args.dim);
  visit_domain(self.dtype(), [&](auto domain_tag) {
    using E = typename decltype(domain_tag)::type;
    const std::vector<E> keys = read_exact<E>(self, self.dtype());
    sdk::visit_itemsize(self.itemsize(), [&](auto tag) {
      using T = typename decltype(tag)::type;  // elements keep their bits, including NaN payloads
      const std::vector<T> elements = read_elements<T>(self);
      std::vector<T> values(elements.size());
      std::vector<int64_t> indices(elements.size());
      std::vector<int64_t> order(static_cast<size_t>(along.size));
      for (int64_t o = 0; o < along.outer; ++o) {
        for (int64_t i = 0; i < along.inner; ++i) {
          const auto at = [&](int64_t k) {
            return static_cast<size_t>((o * along.size + k) * along.inner + i);
          };
          const auto less = [&](int64_t a, int64_t b) {
            const E x = keys[at(a)];
            const E y = keys[at(b)];
            return x == x && (y != y || x < y);  // NaN is larger than all numbers
          };
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
            return args.descending != 0 ? less(b, a) : less(a, b);
          });
          for (int64_t k = 0; k < along.size; ++k) {
            values[at(k)] = elements[at(order[static_cast<size_t>(k)])];
            indices[at(k)] = order[static_cast<size_t>(k)];
          }
        }
      }
      if (args.values != nullptr) write_elements(values, args.values);
      if (args.indices != nullptr) write_exact(indices, args.indices);
    });
  });
}

}  // namespace mytorch::reference
