#include "dispatcher/frame/promotion.h"

namespace mytorch {
namespace {

// `high` outranks `low` unless low's category is higher.
ScalarType combine(ScalarType high, ScalarType low) {
  if (is_floating_point(high)) return high;
  if (high == kBool || is_floating_point(low)) return promote_types(high, low);
  return high;
}

}  // namespace

void ResultType::add(const mt_tensor* operand) {
  const bool number = operand->storage == nullptr;
  const int rank = number ? 2 : operand->dl.ndim == 0 ? 1 : 0;
  ScalarType type = from_abi(operand->dl.dtype);
  if (number && is_floating_point(type)) type = kFloat32;  // a double number is of the default type
  types_[rank] = has_[rank] ? promote_types(types_[rank], type) : type;
  has_[rank] = true;
}

ScalarType ResultType::get() const {
  bool any = false;
  ScalarType result = kFloat32;
  for (int rank = 0; rank < 3; ++rank) {
    if (!has_[rank]) continue;
    result = any ? combine(result, types_[rank]) : types_[rank];
    any = true;
  }
  return result;
}

}  // namespace mytorch
