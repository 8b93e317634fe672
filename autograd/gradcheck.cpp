#include "mytorch/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "autograd/operators.h"
#include "autograd/view.h"
#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/record.h"

namespace mytorch::autograd {
namespace {

// Returns the elements in row-major order.
std::vector<double> read(const Tensor& tensor) {
  NoGradGuard no_grad;
  const Tensor host = op::to(op::contiguous_copy(tensor), kFloat64, kCPU);
  const double* data = host.const_data<double>();
  return {data, data + host.numel()};
}

// Returns a tensor with these values and the form of `like`, including its strides if its elements
// do not overlap.
Tensor write(const std::vector<double>& values, const Tensor& like) {
  NoGradGuard no_grad;
  const Tensor host = op::empty(like.sizes(), kFloat64, kCPU);
  std::copy(values.begin(), values.end(), host.data<double>());
  const ViewGeometry geometry(*like.impl());
  Tensor result;
  if (geometry.overlaps() || like.numel() == 0) {
    result = op::empty(like.sizes(), like.dtype(), like.device());
  } else {
    const int64_t extent = geometry.high() - geometry.low();
    const Tensor memory = op::empty(IntList(extent), like.dtype(), like.device());
    result =
        op::as_strided(memory, geometry.sizes, geometry.strides, geometry.offset - geometry.low());
  }
  op::copy_(result, host);
  return result.detach();
}

bool differentiable(const Tensor& output) { return output.defined() && requires_grad(output); }

// One number per output element.
using Weights = std::vector<std::vector<double>>;

class GradientChecker {
 public:
  GradientChecker(const TensorFunction& function, const std::vector<Tensor>& inputs,
                  const GradcheckOptions& options)
      : function_(function), options_(options) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& input = inputs[i];
      const bool checked = input.defined() && requires_grad(input);
      if (checked && input.dtype() != kFloat64) {
        fail(ErrorCode::kType, "[gradcheck] input ", i, " is ", dtype_name(input.dtype()),
             ": differences need float64");
      }
      // Copies, so that the caller's grads do not change.
      inputs_.push_back(checked ? write(read(input), input).requires_grad_() : input);
      checked_.push_back(checked);
      any_ |= checked;
    }
    if (!any_) fail(ErrorCode::kValue, "[gradcheck] no input requires grad");
  }

  GradcheckResult run() {
    const std::vector<Tensor> outputs = forward();
    std::vector<size_t> used;  // outputs with a gradient
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (differentiable(outputs[k])) used.push_back(k);
    }
    std::mt19937_64 random(options_.seed);
    std::uniform_real_distribution<double> uniform(0.5, 1.5);
    const auto weigh = [&](const std::vector<size_t>& which) {
      Weights weights(outputs.size());
      for (size_t k : which) {
        weights[k].resize(static_cast<size_t>(outputs[k].numel()));
        for (double& w : weights[k]) w = uniform(random) * (random() & 1 ? 1 : -1);
      }
      return weights;
    };
    std::vector<Weights> all;
    all.reserve(static_cast<size_t>(options_.projections));
    for (int p = 0; p < options_.projections; ++p) all.push_back(weigh(used));
    if (used.size() > 1) {
      for (size_t k : used) all.push_back(weigh({k}));
    }
    std::vector<std::vector<std::vector<double>>> analytic;  // [projection][input][element]
    for (const Weights& weights : all) {
      analytic.push_back(gradients(weights));
      if (!result_.ok) return result_;
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (checked_[i]) compare(i, all, analytic);
    }
    return result_;
  }

 private:
  std::vector<Tensor> forward() const {
    EnableGradGuard grad;
    return function_(inputs_);
  }

  // Returns the gradients of the weighted sum, zeros for undefined ones. Computes them twice to
  // check that they are the same.
  std::vector<std::vector<double>> gradients(const Weights& weights) {
    std::vector<std::vector<double>> first = gradients_once(weights);
    const std::vector<std::vector<double>> second = gradients_once(weights);
    for (size_t i = 0; i < first.size(); ++i) {
      for (size_t j = 0; j < first[i].size(); ++j) {
        const double a = first[i][j];
        const double b = second[i][j];
        if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= options_.nondet_tol) {
          continue;
        }
        report(absl::StrCat("[gradcheck] backward is not deterministic: the gradient of input ", i,
                            ", element ", index_str(inputs_[i].sizes(), j), " was ", a, ", then ",
                            b));
      }
    }
    return first;
  }

  std::vector<std::vector<double>> gradients_once(const Weights& weights) const {
    const std::vector<Tensor> outputs = forward();
    std::vector<Tensor> roots;
    std::vector<Tensor> seeds;
    for (size_t k = 0; k < outputs.size() && k < weights.size(); ++k) {
      if (weights[k].empty() || !differentiable(outputs[k])) continue;
      roots.push_back(outputs[k]);
      const Tensor like = op::empty(outputs[k].sizes(), outputs[k].dtype(), outputs[k].device());
      seeds.push_back(write(weights[k], like));
    }
    std::vector<Tensor> wanted;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (checked_[i]) wanted.push_back(inputs_[i]);
    }
    std::vector<Tensor> found(wanted.size());
    if (!roots.empty()) found = grad(roots, wanted, seeds, {.allow_unused = true});
    std::vector<std::vector<double>> values(inputs_.size());
    size_t next = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!checked_[i]) continue;
      const Tensor& gradient = found[next++];
      values[i] = gradient.defined()
                      ? read(gradient)
                      : std::vector<double>(static_cast<size_t>(inputs_[i].numel()), 0.0);
    }
    return values;
  }

  // The indices of the outputs that have a weight.
  std::vector<std::vector<double>> values_at(const std::vector<Tensor>& inputs,
                                             const std::vector<Weights>& all) const {
    NoGradGuard no_grad;
    const std::vector<Tensor> outputs = function_(inputs);
    std::vector<std::vector<double>> values(outputs.size());
    for (size_t k = 0; k < outputs.size(); ++k) {
      const bool weighted = std::any_of(all.begin(), all.end(), [&](const Weights& weights) {
        return k < weights.size() && !weights[k].empty();
      });
      if (!weighted) continue;
      values[k] = read(outputs[k]);
      if (values[k].size() == all[0][k].size() || all[0][k].empty()) continue;
      fail(ErrorCode::kShape, "[gradcheck] output ", k, " has ", all[0][k].size(),
           " elements if gradients are recorded, and ", values[k].size(), " if not");
    }
    return values;
  }

  // Returns the weighted sum of the outputs' differences. Unlike a difference of sums, it has no
  // rounding error from large outputs that the input does not change.
  static double weigh_differences(const Weights& weights,
                                  const std::vector<std::vector<double>>& above,
                                  const std::vector<std::vector<double>>& below) {
    double sum = 0;
    for (size_t k = 0; k < weights.size(); ++k) {
      for (size_t e = 0; e < weights[k].size(); ++e) {
        sum += weights[k][e] * (above[k][e] - below[k][e]);
      }
    }
    return sum;
  }

  void compare(size_t i, const std::vector<Weights>& all,
               const std::vector<std::vector<std::vector<double>>>& analytic) {
    std::vector<double> values = read(inputs_[i]);
    std::vector<Tensor> inputs = inputs_;
    double worst = 0;
    for (size_t j = 0; j < values.size(); ++j) {
      const double x = values[j];
      values[j] = x + options_.eps;
      inputs[i] = write(values, inputs_[i]);
      const auto above = values_at(inputs, all);
      values[j] = x - options_.eps;
      inputs[i] = write(values, inputs_[i]);
      const auto below = values_at(inputs, all);
      values[j] = x;
      for (size_t p = 0; p < all.size(); ++p) {
        const double numeric = weigh_differences(all[p], above, below) / (2 * options_.eps);
        const double found = analytic[p][i][j];
        const double error = std::abs(found - numeric);
        const double excess = error - (options_.atol + options_.rtol * std::abs(numeric));
        // A NaN on either side is a mismatch.
        if (excess <= 0 || found == numeric) continue;
        if (!std::isnan(excess) && excess <= worst) continue;
        worst = std::isnan(excess) ? worst : excess;
        report(absl::StrCat("[gradcheck] the gradient of input ", i, ", element ",
                            index_str(inputs_[i].sizes(), j),
                            ", of a weighted sum of the outputs is ", found, " by backward and ",
                            numeric, " by differences (off by ", error, ", allowed ",
                            options_.atol + options_.rtol * std::abs(numeric), ")"));
      }
    }
  }

  void report(std::string message) {
    result_.ok = false;
    result_.message = std::move(message);
  }

  static std::string index_str(IntList sizes, size_t element) {
    std::vector<int64_t> index(sizes.size());
    for (size_t d = sizes.size(); d-- > 0;) {
      index[d] = static_cast<int64_t>(element) % sizes[d];
      element /= static_cast<size_t>(sizes[d]);
    }
    return shape_str(index);
  }

  const TensorFunction& function_;
  GradcheckOptions options_;
  std::vector<Tensor> inputs_;
  std::vector<bool> checked_;
  bool any_ = false;
  GradcheckResult result_;
};

// A complex function as a real one, of the parts of its complex inputs that require gradients. Its
// complex outputs become their parts.
struct OfParts {
  OfParts(const TensorFunction& f, const std::vector<Tensor>& given) : inputs(given) {
    std::vector<bool> complex;
    for (Tensor& input : inputs) {
      const bool checked = input.defined() && requires_grad(input) && input.is_complex();
      complex.push_back(checked);
      if (!checked) continue;
      NoGradGuard no_grad;
      input = op::clone(op::view_as_real(input)).requires_grad_();
    }
    function = [&f, complex](const std::vector<Tensor>& parts) {
      std::vector<Tensor> arguments = parts;
      for (size_t i = 0; i < complex.size(); ++i) {
        if (complex[i]) arguments[i] = op::view_as_complex(parts[i]);
      }
      std::vector<Tensor> outputs = f(arguments);
      for (Tensor& output : outputs) {
        if (output.defined() && output.is_complex()) output = op::view_as_real(output);
      }
      return outputs;
    };
  }

  TensorFunction function;
  std::vector<Tensor> inputs;
};

}  // namespace

GradcheckResult gradcheck(const TensorFunction& function, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options) {
  const OfParts real(function, inputs);
  return GradientChecker(real.function, real.inputs, options).run();
}

GradcheckResult gradgradcheck(const TensorFunction& given, const std::vector<Tensor>& given_inputs,
                              const GradcheckOptions& options) {
  const OfParts real(given, given_inputs);
  const TensorFunction& function = real.function;
  const std::vector<Tensor>& inputs = real.inputs;
  // Random grad_outputs, one per differentiable output, are further inputs.
  std::vector<Tensor> all = inputs;
  std::vector<size_t> used;
  {
    EnableGradGuard grad;
    const std::vector<Tensor> outputs = function(inputs);
    std::mt19937_64 random(options.seed + 1);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!differentiable(outputs[k])) continue;
      used.push_back(k);
      std::vector<double> values(static_cast<size_t>(outputs[k].numel()));
      for (double& value : values) value = uniform(random);
      const Tensor like = op::empty(outputs[k].sizes(), kFloat64, outputs[k].device());
      all.push_back(write(values, like).requires_grad_());
    }
  }
  const size_t num_inputs = inputs.size();
  const TensorFunction gradient = [&](const std::vector<Tensor>& with_seeds) {
    // Finite differences evaluate this in no-grad mode, but it computes a gradient itself.
    const bool recording = grad_enabled();
    EnableGradGuard enable;
    std::vector<Tensor> arguments(with_seeds.begin(),
                                  with_seeds.begin() + static_cast<ptrdiff_t>(num_inputs));
    std::vector<Tensor> wanted;
    for (size_t i = 0; i < num_inputs; ++i) {
      if (!inputs[i].defined() || !requires_grad(inputs[i])) continue;
      if (!requires_grad(arguments[i])) arguments[i] = arguments[i].detach().requires_grad_();
      wanted.push_back(arguments[i]);
    }
    const std::vector<Tensor> outputs = function(arguments);
    std::vector<Tensor> roots;
    std::vector<Tensor> seeds;
    for (size_t s = 0; s < used.size(); ++s) {
      const Tensor& seed = with_seeds[num_inputs + s];
      roots.push_back(outputs[used[s]]);
      seeds.push_back(outputs[used[s]].dtype() == kFloat64
                          ? seed
                          : op::to(seed, outputs[used[s]].dtype(), seed.device()));
    }
    if (roots.empty()) return std::vector<Tensor>();
    return grad(roots, wanted, seeds, {.create_graph = recording, .allow_unused = true});
  };
  GradcheckResult result = gradcheck(gradient, all, options);
  if (!result.ok) result.message = "[gradgradcheck] of the gradient function: " + result.message;
  return result;
}

}  // namespace mytorch::autograd
