#include "mytorch/nn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "core/types/errors.h"

namespace mytorch::nn::optim {
namespace {

const Tensor& need(const char* schedule, const TensorMap& state, const char* name, int64_t numel) {
  const auto found = state.find(name);
  if (found == state.end() || !found->second.defined() || found->second.numel() != numel) {
    fail(ErrorCode::kValue, "[", schedule, "] the state has no '", name, "' of ", numel,
         numel == 1 ? " number" : " numbers, one for each group");
  }
  return found->second;
}

}  // namespace

LRScheduler::LRScheduler(Optimizer& optimizer, LRCurve curve, bool relative)
    : optimizer_(optimizer), curve_(std::move(curve)), relative_(relative) {
  for (size_t g = 0; g < optimizer.num_groups(); ++g) base_.push_back(optimizer.lr(g));
  for (size_t g = 0; g < base_.size(); ++g) optimizer.set_lr(g, curve_(base_[g], 0));
}

void LRScheduler::step() {
  struct Changed {
    size_t group;
    double lr, own;
  };
  std::vector<Changed> changed;
  for (size_t g = 0; g < base_.size() && relative_ && g < optimizer_.num_groups(); ++g) {
    const double own = curve_(base_[g], step_), lr = optimizer_.lr(g);
    if (lr != own && own != 0) changed.push_back({g, lr, own});
  }
  move_to(step_ + 1);
  for (const Changed& each : changed) {
    optimizer_.set_lr(each.group, each.lr * (curve_(base_[each.group], step_) / each.own));
  }
}

void LRScheduler::move_to(int64_t step) {
  if (optimizer_.num_groups() != base_.size()) {
    fail(ErrorCode::kValue, "[LRScheduler] the optimizer has ", optimizer_.num_groups(),
         " groups, but had ", base_.size(), " when the schedule was created: add groups first");
  }
  for (size_t g = 0; g < base_.size(); ++g) optimizer_.set_lr(g, curve_(base_[g], step));
  step_ = step;
}

TensorMap LRScheduler::state_dict() const {
  return {{"step", scalar_tensor(step_, kInt64)}, {"base_lr", tensor(base_, kFloat64)}};
}

void LRScheduler::load_state_dict(const TensorMap& state) {
  const int64_t groups = static_cast<int64_t>(base_.size());
  const int64_t step = need("LRScheduler", state, "step", 1).item<int64_t>();
  const Tensor& saved = need("LRScheduler", state, "base_lr", groups);
  std::vector<double> base;
  for (int64_t g = 0; g < groups; ++g) base.push_back(saved.flatten()[g].item<double>());
  base_ = std::move(base);
  move_to(step);
}

// ---- one cycle ----

namespace {

double between(double from, double to, double part, bool cosine) {
  if (cosine) part = (1 - std::cos(std::numbers::pi * part)) / 2;
  return from + (to - from) * part;
}

// From `start` to `top`, reached at the end of the rising phase, and down to `end` at the last
// step.
double cycle(int64_t step, int64_t total_steps, const OneCycleOptions& options, double start,
             double top, double end) {
  const double turn = options.pct_start * static_cast<double>(total_steps) - 1;
  const double at = static_cast<double>(std::min(step, total_steps - 1));
  if (at <= turn) return turn == 0 ? top : between(start, top, at / turn, options.cosine);
  const double length = static_cast<double>(total_steps - 1) - turn;
  return between(top, end, (at - turn) / length, options.cosine);
}

LRCurve one_cycle(double max_lr, int64_t total_steps, const OneCycleOptions& options) {
  if (!(max_lr >= 0)) {
    fail(ErrorCode::kValue, "[OneCycleLR] max_lr is ", max_lr, ": give 0 or more");
  }
  if (total_steps < 1) {
    fail(ErrorCode::kValue, "[OneCycleLR] total_steps is ", total_steps, ": give at least 1");
  }
  if (!(options.pct_start >= 0 && options.pct_start <= 1)) {
    fail(ErrorCode::kValue, "[OneCycleLR] pct_start is ", options.pct_start,
         ": give a fraction from 0 to 1");
  }
  return [=](double /*base*/, int64_t step) {
    const double first = max_lr / options.div_factor;
    return cycle(step, total_steps, options, first, max_lr, first / options.final_div_factor);
  };
}

}  // namespace

OneCycleLR::OneCycleLR(Optimizer& optimizer, double max_lr, int64_t total_steps,
                       OneCycleOptions options)
    : LRScheduler(optimizer, one_cycle(max_lr, total_steps, options)),
      total_steps_(total_steps),
      options_(options) {
  OneCycleLR::move_to(0);
}

void OneCycleLR::move_to(int64_t step) {
  if (step > total_steps_) {
    fail(ErrorCode::kValue, "[OneCycleLR] step ", step, " exceeds total_steps, ", total_steps_,
         ": set it to the number of all steps");
  }
  LRScheduler::move_to(step);
  if (!options_.cycle_momentum) return;
  const double momentum = cycle(step, total_steps_, options_, options_.max_momentum,
                                options_.base_momentum, options_.max_momentum);
  for (size_t g = 0; g < optimizer().num_groups(); ++g) {
    if (optimizer().momentum(g) != 0) optimizer().set_momentum(g, momentum);
  }
}

// ---- plateau ----

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, PlateauOptions options)
    : optimizer_(optimizer),
      options_(options),
      best_(options.maximize ? -std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::infinity()) {
  if (!(options.factor < 1)) {
    fail(ErrorCode::kValue, "[ReduceLROnPlateau] factor is ", options.factor, ": give one below 1");
  }
}

bool ReduceLROnPlateau::improves(double metric) const {
  const double sign = options_.maximize ? 1 : -1;
  if (!options_.relative) return sign * metric > sign * best_ + options_.threshold;
  // A fraction of the size of the best value, so that negative ones have to improve, too.
  if (std::isinf(best_)) return sign * metric > sign * best_;
  return sign * metric > sign * best_ + options_.threshold * std::abs(best_);
}

void ReduceLROnPlateau::step(double metric) {
  if (improves(metric)) {
    best_ = metric;
    bad_steps_ = 0;
  } else {
    ++bad_steps_;
  }
  if (cooling_ > 0) {
    --cooling_;
    bad_steps_ = 0;
  }
  if (bad_steps_ <= options_.patience) return;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
    const double old = optimizer_.lr(g);
    const double reduced = std::max(old * options_.factor, options_.min_lr);
    if (old - reduced > options_.eps) optimizer_.set_lr(g, reduced);
  }
  cooling_ = options_.cooldown;
  bad_steps_ = 0;
}

TensorMap ReduceLROnPlateau::state_dict() const {
  return {{"best", scalar_tensor(best_, kFloat64)},
          {"bad_steps", scalar_tensor(bad_steps_, kInt64)},
          {"cooling", scalar_tensor(cooling_, kInt64)}};
}

void ReduceLROnPlateau::load_state_dict(const TensorMap& state) {
  const double best = need("ReduceLROnPlateau", state, "best", 1).item<double>();
  const int64_t bad_steps = need("ReduceLROnPlateau", state, "bad_steps", 1).item<int64_t>();
  const int64_t cooling = need("ReduceLROnPlateau", state, "cooling", 1).item<int64_t>();
  best_ = best;
  bad_steps_ = bad_steps;
  cooling_ = cooling;
}

}  // namespace mytorch::nn::optim
