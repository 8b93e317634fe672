// The forms of an operator, below its layers and through them.
//
// `Op` is a struct that is generated for each record (generated/operators_NN.h), with the signature
// of its function and the other forms that it has:
//
//   struct add_Tensor
//       : Record<Tensor(const Tensor&, const Operand&, const Scalar&), kInplace, kOut> {
//     static const OpInfo info;
//     static OpEntry entry;
//   };
//
// A record that writes lists has `written_lists`, too, a bit for each such argument.
//
// A call runs through the layers in the order of their bits: autocast, autograd, batch, capture. A
// layer takes part if it is wanted, by a tensor's flags or by the thread, and has a wrapper for the
// form:
//
//   Tensor add_captured(const Tensor& self, const Operand& other, const Scalar& alpha) {
//     note("add");
//     return Layered<ops::add_Tensor, kFunction>::next<kLayerCapture>(self, other, alpha);
//   }
//   Layered<ops::add_Tensor, kFunction>::wrap<kLayerCapture>(add_captured);
#pragma once

#include <bit>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"
#include "mytorch/thread_state.h"

namespace mytorch {

// Returns the layers that an argument requests.
inline uint32_t layer_flags(const Tensor& tensor) {
  return tensor.defined() ? layer_flags(tensor.impl()) : 0;
}
inline uint32_t layer_flags(const Operand& operand) { return operand.layer_flags(); }
inline uint32_t layer_flags(TensorList tensors) {
  uint32_t flags = 0;
  for (const Tensor& tensor : tensors) flags |= layer_flags(tensor);
  return flags;
}
template <class T>
constexpr uint32_t layer_flags(const T&) {
  return 0;
}

// Returns the wrapper of the first of the `wanted` layers that has one for the form, or null.
inline void* first_wrapper(const OpEntry& entry, Form form, uint32_t wanted) {
#pragma GCC unroll 4
  for (int layer = 0; layer < kNumLayers; ++layer) {
    if ((wanted >> layer & 1) == 0) continue;
    if (void* wrapper = entry.wrappers[layer][form]) return wrapper;
  }
  return nullptr;
}

// Returns whether an argument is complex. A record with `complex: NAME` computes complex calls by
// that function, above the layers, from operators that they see.
inline bool has_complex_part(const Tensor& tensor) {
  return tensor.defined() && is_complex(tensor.impl()->dtype);
}
inline bool has_complex_part(const Operand& operand) {
  return operand.is_tensor() ? is_complex(operand.impl()->dtype)
                             : operand.is_scalar() && operand.scalar().is_complex();
}
inline bool has_complex_part(TensorList tensors) {
  for (const Tensor& tensor : tensors) {
    if (has_complex_part(tensor)) return true;
  }
  return false;
}
template <class T>
constexpr bool has_complex_part(const T&) {
  return false;
}

// The number of values that a function returns, and whether it computes the wanted ones alone.
template <class R>
inline constexpr int kNumResults = std::is_void_v<R> ? 0 : 1;
template <class... R>
inline constexpr int kNumResults<std::tuple<R...>> = sizeof...(R);
template <class Signature>
struct ResultsOf;
template <class R, class... P>
struct ResultsOf<R(P...)> {
  static constexpr int size = kNumResults<R>;
  static constexpr bool wanted = (std::is_same_v<P, const bool*> || ...);
};

// The base of the generated structs. `forms` are those that the record has besides its function.
template <class S, Form... forms>
struct Record {
  using Signature = S;
  static constexpr bool derived = ResultsOf<S>::wanted;
  static constexpr bool inplace = ((forms == kInplace) || ...);
  // Outputs of the out= form, 0 if there is none.
  static constexpr int outs = ((forms == kOut) || ...) ? ResultsOf<S>::size : 0;
  static constexpr uint32_t written_lists = 0;
};

// One form of an operator, for code that serves all of them.
struct FormInfo {
  const OpInfo& op;
  OpEntry& entry;
  Form form;
  int outs;  // outputs of the out= form, else 0
  uint32_t written_lists;
};
template <class Op, Form form>
inline constexpr FormInfo kFormInfo = {Op::info, Op::entry, form, form == kOut ? Op::outs : 0,
                                       Op::written_lists};

// Throws Error(kValue): gradients do not flow through written lists, nor through out= forms.
[[noreturn]] void refuse_list_gradient(const OpInfo& op);

// Returns the wrapper that a call enters if it wants these layers, or null: it continues below the
// layers. Throws Error(kValue) if autograd refuses the form.
void* enter(const FormInfo& form, uint32_t wanted);

// Returns how many hold the tensor, its base or its memory.
inline uint32_t holders_of(const Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const auto count = [](const auto* held) { return held->refs.load(std::memory_order_relaxed); };
  const TensorImpl* const base = tensor.impl()->base;
  return count(tensor.impl()) + count(tensor.impl()->storage) + (base ? count(base) : 0);
}
// Returns an argument of a form that writes to `self`: `copy`, or a copy of its own, in place of
// what shares the memory.
inline Tensor apart(const Tensor& argument, const Tensor& self, const Tensor& copy) {
  if (argument.defined() && argument.is_same(self)) return copy;
  const bool shares = argument.defined() && argument.impl()->storage == self.impl()->storage;
  return shares ? argument.clone() : argument;
}
struct OperandApart {
  Operand operand;
  Tensor tensor;  // if it is one, which an Operand does not keep
  operator Operand() const { return tensor.defined() ? Operand(tensor) : operand; }  // NOLINT
};
inline OperandApart apart(const Operand& argument, const Tensor& self, const Tensor& copy) {
  return {argument, argument.is_tensor() ? apart(argument.tensor(), self, copy) : Tensor()};
}
template <class T>
const T& apart(const T& argument, const Tensor&, const Tensor&) {
  return argument;
}
// Returns the result of a form that writes to `self`, computed by `f`. If that has saved what will
// be overwritten, for backward, it computes again from copies: few do.
template <class F, class... P>
Tensor computed_apart(F&& f, const Tensor& self, const P&... args) {
  const uint32_t before = holders_of(self);
  Tensor result = f(self, args...);
  if (!thread_state.grad_mode || holders_of(self) == before) return result;
  result = {};
  const Tensor copy = self.clone();
  return f(copy, apart(args, self, copy)...);
}

// Check `self` or `out` and copy a result into it. Autograd records the copy.
void assign_inplace(const OpInfo& op, const Tensor& self, const Tensor& result);
void assign_out(const OpInfo& op, const Tensor& out, const Tensor& result);

template <size_t>
using OutArg = const Tensor&;

// The form below all layers: checks, outputs and the kernel. Defined in dispatcher/frame/forms.h,
// which only the generated sources include.
template <class Op, Form form, class Signature = typename Op::Signature,
          class Outs = std::make_index_sequence<Op::outs>>
struct Below;
template <class Op, class R, class... P, class Outs>
struct Below<Op, kFunction, R(P...), Outs> {
  static R call(P... args);
};
template <class Op, class R, class Self, class... P, class Outs>
struct Below<Op, kInplace, R(Self, P...), Outs> {
  static const Tensor& call(Self self, P... args);
};
template <class Op, class R, class... P, size_t... out>
struct Below<Op, kOut, R(P...), std::index_sequence<out...>> {
  static void call(OutArg<out>... outs, P... args);
};

// A derived gradient, computed by the operators of its program through the layers, which record
// them.
template <class Op, class Signature = typename Op::Signature>
struct Decomposed;
template <class Op, class R, class... P>
struct Decomposed<Op, R(P...)> {
  static R call(P... args);
};

// The form of a call with complex operands, by the function that the record names.
template <class Op, Form form, class Signature = typename Op::Signature,
          class Outs = std::make_index_sequence<Op::outs>>
struct ByParts;
template <class Op, class R, class... P, class Outs>
struct ByParts<Op, kFunction, R(P...), Outs> {
  static R call(P... args) { return Op::by_parts(args...); }
};
template <class Op, class R, class Self, class... P, class Outs>
struct ByParts<Op, kInplace, R(Self, P...), Outs> {
  static const Tensor& call(Self self, P... args) {
    const auto computed = [](const auto&... all) { return Op::by_parts(all...); };
    assign_inplace(Op::info, self, computed_apart(computed, self, args...));
    return self;
  }
};
template <class Op, class R, class... P, size_t... out>
struct ByParts<Op, kOut, R(P...), std::index_sequence<out...>> {
  static void call(OutArg<out>... outs, P... args) {
    const auto results = Op::by_parts(args...);
    if constexpr (sizeof...(out) == 1) {
      (assign_out(Op::info, outs, results), ...);
    } else {
      (assign_out(Op::info, outs, std::get<out>(results)), ...);
    }
  }
};

// The form through its layers.
template <class Op, Form form, class Type = decltype(Below<Op, form>::call)>
struct Layered;
template <class Op, Form form, class R, class... P>
struct Layered<Op, form, R(P...)> {
  using Wrapper = R (*)(P...);

  // The body of the public function.
  [[gnu::always_inline]] static R call(P... args) {
    if constexpr (requires { Op::by_parts; }) {
      if ((has_complex_part(args) || ...)) [[unlikely]]
        return ByParts<Op, form>::call(args...);
    }
    return enter(wanted_layers(flags(args...)), args...);
  }

  // Called by the wrapper of `layer`: continues with the layers below it. These layers, and the
  // operators that the call consists of, run with `layer` and the layers above it masked.
  template <uint32_t layer>
  [[gnu::always_inline]] static R next(P... args) {
    const LayerMask masked(layer | (layer - 1));
    // Autograd is the only layer that tensors request.
    const uint32_t wanted = wanted_layers(layer < kLayerAutograd ? flags(args...) : 0);
    return enter(wanted, args...);
  }

  // Installs the layer's wrapper of this form.
  template <uint32_t layer>
  static void wrap(Wrapper wrapper) {
    Op::entry.wrappers[std::countr_zero(layer)][form] = reinterpret_cast<void*>(wrapper);
  }

 private:
  [[gnu::always_inline]] static R enter(uint32_t wanted, std::remove_reference_t<P>&... args) {
    if constexpr (form == kOut) {
      if (void* wrapper = wanted != 0 ? mytorch::enter(kFormInfo<Op, form>, wanted) : nullptr) {
        return reinterpret_cast<Wrapper>(wrapper)(static_cast<P&&>(args)...);
      }
    } else if (wanted != 0) [[unlikely]] {
      if ((wanted & kLayerAutograd) != 0) {
        if constexpr (Op::written_lists != 0) refuse_list_gradient(Op::info);
      }
      if (void* wrapper = first_wrapper(Op::entry, form, wanted)) {
        return reinterpret_cast<Wrapper>(wrapper)(static_cast<P&&>(args)...);
      }
    }
    return Below<Op, form>::call(static_cast<P&&>(args)...);
  }

  [[gnu::always_inline]] static uint32_t flags(const P&... args) {
    if constexpr (Op::written_lists != 0) {
      uint32_t flags = 0;
      uint32_t bit = 1;
      ((flags |= (Op::written_lists & bit) != 0 ? layer_flags(args) : 0, bit <<= 1), ...);
      return flags;
    } else {
      return (0u | ... | layer_flags(args));
    }
  }
};

// The default for derived gradients: computes all of them.
inline constexpr bool kAllWanted[] = {true, true, true, true, true, true, true, true};

}  // namespace mytorch
