// Single elements of tensors in memory, apart from the framework's own conversions and kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "mytorch/dtype.h"
#include "mytorch/tensor.h"

namespace mytorch::conformance {

// An element's value: exactly an int64, or a double.
struct Element {
  bool is_float = false;
  int64_t i = 0;
  double d = 0;
  static Element of_int(int64_t value) { return {false, value, 0}; }
  static Element of_float(double value) { return {true, 0, value}; }
  double as_double() const { return is_float ? d : static_cast<double>(i); }
};

// Writes a value as the `index`-th element of memory of a type; a float becomes an integer by
// truncation, NaN and what does not fit become 0.
void store(const Element& value, ScalarType dtype, char* memory, int64_t index);
Element load(ScalarType dtype, const char* memory, int64_t index);
// The value that is read after it was written.
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

// Every element of a tensor in row-major order, whatever its device.
std::vector<Element> elements_of(const Tensor& tensor);

}  // namespace mytorch::conformance
