// Outputs with guard elements around them, which reveal writes out of bounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/elements.h"
#include "conformance/inputs.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::conformance {

inline constexpr int64_t kGuard = 16;  // elements before and after an output

// An output inside a larger block of memory, with a pattern around it and in its gaps.
struct Guarded {
  Tensor tensor;
  std::vector<int64_t> strides;
  std::string before;

  // The pattern starts at `first`; patterns with different starts differ in every element.
  Guarded(const Tensor& like, bool strided, int first = 1) {
    const std::vector<int64_t> shape = like.sizes().vec();
    strides.resize(shape.size());
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      if (strided && d + 1 == shape.size()) step = 2;
      strides[d] = step;
      step *= std::max<int64_t>(shape[d], 1);
    }
    const std::vector<int64_t> elements = {step + 2 * kGuard};
    Tensor memory = call("empty", {elements}, {{"dtype", Value(like.dtype())}})[0].tensor();
    auto* bytes = static_cast<char*>(memory.raw_mutable_data());
    for (int64_t i = 0; i < elements[0]; ++i) {
      store(Element::of_int((first + i % 5) % (memory.dtype() == kBool ? 2 : 64)), memory.dtype(),
            bytes, i);
    }
    if (!like.device().is_cpu()) memory = call("to.device", {memory, like.device()})[0].tensor();
    tensor = Tensor::adopt(new_view(memory.impl(), shape, strides, kGuard));
    before = storage_bytes(tensor);
  }

  // Whether no element outside of the tensor has changed.
  bool intact() const {
    const std::string after = storage_bytes(tensor);
    const size_t size = static_cast<size_t>(tensor.element_size());
    std::vector<bool> mine(before.size() / size, false);
    for_each_offset(tensor.sizes().vec(), strides,
                    [&](int64_t offset) { mine[offset + kGuard] = true; });
    for (size_t i = 0; i < mine.size(); ++i) {
      if (!mine[i] && before.compare(i * size, size, after, i * size, size) != 0) return false;
    }
    return true;
  }
};

}  // namespace mytorch::conformance
