#include "mytorch/nn/unpooling.h"

#include <algorithm>

#include "core/types/checked.h"
#include "mytorch/ops/fractional_max_pool2d.h"
#include "mytorch/ops/fractional_max_pool3d.h"
#include "mytorch/ops/max_pool2d_with_indices.h"
#include "mytorch/ops/max_pool3d_with_indices.h"
#include "mytorch/ops/max_unpool2d.h"
#include "mytorch/ops/max_unpool3d.h"
#include "mytorch/ops/rand.h"
#include "nn/functional/named.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace functional {
namespace {

template <size_t n>
std::string name_of_op(const char* family, const char* end = "") {
  return absl::StrCat(family, n, "d", end);
}

// Throws Error(kShape) unless the input has n dimensions after the channels, with or without those
// of a batch.
template <size_t n>
void check_dims(const char* op, const Tensor& input) {
  if (input.dim() != n + 1 && input.dim() != n + 2) {
    fail(ErrorCode::kShape, "[", op, "] the input is ", shape_str(input.sizes()), ": give ", n + 2,
         " dimensions, or ", n + 1, " without a batch");
  }
}

// The sizes of the result's last n dimensions.
template <size_t n>
std::vector<int64_t> unpooled_size(const char* op, const Tensor& input, const Sizes<n>& kernel_size,
                                   const MaxUnpoolFuncArgs<n>& options) {
  const Sizes<n> stride = options.stride.value_or(kernel_size);
  check_sizes(op, 1, "kernel_size", kernel_size);
  check_sizes(op, 1, "stride", stride);
  check_sizes(op, 0, "padding", options.padding);
  std::vector<int64_t> size;
  for (size_t i = 0; i < n; ++i) {
    const Wide in = input.size(input.dim() - static_cast<int64_t>(n - i));
    size.push_back(checked((in - 1) * stride[i] + kernel_size[i] - 2 * Wide{options.padding[i]}, op,
                           "the size of the result"));
  }
  if (!options.output_size.has_value()) return size;
  std::vector<int64_t> given = *options.output_size;
  if (given.size() == static_cast<size_t>(input.dim())) {
    given.erase(given.begin(), given.end() - static_cast<std::ptrdiff_t>(n));
  }
  if (given.size() != n) {
    fail(ErrorCode::kShape, "[", op, "] output_size has ", options.output_size->size(),
         " sizes: give ", n);
  }
  for (size_t i = 0; i < n; ++i) {
    const Wide least = Wide{size[i]} - stride[i], most = Wide{size[i]} + stride[i];
    if (given[i] <= least || given[i] >= most) {
      fail(ErrorCode::kShape, "[", op, "] output_size is ", shape_str(given), ", but dimension ", i,
           " has between ", checked(least + 1, op, "output_size"), " and ",
           checked(most - 1, op, "output_size"), " elements");
    }
  }
  return given;
}

// The size that the options give or imply.
template <size_t n>
std::vector<int64_t> fractional_size(const char* op, const Tensor& input,
                                     const FractionalMaxPoolArgs<n>& options) {
  const std::vector<double>& ratio = options.output_ratio.values();
  std::vector<int64_t> size;
  for (size_t i = 0; i < n; ++i) {
    const int64_t in = input.size(input.dim() - static_cast<int64_t>(n - i));
    size.push_back(ratio.empty() ? options.output_size.value_or(Sizes<n>(0))[i]
                                 : static_cast<int64_t>(static_cast<double>(in) *
                                                        ratio[ratio.size() == 1 ? 0 : i]));
    check_at_least(op, 1, {{"output_size", size[i]}});
  }
  return size;
}

template <size_t n>
void check_fractional(const char* op, const FractionalMaxPoolArgs<n>& options) {
  const std::vector<double>& ratio = options.output_ratio.values();
  const bool sized = options.output_size.value_or(Sizes<n>(0)) != Sizes<n>(0);
  if (sized != ratio.empty()) {
    fail(ErrorCode::kValue, "[", op, "] give either output_size or output_ratio");
  }
  if (ratio.size() > 1 && ratio.size() != n) {
    fail(ErrorCode::kValue, "[", op, "] output_ratio has ", ratio.size(), " numbers: give 1 or ",
         n);
  }
  for (const double each : ratio) {
    if (!(each > 0 && each < 1)) {
      fail(ErrorCode::kValue, "[", op, "] output_ratio is ", each,
           ": give a number between 0 and 1");
    }
  }
}

}  // namespace

template <size_t n>
std::tuple<Tensor, Tensor> max_pool_with_indices(const Tensor& input, const Sizes<n>& kernel_size,
                                                 const MaxPoolArgs<n>& options) {
  const Sizes<n> stride = options.stride.value_or(kernel_size);
  const Sizes<n>&p = options.padding, &d = options.dilation;
  if constexpr (n == 1) {
    const std::string op = name_of_op<n>("max_pool", "_with_indices");
    check_dims<n>(op.c_str(), input);
    return named(op.c_str(), [&] {
      auto [output, indices] =
          mytorch::max_pool2d_with_indices(input.unsqueeze(-2), {1, kernel_size[0]}, {1, stride[0]},
                                           {0, p[0]}, {1, d[0]}, options.ceil_mode);
      return std::tuple(output.squeeze(-2), indices.squeeze(-2));
    });
  } else if constexpr (n == 2) {
    return mytorch::max_pool2d_with_indices(input, kernel_size, stride, p, d, options.ceil_mode);
  } else {
    return mytorch::max_pool3d_with_indices(input, kernel_size, stride, p, d, options.ceil_mode);
  }
}

template <size_t n>
Tensor max_unpool(const Tensor& input, const Tensor& indices, const Sizes<n>& kernel_size,
                  const MaxUnpoolFuncArgs<n>& options) {
  const std::string op = name_of_op<n>("max_unpool");
  check_dims<n>(op.c_str(), input);
  const std::vector<int64_t> size = unpooled_size(op.c_str(), input, kernel_size, options);
  return named(op.c_str(), [&] {
    if constexpr (n == 1) {
      return mytorch::max_unpool2d(input.unsqueeze(-1), indices.unsqueeze(-1), {size[0], 1})
          .squeeze(-1);
    } else if constexpr (n == 2) {
      return mytorch::max_unpool2d(input, indices, size);
    } else {
      return mytorch::max_unpool3d(input, indices, size, options.stride.value_or(kernel_size),
                                   options.padding);
    }
  });
}

template <size_t n>
std::tuple<Tensor, Tensor> fractional_max_pool_with_indices(
    const Tensor& input, const Sizes<n>& kernel_size, const FractionalMaxPoolArgs<n>& options) {
  const std::string op = name_of_op<n>("fractional_max_pool");
  check_dims<n>(op.c_str(), input);
  check_fractional<n>(op.c_str(), options);
  const std::vector<int64_t> size = fractional_size(op.c_str(), input, options);
  const bool batch = input.dim() == n + 2;
  const Tensor places =
      rand({batch ? input.size(0) : 1, input.size(batch ? 1 : 0), static_cast<int64_t>(n)},
           TensorOptions(input.dtype()).device(input.device()));
  if constexpr (n == 2) {
    return mytorch::fractional_max_pool2d(input, kernel_size, size, places);
  } else {
    return mytorch::fractional_max_pool3d(input, kernel_size, size, places);
  }
}

template std::tuple<Tensor, Tensor> max_pool_with_indices(const Tensor&, const Sizes<1>&,
                                                          const MaxPoolArgs<1>&);
template std::tuple<Tensor, Tensor> max_pool_with_indices(const Tensor&, const Sizes<2>&,
                                                          const MaxPoolArgs<2>&);
template std::tuple<Tensor, Tensor> max_pool_with_indices(const Tensor&, const Sizes<3>&,
                                                          const MaxPoolArgs<3>&);
template Tensor max_unpool(const Tensor&, const Tensor&, const Sizes<1>&,
                           const MaxUnpoolFuncArgs<1>&);
template Tensor max_unpool(const Tensor&, const Tensor&, const Sizes<2>&,
                           const MaxUnpoolFuncArgs<2>&);
template Tensor max_unpool(const Tensor&, const Tensor&, const Sizes<3>&,
                           const MaxUnpoolFuncArgs<3>&);
template std::tuple<Tensor, Tensor> fractional_max_pool_with_indices(
    const Tensor&, const Sizes<2>&, const FractionalMaxPoolArgs<2>&);
template std::tuple<Tensor, Tensor> fractional_max_pool_with_indices(
    const Tensor&, const Sizes<3>&, const FractionalMaxPoolArgs<3>&);

}  // namespace functional

template <size_t n>
MaxUnpoolNd<n>::MaxUnpoolNd(Sizes<n> kernel_size, MaxUnpoolArgs<n> options)
    : options({options, kernel_size}) {
  const std::string name = absl::StrCat("MaxUnpool", n, "d");
  check_sizes(name.c_str(), 1, "kernel_size", kernel_size);
  check_sizes(name.c_str(), 1, "stride", options.stride.value_or(kernel_size));
  check_sizes(name.c_str(), 0, "padding", options.padding);
}

template <size_t n>
Tensor MaxUnpoolNd<n>::forward(const Tensor& input, const Tensor& indices,
                               const OutputSize& output_size) {
  return functional::max_unpool(input, indices, options->kernel_size,
                                {options->stride, options->padding, output_size});
}

template <size_t n>
std::string MaxUnpoolNd<n>::describe() const {
  return absl::StrCat("MaxUnpool", n, "d(kernel_size=", text(options->kernel_size),
                      ", stride=", text(options->stride.value_or(options->kernel_size)),
                      ", padding=", text(options->padding), ")");
}

template <size_t n>
FractionalMaxPoolNd<n>::FractionalMaxPoolNd(Sizes<n> kernel_size, FractionalMaxPoolArgs<n> options)
    : options({std::move(options), kernel_size}) {
  const std::string name = absl::StrCat("FractionalMaxPool", n, "d");
  check_sizes(name.c_str(), 1, "kernel_size", kernel_size);
  functional::check_fractional<n>(name.c_str(), this->options.args());
}

template <size_t n>
Tensor FractionalMaxPoolNd<n>::forward(const Tensor& input) {
  return std::get<0>(forward_with_indices(input));
}

template <size_t n>
std::tuple<Tensor, Tensor> FractionalMaxPoolNd<n>::forward_with_indices(const Tensor& input) {
  return functional::fractional_max_pool_with_indices(input, options->kernel_size, options.args());
}

template <size_t n>
std::string FractionalMaxPoolNd<n>::describe() const {
  const Sizes<n> size = options->output_size.value_or(Sizes<n>(0));
  const std::string how =
      size != Sizes<n>(0)
          ? absl::StrCat("output_size=", text(size))
          : absl::StrCat("output_ratio=", absl::StrJoin(options->output_ratio.values(), ", "));
  return absl::StrCat("FractionalMaxPool", n, "d(kernel_size=", text(options->kernel_size), ", ",
                      how, ")");
}

template class MaxUnpoolNd<1>;
template class MaxUnpoolNd<2>;
template class MaxUnpoolNd<3>;
template class FractionalMaxPoolNd<2>;
template class FractionalMaxPoolNd<3>;

}  // namespace mytorch::nn
