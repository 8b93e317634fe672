// Tensors from values of the program, and back.
#include "mytorch/tensor_values.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "core/types/dims.h"
#include "core/types/errors.h"
#include "core/types/holds.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/to.h"
#include "ops/creation.h"

namespace mytorch {
namespace {

// The numbers of nested lists in row-major order.
class Numbers {
 public:
  explicit Numbers(const Literal& values) {
    const Literal* first = &values;
    while (!first->is_number()) {
      sizes_.push_back(static_cast<int64_t>(first->size()));
      if (first->size() == 0) break;
      first = &(*first)[0];
    }
    add(values, 0);
  }

  IntList sizes() const { return as_list(sizes_); }
  const std::vector<Scalar>& list() const { return numbers_; }
  ScalarType dtype() const {
    ScalarType result = numbers_.empty() ? kFloat32 : kBool;
    for (const Scalar& number : numbers_) {
      if (number.is_complex()) return kComplex64;
    }
    for (const Scalar& number : numbers_) {
      if (number.is_float()) return kFloat32;
      if (number.is_int()) result = kInt64;
    }
    return result;
  }

 private:
  void add(const Literal& values, size_t depth) {
    if (values.is_number() != (depth == sizes_.size())) {
      fail(ErrorCode::kShape, "[tensor] a number stands beside a list, at depth ", depth,
           " of the braces: all elements of a list must be numbers, or lists of equal length");
    }
    if (values.is_number()) {
      numbers_.push_back(values.number());
      return;
    }
    if (static_cast<int64_t>(values.size()) != sizes_[depth]) {
      fail(ErrorCode::kShape, "[tensor] a list of ", values.size(),
           " elements stands beside one of ", sizes_[depth], ", at depth ", depth,
           " of the braces: lists must be equally long");
    }
    for (size_t i = 0; i < values.size(); ++i) add(values[i], depth + 1);
  }

  Dims sizes_;
  std::vector<Scalar> numbers_;
};

// Throws Error(kValue) for a number that is no value of a type of integers.
void check_held(ScalarType type, const Scalar& number) {
  if (holds(type, number)) return;
  fail(ErrorCode::kValue, "[tensor] ", number_text(number), " is not a value of ", dtype_name(type),
       ": choose a wider dtype");
}

// The same for all elements of a tensor. Complex numbers have the conversion's own check.
void check_all_held(const Tensor& numbers, ScalarType type) {
  if (is_complex(numbers.dtype())) return;
  const auto check = [&](const auto& values) {
    for (const auto value : values) check_held(type, Scalar(value));
  };
  if (is_floating_point(numbers.dtype())) return check(numbers.to_vector<double>());
  check(numbers.to_vector<int64_t>());
}

template <class T>
T converted(const Scalar& number) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(number.to_double()));
  } else if constexpr (std::is_same_v<T, bool> || std::is_floating_point_v<T>) {
    return number.to<T>();
  } else {
    check_held(scalar_type_of<T>(), number);
    return number.to<T>();
  }
}

template <class T>
void store(const Tensor& to, const std::vector<Scalar>& numbers) {
  T* const data = static_cast<T*>(to.impl()->abi.dl.data);
  for (size_t i = 0; i < numbers.size(); ++i) data[i] = converted<T>(numbers[i]);
}

template <class T>
void store_parts(const Tensor& to, const std::vector<Scalar>& numbers) {
  T* const data = static_cast<T*>(to.impl()->abi.dl.data);
  for (size_t i = 0; i < numbers.size(); ++i) {
    data[2 * i] = static_cast<T>(numbers[i].real());
    data[2 * i + 1] = static_cast<T>(numbers[i].imag());
  }
}

void store(const Tensor& to, const std::vector<Scalar>& numbers) {
  switch (to.dtype()) {
    case kBool:
      return store<bool>(to, numbers);
    case kUInt8:
      return store<uint8_t>(to, numbers);
    case kInt8:
      return store<int8_t>(to, numbers);
    case kInt16:
      return store<int16_t>(to, numbers);
    case kInt32:
      return store<int32_t>(to, numbers);
    case kInt64:
      return store<int64_t>(to, numbers);
    case kFloat16:
      return store<Half>(to, numbers);
    case kBFloat16:
      return store<BFloat16>(to, numbers);
    case kFloat32:
      return store<float>(to, numbers);
    case kFloat64:
      return store<double>(to, numbers);
    case kComplex64:
      return store_parts<float>(to, numbers);
    case kComplex128:
      return store_parts<double>(to, numbers);
  }
}

}  // namespace

Tensor tensor(const Literal& values, const TensorOptions& options) {
  const Numbers numbers(values);
  const Tensor made =
      empty_for_values(numbers.sizes(), options.dtype_opt().value_or(numbers.dtype()));
  store(made, numbers.list());
  return options.finish(to(made, options.device()));
}

Tensor detail::copy_of_bools(const std::vector<bool>& values, const TensorOptions& options) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  return copy_of_elements(bytes.data(), bytes.size(), kBool, options);
}

Tensor detail::copy_of_elements(const void* data, size_t size, ScalarType type,
                                const TensorOptions& options) {
  const NoGradGuard no_grad;
  const Tensor copy = empty_for_values({static_cast<int64_t>(size)}, type);
  if (size != 0) std::memcpy(copy.impl()->abi.dl.data, data, size * element_size(type));
  const ScalarType usual = is_integral(type)     ? kInt64
                           : type == kFloat64    ? kFloat32
                           : type == kComplex128 ? kComplex64
                                                 : type;
  const ScalarType wanted = options.dtype_opt().value_or(usual);
  const bool has_all = wanted == type || (wanted == kInt64 && is_integral(type, true));
  if (is_integral(wanted) && !has_all) check_all_held(copy, wanted);
  return options.finish(to(to(copy, wanted), options.device()));
}

void Tensor::copy_values(void* to, ScalarType type) const {
  check_not_batched(*this, "to_vector");
  check_host_access(*this, "to_vector");
  const NoGradGuard no_grad;
  const Tensor values = mytorch::contiguous(mytorch::to(*this, kCPU, type));
  if (values.numel() != 0) std::memcpy(to, values.raw_data(), values.nbytes());
}

}  // namespace mytorch
