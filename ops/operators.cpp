// C++ operators of tensors.
#include <optional>
#include <string>

#include "core/types/errors.h"
#include "dispatcher/frame/layout.h"
#include "mytorch/check.h"
#include "mytorch/device_memory.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/bitwise_and.h"
#include "mytorch/ops/bitwise_left_shift.h"
#include "mytorch/ops/bitwise_not.h"
#include "mytorch/ops/bitwise_or.h"
#include "mytorch/ops/bitwise_right_shift.h"
#include "mytorch/ops/bitwise_xor.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/ge.h"
#include "mytorch/ops/gt.h"
#include "mytorch/ops/le.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/logical_not.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/lt.h"
#include "mytorch/ops/movedim.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/polygamma.h"
#include "mytorch/ops/reciprocal.h"
#include "mytorch/ops/remainder.h"
#include "mytorch/ops/rsub.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view.h"
#include "mytorch/ops/where.h"

namespace mytorch {
namespace {

// Returns the tensor. Throws Error(kValue) if nobody could read what is written into it.
const Tensor& kept(const Tensor& temporary) {
  if (!temporary.defined()) return temporary;
  const auto once = [](const auto& counted) {
    return counted.refs.load(std::memory_order_acquire) == 1;
  };
  const TensorImpl& impl = *temporary.impl();
  const TensorImpl& root = impl.base != nullptr ? *impl.base : impl;
  if (once(impl) && once(root) && once(*root.storage) &&
      (root.storage->abi.flags & MT_STORAGE_ESCAPED) == 0) {
    fail(ErrorCode::kValue,
         "[=] writes to a temporary copy, so the values would be lost: write through views of a "
         "variable");
  }
  return temporary;
}

// Returns a number as a 0-dim tensor that has the same part in promotion beside b.
Tensor number_for(const Scalar& a, const Tensor& b) {
  const bool fits =
      is_differentiable(b.dtype()) || (!a.is_float() && (a.is_bool() || b.dtype() != kBool));
  return scalar_tensor(a, fits ? b.dtype() : a.type(), b.device());
}

}  // namespace

Tensor operator-(const Tensor& a) { return neg(a); }
Tensor operator~(const Tensor& a) { return bitwise_not(a); }
Tensor operator!(const Tensor& a) { return logical_not(a); }

Tensor operator+(const Tensor& a, const Operand& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Operand& b) { return sub(a, b); }
Tensor operator*(const Tensor& a, const Operand& b) { return mul(a, b); }
Tensor operator/(const Tensor& a, const Operand& b) { return div(a, b); }
Tensor operator%(const Tensor& a, const Operand& b) { return remainder(a, b); }
Tensor operator&(const Tensor& a, const Operand& b) { return bitwise_and(a, b); }
Tensor operator|(const Tensor& a, const Operand& b) { return bitwise_or(a, b); }
Tensor operator^(const Tensor& a, const Operand& b) { return bitwise_xor(a, b); }
Tensor operator<<(const Tensor& a, const Operand& b) { return bitwise_left_shift(a, b); }
Tensor operator>>(const Tensor& a, const Operand& b) { return bitwise_right_shift(a, b); }
Tensor operator&&(const Tensor& a, const Operand& b) { return logical_and(a, b); }
Tensor operator||(const Tensor& a, const Operand& b) { return logical_or(a, b); }
Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
Tensor operator==(const Tensor& a, const Operand& b) { return eq(a, b); }
Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
Tensor operator!=(const Tensor& a, const Operand& b) { return ne(a, b); }
Tensor operator<(const Tensor& a, const Operand& b) { return lt(a, b); }
Tensor operator<=(const Tensor& a, const Operand& b) { return le(a, b); }
Tensor operator>(const Tensor& a, const Operand& b) { return gt(a, b); }
Tensor operator>=(const Tensor& a, const Operand& b) { return ge(a, b); }

Tensor operator+(const Scalar& a, const Tensor& b) { return add(b, a); }
Tensor operator-(const Scalar& a, const Tensor& b) { return rsub(b, a); }
Tensor operator*(const Scalar& a, const Tensor& b) { return mul(b, a); }
Tensor operator/(const Scalar& a, const Tensor& b) { return mul(reciprocal(b), a); }
Tensor operator%(const Scalar& a, const Tensor& b) { return remainder(number_for(a, b), b); }
Tensor operator&(const Scalar& a, const Tensor& b) { return bitwise_and(b, a); }
Tensor operator|(const Scalar& a, const Tensor& b) { return bitwise_or(b, a); }
Tensor operator^(const Scalar& a, const Tensor& b) { return bitwise_xor(b, a); }
Tensor operator<<(const Scalar& a, const Tensor& b) {
  return bitwise_left_shift(number_for(a, b), b);
}
Tensor operator>>(const Scalar& a, const Tensor& b) {
  return bitwise_right_shift(number_for(a, b), b);
}
Tensor operator&&(const Scalar& a, const Tensor& b) { return logical_and(b, a); }
Tensor operator||(const Scalar& a, const Tensor& b) { return logical_or(b, a); }
Tensor operator==(const Scalar& a, const Tensor& b) { return eq(b, a); }
Tensor operator!=(const Scalar& a, const Tensor& b) { return ne(b, a); }
Tensor operator<(const Scalar& a, const Tensor& b) { return gt(b, a); }
Tensor operator<=(const Scalar& a, const Tensor& b) { return ge(b, a); }
Tensor operator>(const Scalar& a, const Tensor& b) { return lt(b, a); }
Tensor operator>=(const Scalar& a, const Tensor& b) { return le(b, a); }

// Selected elements are changed as a copy, which is then written back.
#define MYTORCH_COMPOUND_OPERATOR(op, function)                                            \
  const Tensor& operator op(const Tensor& a, const Operand& b) { return function(a, b); }  \
  const Tensor& operator op(Tensor&& a, const Operand& b) { return function(kept(a), b); } \
  const Tensor& operator op(IndexedTensor&& a, const Operand& b) {                         \
    if (!a.is_selection()) return function(kept(a), b);                                    \
    const Tensor changed = a;                                                              \
    return std::move(a) = function(changed, b);                                            \
  }
MYTORCH_COMPOUND_OPERATOR(+=, add_)
MYTORCH_COMPOUND_OPERATOR(-=, sub_)
MYTORCH_COMPOUND_OPERATOR(*=, mul_)
MYTORCH_COMPOUND_OPERATOR(/=, div_)
MYTORCH_COMPOUND_OPERATOR(%=, remainder_)
MYTORCH_COMPOUND_OPERATOR(&=, bitwise_and_)
MYTORCH_COMPOUND_OPERATOR(|=, bitwise_or_)
MYTORCH_COMPOUND_OPERATOR(^=, bitwise_xor_)
MYTORCH_COMPOUND_OPERATOR(<<=, bitwise_left_shift_)
MYTORCH_COMPOUND_OPERATOR(>>=, bitwise_right_shift_)
#undef MYTORCH_COMPOUND_OPERATOR

// NOLINTNEXTLINE(bugprone-unhandled-self-assignment): copies elements
Tensor& Tensor::operator=(const Tensor& values) && {
  kept(*this);
  if (!values.defined()) fail(ErrorCode::kValue, "[=] the assigned tensor is undefined");
  copy_(values);
  return *this;
}

Tensor& Tensor::operator=(const Scalar& value) && {
  kept(*this).fill_(value);
  return *this;
}

Tensor Tensor::operator[](int64_t index) const { return mytorch::select(*this, 0, index); }

TensorIterator Tensor::begin() const {
  if (dim() == 0) {
    fail(ErrorCode::kShape,
         "[begin] a 0-dim tensor has no elements to iterate over: read it with item()");
  }
  return {*this, 0};
}

TensorIterator Tensor::end() const { return {*this, dim() == 0 ? 0 : sizes()[0]}; }

Tensor Tensor::to_options(const TensorOptions& options, bool non_blocking, bool copy) const {
  return mytorch::to(*this, options.device_opt().value_or(device()), options.dtype_opt(),
                     non_blocking, copy);
}

Tensor Tensor::cpu() const { return to(kCPU); }
Tensor Tensor::cuda() const { return to(kCUDA); }
Tensor Tensor::toType(ScalarType dtype) const { return to(dtype); }
Tensor Tensor::type_as(const Tensor& other) const { return to(other); }

Tensor Tensor::T() const { return numpy_T(); }
Tensor Tensor::view_as_type(ScalarType dtype) const { return mytorch::view(detach(), dtype); }

void Tensor::print() const {
  detail::tell("[" + std::string(dtype_name(dtype())) + " " + shape_str(sizes()) + " on " +
               device().str() + "]");
}

namespace {

// The dimensions of a tensor with channels, those last that are next to one another in memory.
std::optional<Tensor> with_channels_last(const Tensor& x, MemoryFormat format) {
  const int64_t dims = format == MemoryFormat::kChannelsLast ? 4 : 5;
  if (x.dim() != dims) return {};
  return x.movedim(1, -1);
}

}  // namespace

bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::kPreserve) {
    fail(ErrorCode::kValue, "[is_contiguous] kPreserve is no order of elements: give another");
  }
  if (format == MemoryFormat::kContiguous) return is_contiguous();
  const std::optional<Tensor> moved = with_channels_last(*this, format);
  return moved.has_value() && moved->is_contiguous();
}

MemoryFormat Tensor::suggest_memory_format() const {
  if (!is_channels_last(*this)) return MemoryFormat::kContiguous;
  return dim() == 4 ? MemoryFormat::kChannelsLast : MemoryFormat::kChannelsLast3d;
}

Tensor Tensor::contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::kPreserve) {
    fail(ErrorCode::kValue, "[contiguous] kPreserve is no order of elements: give another");
  }
  if (format == MemoryFormat::kContiguous) return contiguous();
  const std::optional<Tensor> moved = with_channels_last(*this, format);
  if (!moved.has_value()) {
    fail(ErrorCode::kShape, "[contiguous] shape ", shape_str(sizes()), " has not ",
         format == MemoryFormat::kChannelsLast
             ? "the 4 dimensions of kChannelsLast, (N, C, H, W)"
             : "the 5 dimensions of kChannelsLast3d, (N, C, D, H, W)");
  }
  return moved->is_contiguous() ? *this : moved->contiguous().movedim(-1, 1);
}

Tensor Tensor::to(MemoryFormat format) const {
  return format == MemoryFormat::kPreserve ? *this : contiguous(format);
}

Tensor Tensor::clone(MemoryFormat format) const {
  if (format == MemoryFormat::kPreserve || is_contiguous(format)) {
    const std::optional<Tensor> moved = with_channels_last(*this, format);
    return moved.has_value() ? moved->clone().movedim(-1, 1) : clone();
  }
  return contiguous(format);
}

Tensor Tensor::pin_memory() const { return mytorch::pin_memory(*this); }

Tensor Tensor::where(const Tensor& condition, const Operand& other) const {
  return mytorch::where(condition, *this, other);
}
Tensor Tensor::polygamma(int64_t n) const { return mytorch::polygamma(n, *this); }

}  // namespace mytorch
