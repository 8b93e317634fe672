// Max pooling with indices, its partial inverse, and max pooling over windows at random places.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"
#include "mytorch/nn/pooling.h"

namespace mytorch::nn {

// The sizes of the last n dimensions of a result, or all of its sizes.
using OutputSize = std::optional<std::vector<int64_t>>;

template <size_t n>
struct MaxUnpoolArgs {
  OptionalSizes<n> stride = {};  // defaults to the kernel size
  Sizes<n> padding = 0;
};
using MaxUnpool1dOptions = Options<MaxUnpoolArgs<1>, Sizes<1>>;
using MaxUnpool2dOptions = Options<MaxUnpoolArgs<2>, Sizes<2>>;
using MaxUnpool3dOptions = Options<MaxUnpoolArgs<3>, Sizes<3>>;

template <size_t n>
struct MaxUnpoolAllArgs : MaxUnpoolArgs<n> {
  Sizes<n> kernel_size = 0;
};

// Puts the elements of a max pooling back where they were, among zeros. `indices` are those of
// forward_with_indices of the pooling. Inputs of several sizes have results of one: `output_size`
// chooses among them. By default it is (size - 1) * stride - 2 * padding + kernel_size.
//
//   auto [y, indices] = pool.forward_with_indices(x);
//   Tensor z = MaxUnpool2d(2)(y, indices);
template <size_t n>
class MaxUnpoolNd : public Module {
 public:
  using Module::Module;
  explicit MaxUnpoolNd(Sizes<n> kernel_size, MaxUnpoolArgs<n> options = {});
  Tensor forward(const Tensor& input, const Tensor& indices, const OutputSize& output_size = {});
  std::string describe() const override;

  BuiltOptions<MaxUnpoolAllArgs<n>> options;
};

template <size_t n>
struct FractionalMaxPoolArgs {
  OptionalSizes<n> output_size = {};
  OneOrMore<double> output_ratio = {};  // of the input's sizes, between 0 and 1, in its place
};
using FractionalMaxPool2dOptions = Options<FractionalMaxPoolArgs<2>, Sizes<2>>;
using FractionalMaxPool3dOptions = Options<FractionalMaxPoolArgs<3>, Sizes<3>>;

template <size_t n>
struct FractionalMaxPoolAllArgs : FractionalMaxPoolArgs<n> {
  Sizes<n> kernel_size = 0;
};

// The largest elements of `output_size` windows, whose places are drawn from default_generator()
// for each example and channel (Graham, "Fractional max-pooling", 2014). Constructors throw
// Error(kValue) unless either the size or the ratio is given.
template <size_t n>
class FractionalMaxPoolNd : public Module {
 public:
  using Module::Module;
  explicit FractionalMaxPoolNd(Sizes<n> kernel_size, FractionalMaxPoolArgs<n> options = {});
  Tensor forward(const Tensor& input) override;
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input);
  std::string describe() const override;

  BuiltOptions<FractionalMaxPoolAllArgs<n>> options;
};

extern template class MaxUnpoolNd<1>;
extern template class MaxUnpoolNd<2>;
extern template class MaxUnpoolNd<3>;
extern template class FractionalMaxPoolNd<2>;
extern template class FractionalMaxPoolNd<3>;

class MaxUnpool1d final : public Callable<MaxUnpool1d, MaxUnpoolNd<1>> {
 public:
  using Callable::Callable;
};
class MaxUnpool2d final : public Callable<MaxUnpool2d, MaxUnpoolNd<2>> {
 public:
  using Callable::Callable;
};
class MaxUnpool3d final : public Callable<MaxUnpool3d, MaxUnpoolNd<3>> {
 public:
  using Callable::Callable;
};
class FractionalMaxPool2d final : public Layer<FractionalMaxPool2d, FractionalMaxPoolNd<2>> {
 public:
  using Layer::Layer;
};
class FractionalMaxPool3d final : public Layer<FractionalMaxPool3d, FractionalMaxPoolNd<3>> {
 public:
  using Layer::Layer;
};

namespace functional {

// Return the result and the indices of its elements in the flattened last n dimensions.
template <size_t n>
std::tuple<Tensor, Tensor> max_pool_with_indices(const Tensor& input, const Sizes<n>& kernel_size,
                                                 const MaxPoolArgs<n>& options);
template <size_t n>
std::tuple<Tensor, Tensor> fractional_max_pool_with_indices(
    const Tensor& input, const Sizes<n>& kernel_size, const FractionalMaxPoolArgs<n>& options);

template <size_t n>
struct MaxUnpoolFuncArgs {
  OptionalSizes<n> stride = {};  // defaults to the kernel size
  Sizes<n> padding = 0;
  OutputSize output_size = {};
};
using MaxUnpool1dFuncOptions = Options<MaxUnpoolFuncArgs<1>, Sizes<1>>;
using MaxUnpool2dFuncOptions = Options<MaxUnpoolFuncArgs<2>, Sizes<2>>;
using MaxUnpool3dFuncOptions = Options<MaxUnpoolFuncArgs<3>, Sizes<3>>;
using FractionalMaxPool2dFuncOptions = FractionalMaxPool2dOptions;
using FractionalMaxPool3dFuncOptions = FractionalMaxPool3dOptions;

// See nn::MaxUnpool2d.
template <size_t n>
Tensor max_unpool(const Tensor& input, const Tensor& indices, const Sizes<n>& kernel_size,
                  const MaxUnpoolFuncArgs<n>& options);

// With options by name or in libtorch's spelling:
// F::max_unpool2d(y, indices, 2, {.stride = 2}), F::max_unpool2d(y, indices,
// F::MaxUnpool2dFuncOptions(2).stride(2)).
#define MYTORCH_UNPOOL(n)                                                                          \
  inline Tensor max_unpool##n##d(const Tensor& input, const Tensor& indices, Sizes<n> kernel_size, \
                                 const MaxUnpoolFuncArgs<n>& options = {}) {                       \
    return functional::max_unpool(input, indices, kernel_size, options);                           \
  }                                                                                                \
  template <std::same_as<MaxUnpool##n##dFuncOptions> O>                                            \
  Tensor max_unpool##n##d(const Tensor& input, const Tensor& indices, const O& options) {          \
    return options.apply(                                                                          \
        [&](const auto&... o) { return functional::max_unpool##n##d(input, indices, o...); });     \
  }                                                                                                \
  template <std::same_as<MaxPoolArgs<n>> Args = MaxPoolArgs<n>>                                    \
  std::tuple<Tensor, Tensor> max_pool##n##d_with_indices(                                          \
      const Tensor& input, Sizes<n> kernel_size, const Args& options = {}) {                       \
    return functional::max_pool_with_indices(input, kernel_size, options);                         \
  }                                                                                                \
  template <std::same_as<MaxPool##n##dOptions> O>                                                  \
  std::tuple<Tensor, Tensor> max_pool##n##d_with_indices(const Tensor& input, const O& options) {  \
    return options.apply(                                                                          \
        [&](const auto&... o) { return functional::max_pool##n##d_with_indices(input, o...); });   \
  }
MYTORCH_UNPOOL(1)
MYTORCH_UNPOOL(2)
MYTORCH_UNPOOL(3)
#undef MYTORCH_UNPOOL

#define MYTORCH_FRACTIONAL(n)                                                               \
  inline std::tuple<Tensor, Tensor> fractional_max_pool##n##d_with_indices(                 \
      const Tensor& input, Sizes<n> kernel_size, const FractionalMaxPoolArgs<n>& options) { \
    return functional::fractional_max_pool_with_indices(input, kernel_size, options);       \
  }                                                                                         \
  template <std::same_as<FractionalMaxPool##n##dOptions> O>                                 \
  std::tuple<Tensor, Tensor> fractional_max_pool##n##d_with_indices(const Tensor& input,    \
                                                                    const O& options) {     \
    return options.apply([&](const auto&... o) {                                            \
      return functional::fractional_max_pool##n##d_with_indices(input, o...);               \
    });                                                                                     \
  }                                                                                         \
  inline Tensor fractional_max_pool##n##d(const Tensor& input, Sizes<n> kernel_size,        \
                                          const FractionalMaxPoolArgs<n>& options) {        \
    return std::get<0>(                                                                     \
        functional::fractional_max_pool##n##d_with_indices(input, kernel_size, options));   \
  }                                                                                         \
  template <std::same_as<FractionalMaxPool##n##dOptions> O>                                 \
  Tensor fractional_max_pool##n##d(const Tensor& input, const O& options) {                 \
    return std::get<0>(functional::fractional_max_pool##n##d_with_indices(input, options)); \
  }
MYTORCH_FRACTIONAL(2)
MYTORCH_FRACTIONAL(3)
#undef MYTORCH_FRACTIONAL

}  // namespace functional
}  // namespace mytorch::nn
