// Reads and writes single elements of tensors, independently of the framework's conversions and
// kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "mytorch/dtype.h"
#include "mytorch/tensor.h"

namespace mytorch::conformance {

// The value of an element: an exact int64, or a double, with another for the imaginary part.
struct Element {
  bool is_float = false;
  int64_t i = 0;
  double d = 0;
  double im = 0;
  static Element of_int(int64_t value) { return {false, value, 0, 0}; }
  static Element of_float(double value) { return {true, 0, value, 0}; }
  static Element of_complex(double real, double imaginary) { return {true, 0, real, imaginary}; }
  double as_double() const { return is_float ? d : static_cast<double>(i); }
  double size() const { return im == 0 ? std::abs(as_double()) : std::hypot(d, im); }
};

// Writes a value to element `index` of `memory`. A float becomes an integer by truncation; NaN and
// values out of range become 0.
void store(const Element& value, ScalarType dtype, char* memory, int64_t index);
Element load(ScalarType dtype, const char* memory, int64_t index);
// Returns the value after it is stored as `dtype` and loaded again.
Element round_trip(const Element& value, ScalarType dtype);

// Calls f(offset in elements) for every index of `shape` in row-major order.
template <class F>
void for_each_offset(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, F f) {
  for (int64_t size : shape) {
    if (size == 0) return;
  }
  std::vector<int64_t> index(shape.size(), 0);
  int64_t offset = 0;
  while (true) {
    f(offset);
    size_t d = shape.size();
    while (d-- > 0) {
      offset += strides[d];
      if (++index[d] < shape[d]) break;
      offset -= strides[d] * shape[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (shape.empty()) return;
  }
}

// Returns every element of a tensor on any device in row-major order.
std::vector<Element> elements_of(const Tensor& tensor);

}  // namespace mytorch::conformance
