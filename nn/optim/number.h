// Numbers that depend on the step or the learning rate: plain until a step is captured, then 0-dim
// float64 tensors on the device, which a replayed graph computes anew.
#pragma once

#include <utility>

#include "mytorch/tensor.h"

namespace mytorch::nn::optim {

class Number {
 public:
  Number(double value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  explicit Number(const Tensor& tensor);
  explicit Number(const Operand& operand);  // a number, or a 0-dim tensor

  // Refers to this object.
  Operand operand() const& { return is_tensor() ? Operand(tensor_) : Operand(value_); }
  bool is_tensor() const { return tensor_.defined(); }
  double value() const { return value_; }  // of a plain number
  Tensor tensor(Device device) const;

 private:
  double value_ = 0;
  Tensor tensor_;
};

Number operator+(const Number& a, const Number& b);
Number operator-(const Number& a, const Number& b);
Number operator*(const Number& a, const Number& b);
Number operator/(const Number& a, const Number& b);
Number pow(const Number& base, const Number& exponent);
Number sqrt(const Number& x);
Number min(const Number& a, const Number& b);
Number max(const Number& a, const Number& b);
// Returns a if x > bound, else b.
Number if_greater(const Number& x, double bound, const Number& a, const Number& b);

}  // namespace mytorch::nn::optim
