// Kernels along one dimension: cat, scans, sort.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
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

namespace {

// Folds each line; `add(state, x)` returns the result so far.
template <class State, class Args, class Add>
void scan(const Args& args, Add add) {
  using E = decltype(add(std::declval<State&>(), 0));
  const sdk::TensorView out = args.out;
  const Along along(args.self, args.dim);
  std::vector<E> values = read_exact<E>(args.self, out.dtype());
  for (int64_t o = 0; o < along.outer; ++o) {
    for (int64_t i = 0; i < along.inner; ++i) {
      State state;
      for (int64_t k = 0; k < along.size; ++k) {
        E& value = values[static_cast<size_t>((o * along.size + k) * along.inner + i)];
        value = add(state, value);
      }
    }
  }
  write_exact(values, out);
}

// The last of equal elements, and of NaN, gives the index.
template <class Args, class Wins>
void scan_extrema(const Args& args, Wins wins) {
  const sdk::TensorView self = args.self;
  const Along along(self, args.dim);
  visit_domain(self.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    std::vector<E> values = read_exact<E>(self, self.dtype());
    std::vector<int64_t> indices(values.size());
    for (int64_t o = 0; o < along.outer; ++o) {
      for (int64_t i = 0; i < along.inner; ++i) {
        const auto at = [&](int64_t k) {
          return static_cast<size_t>((o * along.size + k) * along.inner + i);
        };
        for (int64_t k = 1; k < along.size; ++k) {
          const E x = values[at(k)], best = values[at(k - 1)];
          const bool taken = x != x || wins(x, best);
          values[at(k)] = taken ? x : best;
          indices[at(k)] = taken ? k : indices[at(k - 1)];
        }
      }
    }
    write_exact(values, args.values);
    write_exact(indices, args.indices);
  });
}

template <class E>
struct Product {
  E value = 1;
};

// The sum of exp(x - max).
struct LogSum {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
};

}  // namespace

void cumsum(mt_ctx& /*ctx*/, const mt_args_cumsum& args) {
  visit_domain(sdk::TensorView(args.out).dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    scan<Sum<E>>(args, [](Sum<E>& sum, E x) -> E {
      sum.add(x);
      return sum.value();
    });
  });
}

void cumprod(mt_ctx& /*ctx*/, const mt_args_cumprod& args) {
  visit_domain(sdk::TensorView(args.out).dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    scan<Product<E>>(args, [](Product<E>& product, E x) -> E {
      product.value = mul(product.value, x);
      return product.value;
    });
  });
}

void cummax(mt_ctx& /*ctx*/, const mt_args_cummax& args) {
  scan_extrema(args, [](auto x, auto best) { return x >= best; });
}

void cummin(mt_ctx& /*ctx*/, const mt_args_cummin& args) {
  scan_extrema(args, [](auto x, auto best) { return x <= best; });
}

void logcumsumexp(mt_ctx& /*ctx*/, const mt_args_logcumsumexp& args) {
  scan<LogSum>(args, [](LogSum& state, double x) -> double {
    if (x == state.max) {
      state.sum += 1;
    } else if (x > state.max) {
      state.sum = state.sum * std::exp(state.max - x) + 1;
      state.max = x;
    } else {
      state.sum += std::exp(x - state.max);
    }
    return state.max + std::log(state.sum);
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
