// Types of options, and the builders that set options by name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/generated/option_names.h"  // IWYU pragma: export
#include "mytorch/list.h"

namespace mytorch::nn {

namespace detail {
// Text for the constructor of Self. What is compared first spares the compiler the conversion for
// each copy of a Self.
template <class T, class Self>
concept TextOtherThan =
    !std::is_same_v<T, Self> && !std::is_enum_v<T> && std::is_convertible_v<const T&, Str>;
// A number as an option of another type of numbers: `ThresholdOptions(1, 0)` sets doubles.
template <class T>
struct Number {
  T value;
  template <class To>
  requires(std::is_arithmetic_v<To>) operator To() const {  // NOLINT
    return static_cast<To>(value);
  }
};

void copy_sizes(const std::vector<int64_t>& sizes, int64_t* to, size_t n);
}  // namespace detail

// One number for each of `n` spatial dimensions: `3`, which sets all of them, or `{3, 5}`.
template <size_t n>
class Sizes {
 public:
  template <mytorch::detail::Integer T>
  constexpr Sizes(T all) {  // NOLINT: Conv2d(1, 16, 3)
    values_.fill(static_cast<int64_t>(all));
  }
  template <mytorch::detail::Integer... T>
  requires(n > 1 && sizeof...(T) == n) constexpr Sizes(T... sizes)
      : values_{static_cast<int64_t>(sizes)...} {}
  // Throws Error(kShape) unless the list has n sizes.
  Sizes(const std::vector<int64_t>& sizes) {  // NOLINT
    detail::copy_sizes(sizes, values_.data(), n);
  }
  operator IntList() const { return {values_.data(), n}; }  // NOLINT: operators take lists
  constexpr int64_t operator[](size_t i) const { return values_[i]; }
  constexpr void set(size_t i, int64_t size) { values_[i] = size; }
  constexpr bool operator==(const Sizes&) const = default;

 private:
  std::array<int64_t, n> values_{};
};

// Sizes, or absent.
template <size_t n>
class OptionalSizes {
 public:
  constexpr OptionalSizes() = default;
  constexpr OptionalSizes(const Sizes<n>& sizes) : present_(true), sizes_(sizes) {}  // NOLINT
  template <mytorch::detail::Integer... T>
  requires(sizeof...(T) == 1 || sizeof...(T) == n) constexpr OptionalSizes(T... sizes)  // NOLINT
      : OptionalSizes(Sizes<n>(sizes...)) {}
  constexpr Sizes<n> value_or(const Sizes<n>& other) const { return present_ ? sizes_ : other; }

 private:
  bool present_ = false;
  Sizes<n> sizes_ = 0;
};

// The padding of a convolution: sizes, "valid" (none), or "same", which gives the output the size
// of the input.
template <size_t n>
class ConvPadding {
 public:
  constexpr ConvPadding(const Sizes<n>& sizes) : sizes_(sizes) {}  // NOLINT
  template <mytorch::detail::Integer... T>
  requires(sizeof...(T) == 1 || sizeof...(T) == n) constexpr ConvPadding(T... sizes)  // NOLINT
      : sizes_(sizes...) {}
  // Throws Error(kValue) for any other text.
  template <class T>
  requires(detail::TextOtherThan<T, ConvPadding>) ConvPadding(const T& text)  // NOLINT
      : ConvPadding(Str(text)) {}
  ConvPadding(Str text);  // NOLINT
  constexpr bool same() const { return same_; }
  constexpr const Sizes<n>& sizes() const { return sizes_; }  // 0 if same()

 private:
  bool same_ = false;
  Sizes<n> sizes_ = 0;
};

// A constant of an enumeration, or its name in PyTorch: `Reduction::kSum` or "sum". Throws
// Error(kValue), listing the names, for any other text.
template <class Enum>
class OneOf {
 public:
  constexpr OneOf(Enum value) : value_(value) {}  // NOLINT
  template <class T>
  requires(detail::TextOtherThan<T, OneOf>) OneOf(const T& text)  // NOLINT
      : value_(from_name(Str(text), Enum{})) {}
  constexpr operator Enum() const { return value_; }  // NOLINT

 private:
  Enum value_;
};

// One value, `2`, or a list of them, `{2, 3}`.
template <class T>
class OneOrMore {
 public:
  OneOrMore() = default;
  OneOrMore(T one) : values_{one} {}                                // NOLINT
  OneOrMore(std::initializer_list<T> values) : values_(values) {}   // NOLINT
  OneOrMore(std::vector<T> values) : values_(std::move(values)) {}  // NOLINT
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};

class Module;

// The names of a function's options, for the compiler's messages. The function has an overload
//
//   template <class TakesOptionsOf = Args, OptionNames Named = "stride, padding">
//   void conv(const Tensor&, ...) = delete;
//
// that a misspelt option, `{.strid = 2}`, selects: a template's arguments stand in the first line
// of the message. Which name was written, no template can know.
template <size_t n>
struct OptionNames {
  constexpr OptionNames(const char (&names)[n]) {  // NOLINT: a literal is the argument
    for (size_t i = 0; i < n; ++i) text[i] = names[i];
  }
  char text[n] = {};
};

// Defines the class template `Setters<Self, Args>`, the functions of libtorch's builders: for each
// name of the list NAMES that the aggregate Args declares, one that sets the option and one that
// returns it. Self derives from Setters<Self, Args> and has a member function args(), which returns
// a reference to the aggregate. The functions are templates, so that they exist only if Args has
// the field. Every class of options costs the compiler a declaration for each name, hence the lists
// for layers, optimizers and loaders, which codegen reads from the aggregates (nn/emit.py).
#define MYTORCH_DEFINE_SETTERS(Setters, NAMES) \
  template <class Self, class Args>            \
  class Setters {                              \
   public:                                     \
    NAMES(MYTORCH_DEFINE_SETTER)               \
  };
#define MYTORCH_DEFINE_SETTER(name)                     \
  template <class A = Args>                             \
  Self& name(decltype(A::name) value) {                 \
    auto& self = static_cast<Self&>(*this);             \
    self.args().name = std::move(value);                \
    return self;                                        \
  }                                                     \
  template <class A = Args>                             \
  const decltype(A::name)& name() const {               \
    return static_cast<const Self&>(*this).args().name; \
  }                                                     \
  template <class A = Args>                             \
  decltype(A::name)& name() {                           \
    return static_cast<Self&>(*this).args().name;       \
  }

MYTORCH_DEFINE_SETTERS(OptionSetters, MYTORCH_OPTION_NAMES)

// The options that a layer was made with, by libtorch's names: `conv->options.stride()`. They are
// only read, because parameters have their sizes. Args is the aggregate of all arguments of the
// layer's constructor, for which codegen lists the names (nn/emit.py).
template <class Args>
class BuiltOptions {
 public:
  BuiltOptions() = default;
  BuiltOptions(Args args) : args_(std::move(args)) {}  // NOLINT: a layer initializes it
#define MYTORCH_DEFINE_GETTER(name)       \
  template <class A = Args>               \
  const decltype(A::name)& name() const { \
    return args_.name;                    \
  }
  MYTORCH_BUILT_OPTION_NAMES(MYTORCH_DEFINE_GETTER)
#undef MYTORCH_DEFINE_GETTER
  template <class A = Args>
  const decltype(A::lambd)& lambda() const {
    return args_.lambd;
  }
  // For the layer itself.
  const Args* operator->() const { return &args_; }
  const Args& args() const { return args_; }
  Args& args() { return args_; }

 private:
  Args args_ = {};
};

// Options in libtorch's spelling, built by functions in place of designated initializers:
//
//   Conv2d(Conv2dOptions(3, 16, 3).stride(2))         is Conv2d(3, 16, 3, {.stride = 2})
//   F::elu(x, F::ELUFuncOptions().alpha(0.4))         is F::elu(x, {.alpha = 0.4})
//
// Args is the aggregate that declares the options. The constructor takes the arguments First that
// precede it or, if there are none, values of the first options.
template <class Args, class... First>
class Options : public OptionSetters<Options<Args, First...>, Args> {
 public:
  Options(First... first)  // NOLINT: {} is a value
      requires(sizeof...(First) > 0)
      : first_(std::move(first)...) {}
  template <class... Values>
  requires(sizeof...(First) == 0 &&
           requires(Values... values) { Args{values...}; }) explicit Options(Values... values)
      : args_{std::move(values)...} {}
  template <class... Values>
  requires(
      sizeof...(First) == 0 && (std::is_arithmetic_v<Values> && ...) &&
      !requires(Values... values) { Args{values...}; } &&
      requires { Args{detail::Number<Values>{}...}; }) explicit Options(Values... values)
      : args_{detail::Number<Values>{values}...} {}
  // Losses: MSELossOptions("sum"), also if the reduction is not the first option.
  template <class A = Args>
  requires(
      sizeof...(First) == 0 && requires(A args) { args.reduction; } &&
      !requires(const char* text) { A{text}; }) explicit Options(const char* reduction) {
    args_.reduction = reduction;
  }
  // libtorch's name of `lambd`, the one of Python, where `lambda` is a keyword.
  template <class A = Args>
  Options& lambda(decltype(A::lambd) value) {
    return this->lambd(value);
  }
  Args& args() { return args_; }
  const Args& args() const { return args_; }

  // Calls the function with the arguments that a layer's constructor takes.
  template <class Function>
  decltype(auto) apply(const Function& function) const {
    return std::apply(
        [&](const First&... first) -> decltype(auto) {
          if constexpr (std::is_empty_v<Args>) {
            return function(first...);
          } else {
            return function(first..., args_);
          }
        },
        first_);
  }
  template <class M>
  requires(std::is_base_of_v<Module, M>) operator M() const {  // NOLINT: Conv2d conv(options)
    return apply([](const auto&... args) {
      static_assert(std::is_constructible_v<M, decltype(args)...>,
                    "these are the options of another layer");
      return M(args...);
    });
  }

 private:
  std::tuple<First...> first_;
  Args args_ = {};
};

// The options of layers that have positional arguments only.
struct NoArgs {};

enum class PaddingMode { kZeros, kReflect, kReplicate, kCircular };
PaddingMode from_name(Str name, PaddingMode);  // NOLINT: named by its type
const char* name_of(PaddingMode mode);

}  // namespace mytorch::nn
