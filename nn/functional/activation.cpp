// Activations and linear maps by the options of functions and modules.
#include "mytorch/nn/functional.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/bilinear.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/glu.h"
#include "mytorch/ops/local_response_norm.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/prelu.h"
#include "mytorch/ops/rrelu.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/softmin.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/uniform_.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "nn/functional/named.h"

namespace mytorch::nn::functional {

Tensor glu(const Tensor& input, int64_t dim) { return mytorch::glu(input, dim); }

Tensor softmin(const Tensor& input, int64_t dim, std::optional<ScalarType> dtype) {
  return mytorch::softmin(input, dim, dtype);
}

Tensor prelu(const Tensor& input, const Tensor& weight) { return mytorch::prelu(input, weight); }

Tensor rrelu(const Tensor& input, const RReLUFuncArgs& options) {
  if (!options.inplace) {
    return mytorch::rrelu(input, options.lower, options.upper, options.training, options.generator);
  }
  if (!options.training) return input.leaky_relu_((options.lower + options.upper) / 2);
  // The slope of each element; rrelu's formula would save the input, which is overwritten.
  const Tensor ones = ones_like(input.detach());
  const Tensor slopes =
      mytorch::rrelu(-ones, options.lower, options.upper, true, options.generator).neg();
  return input.mul_(where(input.detach() >= 0, ones, slopes));
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
  return mytorch::bilinear(input1, input2, weight, bias);
}

Tensor local_response_norm(const Tensor& input, int64_t size,
                           const LocalResponseNormArgs& options) {
  return mytorch::local_response_norm(input, size, options.alpha, options.beta, options.k);
}

}  // namespace mytorch::nn::functional
