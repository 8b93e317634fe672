#include "mytorch/nn/activation.h"

#include <vector>

#include "core/types/errors.h"
#include "mytorch/ops/celu.h"
#include "mytorch/ops/elu.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/gelu.h"
#include "mytorch/ops/hardsigmoid.h"
#include "mytorch/ops/hardswish.h"
#include "mytorch/ops/hardtanh.h"
#include "mytorch/ops/leaky_relu.h"
#include "mytorch/ops/log_sigmoid.h"
#include "mytorch/ops/log_softmax.h"
#include "mytorch/ops/mish.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/relu6.h"
#include "mytorch/ops/selu.h"
#include "mytorch/ops/sigmoid.h"
#include "mytorch/ops/silu.h"
#include "mytorch/ops/softmax.h"
#include "mytorch/ops/softplus.h"
#include "mytorch/ops/softsign.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/tanh.h"

namespace mytorch::nn {

Tensor ReLU::forward(const Tensor& input) { return relu(input); }
Tensor ReLU6::forward(const Tensor& input) { return relu6(input); }
Tensor SELU::forward(const Tensor& input) { return selu(input); }
Tensor SiLU::forward(const Tensor& input) { return silu(input); }
Tensor Mish::forward(const Tensor& input) { return mish(input); }
Tensor Tanh::forward(const Tensor& input) { return tanh(input); }
Tensor Sigmoid::forward(const Tensor& input) { return sigmoid(input); }
Tensor LogSigmoid::forward(const Tensor& input) { return log_sigmoid(input); }
Tensor Softsign::forward(const Tensor& input) { return softsign(input); }
Tensor Hardsigmoid::forward(const Tensor& input) { return hardsigmoid(input); }
Tensor Hardswish::forward(const Tensor& input) { return hardswish(input); }

Tensor LeakyReLU::forward(const Tensor& input) { return leaky_relu(input, negative_slope_); }
std::string LeakyReLU::describe() const {
  return absl::StrCat("LeakyReLU(negative_slope=", negative_slope_, ")");
}

PReLU::PReLU(int64_t num_parameters, double init) : weight(full({num_parameters}, init, kFloat32)) {
  register_parameter("weight", weight);
}

Tensor PReLU::forward(const Tensor& input) {
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
  return sub(relu(input), mul(slope, relu(neg(input))));
}

std::string PReLU::describe() const {
  return absl::StrCat("PReLU(num_parameters=", weight.numel(), ")");
}

Tensor ELU::forward(const Tensor& input) { return elu(input, alpha_); }
std::string ELU::describe() const { return absl::StrCat("ELU(alpha=", alpha_, ")"); }

Tensor CELU::forward(const Tensor& input) { return celu(input, alpha_); }
std::string CELU::describe() const { return absl::StrCat("CELU(alpha=", alpha_, ")"); }

Tensor GELU::forward(const Tensor& input) {
  return gelu(input, kind_ == Gelu::kTanh ? "tanh" : "none");
}
std::string GELU::describe() const {
  return absl::StrCat("GELU(approximate=", kind_ == Gelu::kTanh ? "tanh" : "none", ")");
}

Tensor Softplus::forward(const Tensor& input) { return softplus(input, beta_, threshold_); }
std::string Softplus::describe() const {
  return absl::StrCat("Softplus(beta=", beta_, ", threshold=", threshold_, ")");
}

Hardtanh::Hardtanh(double min, double max) : min_(min), max_(max) {
  if (!(min <= max)) {
    fail(ErrorCode::kValue, "[Hardtanh] min ", min, " is not below max ", max);
  }
}
Tensor Hardtanh::forward(const Tensor& input) { return hardtanh(input, min_, max_); }
std::string Hardtanh::describe() const {
  return absl::StrCat("Hardtanh(min=", min_, ", max=", max_, ")");
}

Tensor Softmax::forward(const Tensor& input) { return softmax(input, dim_); }
std::string Softmax::describe() const { return absl::StrCat("Softmax(dim=", dim_, ")"); }

Tensor LogSoftmax::forward(const Tensor& input) { return log_softmax(input, dim_); }
std::string LogSoftmax::describe() const { return absl::StrCat("LogSoftmax(dim=", dim_, ")"); }

}  // namespace mytorch::nn
