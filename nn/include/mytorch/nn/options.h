// Types of module options, and the builders that set them by name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/list.h"

namespace mytorch::nn {

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
  requires(std::is_convertible_v<const T&, Str>) ConvPadding(const T& text)  // NOLINT
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
  requires(std::is_convertible_v<const T&, Str>) OneOf(const T& text)  // NOLINT
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

// Options in libtorch's spelling, built by functions in place of designated initializers:
//
//   Conv2d(Conv2dOptions(3, 16, 3).stride(2))         is Conv2d(3, 16, 3, {.stride = 2})
//   F::elu(x, F::ELUFuncOptions().alpha(0.4))         is F::elu(x, {.alpha = 0.4})
//
// Args is the aggregate that declares the options. The constructor takes the arguments First that
// precede it or, if there are none, values of the first options. Every option has a function of its
// name that sets it, and one that returns it.
template <class Args, class... First>
class Options {
 public:
  Options(First... first)  // NOLINT: {} is a value
      requires(sizeof...(First) > 0)
      : first_(std::move(first)...) {}
  template <class... Values>
  requires(sizeof...(First) == 0 &&
           requires(Values... values) { Args{values...}; }) explicit Options(Values... values)
      : args_{std::move(values)...} {}

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

// A template, so that it exists only if Args has the field.
#define MYTORCH_OPTION(name)               \
  template <class A = Args>                \
  Options& name(decltype(A::name) value) { \
    args_.name = std::move(value);         \
    return *this;                          \
  }                                        \
  template <class A = Args>                \
  const decltype(A::name)& name() const {  \
    return args_.name;                     \
  }
  // clang-format off
  MYTORCH_OPTION(activation) MYTORCH_OPTION(add_bias_kv) MYTORCH_OPTION(add_zero_attn)
  MYTORCH_OPTION(affine) MYTORCH_OPTION(align_corners) MYTORCH_OPTION(alpha)
  MYTORCH_OPTION(approximate) MYTORCH_OPTION(attn_mask) MYTORCH_OPTION(average_attn_weights)
  MYTORCH_OPTION(base) MYTORCH_OPTION(batch_first) MYTORCH_OPTION(beta) MYTORCH_OPTION(bias)
  MYTORCH_OPTION(bidirectional) MYTORCH_OPTION(block_size) MYTORCH_OPTION(ceil_mode)
  MYTORCH_OPTION(count_include_pad) MYTORCH_OPTION(custom_decoder) MYTORCH_OPTION(custom_encoder)
  MYTORCH_OPTION(delta) MYTORCH_OPTION(dilation) MYTORCH_OPTION(dim)
  MYTORCH_OPTION(dim_feedforward) MYTORCH_OPTION(divisor_override) MYTORCH_OPTION(dropout)
  MYTORCH_OPTION(dropout_p) MYTORCH_OPTION(dtype) MYTORCH_OPTION(elementwise_affine)
  MYTORCH_OPTION(enable_gqa) MYTORCH_OPTION(end_dim) MYTORCH_OPTION(eps) MYTORCH_OPTION(full)
  MYTORCH_OPTION(generator) MYTORCH_OPTION(groups) MYTORCH_OPTION(hard)
  MYTORCH_OPTION(ignore_index) MYTORCH_OPTION(include_last_offset) MYTORCH_OPTION(init)
  MYTORCH_OPTION(inplace) MYTORCH_OPTION(interleaved) MYTORCH_OPTION(is_causal) MYTORCH_OPTION(k)
  MYTORCH_OPTION(kdim) MYTORCH_OPTION(keepdim) MYTORCH_OPTION(key_padding_mask)
  MYTORCH_OPTION(label_smoothing) MYTORCH_OPTION(lambd) MYTORCH_OPTION(layer_norm_eps)
  MYTORCH_OPTION(log_input) MYTORCH_OPTION(log_target) MYTORCH_OPTION(lower) MYTORCH_OPTION(margin)
  MYTORCH_OPTION(max_val) MYTORCH_OPTION(min_val) MYTORCH_OPTION(mode) MYTORCH_OPTION(momentum)
  MYTORCH_OPTION(need_weights) MYTORCH_OPTION(negative_slope) MYTORCH_OPTION(nonlinearity)
  MYTORCH_OPTION(norm) MYTORCH_OPTION(norm_first) MYTORCH_OPTION(num_blocks)
  MYTORCH_OPTION(num_decoder_layers) MYTORCH_OPTION(num_encoder_layers) MYTORCH_OPTION(num_layers)
  MYTORCH_OPTION(num_parameters) MYTORCH_OPTION(offsets) MYTORCH_OPTION(output_padding)
  MYTORCH_OPTION(p) MYTORCH_OPTION(padding) MYTORCH_OPTION(padding_idx)
  MYTORCH_OPTION(padding_mode) MYTORCH_OPTION(per_sample_weights) MYTORCH_OPTION(pos_weight)
  MYTORCH_OPTION(proj_size) MYTORCH_OPTION(reduction) MYTORCH_OPTION(running_mean)
  MYTORCH_OPTION(running_var) MYTORCH_OPTION(scale) MYTORCH_OPTION(scale_factor)
  MYTORCH_OPTION(scale_grad_by_freq) MYTORCH_OPTION(scaling) MYTORCH_OPTION(size)
  MYTORCH_OPTION(start_dim) MYTORCH_OPTION(stride) MYTORCH_OPTION(swap) MYTORCH_OPTION(tau)
  MYTORCH_OPTION(threshold) MYTORCH_OPTION(track_running_stats) MYTORCH_OPTION(training)
  MYTORCH_OPTION(upper) MYTORCH_OPTION(use_input_stats) MYTORCH_OPTION(value) MYTORCH_OPTION(vdim)
  MYTORCH_OPTION(weight)
  // clang-format on
#undef MYTORCH_OPTION

                                                                                                  private
      : std::tuple<First...> first_;
  Args args_ = {};
};

// The options of layers that have positional arguments only.
struct NoArgs {};

enum class PaddingMode { kZeros, kReflect, kReplicate, kCircular };
PaddingMode from_name(Str name, PaddingMode);  // NOLINT: named by its type
const char* name_of(PaddingMode mode);

}  // namespace mytorch::nn
