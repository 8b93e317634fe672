// Learning rate schedules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/std_function.h"

namespace mytorch::nn::optim {

// The learning rate at step 0, 1, ... of a group whose initial rate is `base_lr`. The unit of a
// step is whatever the program calls step() after: a batch or an epoch.
using LRCurve = std::function<double(double base_lr, int64_t step)>;

namespace curves {
// base * gamma^floor(step / size).
LRCurve step(int64_t size, double gamma = 0.1);
// base * gamma^(number of milestones reached).
LRCurve multi_step(std::vector<int64_t> milestones, double gamma = 0.1);
// base * gamma^step.
LRCurve exponential(double gamma);
// From base to `min_lr` in `half_period` steps along half a cosine, and back (Loshchilov and
// Hutter, "SGDR", ICLR 2017, without restarts).
LRCurve cosine(int64_t half_period, double min_lr = 0);
// From base * from to base * to in `steps` steps, constant afterwards. Serves as a warm-up.
LRCurve linear(double from, double to, int64_t steps);
// Half a cosine from base to `min_lr` in `period` steps, again and again, each time over a period
// that is `factor` times as long (Loshchilov and Hutter, "SGDR", ICLR 2017).
LRCurve warm_restarts(int64_t period, int64_t factor = 1, double min_lr = 0);
// base * factor for `steps` steps, base afterwards.
LRCurve constant(double factor = 1.0 / 3, int64_t steps = 5);
// base * (1 - step / steps)^power for `steps` steps, 0 afterwards.
LRCurve polynomial(int64_t steps = 5, double power = 1);
// Linearly from `low` to `high` in `up` steps and back in `down` steps, again and again, with the
// height multiplied by scale(cycle), which counts from 1 as in PyTorch (Smith, "Cyclical learning
// rates", WACV 2017).
LRCurve cyclic(double low, double high, int64_t up = 2000, int64_t down = 2000,
               std::function<double(int64_t)> scale = {});
// From base to `swa_lr` in `steps` steps, along half a cosine or linearly, and constant afterwards.
LRCurve swa(double swa_lr, int64_t steps = 10, bool cosine = true);
// base * factor(step).
LRCurve lambda(std::function<double(int64_t)> factor);
// Several curves in succession, each for its number of steps, counting its own steps from 0; the
// last curve never ends: sequence({{linear(0.1, 1, 100), 100}, {cosine(900), 900}}).
LRCurve sequence(std::vector<std::pair<LRCurve, int64_t>> parts);
}  // namespace curves

// Sets the learning rates of an optimizer, starting with those of step 0. The optimizer must
// outlive the scheduler.
class LRScheduler {
 public:
  // With `relative`, a rate that something else has set since the last step is multiplied by the
  // ratio of the curve's values, as by PyTorch's schedules that can be chained; otherwise, step()
  // sets the curve's value, whatever the rate is.
  LRScheduler(Optimizer& optimizer, LRCurve curve, bool relative = false);
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  void step();
  int64_t steps() const { return step_; }
  TensorMap state_dict() const;
  // Throws Error(kValue), and changes nothing, if the number of groups differs.
  void load_state_dict(const TensorMap& state);

 protected:
  Optimizer& optimizer() const { return optimizer_; }
  virtual void move_to(int64_t step);

 private:
  Optimizer& optimizer_;
  LRCurve curve_;
  std::vector<double> base_;  // per group
  bool relative_;
  int64_t step_ = 0;
};

class StepLR final : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1)
      : LRScheduler(optimizer, curves::step(step_size, gamma), true) {}
};

class MultiStepLR final : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1)
      : LRScheduler(optimizer, curves::multi_step(std::move(milestones), gamma), true) {}
};

class ExponentialLR final : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma)
      : LRScheduler(optimizer, curves::exponential(gamma), true) {}
};

class CosineAnnealingLR final : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t half_period, double min_lr = 0)
      : LRScheduler(optimizer, curves::cosine(half_period, min_lr)) {}
};

class CosineAnnealingWarmRestarts final : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t period, int64_t factor = 1,
                              double min_lr = 0)
      : LRScheduler(optimizer, curves::warm_restarts(period, factor, min_lr)) {}
};

class ConstantLR final : public LRScheduler {
 public:
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t steps = 5)
      : LRScheduler(optimizer, curves::constant(factor, steps), true) {}
};

class PolynomialLR final : public LRScheduler {
 public:
  explicit PolynomialLR(Optimizer& optimizer, int64_t steps = 5, double power = 1)
      : LRScheduler(optimizer, curves::polynomial(steps, power), true) {}
};

class CyclicLR final : public LRScheduler {
 public:
  CyclicLR(Optimizer& optimizer, double low, double high, int64_t up = 2000, int64_t down = 2000,
           std::function<double(int64_t)> scale = {})
      : LRScheduler(optimizer, curves::cyclic(low, high, up, down, std::move(scale))) {}
};

class SWALR final : public LRScheduler {
 public:
  SWALR(Optimizer& optimizer, double swa_lr, int64_t steps = 10, bool cosine = true)
      : LRScheduler(optimizer, curves::swa(swa_lr, steps, cosine)) {}
};

class LinearLR final : public LRScheduler {
 public:
  LinearLR(Optimizer& optimizer, double from = 1.0 / 3, double to = 1, int64_t steps = 5)
      : LRScheduler(optimizer, curves::linear(from, to, steps), true) {}
};

class LambdaLR final : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> factor)
      : LRScheduler(optimizer, curves::lambda(std::move(factor))) {}
};

class SequentialLR final : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<std::pair<LRCurve, int64_t>> parts)
      : LRScheduler(optimizer, curves::sequence(std::move(parts))) {}
};

struct OneCycleOptions {
  double pct_start = 0.3;         // fraction of the steps in which the rate rises
  double div_factor = 25;         // the initial rate is max_lr / div_factor
  double final_div_factor = 1e4;  // the final rate is the initial rate / final_div_factor
  bool cosine = true;             // anneal along half a cosine, otherwise linearly
  bool cycle_momentum = true;     // vary momentum inversely to the rate; a momentum of 0 stays 0
  double base_momentum = 0.85;
  double max_momentum = 0.95;
};

// Raises the rate to max_lr and lowers it again over `total_steps` steps (Smith and Topin,
// "Super-convergence", 2018). The step after the last one keeps its rate, since loops step behind
// the optimizer; later ones throw Error(kValue).
class OneCycleLR final : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, double max_lr, int64_t total_steps,
             OneCycleOptions options = {});

 private:
  void move_to(int64_t step) override;

  int64_t total_steps_;
  OneCycleOptions options_;
};

struct PlateauOptions {
  bool maximize = false;  // larger values of the metric are better
  double factor = 0.1;
  int64_t patience = 10;    // number of steps without improvement to tolerate
  double threshold = 1e-4;  // the smallest change that counts as an improvement
  bool relative = true;     // whether `threshold` is relative to the size of the best value
  int64_t cooldown = 0;     // number of steps to ignore after a reduction
  double min_lr = 0;
  double eps = 1e-8;  // rate changes smaller than this are skipped
};

// Multiplies the rates by `factor` when a metric stops improving. NaN does not count as
// improvement.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, PlateauOptions options = {});
  void step(double metric);
  double best() const { return best_; }
  TensorMap state_dict() const;
  void load_state_dict(const TensorMap& state);

 private:
  bool improves(double metric) const;

  Optimizer& optimizer_;
  PlateauOptions options_;
  double best_;
  int64_t bad_steps_ = 0;
  int64_t cooling_ = 0;
};

// libtorch's spelling of it.
class ReduceLROnPlateauScheduler final : public ReduceLROnPlateau {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  explicit ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode = min,
                                      double factor = 0.1, int64_t patience = 10,
                                      double threshold = 1e-4, ThresholdMode threshold_mode = rel,
                                      int64_t cooldown = 0, double min_lr = 0, double eps = 1e-8)
      : ReduceLROnPlateau(optimizer, {.maximize = mode == max,
                                      .factor = factor,
                                      .patience = patience,
                                      .threshold = threshold,
                                      .relative = threshold_mode == rel,
                                      .cooldown = cooldown,
                                      .min_lr = min_lr,
                                      .eps = eps}) {}
};

}  // namespace mytorch::nn::optim
