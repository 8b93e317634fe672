// Convolution and its gradients, 1 to 3 spatial dimensions, direct and transposed. All six are one
// sum of products over the same terms (big element, weight element, small element), where a direct
// convolution maps `big` to `small` and a transposed one `small` to `big`: each kernel says which
// of the three it computes from the other two.
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

// Sizes are aligned at the right: a missing spatial dimension has size 1, stride 1 and no padding.
Spatial spatial(std::span<const int64_t> values, int64_t fill, size_t skip) {
  Spatial result;
  result.fill(fill);
  const size_t n = values.size() - skip;
  for (size_t d = 0; d < n; ++d) result[kSpatial - n + d] = values[skip + d];
  return result;
}

// A list of one number per spatial dimension, or one for all of them.
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
  int64_t big_channels;    // in a group
  int64_t small_channels;  // in a group
  Spatial big;
  Spatial small;
  Spatial kernel;
  Spatial stride;
  Spatial padding;
  Spatial dilation;
};

// Shapes (N, groups * big_channels, ...), (N, groups * small_channels, ...) and the weight's
// (groups * small_channels, big_channels, ...).
template <class Args>
Geometry geometry(std::span<const int64_t> big, std::span<const int64_t> weight,
                  std::span<const int64_t> small, const Args& args) {
  const size_t dims = weight.size() - 2;
  Geometry g;
  g.batch = big[0];
  g.groups = args.groups;
  g.big_channels = weight[1];
  g.small_channels = weight[0] / args.groups;
  g.big = spatial(big, 1, 2);
  g.small = spatial(small, 1, 2);
  g.kernel = spatial(weight, 1, 2);
  g.stride = per_dim(args.stride, dims, 1);
  g.padding = per_dim(args.padding, dims, 0);
  g.dilation = per_dim(args.dilation, dims, 1);
  return g;
}

// Calls term(b, w, s) with the row-major indices of every term. `begin(s)` is not needed: the order
// is that of the small elements, then of the weight's.
template <class F>
void for_each_spatial_term(const Geometry& g, F&& term) {
  Spatial s;
  Spatial k;
  Spatial b;
  const auto inside = [&](int d) {
    b[d] = s[d] * g.stride[d] - g.padding[d] + k[d] * g.dilation[d];
    return b[d] >= 0 && b[d] < g.big[d];
  };
  const auto linear = [](const Spatial& at, const Spatial& size) {
    return (at[0] * size[1] + at[1]) * size[2] + at[2];
  };
  for (s[0] = 0; s[0] < g.small[0]; ++s[0]) {
    for (s[1] = 0; s[1] < g.small[1]; ++s[1]) {
      for (s[2] = 0; s[2] < g.small[2]; ++s[2]) {
        for (k[0] = 0; k[0] < g.kernel[0]; ++k[0]) {
          if (!inside(0)) continue;
          for (k[1] = 0; k[1] < g.kernel[1]; ++k[1]) {
            if (!inside(1)) continue;
            for (k[2] = 0; k[2] < g.kernel[2]; ++k[2]) {
              if (!inside(2)) continue;
              term(linear(b, g.big), linear(k, g.kernel), linear(s, g.small));
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
  const int64_t big = volume(g.big);
  const int64_t small = volume(g.small);
  const int64_t kernel = volume(g.kernel);
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t group = 0; group < g.groups; ++group) {
      for (int64_t sc = 0; sc < g.small_channels; ++sc) {
        for (int64_t bc = 0; bc < g.big_channels; ++bc) {
          const int64_t small_channel = group * g.small_channels + sc;
          const int64_t big_channel = group * g.big_channels + bc;
          const int64_t b0 = (n * g.groups * g.big_channels + big_channel) * big;
          const int64_t s0 = (n * g.groups * g.small_channels + small_channel) * small;
          const int64_t w0 = (small_channel * g.big_channels + bc) * kernel;
          for_each_spatial_term(g, [&](int64_t b, int64_t w, int64_t s) {
            term(static_cast<size_t>(b0 + b), static_cast<size_t>(w0 + w),
                 static_cast<size_t>(s0 + s));
          });
        }
      }
    }
  }
}

enum class Target { kBig, kWeight, kSmall };

// The operand that is the target is `out`; the two others are read.
void correlate(const Geometry& g, Target target, const sdk::TensorView& big,
               const sdk::TensorView& weight, const sdk::TensorView& small,
               const sdk::TensorView& bias, mt_dtype compute) {
  const sdk::TensorView out = target == Target::kBig      ? big
                              : target == Target::kWeight ? weight
                                                          : small;
  visit_domain(compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const auto read = [&](const sdk::TensorView& tensor, Target role) {
      return role == target ? std::vector<E>() : read_exact<E>(tensor, compute);
    };
    const std::vector<E> b = read(big, Target::kBig);
    const std::vector<E> w = read(weight, Target::kWeight);
    const std::vector<E> s = read(small, Target::kSmall);

    std::vector<Sum<E>> sums(static_cast<size_t>(out.numel()));
    for_each_term(g, [&](size_t bi, size_t wi, size_t si) {
      switch (target) {
        case Target::kBig:
          sums[bi].add(mul(w[wi], s[si]));
          break;
        case Target::kWeight:
          sums[wi].add(mul(b[bi], s[si]));
          break;
        case Target::kSmall:
          sums[si].add(mul(b[bi], w[wi]));
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
  const sdk::TensorView big = transposed ? args.out : args.input;
  const sdk::TensorView small = transposed ? args.input : args.out;
  const sdk::TensorView weight = args.weight;
  correlate(geometry(big.shape(), weight.shape(), small.shape(), args),
            transposed ? Target::kBig : Target::kSmall, big, weight, small, args.bias,
            args.header.compute);
}

void convolution_backward_input(mt_ctx& /*ctx*/, const mt_args_convolution_backward_input& args) {
  const bool transposed = args.transposed != 0;
  const sdk::TensorView big = transposed ? args.grad_output : args.out;
  const sdk::TensorView small = transposed ? args.out : args.grad_output;
  const sdk::TensorView weight = args.weight;
  correlate(geometry(big.shape(), weight.shape(), small.shape(), args),
            transposed ? Target::kSmall : Target::kBig, big, weight, small, nullptr,
            args.header.compute);
}

void convolution_backward_weight(mt_ctx& /*ctx*/, const mt_args_convolution_backward_weight& args) {
  const bool transposed = args.transposed != 0;
  const sdk::TensorView big = transposed ? args.grad_output : args.input;
  const sdk::TensorView small = transposed ? args.input : args.grad_output;
  const sdk::TensorView weight = args.out;
  correlate(geometry(big.shape(), weight.shape(), small.shape(), args), Target::kWeight, big,
            weight, small, nullptr, args.header.compute);
}

}  // namespace mytorch::reference
