// Learning rates as functions of the step.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "core/types/errors.h"
#include "mytorch/nn/optim/schedule.h"

namespace mytorch::nn::optim::curves {
namespace {

void check_steps(const char* schedule, const char* name, int64_t steps) {
  if (steps < 1) {
    fail(ErrorCode::kValue, "[", schedule, "] ", name, " is ", steps, ": give at least 1");
  }
}

}  // namespace

LRCurve step(int64_t size, double gamma) {
  check_steps("StepLR", "step_size", size);
  return [=](double base, int64_t step) {
    const int64_t decays = step / size;
    return base * std::pow(gamma, static_cast<double>(decays));
  };
}

LRCurve multi_step(std::vector<int64_t> milestones, double gamma) {
  std::sort(milestones.begin(), milestones.end());
  return [=](double base, int64_t step) {
    const auto reached = std::upper_bound(milestones.begin(), milestones.end(), step);
    return base * std::pow(gamma, static_cast<double>(reached - milestones.begin()));
  };
}

LRCurve exponential(double gamma) {
  return
      [=](double base, int64_t step) { return base * std::pow(gamma, static_cast<double>(step)); };
}

LRCurve cosine(int64_t half_period, double min_lr) {
  check_steps("CosineAnnealingLR", "half_period", half_period);
  return [=](double base, int64_t step) {
    const double angle =
        std::numbers::pi * static_cast<double>(step) / static_cast<double>(half_period);
    return min_lr + (base - min_lr) * (1 + std::cos(angle)) / 2;
  };
}

LRCurve linear(double from, double to, int64_t steps) {
  check_steps("LinearLR", "steps", steps);
  return [=](double base, int64_t step) {
    const double part = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    return base * (from + (to - from) * part);
  };
}

LRCurve warm_restarts(int64_t period, int64_t factor, double min_lr) {
  check_steps("CosineAnnealingWarmRestarts", "period", period);
  check_steps("CosineAnnealingWarmRestarts", "factor", factor);
  return [=](double base, int64_t step) {
    int64_t length = period, at = step;
    if (factor == 1) {
      at %= length;
    } else {
      while (at >= length) {
        at -= length;
        length = length > INT64_MAX / factor ? INT64_MAX : length * factor;
      }
    }
    const double angle = std::numbers::pi * static_cast<double>(at) / static_cast<double>(length);
    return min_lr + (base - min_lr) * (1 + std::cos(angle)) / 2;
  };
}

LRCurve constant(double factor, int64_t steps) {
  check_steps("ConstantLR", "steps", steps);
  return [=](double base, int64_t step) { return step < steps ? base * factor : base; };
}

LRCurve polynomial(int64_t steps, double power) {
  check_steps("PolynomialLR", "steps", steps);
  return [=](double base, int64_t step) {
    const double part = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    return base * std::pow(1 - part, power);
  };
}

LRCurve cyclic(double low, double high, int64_t up, int64_t down,
               std::function<double(int64_t)> scale) {
  check_steps("CyclicLR", "up", up);
  check_steps("CyclicLR", "down", down);
  if (up > INT64_MAX - down) fail(ErrorCode::kValue, "[CyclicLR] a cycle has too many steps");
  return [=](double /*base*/, int64_t step) {
    const int64_t cycle = step / (up + down), at = step % (up + down);
    const double part = at <= up ? static_cast<double>(at) / static_cast<double>(up)
                                 : static_cast<double>(up + down - at) / static_cast<double>(down);
    return low + (high - low) * part * (scale ? scale(cycle + 1) : 1);
  };
}

LRCurve swa(double swa_lr, int64_t steps, bool cosine) {
  check_steps("SWALR", "steps", steps);
  return [=](double base, int64_t step) {
    double part = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    if (cosine) part = (1 - std::cos(std::numbers::pi * part)) / 2;
    return base + (swa_lr - base) * part;
  };
}

LRCurve lambda(std::function<double(int64_t)> factor) {
  return [factor = std::move(factor)](double base, int64_t step) { return base * factor(step); };
}

LRCurve sequence(std::vector<std::pair<LRCurve, int64_t>> parts) {
  if (parts.empty()) fail(ErrorCode::kValue, "[SequentialLR] there are no parts");
  for (const auto& part : parts) check_steps("SequentialLR", "the length of a part", part.second);
  return [parts = std::move(parts)](double base, int64_t step) {
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      if (step < parts[i].second) return parts[i].first(base, step);
      step -= parts[i].second;
    }
    return parts.back().first(base, step);
  };
}

}  // namespace mytorch::nn::optim::curves
