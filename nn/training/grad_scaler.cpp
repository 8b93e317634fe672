#include "mytorch/nn/training/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/all.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/isfinite.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/to.h"
#include "mytorch/options_epoch.h"

namespace mytorch::nn {
namespace {

void check_option(bool good, const char* option, double value, const char* bound) {
  if (!good) fail(ErrorCode::kValue, "[GradScaler] ", option, " is ", value, ": give ", bound);
}

void check_scale(double scale) {
  check_option(scale > 0 && std::isfinite(scale), "the scale", scale, "a positive number");
}

void check(const GradScalerOptions& options) {
  check_option(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor",
               options.growth_factor, "a number above 1");
  check_option(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor",
               options.backoff_factor, "a number between 0 and 1");
  check_option(options.growth_interval > 0, "growth_interval",
               static_cast<double>(options.growth_interval), "a positive number of steps");
}

// Divides the gradients, all on one device, by the scale. Returns a 0-dim bool tensor: whether all
// are finite. The norm of infinite order of each is finite if and only if all its elements are.
Tensor unscale(const std::vector<Tensor>& gradients, double inverse) {
  std::vector<Tensor> largest;
  largest.reserve(gradients.size());
  for (const Tensor& gradient : gradients) {
    gradient.mul_(inverse);
    largest.push_back(
        to(linalg_vector_norm(gradient, std::numeric_limits<double>::infinity()), kFloat64));
  }
  return all(isfinite(stack(largest)));
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(options), scale_(options.init_scale) {
  check_scale(scale_);
  check(options_);
}

Tensor GradScaler::scale(const Tensor& output) const {
  if (!options_.enabled) return output;
  return mul(output, full(IntList(nullptr, 0), scale_, kFloat32, output.device()));
}

std::vector<Tensor> GradScaler::scale(const std::vector<Tensor>& outputs) const {
  std::vector<Tensor> scaled;
  scaled.reserve(outputs.size());
  for (const Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void GradScaler::unscale_(const optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  if (optimizers_.contains(&optimizer)) {
    fail(ErrorCode::kValue,
         "[GradScaler] the gradients of this optimizer are already unscaled: call unscale_ once "
         "between two calls of update(), and before step()");
  }
  const NoGradGuard no_grad;
  std::vector<std::pair<Device, std::vector<Tensor>>> devices;
  for (size_t group = 0; group < optimizer.num_groups(); ++group) {
    for (const Tensor& parameter : optimizer.parameters(group)) {
      Tensor gradient = parameter.grad();
      if (!gradient.defined() || gradient.numel() == 0) continue;
      if (gradient.dtype() == kFloat16) {
        fail(ErrorCode::kType,
             "[GradScaler] a gradient is float16, in which unscaled gradients vanish: keep "
             "parameters in float32 and run the forward in an AutocastGuard");
      }
      auto found = std::find_if(devices.begin(), devices.end(),
                                [&](const auto& each) { return each.first == gradient.device(); });
      if (found == devices.end()) {
        found = devices.insert(found, {gradient.device(), std::vector<Tensor>()});
      }
      found->second.push_back(std::move(gradient));
    }
  }
  Progress progress;
  for (const auto& [device, gradients] : devices) {
    progress.finite.push_back(unscale(gradients, 1 / scale_));
  }
  optimizers_.emplace(&optimizer, std::move(progress));
}

// A compiled function that calls scale() holds the number.
void GradScaler::set_scale(double scale) {
  if (scale != scale_) options_changed();
  scale_ = scale;
}

bool GradScaler::all_finite(const Progress& progress) const {
  return std::all_of(progress.finite.begin(), progress.finite.end(),
                     [](const Tensor& finite) { return finite.item<bool>(); });
}

bool GradScaler::step(optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  if (!optimizers_.contains(&optimizer)) unscale_(optimizer);
  Progress& progress = optimizers_.at(&optimizer);
  if (progress.stepped) {
    fail(ErrorCode::kValue,
         "[GradScaler] step was called twice for this optimizer: call update() after the steps of "
         "all optimizers");
  }
  if (progress.finite.empty()) {
    fail(ErrorCode::kValue,
         "[GradScaler] no parameter of this optimizer has a gradient: call "
         "scale(loss).backward() before step()");
  }
  progress.stepped = true;
  if (!all_finite(progress)) return false;
  optimizer.step();
  return true;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  if (new_scale.has_value()) {
    check_scale(*new_scale);
    set_scale(*new_scale);
    optimizers_.clear();
    return;
  }
  if (optimizers_.empty()) {
    fail(ErrorCode::kValue,
         "[GradScaler] no gradients were unscaled since the last update: call step() first");
  }
  const bool finite = std::all_of(optimizers_.begin(), optimizers_.end(),
                                  [&](const auto& each) { return all_finite(each.second); });
  if (!finite) {
    set_scale(scale_ * options_.backoff_factor);
    growth_tracker_ = 0;
  } else if (++growth_tracker_ == options_.growth_interval) {
    // The scale is multiplied in float32, whose range it must not leave.
    const double grown = scale_ * options_.growth_factor;
    if (grown <= std::numeric_limits<float>::max()) set_scale(grown);
    growth_tracker_ = 0;
  }
  optimizers_.clear();
}

void GradScaler::set_growth_factor(double factor) {
  GradScalerOptions options = options_;
  options.growth_factor = factor;
  check(options);
  options_ = options;
}
void GradScaler::set_backoff_factor(double factor) {
  GradScalerOptions options = options_;
  options.backoff_factor = factor;
  check(options);
  options_ = options;
}
void GradScaler::set_growth_interval(int64_t steps) {
  GradScalerOptions options = options_;
  options.growth_interval = steps;
  check(options);
  options_ = options;
}

TensorMap GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  const auto number = [](double value) { return full(IntList(nullptr, 0), value, kFloat64); };
  const auto count = [](int64_t value) { return full(IntList(nullptr, 0), value, kInt64); };
  return {{"scale", number(scale_)},
          {"growth_factor", number(options_.growth_factor)},
          {"backoff_factor", number(options_.backoff_factor)},
          {"growth_interval", count(options_.growth_interval)},
          {"_growth_tracker", count(growth_tracker_)}};
}

void GradScaler::load_state_dict(const TensorMap& state) {
  if (!options_.enabled) return;
  const auto take = [&](const char* name) -> const Tensor& {
    const auto found = state.find(name);
    if (found == state.end()) {
      fail(ErrorCode::kValue, "[GradScaler] the state has no '", name,
           "': was it saved by a scaler that was enabled?");
    }
    return found->second;
  };
  GradScalerOptions options = options_;
  const double scale = take("scale").item<double>();
  options.growth_factor = take("growth_factor").item<double>();
  options.backoff_factor = take("backoff_factor").item<double>();
  options.growth_interval = take("growth_interval").item<int64_t>();
  const int64_t tracker = take("_growth_tracker").item<int64_t>();
  check_scale(scale);
  check(options);
  options_ = options;
  set_scale(scale);
  growth_tracker_ = tracker;
}

}  // namespace mytorch::nn
