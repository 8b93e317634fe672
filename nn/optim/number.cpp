#include "nn/optim/number.h"

#include <algorithm>
#include <cmath>

#include "mytorch/ops/add.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/gt.h"
#include "mytorch/ops/maximum.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/where.h"

namespace mytorch::nn::optim {
namespace {

// Computes plain numbers if both are plain, and tensors otherwise.
template <class OfNumbers, class OfTensors>
Number binary(const Number& a, const Number& b, OfNumbers of_numbers, OfTensors of_tensors) {
  if (!a.is_tensor() && !b.is_tensor()) return {of_numbers(a.value(), b.value())};
  const Device device =
      a.is_tensor() ? a.operand().tensor().device() : b.operand().tensor().device();
  return Number(of_tensors(a.tensor(device), b.operand()));
}

}  // namespace

Number::Number(const Tensor& tensor) : tensor_(tensor.to(kFloat64)) {}

Number::Number(const Operand& operand) {
  if (operand.is_tensor()) {
    tensor_ = operand.tensor().to(kFloat64);
  } else {
    value_ = operand.scalar().to_double();
  }
}

Tensor Number::tensor(Device device) const {
  return is_tensor() ? tensor_ : full(IntList(nullptr, 0), value_, kFloat64, device);
}

Number operator+(const Number& a, const Number& b) {
  return binary(
      a, b, [](double x, double y) { return x + y; },
      [](const Tensor& x, const Operand& y) { return mytorch::add(x, y); });
}

Number operator-(const Number& a, const Number& b) {
  return binary(
      a, b, [](double x, double y) { return x - y; },
      [](const Tensor& x, const Operand& y) { return mytorch::sub(x, y); });
}

Number operator*(const Number& a, const Number& b) {
  return binary(
      a, b, [](double x, double y) { return x * y; },
      [](const Tensor& x, const Operand& y) { return mytorch::mul(x, y); });
}

Number operator/(const Number& a, const Number& b) {
  return binary(
      a, b, [](double x, double y) { return x / y; },
      [](const Tensor& x, const Operand& y) { return mytorch::div(x, y); });
}

Number pow(const Number& base, const Number& exponent) {
  return binary(
      base, exponent, [](double x, double y) { return std::pow(x, y); },
      [](const Tensor& x, const Operand& y) { return mytorch::pow(x, y); });
}

Number sqrt(const Number& x) { return pow(x, 0.5); }

Number min(const Number& a, const Number& b) {
  return binary(
      a, b, [](double x, double y) { return std::min(x, y); },
      [](const Tensor& x, const Operand& y) { return mytorch::minimum(x, y); });
}

Number max(const Number& a, const Number& b) {
  return binary(
      a, b, [](double x, double y) { return std::max(x, y); },
      [](const Tensor& x, const Operand& y) { return mytorch::maximum(x, y); });
}

Number if_greater(const Number& x, double bound, const Number& a, const Number& b) {
  if (!x.is_tensor()) return x.value() > bound ? a : b;
  return Number(where(gt(x.operand().tensor(), bound), a.operand(), b.operand()));
}

}  // namespace mytorch::nn::optim
