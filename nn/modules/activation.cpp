#include "mytorch/nn/activation.h"

#include "mytorch/nn/functional.h"
#include "mytorch/ops/full.h"
#include "nn/functional/options.h"

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

Tensor PReLU::forward(const Tensor& input) { return functional::prelu(input, weight); }

std::string PReLU::describe() const {
  return absl::StrCat("PReLU(num_parameters=", weight.numel(), ")");
}

Tensor ELU::forward(const Tensor& input) { return elu(input, alpha_); }
std::string ELU::describe() const { return absl::StrCat("ELU(alpha=", alpha_, ")"); }

Tensor CELU::forward(const Tensor& input) { return celu(input, alpha_); }
std::string CELU::describe() const { return absl::StrCat("CELU(alpha=", alpha_, ")"); }

namespace {

constexpr const char* kGelus[] = {"none", "tanh"};

}  // namespace

Gelu from_name(Str name, Gelu /*type*/) {
  return static_cast<Gelu>(index_of_name("GELU", name, kGelus));
}

const char* name_of(Gelu kind) { return kGelus[static_cast<size_t>(kind)]; }

Tensor GELU::forward(const Tensor& input) { return gelu(input, name_of(kind_)); }
std::string GELU::describe() const {
  return absl::StrCat("GELU(approximate=", name_of(kind_), ")");
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

Tensor Softmin::forward(const Tensor& input) { return functional::softmin(input, dim_); }
std::string Softmin::describe() const { return absl::StrCat("Softmin(dim=", dim_, ")"); }

Tensor Softmax2d::forward(const Tensor& input) {
  if (input.dim() != 3 && input.dim() != 4) {
    fail(ErrorCode::kShape, "[Softmax2d] input ", shape_str(input.sizes()),
         " is neither (N, C, H, W) nor (C, H, W)");
  }
  return softmax(input, -3);
}

Tensor Tanhshrink::forward(const Tensor& input) { return tanhshrink(input); }

Tensor Hardshrink::forward(const Tensor& input) { return hardshrink(input, lambd_); }
std::string Hardshrink::describe() const { return absl::StrCat("Hardshrink(lambd=", lambd_, ")"); }

Softshrink::Softshrink(double lambd) : lambd_(lambd) {
  if (!(lambd >= 0)) fail(ErrorCode::kValue, "[Softshrink] lambd is ", lambd, ": give 0 or more");
}
Tensor Softshrink::forward(const Tensor& input) { return softshrink(input, lambd_); }
std::string Softshrink::describe() const { return absl::StrCat("Softshrink(lambd=", lambd_, ")"); }

Tensor Threshold::forward(const Tensor& input) { return threshold(input, threshold_, value_); }
std::string Threshold::describe() const {
  return absl::StrCat("Threshold(threshold=", threshold_, ", value=", value_, ")");
}

Tensor GLU::forward(const Tensor& input) { return functional::glu(input, dim_); }
std::string GLU::describe() const { return absl::StrCat("GLU(dim=", dim_, ")"); }

RReLU::RReLU(double lower, double upper) : lower_(lower), upper_(upper) {
  if (!(lower <= upper)) {
    fail(ErrorCode::kValue, "[RReLU] lower ", lower, " is greater than upper ", upper);
  }
}
Tensor RReLU::forward(const Tensor& input) {
  return functional::rrelu(input, {.lower = lower_, .upper = upper_, .training = training()});
}
std::string RReLU::describe() const {
  return absl::StrCat("RReLU(lower=", lower_, ", upper=", upper_, ")");
}

}  // namespace mytorch::nn
