// Convolution, transposed convolution and their gradients, with 1 to 3 spatial dimensions. All six
// are one sum over the same terms (input element, weight element, output element), which computes
// one of the three operands from the other two. A transposed convolution is the gradient of the
// input of a convolution, so `input` and `output` always name the operands of the convolution that
// is not transposed.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/reference/exact.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

constexpr int kSpatial = 3;
using Spatial = std::array<int64_t, kSpatial>;

// Returns the values after the first `skip`, aligned at the right; missing ones are `fill`.
Spatial spatial(std::span<const int64_t> values, int64_t fill, size_t skip) {
  Spatial result;
  result.fill(fill);
  const size_t n = values.size() - skip;
  for (size_t d = 0; d < n; ++d) result[kSpatial - n + d] = values[skip + d];
  return result;
}

// Does the same for a list with one number per spatial dimension, or one for all of them.
Spatial per_dim(const mt_int_list& list, size_t dims, int64_t fill) {
  Spatial result;
  result.fill(fill);
  for (size_t d = 0; d < dims; ++d) {
    result[kSpatial - dims + d] = list.data[list.size == 1 ? 0 : d];
  }
  return result;
}

struct Geometry {
  int64_t batch;
  int64_t groups;
  int64_t in_channels;   // in a group
  int64_t out_channels;  // in a group
  Spatial input;
  Spatial output;
  Spatial kernel;
  Spatial stride;
  Spatial padding;
  Spatial dilation;
};

// For an input (N, groups * in_channels, ...), a weight (groups * out_channels, in_channels, ...)
// and an output (N, groups * out_channels, ...).
template <class Args>
Geometry geometry(std::span<const int64_t> input, std::span<const int64_t> weight,
                  std::span<const int64_t> output, const Args& args) {
  const size_t dims = weight.size() - 2;
  Geometry g;
  g.batch = input[0];
  g.groups = args.groups;
  g.in_channels = weight[1];
  g.out_channels = weight[0] / args.groups;
  g.input = spatial(input, 1, 2);
  g.output = spatial(output, 1, 2);
  g.kernel = spatial(weight, 1, 2);
  g.stride = per_dim(args.stride, dims, 1);
  g.padding = per_dim(args.padding, dims, 0);
  g.dilation = per_dim(args.dilation, dims, 1);
  return g;
}

// Calls term(input, weight, output) with the row-major indices of each term in one plane of each
// operand, ordered by output elements, then by weight elements.
template <class F>
void for_each_spatial_term(const Geometry& g, F&& term) {
  Spatial x, k, y;  // indices of input, weight and output
  const auto inside = [&](int d) {
    x[d] = y[d] * g.stride[d] - g.padding[d] + k[d] * g.dilation[d];
    return x[d] >= 0 && x[d] < g.input[d];
  };
  const auto linear = [](const Spatial& at, const Spatial& size) {
    return (at[0] * size[1] + at[1]) * size[2] + at[2];
  };
  for (y[0] = 0; y[0] < g.output[0]; ++y[0]) {
    for (y[1] = 0; y[1] < g.output[1]; ++y[1]) {
      for (y[2] = 0; y[2] < g.output[2]; ++y[2]) {
        for (k[0] = 0; k[0] < g.kernel[0]; ++k[0]) {
          if (!inside(0)) continue;
          for (k[1] = 0; k[1] < g.kernel[1]; ++k[1]) {
            if (!inside(1)) continue;
            for (k[2] = 0; k[2] < g.kernel[2]; ++k[2]) {
              if (!inside(2)) continue;
              term(linear(x, g.input), linear(k, g.kernel), linear(y, g.output));
            }
          }
        }
      }
    }
  }
}

template <class F>
void for_each_term(const Geometry& g, F&& term) {
  const auto volume = [](const Spatial& size) { return size[0] * size[1] * size[2]; };
  const int64_t input = volume(g.input);
  const int64_t output = volume(g.output);
  const int64_t kernel = volume(g.kernel);
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t group = 0; group < g.groups; ++group) {
      for (int64_t oc = 0; oc < g.out_channels; ++oc) {
        for (int64_t ic = 0; ic < g.in_channels; ++ic) {
          const int64_t out_channel = group * g.out_channels + oc;
          const int64_t in_channel = group * g.in_channels + ic;
          const int64_t i0 = (n * g.groups * g.in_channels + in_channel) * input;
          const int64_t o0 = (n * g.groups * g.out_channels + out_channel) * output;
          const int64_t w0 = (out_channel * g.in_channels + ic) * kernel;
          for_each_spatial_term(g, [&](int64_t i, int64_t w, int64_t o) {
            term(static_cast<size_t>(i0 + i), static_cast<size_t>(w0 + w),
                 static_cast<size_t>(o0 + o));
          });
        }
      }
    }
  }
}

enum class Target { kInput, kWeight, kOutput };

// Computes the operand `target` from the other two.
void correlate(const Geometry& g, Target target, const sdk::TensorView& input,
               const sdk::TensorView& weight, const sdk::TensorView& output,
               const sdk::TensorView& bias, mt_dtype compute) {
  const sdk::TensorView out = target == Target::kInput    ? input
                              : target == Target::kWeight ? weight
                                                          : output;
  visit_domain(compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const auto read = [&](const sdk::TensorView& tensor, Target role) {
      return role == target ? std::vector<E>() : read_exact<E>(tensor, compute);
    };
    const std::vector<E> x = read(input, Target::kInput);
    const std::vector<E> w = read(weight, Target::kWeight);
    const std::vector<E> y = read(output, Target::kOutput);

    std::vector<Sum<E>> sums(static_cast<size_t>(out.numel()));
    for_each_term(g, [&](size_t xi, size_t wi, size_t yi) {
      switch (target) {
        case Target::kInput:
          sums[xi].add(mul(w[wi], y[yi]));
          break;
        case Target::kWeight:
          sums[wi].add(mul(x[xi], y[yi]));
          break;
        case Target::kOutput:
          sums[yi].add(mul(x[xi], w[wi]));
          break;
      }
    });
    if (bias) {
      const std::vector<E> terms = read_exact<E>(bias, compute);
      const size_t plane = terms.empty() || out.size(0) == 0
                               ? 1
                               : sums.size() / (terms.size() * static_cast<size_t>(out.size(0)));
      for (size_t i = 0; i < sums.size(); ++i) sums[i].add(terms[i / plane % terms.size()]);
    }
    std::vector<E> values;
    values.reserve(sums.size());
    for (const Sum<E>& sum : sums) values.push_back(sum.value());
    write_exact(values, out);
  });
}

}  // namespace

void convolution(mt_ctx& /*ctx*/, const mt_args_convolution& args) {
  const bool transposed = args.transposed != 0;
  const sdk::TensorView input = transposed ? args.out : args.input;
  const sdk::TensorView output = transposed ? args.input : args.out;
  const sdk::TensorView weight = args.weight;
  correlate(geometry(input.shape(), weight.shape(), output.shape(), args),
            transposed ? Target::kInput : Target::kOutput, input, weight, output, args.bias,
            args.header.compute);
}

void convolution_backward_input(mt_ctx& /*ctx*/, const mt_args_convolution_backward_input& args) {
  const bool transposed = args.transposed != 0;
  const sdk::TensorView input = transposed ? args.grad_output : args.out;
  const sdk::TensorView output = transposed ? args.out : args.grad_output;
  const sdk::TensorView weight = args.weight;
  correlate(geometry(input.shape(), weight.shape(), output.shape(), args),
            transposed ? Target::kOutput : Target::kInput, input, weight, output, nullptr,
            args.header.compute);
}

void convolution_backward_weight(mt_ctx& /*ctx*/, const mt_args_convolution_backward_weight& args) {
  const bool transposed = args.transposed != 0;
  const sdk::TensorView input = transposed ? args.grad_output : args.input;
  const sdk::TensorView output = transposed ? args.input : args.grad_output;
  const sdk::TensorView weight = args.out;
  correlate(geometry(input.shape(), weight.shape(), output.shape(), args), Target::kWeight, input,
            weight, output, nullptr, args.header.compute);
}

}  // namespace mytorch::reference
