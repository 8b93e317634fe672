#include "backends/reference/exact.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace mytorch::reference {

float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return nearest;
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  // Floats of one sign are ordered like their bits: one less is the neighbor towards zero.
  const uint32_t towards_zero = std::bit_cast<uint32_t>(nearest) - (away ? 1u : 0u);
  return std::bit_cast<float>(towards_zero | 1u);
}

namespace {

// Reads the elements of a dtype whose domain is Own, which represents each of them exactly:
// converting from Own gives the same result as converting from the element.
template <class E, class Own>
std::vector<E> read_from_domain(const sdk::TensorView& tensor, mt_dtype compute) {
  std::vector<Own> own;
  own.reserve(static_cast<size_t>(tensor.numel()));
  sdk::visit_dtype(tensor.dtype(), [&](auto tag) {
    using From = typename decltype(tag)::type;
    if constexpr (std::is_same_v<Domain<From>, Own>) {
      for (const From value : read_elements<From>(tensor)) own.push_back(sdk::convert<Own>(value));
    }
  });
  std::vector<E> values;
  values.reserve(own.size());
  sdk::visit_dtype(compute, [&](auto tag) {
    using Compute = typename decltype(tag)::type;
    for (const Own value : own) values.push_back(sdk::convert<E>(sdk::convert<Compute>(value)));
  });
  return values;
}

template <class From, class To>
void convert_element(const void* from, void* to) {
  if constexpr (std::is_same_v<From, bool>) {
    // Memory that nothing has written may hold any byte.
    *static_cast<To*>(to) = sdk::convert<To>(*static_cast<const uint8_t*>(from) != 0);
  } else {
    *static_cast<To*>(to) = sdk::convert<To>(*static_cast<const From*>(from));
  }
}

}  // namespace

template <class E>
std::vector<E> read_exact(const sdk::TensorView& tensor, mt_dtype compute) {
  return sdk::is_floating(tensor.dtype()) ? read_from_domain<E, double>(tensor, compute)
                                          : read_from_domain<E, int64_t>(tensor, compute);
}

template <class E>
void write_exact(const std::vector<E>& values, const sdk::TensorView& tensor) {
  sdk::visit_dtype(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> elements;
    elements.reserve(values.size());
    for (const E value : values) elements.push_back(rounded<T>(value));
    write_elements(elements, tensor);
  });
}

template std::vector<double> read_exact(const sdk::TensorView&, mt_dtype);
template std::vector<int64_t> read_exact(const sdk::TensorView&, mt_dtype);
template void write_exact(const std::vector<double>&, const sdk::TensorView&);
template void write_exact(const std::vector<int64_t>&, const sdk::TensorView&);

std::vector<int64_t> read_index(const sdk::TensorView& tensor) {
  return read_exact<int64_t>(tensor, sdk::dtype_of<int64_t>);
}

void copy(const sdk::TensorView& from, const sdk::TensorView& to) {
  using Convert = void (*)(const void*, void*);
  const Convert convert = sdk::visit_dtype(from.dtype(), [&](auto from_tag) {
    return sdk::visit_dtype(to.dtype(), [](auto to_tag) -> Convert {
      return &convert_element<typename decltype(from_tag)::type, typename decltype(to_tag)::type>;
    });
  });
  const Elements source(from, to.shape()), target(to);
  for (int64_t i = 0; i < target.count(); ++i) convert(source[i], target[i]);
}

}  // namespace mytorch::reference
