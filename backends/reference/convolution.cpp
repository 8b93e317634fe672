// Convolution, transposed convolution and their gradients, with 1 to 3 spatial dimensions. All six
// are one sum over the same terms (input element, weight element, output element), which computes
// one of the three operands from the other two (sdk::Convolution).
#include <cstdint>
#include <vector>

#include "backends/reference/exact.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/tensor.h"
#include "mytorch/backend/windows.h"

namespace mytorch::reference {
namespace {

using sdk::Convolution;
using sdk::ConvolutionGeometry;
using sdk::Spatial;

// Calls term(input, weight, output) with the row-major indices of each term in one plane of each
// operand, ordered by output elements, then by weight elements.
template <class F>
void for_each_spatial_term(const ConvolutionGeometry& g, F&& term) {
  Spatial x, k, y;  // indices of input, weight and output
  const auto inside = [&](size_t d) {
    x[d] = g.window(static_cast<int>(d)).place(y[d], k[d]);
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
void for_each_term(const ConvolutionGeometry& g, F&& term) {
  if (g.empty()) return;
  const int64_t input = g.input_plane();
  const int64_t output = g.output_plane();
  const int64_t kernel = g.taps();
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

// Computes one of the operands from the other two.
void correlate(const Convolution& call, mt_dtype compute) {
  const sdk::TensorView out = call.result();
  visit_domain(compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const auto read = [&](const sdk::TensorView& tensor, Convolution::Operand role) {
      return role == call.computed ? std::vector<E>() : read_exact<E>(tensor, compute);
    };
    const std::vector<E> x = read(call.input, Convolution::kInput);
    const std::vector<E> w = read(call.weight, Convolution::kWeight);
    const std::vector<E> y = read(call.output, Convolution::kOutput);

    std::vector<Sum<E>> sums(static_cast<size_t>(out.numel()));
    for_each_term(call.geometry, [&](size_t xi, size_t wi, size_t yi) {
      switch (call.computed) {
        case Convolution::kInput:
          sums[xi].add(mul(w[wi], y[yi]));
          break;
        case Convolution::kWeight:
          sums[wi].add(mul(x[xi], y[yi]));
          break;
        case Convolution::kOutput:
          sums[yi].add(mul(x[xi], w[wi]));
          break;
      }
    });
    if (call.bias) {
      const std::vector<E> terms = read_exact<E>(call.bias, compute);
      const size_t plane = terms.empty() || out.size(0) == 0
                               ? 1
                               : sums.size() / (terms.size() * static_cast<size_t>(out.size(0)));
      for (size_t i = 0; i < sums.size(); ++i) sums[i].add(terms[i / plane % terms.size()]);
    }
    write_exact(sums, out);
  });
}

}  // namespace

void convolution(mt_ctx& /*ctx*/, const mt_args_convolution& args) {
  correlate(Convolution(args), args.header.compute);
}

void convolution_backward_input(mt_ctx& /*ctx*/, const mt_args_convolution_backward_input& args) {
  correlate(Convolution(args), args.header.compute);
}

void convolution_backward_weight(mt_ctx& /*ctx*/, const mt_args_convolution_backward_weight& args) {
  correlate(Convolution(args), args.header.compute);
}

}  // namespace mytorch::reference
