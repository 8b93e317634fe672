#include "mytorch/nn/activation.h"

#include "mytorch/nn/functional.h"
#include "mytorch/ops/full.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

std::string describe_inplace(const char* name, bool inplace) {
  return absl::StrCat(name, inplace ? "(inplace=true)" : "()");
}

}  // namespace

Tensor ReLU::forward(const Tensor& input) { return functional::relu(input, options.args()); }
std::string ReLU::describe() const { return describe_inplace("ReLU", options->inplace); }
Tensor ReLU6::forward(const Tensor& input) { return functional::relu6(input, options.args()); }
std::string ReLU6::describe() const { return describe_inplace("ReLU6", options->inplace); }
Tensor SELU::forward(const Tensor& input) { return functional::selu(input, options.args()); }
std::string SELU::describe() const { return describe_inplace("SELU", options->inplace); }
Tensor SiLU::forward(const Tensor& input) { return silu(input); }
Tensor Mish::forward(const Tensor& input) { return mish(input); }
Tensor Tanh::forward(const Tensor& input) { return tanh(input); }
Tensor Sigmoid::forward(const Tensor& input) { return sigmoid(input); }
Tensor LogSigmoid::forward(const Tensor& input) { return log_sigmoid(input); }
Tensor Softsign::forward(const Tensor& input) { return softsign(input); }
Tensor Hardsigmoid::forward(const Tensor& input) { return hardsigmoid(input); }
Tensor Hardswish::forward(const Tensor& input) { return hardswish(input); }

Tensor LeakyReLU::forward(const Tensor& input) {
  return functional::leaky_relu(input, options.args());
}
std::string LeakyReLU::describe() const {
  return absl::StrCat("LeakyReLU(negative_slope=", options->negative_slope, ")");
}

PReLU::PReLU(PReLUArgs options)
    : LayerWith(options), weight(full({options.num_parameters}, options.init, kFloat32)) {
  register_parameter("weight", weight);
}

Tensor PReLU::forward(const Tensor& input) { return functional::prelu(input, weight); }

std::string PReLU::describe() const {
  return absl::StrCat("PReLU(num_parameters=", weight.numel(), ")");
}

Tensor ELU::forward(const Tensor& input) { return functional::elu(input, options.args()); }
std::string ELU::describe() const { return absl::StrCat("ELU(alpha=", options->alpha, ")"); }

Tensor CELU::forward(const Tensor& input) { return functional::celu(input, options.args()); }
std::string CELU::describe() const { return absl::StrCat("CELU(alpha=", options->alpha, ")"); }

namespace {

constexpr const char* kGelus[] = {"none", "tanh"};

}  // namespace

Gelu from_name(Str name, Gelu /*type*/) {
  return static_cast<Gelu>(index_of_name("GELU", name, kGelus));
}

const char* name_of(Gelu kind) { return kGelus[static_cast<size_t>(kind)]; }

Tensor GELU::forward(const Tensor& input) { return gelu(input, name_of(options->approximate)); }
std::string GELU::describe() const {
  return absl::StrCat("GELU(approximate=", name_of(options->approximate), ")");
}

Tensor Softplus::forward(const Tensor& input) {
  return softplus(input, options->beta, options->threshold);
}
std::string Softplus::describe() const {
  return absl::StrCat("Softplus(beta=", options->beta, ", threshold=", options->threshold, ")");
}

Hardtanh::Hardtanh(HardtanhArgs options) : LayerWith(options) {
  if (!(options.min_val <= options.max_val)) {
    fail(ErrorCode::kValue, "[Hardtanh] min_val ", options.min_val, " is not below max_val ",
         options.max_val);
  }
}
Tensor Hardtanh::forward(const Tensor& input) {
  return functional::hardtanh(input, options.args());
}
std::string Hardtanh::describe() const {
  return absl::StrCat("Hardtanh(min_val=", options->min_val, ", max_val=", options->max_val, ")");
}

Tensor Softmax::forward(const Tensor& input) { return softmax(input, options->dim); }
std::string Softmax::describe() const { return absl::StrCat("Softmax(dim=", options->dim, ")"); }

Tensor LogSoftmax::forward(const Tensor& input) { return log_softmax(input, options->dim); }
std::string LogSoftmax::describe() const {
  return absl::StrCat("LogSoftmax(dim=", options->dim, ")");
}

Tensor Softmin::forward(const Tensor& input) { return functional::softmin(input, options->dim); }
std::string Softmin::describe() const { return absl::StrCat("Softmin(dim=", options->dim, ")"); }

Tensor Softmax2d::forward(const Tensor& input) {
  if (input.dim() != 3 && input.dim() != 4) {
    fail(ErrorCode::kShape, "[Softmax2d] input ", shape_str(input.sizes()),
         " is neither (N, C, H, W) nor (C, H, W)");
  }
  return softmax(input, -3);
}

Tensor Tanhshrink::forward(const Tensor& input) { return tanhshrink(input); }

Tensor Hardshrink::forward(const Tensor& input) { return hardshrink(input, options->lambd); }
std::string Hardshrink::describe() const {
  return absl::StrCat("Hardshrink(lambd=", options->lambd, ")");
}

Softshrink::Softshrink(SoftshrinkArgs options) : LayerWith(options) {
  if (!(options.lambd >= 0)) {
    fail(ErrorCode::kValue, "[Softshrink] lambd is ", options.lambd, ": give 0 or more");
  }
}
Tensor Softshrink::forward(const Tensor& input) { return softshrink(input, options->lambd); }
std::string Softshrink::describe() const {
  return absl::StrCat("Softshrink(lambd=", options->lambd, ")");
}

Tensor Threshold::forward(const Tensor& input) {
  return functional::threshold(input, options.args());
}
std::string Threshold::describe() const {
  return absl::StrCat("Threshold(threshold=", options->threshold, ", value=", options->value, ")");
}

Tensor GLU::forward(const Tensor& input) { return functional::glu(input, options->dim); }
std::string GLU::describe() const { return absl::StrCat("GLU(dim=", options->dim, ")"); }

RReLU::RReLU(RReLUArgs options) : LayerWith(options) {
  if (!(options.lower <= options.upper)) {
    fail(ErrorCode::kValue, "[RReLU] lower ", options.lower, " is greater than upper ",
         options.upper);
  }
}
Tensor RReLU::forward(const Tensor& input) {
  return functional::rrelu(input, {.lower = options->lower,
                                   .upper = options->upper,
                                   .training = training(),
                                   .inplace = options->inplace});
}
std::string RReLU::describe() const {
  return absl::StrCat("RReLU(lower=", options->lower, ", upper=", options->upper, ")");
}

}  // namespace mytorch::nn
