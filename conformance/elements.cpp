#include "conformance/elements.h"

#include "mytorch/call.h"

namespace mytorch::conformance {
namespace {

template <class F>
auto visit(ScalarType dtype, F f) {
  switch (dtype) {
    case kBool:
      return f(bool{});
    case kUInt8:
      return f(uint8_t{});
    case kInt8:
      return f(int8_t{});
    case kInt16:
      return f(int16_t{});
    case kInt32:
      return f(int32_t{});
    case kInt64:
      return f(int64_t{});
    case kFloat16:
      return f(Half{});
    case kBFloat16:
      return f(BFloat16{});
    case kFloat32:
      return f(float{});
    case kFloat64:
    case kComplex64:
    case kComplex128:
      break;  // the caller reads the parts
  }
  return f(double{});
}

// Returns 0 for a double out of the range of T, for which a cast is undefined.
template <class T>
T from_double(double value) {
  constexpr double kLow = sizeof(T) == 8 ? -0x1p63 : -0x1p31;
  if (!(value > kLow - 1 && value < -kLow)) return T{0};
  return static_cast<T>(static_cast<int64_t>(value));
}

}  // namespace

void store(const Element& value, ScalarType dtype, char* memory, int64_t index) {
  if (is_complex(dtype)) {
    store(Element::of_float(value.as_double()), to_real(dtype), memory, 2 * index);
    store(Element::of_float(value.im), to_real(dtype), memory, 2 * index + 1);
    return;
  }
  visit(dtype, [&](auto zero) {
    using T = decltype(zero);
    T stored;
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      stored = T(static_cast<float>(value.as_double()));
    } else if constexpr (std::is_same_v<T, bool>) {
      stored = value.is_float ? value.d != 0 : value.i != 0;
    } else if constexpr (std::is_integral_v<T>) {
      stored = value.is_float ? from_double<T>(value.d) : static_cast<T>(value.i);
    } else {
      stored = static_cast<T>(value.as_double());
    }
    std::memcpy(memory + index * static_cast<int64_t>(sizeof(T)), &stored, sizeof(T));
  });
}

Element load(ScalarType dtype, const char* memory, int64_t index) {
  if (is_complex(dtype)) {
    const ScalarType part = to_real(dtype);
    return Element::of_complex(load(part, memory, 2 * index).d,
                               load(part, memory, 2 * index + 1).d);
  }
  return visit(dtype, [&](auto zero) {
    using T = decltype(zero);
    // Loads the byte, so that a bool that was never written shows as a number other than 0 and 1.
    if constexpr (std::is_same_v<T, bool>) {
      return Element::of_int(static_cast<unsigned char>(memory[index]));
    }
    T stored;
    std::memcpy(&stored, memory + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      return Element::of_float(static_cast<float>(stored));
    } else if constexpr (std::is_integral_v<T>) {
      return Element::of_int(static_cast<int64_t>(stored));
    } else {
      return Element::of_float(stored);
    }
  });
}

Element round_trip(const Element& value, ScalarType dtype) {
  char memory[16];
  store(value, dtype, memory, 0);
  return load(dtype, memory, 0);
}

std::vector<Element> elements_of(const Tensor& given) {
  Tensor tensor = given;
  if (!tensor.device().is_cpu()) tensor = call("to.device", {tensor, kCPU})[0].tensor();
  std::vector<Element> elements;
  elements.reserve(static_cast<size_t>(tensor.numel()));
  const auto* memory = static_cast<const char*>(tensor.raw_data());
  for_each_offset(tensor.sizes().vec(), tensor.strides().vec(), [&](int64_t offset) {
    elements.push_back(load(tensor.dtype(), memory, offset));
  });
  return elements;
}

}  // namespace mytorch::conformance
