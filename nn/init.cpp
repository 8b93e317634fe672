#include "mytorch/nn/init.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <utility>

#include "core/runtime/deferred_memory.h"
#include "core/types/errors.h"
#include "graph/deferred/journal.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/transformer.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/eye.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/normal_.h"
#include "mytorch/ops/randperm.h"
#include "mytorch/ops/uniform_.h"
#include "nn/functional/options.h"

namespace mytorch::nn::init {

const Tensor& zeros_(const Tensor& tensor) { return constant_(tensor, 0); }
const Tensor& ones_(const Tensor& tensor) { return constant_(tensor, 1); }

const Tensor& constant_(const Tensor& tensor, const Scalar& value) {
  NoGradGuard no_grad;
  return mytorch::fill_(tensor, value);
}

const Tensor& uniform_(const Tensor& tensor, double from, double to, MaybeGenerator generator) {
  NoGradGuard no_grad;
  return mytorch::uniform_(tensor, from, to, std::move(generator));
}

const Tensor& normal_(const Tensor& tensor, double mean, double std, MaybeGenerator generator) {
  NoGradGuard no_grad;
  return mytorch::normal_(tensor, mean, std, std::move(generator));
}

Fans fans(const Tensor& tensor) {
  if (tensor.dim() < 2) {
    fail(ErrorCode::kShape, "[init] a tensor of shape ", shape_str(tensor.sizes()),
         " has no fans: a weight has the dimensions (out, in, window ...)");
  }
  int64_t window = 1;
  for (int64_t i = 2; i < tensor.dim(); ++i) window *= tensor.size(i);
  return {tensor.size(1) * window, tensor.size(0) * window};
}

namespace {

constexpr const char* kNonlinearities[] = {"linear", "sigmoid",    "tanh",
                                           "relu",   "leaky_relu", "selu"};
constexpr const char* kFanModes[] = {"fan_in", "fan_out"};

}  // namespace

Nonlinearity from_name(Str name, Nonlinearity /*type*/) {
  return static_cast<Nonlinearity>(index_of_name("nonlinearity", name, kNonlinearities));
}

FanMode from_name(Str name, FanMode /*type*/) {
  return static_cast<FanMode>(index_of_name("mode", name, kFanModes));
}

double gain(OneOf<Nonlinearity> nonlinearity, double negative_slope) {
  switch (static_cast<Nonlinearity>(nonlinearity)) {
    case Nonlinearity::kTanh:
      return 5.0 / 3;
    case Nonlinearity::kReLU:
      return std::sqrt(2.0);
    case Nonlinearity::kLeakyReLU:
      return std::sqrt(2 / (1 + negative_slope * negative_slope));
    case Nonlinearity::kSELU:
      return 0.75;  // PyTorch's value, found experimentally
    case Nonlinearity::kLinear:
    case Nonlinearity::kSigmoid:
      break;
  }
  return 1;
}

namespace {

double xavier_deviation(const Tensor& tensor, double gain) {
  const Fans fan = fans(tensor);
  return gain * std::sqrt(2.0 / static_cast<double>(fan.in + fan.out));
}

double kaiming_deviation(const Tensor& tensor, const KaimingArgs& options) {
  const Fans fan = fans(tensor);
  const int64_t count = options.mode == FanMode::kIn ? fan.in : fan.out;
  return gain(options.nonlinearity, options.negative_slope) / std::sqrt(static_cast<double>(count));
}

// Draws nothing for a tensor without elements, whose standard deviation may be infinite.
const Tensor& symmetric_uniform(const Tensor& tensor, double deviation, MaybeGenerator generator) {
  if (tensor.numel() == 0) return tensor;
  const double bound = std::sqrt(3.0) * deviation;
  return init::uniform_(tensor, -bound, bound, std::move(generator));
}

const Tensor& centered_normal(const Tensor& tensor, double deviation, MaybeGenerator generator) {
  if (tensor.numel() == 0) return tensor;
  return init::normal_(tensor, 0, deviation, std::move(generator));
}

}  // namespace

const Tensor& xavier_uniform_(const Tensor& tensor, double gain, MaybeGenerator generator) {
  return symmetric_uniform(tensor, xavier_deviation(tensor, gain), std::move(generator));
}

const Tensor& xavier_normal_(const Tensor& tensor, double gain, MaybeGenerator generator) {
  return centered_normal(tensor, xavier_deviation(tensor, gain), std::move(generator));
}

const Tensor& kaiming_uniform_(const Tensor& tensor, KaimingArgs options,
                               MaybeGenerator generator) {
  return symmetric_uniform(tensor, kaiming_deviation(tensor, options), std::move(generator));
}

const Tensor& kaiming_normal_(const Tensor& tensor, KaimingArgs options, MaybeGenerator generator) {
  return centered_normal(tensor, kaiming_deviation(tensor, options), std::move(generator));
}

// ---- distributions that are made on the host ----

namespace {

void check_matrix(const char* function, const Tensor& tensor) {
  if (tensor.dim() != 2) {
    fail(ErrorCode::kShape, "[", function, "] a tensor of shape ", shape_str(tensor.sizes()),
         " is no matrix");
  }
}

// Has `values`, which makes float64 numbers on the host and draws from the generator `draws` times,
// fill a tensor of any type, device and strides; a deferred one when it is materialized.
const Tensor& assign(const Tensor& tensor, MaybeGenerator generator, uint64_t draws,
                     const std::function<Tensor(const Generator&)>& values) {
  NoGradGuard no_grad;
  const Generator from = generator.value_or(default_generator());
  const auto write = [values, sizes = tensor.sizes().vec()](const Tensor& to, const Generator& g) {
    to.copy_(values(g).view(sizes));
  };
  if (!graph::is_deferred(tensor)) {
    const DefaultDevice host(kCPU);
    write(tensor, from);
    return tensor;
  }
  const uint64_t seed = from.seed(), first = from.take(draws);
  graph::defer_write(tensor, [write, seed, first](const Tensor& memory) {
    Generator again(seed);
    again.set_call(first);
    write(memory, again);
  });
  return tensor;
}

double cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

// Returns the x in [a, b] of cdf(x) = p by bisection, which needs no care at the tails.
double quantile(double p, double a, double b) {
  for (int i = 0; i < 60 && a < b; ++i) {
    const double middle = a + (b - a) / 2;
    (cdf(middle) < p ? a : b) = middle;
  }
  return a;
}

// Makes `count` consecutive vectors of `length` elements orthogonal and of norm 1. Subtracts the
// projections on the vectors before it twice, because once is not accurate.
void orthogonalize(double* vectors, int64_t count, int64_t length) {
  for (int64_t i = 0; i < count; ++i) {
    double* v = vectors + i * length;
    for (int64_t j = 0; j < 2 * i; ++j) {
      const double* u = vectors + (j % i) * length;
      const double common = std::inner_product(u, u + length, v, 0.0);
      for (int64_t k = 0; k < length; ++k) v[k] -= common * u[k];
    }
    const double norm = std::sqrt(std::inner_product(v, v + length, v, 0.0));
    for (int64_t k = 0; k < length; ++k) v[k] /= norm;
  }
}

Tensor truncated_normal(int64_t n, double mean, double std, double a, double b,
                        const Generator& generator) {
  Tensor values = empty({n}, kFloat64);
  values.uniform_(0, 1, generator);
  // Beyond 40 standard deviations, no double has a probability above 0.
  const double low = std::clamp((a - mean) / std, -40.0, 40.0);
  const double high = std::clamp((b - mean) / std, -40.0, 40.0);
  // The tail above 0 is computed as that below, where cdf is accurate.
  const bool mirror = low > 0;
  const double from = mirror ? -high : low, to = mirror ? -low : high;
  const double first = cdf(from), last = cdf(to);
  double* data = values.data<double>();
  for (int64_t i = 0; i < n; ++i) {
    const double x = quantile(first + (last - first) * data[i], from, to);
    data[i] = std::clamp(mean + std * (mirror ? -x : x), a, b);
  }
  return values;
}

Tensor orthogonal(int64_t rows, int64_t columns, double gain, const Generator& generator) {
  const int64_t count = std::min(rows, columns), length = std::max(rows, columns);
  const Tensor vectors = empty({count, length}, kFloat64);
  vectors.normal_(0, 1, generator);
  constexpr int64_t kBlock =
      64;  // vectors at a time, which matrix products make orthogonal to others
  for (int64_t start = 0; start < count; start += kBlock) {
    const Tensor block = vectors.narrow(0, start, std::min(kBlock, count - start));
    if (start > 0) {
      const Tensor done = vectors.narrow(0, 0, start);
      for (int twice = 0; twice < 2; ++twice) block.sub_(mm(mm(block, done.t()), done));
    }
    orthogonalize(block.data<double>(), block.size(0), length);
  }
  vectors.mul_(gain);
  return (rows <= columns ? vectors : vectors.t()).contiguous();
}

Tensor sparse(int64_t rows, int64_t columns, int64_t zeros, double std,
              const Generator& generator) {
  Tensor values = empty({rows, columns}, kFloat64);
  values.normal_(0, std, generator);
  for (int64_t c = 0; c < columns; ++c) {
    const Tensor order = randperm(rows, kInt64, kCPU, generator);
    for (int64_t i = 0; i < zeros; ++i) {
      values.data<double>()[order.const_data<int64_t>()[i] * columns + c] = 0;
    }
  }
  return values;
}

}  // namespace

const Tensor& trunc_normal_(const Tensor& tensor, double mean, double std, double a, double b,
                            MaybeGenerator generator) {
  if (!(std > 0)) fail(ErrorCode::kValue, "[trunc_normal_] std is ", std, ": give one above 0");
  if (!(a <= b)) fail(ErrorCode::kValue, "[trunc_normal_] a ", a, " is greater than b ", b);
  return assign(tensor, std::move(generator), 1, [=, n = tensor.numel()](const Generator& from) {
    return truncated_normal(n, mean, std, a, b, from);
  });
}

const Tensor& orthogonal_(const Tensor& tensor, double gain, MaybeGenerator generator) {
  if (tensor.dim() < 2) {
    fail(ErrorCode::kShape, "[orthogonal_] a tensor of shape ", shape_str(tensor.sizes()),
         " is no weight: give 2 or more dimensions");
  }
  if (tensor.numel() == 0) return tensor;
  const int64_t rows = tensor.size(0), columns = tensor.numel() / rows;
  return assign(tensor, std::move(generator), 1,
                [=](const Generator& from) { return orthogonal(rows, columns, gain, from); });
}

const Tensor& eye_(const Tensor& tensor) {
  check_matrix("eye_", tensor);
  return assign(tensor, {}, 0, [rows = tensor.size(0), columns = tensor.size(1)](const auto&) {
    return eye(rows, columns, kFloat64);
  });
}

const Tensor& dirac_(const Tensor& tensor, int64_t groups) {
  if (tensor.dim() < 3 || tensor.dim() > 5) {
    fail(ErrorCode::kShape, "[dirac_] a tensor of shape ", shape_str(tensor.sizes()),
         " is no weight of a convolution: give 3 to 5 dimensions");
  }
  if (groups < 1 || tensor.size(0) % groups != 0) {
    fail(ErrorCode::kValue, "[dirac_] ", groups, " groups do not divide ", tensor.size(0),
         " output channels");
  }
  zeros_(tensor);
  NoGradGuard no_grad;
  const int64_t outputs = tensor.size(0) / groups;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < std::min(outputs, tensor.size(1)); ++i) {
      Tensor place = tensor.detach().select(0, g * outputs + i).select(0, i);
      while (place.dim() > 0) place = place.select(0, place.size(0) / 2);
      place.fill_(1);
    }
  }
  return tensor;
}

const Tensor& sparse_(const Tensor& tensor, double sparsity, double std, MaybeGenerator generator) {
  check_matrix("sparse_", tensor);
  if (!(sparsity >= 0 && sparsity <= 1)) {
    fail(ErrorCode::kValue, "[sparse_] sparsity is ", sparsity, ": give a fraction from 0 to 1");
  }
  const int64_t rows = tensor.size(0), columns = tensor.size(1);
  const int64_t zeros = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(rows)));
  const auto draws = static_cast<uint64_t>(1 + columns);
  return assign(tensor, std::move(generator), draws,
                [=](const Generator& from) { return sparse(rows, columns, zeros, std, from); });
}

void transformer_(Module& model, const TransformerInitArgs& options) {
  if (!(options.std >= 0) || !std::isfinite(options.std)) {
    fail(ErrorCode::kValue, "[transformer_] std is ", options.std,
         ": give a number that is not negative, such as 0.02");
  }
  if (!options.residual.empty()) {
    check_at_least("transformer_", 1, {{"num_layers", options.num_layers}});
  }
  std::vector<bool> found(options.residual.size());
  const auto draw = [&](const std::string& name, const Tensor& weight) {
    if (!weight.defined()) return;
    double std = options.std;
    for (size_t i = 0; i < found.size(); ++i) {
      if (!name.ends_with(options.residual[i])) continue;
      found[i] = true;
      std = options.std / std::sqrt(2 * static_cast<double>(options.num_layers));
    }
    init::normal_(weight, 0, std, options.generator);
  };
  const auto zero = [](const Tensor& bias) {
    if (bias.defined()) zeros_(bias);
  };
  for (const auto& [path, module] : model.named_modules()) {
    const std::string prefix = path.empty() ? "" : path + ".";
    if (const auto* linear = module->as<Linear>()) {
      draw(prefix + "weight", linear->weight);
      zero(linear->bias);
    } else if (const auto* embedding = module->as<Embedding>()) {
      draw(prefix + "weight", embedding->weight);
      if (const std::optional<int64_t> row = embedding->padding_idx()) {
        zeros_(embedding->weight.detach().select(0, *row));
      }
    } else if (const auto* attention = module->as<MultiheadAttention>()) {
      draw(prefix + "in_proj_weight", attention->in_proj_weight);
      draw(prefix + "q_proj_weight", attention->q_proj_weight);
      draw(prefix + "k_proj_weight", attention->k_proj_weight);
      draw(prefix + "v_proj_weight", attention->v_proj_weight);
      zero(attention->in_proj_bias);
    }
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]) continue;
    fail(ErrorCode::kValue, "[transformer_] no weight of the model has a name that ends with \"",
         options.residual[i], "\": give the ends of names in named_parameters()");
  }
}

}  // namespace mytorch::nn::init
