// bmm, convolution and its gradients.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/convolution.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {
namespace {

using V = std::vector<double>;

// Returns small integers without a pattern that a wrong index could reproduce. All of their sums
// are exact.
V numbers(int64_t n, uint32_t seed) {
  V values;
  uint32_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<double>(state >> 24) - 128);
  }
  return values;
}

int64_t count(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  return n;
}

TEST(BmmTest, KnownValues) {
  mt_args_bmm args{};
  const TestTensor a = TestTensor::of<float>({2, 1, 2}, {1, 2, 3, 4});
  const TestTensor b = TestTensor::of<float>({2, 2, 2}, {1, 0, 0, 1, 5, 6, 7, 8})
                           .as_strided({2, 2, 2}, {4, 1, 2});  // each matrix transposed
  const TestTensor out = TestTensor::empty(a.dtype(), {2, 2, 1}).as_strided({2, 1, 2}, {2, 1, 1});
  args.self = a;
  args.mat2 = b;
  args.out = out;
  ASSERT_EQ(run_op("bmm", args, a.dtype()), "");
  EXPECT_EQ(out.values<double>(), (V{1, 2, 39, 53}));
}

TEST(BmmTest, TakesEmptyMatricesPropagatesNaNAndWrapsIntegers) {
  mt_args_bmm args{};
  const TestTensor a = TestTensor::empty(sdk::dtype_of<float>, {1, 2, 0});
  const TestTensor b = TestTensor::empty(sdk::dtype_of<float>, {1, 0, 2});
  const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, {1, 2, 2});
  args.self = a;
  args.mat2 = b;
  args.out = out;
  ASSERT_EQ(run_op("bmm", args, a.dtype()), "");
  EXPECT_EQ(out.values<double>(), (V{0, 0, 0, 0}));

  const double inf = std::numeric_limits<double>::infinity();
  const TestTensor x = TestTensor::of<float>({1, 1, 2}, {inf, 1});
  const TestTensor y = TestTensor::of<float>({1, 2, 2}, {0, 1, 1, 1});
  const TestTensor z = TestTensor::empty(x.dtype(), {1, 1, 2});
  args.self = x;
  args.mat2 = y;
  args.out = z;
  ASSERT_EQ(run_op("bmm", args, x.dtype()), "");
  EXPECT_TRUE(std::isnan(z.values<double>()[0]));
  EXPECT_EQ(z.values<double>()[1], inf);

  const TestTensor i = TestTensor::of<int8_t>({1, 1, 2}, {100, 100});
  const TestTensor j = TestTensor::of<int8_t>({1, 2, 1}, {2, 1});
  const TestTensor k = TestTensor::empty(i.dtype(), {1, 1, 1});
  args.self = i;
  args.mat2 = j;
  args.out = k;
  ASSERT_EQ(run_op("bmm", args, i.dtype()), "");
  EXPECT_EQ(k.values<double>(), V{300 - 256});
}

struct Conv {
  Shape input;
  Shape weight;
  std::vector<int64_t> stride, padding, dilation, output_padding;
  int64_t groups = 1;
  bool transposed = false;

  Shape output() const {
    Shape shape = {input[0], transposed ? weight[1] * groups : weight[0]};
    for (size_t d = 0; d < stride.size(); ++d) {
      const int64_t reach = dilation[d] * (weight[2 + d] - 1);
      shape.push_back(transposed ? (input[2 + d] - 1) * stride[d] - 2 * padding[d] + reach +
                                       output_padding[d] + 1
                                 : (input[2 + d] + 2 * padding[d] - reach - 1) / stride[d] + 1);
    }
    return shape;
  }
};

const Conv kConvs[] = {
    {{2, 3, 7}, {4, 3, 3}, {1}, {0}, {1}, {0}},
    {{2, 4, 9}, {6, 2, 3}, {2}, {2}, {2}, {0}, 2},
    {{1, 2, 5, 6}, {3, 2, 3, 2}, {1, 1}, {1, 0}, {1, 1}, {0, 0}},
    {{2, 4, 6, 7}, {4, 1, 3, 3}, {2, 1}, {1, 2}, {1, 2}, {0, 0}, 4},
    {{1, 2, 4, 3, 5}, {2, 2, 2, 3, 2}, {1, 2, 2}, {1, 1, 0}, {2, 1, 1}, {0, 0, 0}},
    {{2, 3, 5}, {3, 2, 3}, {2}, {1}, {1}, {1}, 1, true},
    {{1, 4, 3, 4}, {4, 3, 3, 2}, {2, 3}, {1, 0}, {2, 1}, {1, 2}, 2, true},
    {{1, 2, 2, 3, 2}, {2, 2, 2, 2, 2}, {1, 2, 2}, {0, 1, 0}, {1, 1, 1}, {0, 1, 0}, 1, true},
    {{0, 3, 7}, {4, 3, 3}, {1}, {0}, {1}, {0}},
};

template <class Args>
void set_geometry(const Conv& conv, Args& args) {
  args.stride = list(conv.stride);
  args.padding = list(conv.padding);
  args.dilation = list(conv.dilation);
  args.output_padding = list(conv.output_padding);
  args.transposed = conv.transposed;
  args.groups = conv.groups;
}

// Computes the definition, independent of the kernel: every output element gathers (or, if
// transposed, every input element scatters) over the weight, in three dimensions.
V naive(const Conv& conv, const V& x, const V& w, const V& bias) {
  const auto pad3 = [](const Shape& shape) {
    Shape result(3, 1);
    for (size_t d = 2; d < shape.size(); ++d) result[3 - (shape.size() - 2) + d - 2] = shape[d];
    return result;
  };
  const auto list3 = [](const std::vector<int64_t>& values, int64_t fill) {
    Shape result(3, fill);
    for (size_t d = 0; d < values.size(); ++d) result[3 - values.size() + d] = values[d];
    return result;
  };
  const Shape out_shape = conv.output();
  const Shape in = pad3(conv.input), out = pad3(out_shape), k = pad3(conv.weight);
  const Shape stride = list3(conv.stride, 1), padding = list3(conv.padding, 0),
              dilation = list3(conv.dilation, 1);
  const int64_t in_channels = conv.input[1], out_channels = out_shape[1];
  const int64_t in_group = in_channels / conv.groups, out_group = out_channels / conv.groups;
  V y(static_cast<size_t>(count(out_shape)), 0.0);
  const auto at = [](const Shape& size, int64_t outer, const int64_t* p) {
    return static_cast<size_t>(((outer * size[0] + p[0]) * size[1] + p[1]) * size[2] + p[2]);
  };
  for (int64_t n = 0; n < conv.input[0]; ++n) {
    for (int64_t o = 0; o < out_channels; ++o) {
      for (int64_t c = 0; c < in_group; ++c) {
        const int64_t channel = o / out_group * in_group + c;
        const int64_t filter =
            conv.transposed ? channel * out_group + o % out_group : o * in_group + c;
        for (int64_t i = 0; i < in[0] * in[1] * in[2]; ++i) {
          const int64_t ip[] = {i / (in[1] * in[2]), i / in[2] % in[1], i % in[2]};
          for (int64_t q = 0; q < out[0] * out[1] * out[2]; ++q) {
            const int64_t op[] = {q / (out[1] * out[2]), q / out[2] % out[1], q % out[2]};
            int64_t kp[3];
            bool meets = true;
            for (int d = 0; d < 3; ++d) {
              const int64_t distance = conv.transposed ? op[d] + padding[d] - ip[d] * stride[d]
                                                       : ip[d] + padding[d] - op[d] * stride[d];
              kp[d] = distance / dilation[d];
              meets = meets && distance >= 0 && distance % dilation[d] == 0 && kp[d] < k[d];
            }
            if (!meets) continue;
            y[at(out, n * out_channels + o, op)] +=
                x[at(in, n * in_channels + channel, ip)] * w[at(k, filter, kp)];
          }
        }
      }
      for (int64_t q = 0; !bias.empty() && q < out[0] * out[1] * out[2]; ++q) {
        y[static_cast<size_t>((n * out_channels + o) * out[0] * out[1] * out[2] + q)] +=
            bias[static_cast<size_t>(o)];
      }
    }
  }
  return y;
}

TEST(ConvolutionTest, ForwardAgreesWithTheDefinition) {
  for (const Conv& conv : kConvs) {
    const V x = numbers(count(conv.input), 1);
    const V w = numbers(count(conv.weight), 2);
    for (const bool with_bias : {false, true}) {
      const V b = with_bias ? numbers(conv.output()[1], 3) : V();
      const TestTensor input = TestTensor::of<float>(conv.input, x);
      const TestTensor weight = TestTensor::of<float>(conv.weight, w);
      const TestTensor bias = TestTensor::of<float>({static_cast<int64_t>(b.size())}, b);
      const TestTensor out = TestTensor::empty(input.dtype(), conv.output());
      mt_args_convolution args{};
      set_geometry(conv, args);
      args.input = input;
      args.weight = weight;
      if (with_bias) args.bias = bias;
      args.out = out;
      ASSERT_EQ(run_op("convolution", args, input.dtype()), "");
      EXPECT_EQ(out.values<double>(), naive(conv, x, w, b)) << "case " << &conv - kConvs;
    }
  }
}

double dot(const V& a, const V& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// <g, conv(x, w)> is bilinear, so unit vectors as x or w give its gradients.
TEST(ConvolutionTest, GradientsAgreeWithTheDefinition) {
  for (const Conv& conv : kConvs) {
    const V x = numbers(count(conv.input), 1);
    const V w = numbers(count(conv.weight), 2);
    const V g = numbers(count(conv.output()), 4);
    const TestTensor input = TestTensor::of<double>(conv.input, x);
    const TestTensor weight = TestTensor::of<double>(conv.weight, w);
    const TestTensor grad = TestTensor::of<double>(conv.output(), g);

    mt_args_convolution_backward_input by_input{};
    set_geometry(conv, by_input);
    const TestTensor grad_input = TestTensor::empty(input.dtype(), conv.input);
    by_input.grad_output = grad;
    by_input.weight = weight;
    by_input.input_size = list(conv.input);
    by_input.out = grad_input;
    ASSERT_EQ(run_op("convolution_backward_input", by_input, input.dtype()), "");
    const V got_input = grad_input.values<double>();
    for (size_t i = 0; i < x.size(); i += 3) {
      V unit(x.size(), 0.0);
      unit[i] = 1;
      ASSERT_EQ(got_input[i], dot(g, naive(conv, unit, w, {})))
          << "case " << &conv - kConvs << " input element " << i;
    }

    mt_args_convolution_backward_weight by_weight{};
    set_geometry(conv, by_weight);
    const TestTensor grad_weight = TestTensor::empty(input.dtype(), conv.weight);
    by_weight.grad_output = grad;
    by_weight.input = input;
    by_weight.weight_size = list(conv.weight);
    by_weight.out = grad_weight;
    ASSERT_EQ(run_op("convolution_backward_weight", by_weight, input.dtype()), "");
    const V got_weight = grad_weight.values<double>();
    for (size_t i = 0; i < w.size(); ++i) {
      V unit(w.size(), 0.0);
      unit[i] = 1;
      ASSERT_EQ(got_weight[i], dot(g, naive(conv, x, unit, {})))
          << "case " << &conv - kConvs << " weight element " << i;
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
