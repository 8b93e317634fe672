// The two domains in which the reference computes: double for floating types, int64 for integers
// and bool. Kernels read whole operands into contiguous arrays of one domain, compute without
// regard for speed, and round once when they write.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backends/reference/elements.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {

template <class T>
using Domain = std::conditional_t<sdk::is_float_type<T>, double, int64_t>;

// Calls f(TypeTag<double>) or f(TypeTag<int64_t>).
template <class F>
decltype(auto) visit_domain(mt_dtype compute, F&& f) {
  if (sdk::is_floating(compute)) return f(sdk::TypeTag<double>{});
  return f(sdk::TypeTag<int64_t>{});
}

// Rounds to odd: the last bit of an inexact result is 1, so that rounding it again to 16 bits gives
// the same result as rounding the double directly.
float round_to_odd(double value);

// Returns a value of a domain as T, rounded once. (sdk::convert to 16 bits rounds to float first,
// which is right for conversions, but results of the reference are the nearest values.)
template <class T, class E>
T rounded(E value) {
  if constexpr (sdk::is_reduced_float<T> && std::is_same_v<E, double>) {
    return T(round_to_odd(value));
  } else {
    return sdk::convert<T>(value);
  }
}

// Integers wrap around; overflow of signed numbers would be undefined.
inline double add(double a, double b) { return a + b; }
inline double sub(double a, double b) { return a - b; }
inline double mul(double a, double b) { return a * b; }
inline int64_t add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
inline int64_t mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// A running sum: exact modulo 2^64, or in double with Neumaier's compensation.
template <class E>
class Sum {
 public:
  void add(E value) {
    if constexpr (std::is_same_v<E, double>) {
      const double total = total_ + value;
      lost_ +=
          std::abs(total_) >= std::abs(value) ? (total_ - total) + value : (value - total) + total_;
      total_ = total;
    } else {
      total_ = reference::add(total_, value);
    }
  }
  E value() const {
    if constexpr (std::is_same_v<E, double>) {
      // The compensation of an infinite sum is NaN.
      return std::isfinite(total_) ? total_ + lost_ : total_;
    } else {
      return total_;
    }
  }

 private:
  E total_ = 0;
  E lost_ = 0;
};

// ---- whole operands ----

// Returns the elements in row-major order, unconverted. T is the dtype's type or an integer of its
// size.
template <class T>
std::vector<T> read_elements(const sdk::TensorView& tensor) {
  std::vector<T> values;
  values.reserve(static_cast<size_t>(tensor.numel()));
  const Elements from(tensor);
  for (int64_t i = 0; i < from.count(); ++i) values.push_back(*static_cast<const T*>(from[i]));
  return values;
}

template <class T>
void write_elements(const std::vector<T>& values, const sdk::TensorView& tensor) {
  const Elements to(tensor);
  for (int64_t i = 0; i < to.count(); ++i) {
    *static_cast<T*>(to[i]) = values[static_cast<size_t>(i)];
  }
}

// Returns the elements converted to `compute`, in its domain E.
template <class E>
std::vector<E> read_exact(const sdk::TensorView& tensor, mt_dtype compute);

// Writes values in row-major order, each rounded once.
template <class E>
void write_exact(const std::vector<E>& values, const sdk::TensorView& tensor);
template <class E>
void write_exact(const std::vector<Sum<E>>& sums, const sdk::TensorView& tensor) {
  std::vector<E> values;
  values.reserve(sums.size());
  for (const Sum<E>& sum : sums) values.push_back(sum.value());
  write_exact(values, tensor);
}

// Returns the elements of an index operand of any integer type.
std::vector<int64_t> read_index(const sdk::TensorView& tensor);

// Copies the elements of `from`, broadcast and converted, to `to`.
void copy(const sdk::TensorView& from, const sdk::TensorView& to);

// A tensor as (outer, size, inner), where `size` is that of dimension `dim`. A 0-dim tensor has one
// element.
struct Along {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;

  Along(const sdk::TensorView& tensor, int64_t dim) {
    const int ndim = tensor.ndim();
    if (ndim == 0) return;
    const int64_t wrapped = dim < 0 ? dim + ndim : dim;
    for (int d = 0; d < ndim; ++d) {
      (d < wrapped ? outer : d == wrapped ? size : inner) *= tensor.size(d);
    }
  }
};

}  // namespace mytorch::reference
