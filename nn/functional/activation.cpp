// Activations and linear maps that are compositions of operators.
#include <cmath>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/nn/functional.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/einsum.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/square.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/uniform_.h"
#include "mytorch/ops/zeros_like.h"
#include "nn/functional/named.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {

Tensor glu(const Tensor& input, int64_t dim) {
  const int64_t at = wrap_dim(dim, input.dim(), "glu");
  if (input.dim() == 0 || input.size(at) % 2 != 0) {
    fail(ErrorCode::kShape, "[glu] dimension ", dim, " of input ", shape_str(input.sizes()),
         " cannot be halved");
  }
  const int64_t half = input.size(at) / 2;
  return mul(input.narrow(at, 0, half), input.narrow(at, half, half).sigmoid());
}

Tensor softmin(const Tensor& input, int64_t dim, std::optional<ScalarType> dtype) {
  return named("softmin", [&] { return mytorch::softmax(neg(input), dim, dtype); });
}

Tensor prelu(const Tensor& input, const Tensor& weight) {
  Tensor slope = weight;
  if (weight.numel() != 1) {
    if (input.dim() < 2 || input.size(1) != weight.numel()) {
      fail(ErrorCode::kShape, "[PReLU] input ", shape_str(input.sizes()), " does not have ",
           weight.numel(), " channels in dimension 1, one for each weight");
    }
    std::vector<int64_t> sizes(static_cast<size_t>(input.dim() - 1), 1);
    sizes[0] = weight.numel();
    slope = weight.view(sizes);
  }
  return sub(mytorch::relu(input), mul(slope, mytorch::relu(neg(input))));
}

Tensor rrelu(const Tensor& input, const RReLUFuncArgs& options) {
  if (!options.training) {
    return mytorch::leaky_relu(input, (options.lower + options.upper) / 2);
  }
  if (!(options.lower <= options.upper)) {
    fail(ErrorCode::kValue, "[rrelu] lower ", options.lower, " is greater than upper ",
         options.upper);
  }
  const Tensor slope = empty_like(input.detach());
  slope.uniform_(options.lower, options.upper, options.generator);
  return sub(mytorch::relu(input), mul(slope, mytorch::relu(neg(input))));
}

Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxArgs& options) {
  return named("gumbel_softmax", [&] {
    const Tensor noise = empty_like(logits.detach());
    // -log(u) is exponentially distributed; the least u above 0 keeps it finite.
    noise.uniform_(1e-10, 1, options.generator);
    const Tensor gumbel = neg(log(neg(log(noise))));
    Tensor soft = mytorch::softmax(div(add(logits, gumbel), options.tau), options.dim);
    if (!options.hard) return soft;
    const Tensor index = soft.argmax(options.dim, true);
    const Tensor hard = scatter(zeros_like(logits.detach()), options.dim, index, 1.0);
    return add(sub(hard, soft.detach()), soft);
  });
}

Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight,
                const Tensor& bias) {
  if (weight.dim() != 3 || input1.dim() == 0 || input1.dim() != input2.dim() ||
      input1.size(-1) != weight.size(1) || input2.size(-1) != weight.size(2)) {
    fail(ErrorCode::kShape, "[bilinear] inputs ", shape_str(input1.sizes()), " and ",
         shape_str(input2.sizes()), " do not fit weight ", shape_str(weight.sizes()),
         ": give (..., in1), (..., in2) and (out, in1, in2)");
  }
  return named("bilinear", [&] {
    const Tensor result = einsum("...i,oij,...j->...o", {input1, weight, input2});
    return bias.defined() ? add(result, bias) : result;
  });
}

Tensor local_response_norm(const Tensor& input, int64_t size,
                           const LocalResponseNormArgs& options) {
  const char* op = "local_response_norm";
  if (input.dim() < 3) {
    fail(ErrorCode::kShape, "[", op, "] input ", shape_str(input.sizes()),
         " has less than 3 dimensions: give (N, C, ...)");
  }
  check_at_least(op, 1, {{"size", size}});
  return named(op, [&] {
    // One plane (C, rest) for each sample, with windows of `size` channels.
    const Tensor planes = square(input).flatten(2).unsqueeze(1);
    const Tensor padded = mytorch::pad(planes, {0, 0, size / 2, (size - 1) / 2});
    const Tensor mean =
        mytorch::avg_pool2d(padded, {size, 1}, {1, 1}).squeeze(1).reshape(input.sizes());
    return div(input, pow(add(mul(mean, options.alpha), options.k), options.beta));
  });
}

}  // namespace mytorch::nn::functional
