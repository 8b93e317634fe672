// Autocast's wrappers of operators. Code generation emits one line for each:
//
//   autocast::install<ops::bmm, autocast::Policy::kLower>();
#pragma once

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/autocast/cast.h"
#include "dispatcher/table/layers.h"

namespace mytorch::autocast {

// ---- whether a call casts ----

template <Policy policy, class T>
bool casts(const T&) {
  return false;
}
template <Policy policy>
bool casts(const Tensor& tensor) {
  return casts(policy, tensor.defined() ? tensor.impl() : nullptr);
}
template <Policy policy>
bool casts(const Operand& operand) {
  return casts(policy, operand.impl());
}
template <Policy policy>
bool casts(const TensorList& list) {
  bool any = false;
  for (const Tensor& tensor : list) any |= casts<policy>(tensor);
  return any;
}

template <class T>
uint16_t types_of(const T&) {
  return 0;
}
inline uint16_t types_of(const Tensor& tensor) {
  return type_bit(tensor.defined() ? tensor.impl() : nullptr);
}
inline uint16_t types_of(const Operand& operand) { return type_bit(operand.impl()); }
inline uint16_t types_of(const TensorList& list) {
  uint16_t types = 0;
  for (const Tensor& tensor : list) types |= types_of(tensor);
  return types;
}

// ---- arguments of a call that casts ----

template <Policy policy, class T>
struct Argument {
  explicit Argument(const T& given) : value(given) {}
  const T& value;
};
template <Policy policy>
struct Argument<policy, Tensor> {
  explicit Argument(const Tensor& given)
      : result(casts<policy>(given) ? cast_by(policy, given) : Tensor()),
        value(result.defined() ? result : given) {}
  Tensor result;
  const Tensor& value;
};
template <Policy policy>
struct Argument<policy, Operand> {
  explicit Argument(const Operand& given)
      : result(casts<policy>(given) ? cast_by(policy, given.tensor()) : Tensor()),
        value(result.defined() ? Operand(result) : given) {}
  Tensor result;
  Operand value;
};
template <Policy policy>
struct Argument<policy, TensorList> {
  explicit Argument(const TensorList& given) {
    for (const Tensor& tensor : given) {
      results.push_back(casts<policy>(tensor) ? cast_by(policy, tensor) : tensor);
    }
    value = results;
  }
  std::vector<Tensor> results;
  TensorList value;
};

// ---- wrappers ----

// The wrapper of an operator's function. It runs the operators of which the call consists with the
// layer masked, also if the policy is kNone.
template <class Op, Policy policy, class Type = decltype(Below<Op, kFunction>::call)>
struct Cast;
template <class Op, Policy policy, class R, class... P>
struct Cast<Op, policy, R(P...)> {
  static R call(P... args) {
    if constexpr (policy == Policy::kWidest) {
      if (widens((0 | ... | types_of(args)))) [[unlikely]]
        return next(Argument<policy, std::remove_cvref_t<P>>(args)...);
    } else if constexpr (policy != Policy::kNone) {
      if ((casts<policy>(args) || ...)) [[unlikely]] {
        if constexpr (kTakesType) {
          return next(with_type(args)...);
        } else {
          return next(Argument<policy, std::remove_cvref_t<P>>(args)...);
        }
      }
    }
    return Layered<Op, kFunction>::template next<kLayerAutocast>(static_cast<P&&>(args)...);
  }

 private:
  // A sum or softmax that takes the type of its result is told float32 instead: its kernel reads
  // the operand as it is.
  static constexpr bool kTakesType =
      policy == Policy::kFloat32 && (std::is_same_v<P, std::optional<ScalarType>> || ...);

  template <class T>
  static Argument<Policy::kNone, T> with_type(const T& value) {
    return Argument<Policy::kNone, T>(value);
  }
  struct Type {
    std::optional<ScalarType> value;
  };
  static Type with_type(const std::optional<ScalarType>& given) {
    return {given.value_or(ScalarType::kFloat32)};
  }

  static R next(const auto&... args) {
    return Layered<Op, kFunction>::template next<kLayerAutocast>(args.value...);
  }
};

template <class Op, Policy policy>
void install() {
  Layered<Op, kFunction>::template wrap<kLayerAutocast>(Cast<Op, policy>::call);
}

}  // namespace mytorch::autocast
