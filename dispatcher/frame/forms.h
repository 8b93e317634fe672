// The forms of operators below the layers: the work between a call and its kernel, by meaning.
//
// For each record, code generation specializes Traits, which is data:
//
//   template <>
//   struct Traits<ops::add_Tensor> : Pointwise {
//     using Args = mt_args_add_Tensor;
//     using Fields = Members<&Args::self, &Args::other, &Args::alpha>;  // one per argument
//     using Outputs = Members<&Args::out>;
//     static constexpr uint8_t exact[] = {0, 0, 0xff};  // see check_numbers
//   };
//   template struct Below<ops::add_Tensor, kFunction>;
//
// and, if the record needs them, `promote`, `optional` (a bit per argument that may be undefined),
// `variant` (which program takes a call), `dims` of a reduction, `infer` (the shape function),
// `compute` (the composite or view function), `through_layers` (the public function of a composite
// with outputs), `follows` (arguments whose layout the outputs take) and `dynamic`. Everything here
// is inlined into Below<Op, form>::call. What writes outputs (OutCall, PointwiseOut) is not: all
// records share it.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dispatcher/choice/complex.h"
#include "dispatcher/frame/decompose.h"
#include "dispatcher/frame/held.h"
#include "dispatcher/frame/kernel_call.h"
#include "dispatcher/frame/layout.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/frame/pointwise.h"
#include "dispatcher/frame/promotion.h"
#include "dispatcher/frame/reduce.h"
#include "dispatcher/table/layers.h"

namespace mytorch {

// ---- composites ----

// Runs the record's composite. The message of an Error begins with the operator that was called,
// also if one that the composite calls threw it.
template <class Op, class... H>
[[gnu::always_inline]] inline auto composed(const H&... held) {
  try {
    return Traits<Op>::compute(held.value...);
  } catch (const Error& error) {
    rethrow_from(Op::info, error);
  }
}

// ---- complex operands ----

template <class H>
[[gnu::always_inline]] inline bool any_complex(const H& held) {
  return has_complex_part(held.value);
}

// Whether a record that writes its first argument has a function over the parts of complex operands
// (`complex: NAME`). Those of other records act above the layers (table/layers.h).
template <class T>
inline constexpr bool has_parts = requires {
  T::kParts;
};

// Runs that function, as composed() runs the record's composite.
template <class Op, class... H>
[[gnu::always_inline]] inline auto by_parts(const H&... held) {
  try {
    return Traits<Op>::by_parts(held.value...);
  } catch (const Error& error) {
    rethrow_from(Op::info, error);
  }
}

// ---- pointwise ----

struct Defaults {
  static constexpr uint32_t optional = 0;
  static constexpr Promote promote = Promote::kSame;
  static constexpr uint16_t variant(const auto&...) { return 0; }
};

inline void take_operand(const mt_tensor*& field, const mt_tensor* const*& next) {
  field = *next++;
}
template <class F>
void take_operand(F&, const mt_tensor* const*&) {}

template <class H>
[[gnu::always_inline]] inline void give_operand(const mt_tensor**& next, const H& held) {
  if constexpr (is_operand<H>) *next++ = held.abi();
}
template <class F, class H>
[[gnu::always_inline]] inline void set_value(F& field, const H& held) {
  if constexpr (!is_operand<H>) field = held.abi();
}

// The argument struct of a pointwise call.
template <class Op, class... H>
struct PointwiseArgs {
  using T = Traits<Op>;
  using Fields = typename T::Fields;
  static constexpr int n = (0 + ... + int{is_operand<H>});

  [[gnu::always_inline]] inline explicit PointwiseArgs(const H&... held) {
    check_given<Op>(held...);
    const mt_tensor** next = inputs;
    (give_operand(next, held), ...);
    take_operands(Fields());
    args.header = {sizeof(args), {}, T::variant(held.value...), 0};
    set_values(Fields(), held...);
  }

  // After promotion, which may have replaced operands. Returns whether the call is complex.
  [[gnu::always_inline]] inline bool complete(const H&... held) {
    check_numbers(held...);
    if (args.header.flags != 0) [[likely]]
      return false;
    take_operands(Fields());
    return is_complex(args.header.compute);
  }

  template <auto... member>
  [[gnu::always_inline]] inline void take_operands(Members<member...>) {
    const mt_tensor* const* next = inputs;
    (take_operand(args.*member, next), ...);
  }
  template <auto... member>
  [[gnu::always_inline]] inline void set_values(Members<member...>, const H&... held) {
    (set_value(args.*member, held), ...);
  }

  // Numbers that do not promote must fit a computation in integers: `exact` has, for each argument,
  // the variants that read it, as bits; 0xff is all.
  [[gnu::always_inline]] inline void check_numbers(const H&... held) const {
    if constexpr (requires { T::exact; }) {
      int arg = 0;
      (check_one_number(arg++, held), ...);
    }
  }
  template <class Any>
  [[gnu::always_inline]] inline void check_one_number(int arg, const Any& held) const {
    if constexpr (std::is_same_v<Any, Held<Scalar>>) {
      const uint8_t variants = T::exact[arg];
      if (variants == 0xff || (variants >> args.header.variant & 1) != 0) {
        check_number(Op::info, arg, held.value, args.header.compute);
      }
    }
  }

  typename T::Args args;
  const mt_tensor* inputs[n];
  HostOperand hosts[n];
};

struct Pointwise : Defaults {
  template <class Op, class... H>
  [[gnu::always_inline]] static auto function(const H&... held) {
    using T = Traits<Op>;
    PointwiseArgs<Op, H...> call(held...);
    TensorImpl* outputs[T::Outputs::size] = {};
    pointwise_outputs<T::promote>(Op::info, call.inputs, call.hosts, &call.args.header, outputs);
    auto results = adopt(outputs);
    const bool complex = call.complete(held...);
    set_outputs(call.args, typename T::Outputs(), outputs);
    run_pointwise(Op::entry, outputs[0], &call.args, complex);
    return results;
  }

  template <class Op, size_t n, class... H>
  [[gnu::always_inline]] static void into(Outs<n> outs, bool inplace, const H&... held) {
    using T = Traits<Op>;
    PointwiseArgs<Op, H...> call(held...);
    if (!inplace) {
      PointwiseOut<n> out;
      out.template prepare<T::promote>(Op::info, call.inputs, call.hosts, &call.args.header, outs);
      const bool complex = call.complete(held...);
      out.run(Op::entry, &call.args.header, outs, complex);
      return;
    }
    Tensor temporary;
    TensorImpl* const target = pointwise_into<T::promote>(
        Op::info, call.inputs, call.hosts, &call.args.header, *outs[0], inplace, &temporary);
    const bool complex = call.complete(held...);
    TensorImpl* const targets[n] = {target};
    set_outputs(call.args, typename T::Outputs(), targets);
    run_pointwise(Op::entry, target, &call.args, complex);
    finish_into(*outs[0], temporary);
  }
};

// The derivative of a pointwise record: computes the requested gradients.
struct Derived : Defaults {
  template <class Op, class... H>
  [[gnu::always_inline]] static auto function(const Held<const bool*>& wanted, const H&... held) {
    using T = Traits<Op>;
    PointwiseArgs<Op, H...> call(held...);
    TensorImpl* outputs[T::Outputs::size] = {};
    pointwise_outputs<T::promote>(Op::info, call.inputs, call.hosts, &call.args.header, outputs,
                                  wanted.value);
    auto results = adopt(outputs);
    const bool complex = call.complete(held...);
    set_wanted_outputs(call.args, typename T::Outputs(), outputs);
    if (TensorImpl* const any = first_of(outputs); any != nullptr) {
      run_pointwise(Op::entry, any, &call.args, complex);
    }
    return results;
  }

  // Runs the operators of the program, which autograd records, for gradients of gradients.
  template <class Op, class... H>
  [[gnu::always_inline]] static auto decomposed(const Held<const bool*>& wanted, const H&... held) {
    PointwiseArgs<Op, H...> call(held...);
    call.args.header.compute = pointwise_compute(Op::info, {call.inputs, call.hosts});
    call.take_operands(typename Traits<Op>::Fields());
    const std::vector<Tensor> results = decompose(Op::info, &call.args, wanted.value);
    return unpacked(results, std::make_index_sequence<Traits<Op>::Outputs::size>());
  }

 private:
  template <size_t... i>
  [[gnu::always_inline]] static auto unpacked(const std::vector<Tensor>& results,
                                              std::index_sequence<i...>) {
    if constexpr (sizeof...(i) == 1) {
      return results[0];
    } else {
      return std::tuple{results[i]...};
    }
  }
};

// ---- reductions ----

template <class... H>
std::optional<ScalarType> dtype_among(const H&... held) {
  std::optional<ScalarType> found;
  const auto look = [&](const auto& argument) {
    if constexpr (std::is_same_v<decltype(argument.value), const std::optional<ScalarType>&>) {
      found = argument.value;
    }
  };
  (look(held), ...);
  return found;
}

struct Reduce : Defaults {
  template <class Op, class... H>
  [[gnu::always_inline]] static auto function(const H&... held) {
    using T = Traits<Op>;
    typename T::Args args;
    prepare<Op>(args, held...);
    TensorImpl* outputs[T::Outputs::size];
    reduce_outputs(Op::info, first_tensor(held...), T::dims(held.value...), dtype_among(held...),
                   &args.header, outputs);
    auto results = adopt(outputs);
    set_outputs(args, typename T::Outputs(), outputs);
    run_pointwise(Op::entry, outputs[0], &args, is_complex(args.header.compute));
    return results;
  }

  template <class Op, size_t n, class... H>
  [[gnu::always_inline]] static void into(Outs<n> outs, bool inplace, const H&... held) {
    using T = Traits<Op>;
    typename T::Args args;
    prepare<Op>(args, held...);
    const Tensor& self = first_tensor(held...);
    const ReduceSpec spec = reduce_spec(Op::info, args.header.variant, self, T::dims(held.value...),
                                        dtype_among(held...));
    OutCall call(Op::entry, &args.header, outs, spec, self.device(), inplace);
    call.run_program();
    call.finish();
  }

 private:
  template <class Op, class Args, class... H>
  [[gnu::always_inline]] static void prepare(Args& args, const H&... held) {
    check_given<Op>(held...);
    args.header = {sizeof(args), {}, Traits<Op>::variant(held.value...), 0};
    set_fields(args, typename Traits<Op>::Fields(), held...);
  }
};

// ---- kernels: primitives, and composites that may have kernels ----

template <bool has_composite>
struct KernelForms : Defaults {
  static constexpr bool dynamic = false;
  static constexpr uint32_t follows = 0;

  template <class Op, class... H>
  [[gnu::always_inline]] static auto function(const H&... held) {
    using T = Traits<Op>;
    typename T::Args args;
    args.header = {sizeof(args), {}, 0, 0};
    const auto specs = T::infer(held.value...);
    check_given<Op>(held...);
    set_fields(args, typename T::Fields(), held...);
    const auto indices = std::make_index_sequence<T::Outputs::size>();
    args.header.compute = to_abi(nth(std::index_sequence<0>(), specs).dtype);
    if (!on_one_device(Op::info, &args)) [[unlikely]] {
      if constexpr (has_composite) return composed<Op>(held...);
      fail_devices(Op::info, &args);
    }
    const bool complex = (any_complex(held) || ...) || is_complex(args.header.compute);
    if constexpr (T::dynamic) {
      if (complex) [[unlikely]]
        refuse_complex_call(Op::info);
      return run_dynamic<Op>(args, specs, indices);
    } else {
      auto results = make_results<T::follows>(specs, indices, held...);
      set_results(args, typename T::Outputs(), results, indices);
      TensorImpl* const out = nth(std::index_sequence<0>(), results).impl();
      if (complex) [[unlikely]] {
        if (try_complex_kernel(Op::entry, out, &args)) return results;
        const Substitution substitution(Op::entry, out, &args);
        without_complex_kernel<Op>(
            args, out, [&](auto&& found) { results = std::forward<decltype(found)>(found); },
            held...);
        return results;
      }
      if constexpr (has_composite) {
        if (!try_kernel(Op::entry, out, &args)) {
          const Substitution substitution(Op::entry, out, &args);
          return composed<Op>(held...);
        }
      } else {
        run_primitive(Op::entry, out, &args);
      }
      return results;
    }
  }

  template <class Op, size_t n, class... H>
  [[gnu::always_inline]] static void into(Outs<n> outs, bool inplace, const H&... held) {
    write<Op>(outs, inplace, std::make_index_sequence<n>(), held...);
  }

 private:
  // Computes a complex call that no kernel takes by the record's composite, and passes the results
  // on. Without one, runs the fallback if it is allowed, else throws an Error.
  template <class Op, class Args, class Use, class... H>
  [[gnu::always_inline]] static auto without_complex_kernel([[maybe_unused]] const Args& args,
                                                            [[maybe_unused]] TensorImpl* out,
                                                            [[maybe_unused]] Use use,
                                                            [[maybe_unused]] const H&... held) {
    if constexpr (has_composite) {
      return use(composed<Op>(held...));
    } else {
      run_fallback(Op::entry, out->device_slot, context(out->device_slot, out->abi.dl.device),
                   &args);
    }
  }

  template <uint32_t follows, class Specs, size_t... i, class... H>
  [[gnu::always_inline]] static auto make_results(const Specs& specs, std::index_sequence<i...>,
                                                  const H&... held) {
    if constexpr (follows != 0) {
      int arg = 0;
      const bool channels_last = (... || followed<follows>(arg++, held));
      if constexpr (sizeof...(i) == 1) {
        return make_output(specs, channels_last);
      } else {
        return std::tuple{make_output(std::get<i>(specs), channels_last)...};
      }
    } else if constexpr (sizeof...(i) == 1) {
      return make_output(specs);
    } else {
      return std::tuple{make_output(std::get<i>(specs))...};
    }
  }
  template <uint32_t follows, class H>
  [[gnu::always_inline]] static bool followed(int arg, const H& held) {
    if constexpr (std::is_same_v<H, Held<Tensor>>) {
      return (follows >> arg & 1) != 0 && is_channels_last(held.value);
    }
    return false;
  }

  template <class Args, auto... member, class Results, size_t... i>
  [[gnu::always_inline]] static void set_results(Args& args, Members<member...>,
                                                 const Results& results,
                                                 std::index_sequence<i...>) {
    ((args.*member = &nth(std::index_sequence<i>(), results).impl()->abi), ...);
  }

  template <class Op, class Args, class Specs, size_t... i>
  [[gnu::always_inline]] static auto run_dynamic(Args& args, const Specs& specs,
                                                 std::index_sequence<i...>) {
    DynamicOutputs outputs(Op::info, {nth(std::index_sequence<i>(), specs)...});
    clear(args, typename Traits<Op>::Outputs());
    outputs.run(Op::entry, &args);
    if constexpr (sizeof...(i) == 1) {
      return outputs.take(0);
    } else {
      return std::tuple{outputs.take(i)...};
    }
  }
  template <class Args, auto... member>
  [[gnu::always_inline]] static void clear(Args& args, Members<member...>) {
    ((args.*member = nullptr), ...);
  }

  template <class Op, size_t n, size_t... i, class... H>
  [[gnu::always_inline]] static void write(Outs<n> outs, bool inplace, std::index_sequence<i...>,
                                           const H&... held) {
    using T = Traits<Op>;
    typename T::Args args;
    args.header = {sizeof(args), {}, 0, 0};
    const auto specs = T::infer(held.value...);
    check_given<Op>(held...);
    set_fields(args, typename T::Fields(), held...);
    OutCall call(Op::entry, &args.header, outs, {&nth(std::index_sequence<i>(), specs)...},
                 inplace);
    const bool complex = (any_complex(held) || ...) || is_complex(args.header.compute);
    if constexpr (has_composite) {
      if (!call.try_kernel(complex)) {
        const Substitution substitution(Op::entry, call.target(), &args);
        // A random number was already drawn for this call. The composite draws another one and must
        // not use a kernel.
        const auto results = complex || (is_generator<H> || ...)
                                 ? composed<Op>(held...)
                                 : Below<Op, kFunction>::call(held.value...);
        call.copy({&nth(std::index_sequence<i>(), results)...});
      }
    } else {
      call.run_primitive(complex);
    }
    call.finish();
  }
};
using Primitive = KernelForms<false>;
using KernelComposite = KernelForms<true>;

// ---- records that write their first argument ----

template <bool has_composite>
struct WritingForms : Defaults {
  template <class Op, class... H>
  [[gnu::always_inline]] static const Tensor& function(const H&... held) {
    using T = Traits<Op>;
    const Tensor& written = first_tensor(held...);
    typename T::Args args;
    args.header = {sizeof(args), {}, 0, 0};
    T::infer(held.value...);
    check_given<Op>(held...);
    set_fields(args, typename T::Fields(), held...);
    check_writable(Op::info, written.impl());
    Tensor copies[(0 + ... + int{is_operand<H>})];
    read_apart(args, typename T::Fields(), written, copies, held...);
    args.header.compute = written.impl()->abi.dl.dtype;
    const bool one_device = on_one_device(Op::info, &args);
    if ((any_complex(held) || ...)) [[unlikely]] {
      write_complex<Op>(args, one_device, held...);
    } else if constexpr (has_composite) {
      if (!one_device) {
        composed<Op>(held...);
      } else if (!try_kernel(Op::entry, written.impl(), &args)) {
        const Substitution substitution(Op::entry, written.impl(), &args);
        composed<Op>(held...);
      }
    } else {
      if (!one_device) [[unlikely]]
        fail_devices(Op::info, &args);
      run_primitive(Op::entry, written.impl(), &args);
    }
    written.impl()->bump_version();
    return written;
  }

 private:
  template <class Op, class Args, class... H>
  [[gnu::always_inline]] static void write_complex(const Args& args, bool one_device,
                                                   const H&... held) {
    TensorImpl* const written = first_tensor(held...).impl();
    if (one_device && try_complex_kernel(Op::entry, written, &args)) return;
    if constexpr (has_parts<Traits<Op>>) {
      const Substitution substitution(Op::entry, written, &args);
      by_parts<Op>(held...);
    } else if constexpr (has_composite) {
      const Substitution substitution(Op::entry, written, &args);
      composed<Op>(held...);
    } else {
      run_fallback(Op::entry, written->device_slot,
                   context(written->device_slot, written->abi.dl.device), &args);
    }
  }

  // Inputs that share some elements with the written tensor are read from copies.
  template <class Args, auto... member, class... H>
  [[gnu::always_inline]] static void read_apart(Args& args, Members<member...>,
                                                const Tensor& written, Tensor* copies,
                                                const H&... held) {
    (read_one_apart(args.*member, written, copies, held), ...);
  }
  template <class F, class H>
  [[gnu::always_inline]] static void read_one_apart(F& field, const Tensor& written,
                                                    Tensor*& next_copy, const H& held) {
    if constexpr (is_operand<H>) {
      Tensor& copy = *next_copy++;
      TensorImpl* const input = held.value.impl();
      if (input != written.impl() && overlaps_partly(written.impl(), input)) [[unlikely]] {
        copy = copy_of(input);
        field = &copy.impl()->abi;
      }
    }
  }
};
using Writing = WritingForms<false>;
using WritingKernelComposite = WritingForms<true>;

// A composite that writes its first argument through other operators.
struct WritingComposite : Defaults {
  template <class Op, class... H>
  [[gnu::always_inline]] static const Tensor& function(const H&... held) {
    composed<Op>(held...);
    return first_tensor(held...);
  }
};

// A composite with kernels that writes lists of tensors (the steps of optimizers).
struct ListWriting : Defaults {
  template <class Op, class... H>
  [[gnu::always_inline]] static void function(const H&... held) {
    using T = Traits<Op>;
    const TensorList list = first_list(held...);
    if (list.size() == 0) return;
    typename T::Args args;
    args.header = {sizeof(args), {}, 0, 0};
    T::infer(held.value...);
    check_given<Op>(held...);
    set_fields(args, typename T::Fields(), held...);
    for_each_written<Op>(
        [](const Tensor& each, int arg) {
          required(each, Op::info, Op::info.args[arg].name);
          check_writable(Op::info, each.impl());
        },
        held...);
    TensorImpl* const first = list[0].impl();
    args.header.compute = first->abi.dl.dtype;
    if (!(any_complex(held) || ...) && on_one_device(Op::info, &args) &&
        try_kernel(Op::entry, first, &args)) {
      for_each_written<Op>([](const Tensor& each, int) { each.impl()->bump_version(); }, held...);
      return;
    }
    const Substitution substitution(Op::entry, first, &args);
    composed<Op>(held...);
  }

 private:
  static TensorList first_list(const Held<TensorList>& first, const auto&...) {
    return first.value;
  }

  template <class Op, class F, class... H>
  [[gnu::always_inline]] static void for_each_written(F f, const H&... held) {
    int arg = 0;
    (for_each_of<Op>(f, arg++, held), ...);
  }
  template <class Op, class F, class H>
  [[gnu::always_inline]] static void for_each_of(F f, int arg, const H& held) {
    if constexpr (std::is_same_v<H, Held<TensorList>>) {
      if ((Op::written_lists >> arg & 1) == 0) return;
      for (const Tensor& each : held.value) f(each, arg);
    }
  }
};

// ---- views, and composites without kernels ----

struct View : Defaults {
  template <class Op, class... H>
  [[gnu::always_inline]] static Tensor function(const H&... held) {
    check_given<Op>(held...);
    return make_view(first_tensor(held...), Traits<Op>::compute(held.value...));
  }
};

struct Composite : Defaults {
  template <class Op, class... H>
  [[gnu::always_inline]] static auto function(const H&... held) {
    return composed<Op>(held...);
  }

  // Computes the results through the layers, then copies them. Autocast does not change the types
  // of a form that writes.
  template <class Op, size_t n, class... H>
  [[gnu::always_inline]] static void into(Outs<n> outs, bool inplace, const H&... held) {
    const LayerMask masked(kLayerAutocast);
    if constexpr (Op::inplace) {
      const auto computed = [](const auto&... all) { return Traits<Op>::through_layers(all...); };
      if (inplace) {
        return assign_inplace(Op::info, *outs[0], computed_apart(computed, held.value...));
      }
    }
    const auto results = Traits<Op>::through_layers(held.value...);
    assign_all<Op>(outs, results, std::make_index_sequence<n>());
  }
};

// ---- the forms ----

template <class T>
using HeldArg = Held<std::remove_cvref_t<T>>;

template <class Op, class R, class... P, class Outs>
R Below<Op, kFunction, R(P...), Outs>::call(P... args) {
  return Traits<Op>::template function<Op>(HeldArg<P>{args}...);
}

template <class Op, class R, class Self, class... P, class Outs>
const Tensor& Below<Op, kInplace, R(Self, P...), Outs>::call(Self self, P... args) {
  const Tensor* const outs[] = {&self};
  Traits<Op>::template into<Op>(outs, true, HeldArg<Self>{self}, HeldArg<P>{args}...);
  return self;
}

template <class Op, class R, class... P, size_t... out>
void Below<Op, kOut, R(P...), std::index_sequence<out...>>::call(OutArg<out>... outs, P... args) {
  const Tensor* const all[] = {&outs...};
  Traits<Op>::template into<Op>(all, false, HeldArg<P>{args}...);
}

template <class Op, class R, class... P>
R Decomposed<Op, R(P...)>::call(P... args) {
  return Traits<Op>::template decomposed<Op>(HeldArg<P>{args}...);
}

}  // namespace mytorch
