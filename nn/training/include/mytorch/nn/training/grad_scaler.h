// Loss scaling, for training in float16.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // of the scale, after `growth_interval` finite steps in a row
  double backoff_factor = 0.5;     // of the scale, after a step that was skipped
  int64_t growth_interval = 2000;  // steps
  bool enabled = true;             // false: everything passes through unchanged
};

// Multiplies the loss by a scale, so that small gradients do not vanish in float16, and divides the
// gradients by it before the step. Skips steps whose gradients are infinite or NaN, and adapts the
// scale:
//
//   scaler.scale(loss).backward();
//   scaler.unscale_(adam);  // only if the gradients are read before the step
//   clip_grad_norm_(net.parameters(), 1.0);
//   scaler.step(adam);
//   scaler.update();
//
// Parameters and gradients are float32; use an AutocastGuard for the forward. With several
// optimizers, call step for each and then update once. bfloat16 has the range of float32 and needs
// no scaler.
class GradScaler {
 public:
  // Throws Error(kValue) if an option has no meaning.
  explicit GradScaler(GradScalerOptions options = {});

  // Returns outputs times the scale; a 0-dim output becomes at least float32.
  Tensor scale(const Tensor& output) const;
  std::vector<Tensor> scale(const std::vector<Tensor>& outputs) const;

  // Divides the gradients of the optimizer's parameters by the scale and notes whether they are
  // finite. Throws Error(kValue) if called twice before update(), and Error(kType) for float16
  // gradients, in which the quotients vanish.
  void unscale_(const optim::Optimizer& optimizer);
  // Unscales the gradients unless unscale_ did so, and performs optimizer.step() if all are finite;
  // waits for the device to find out. Returns whether the step was performed. Throws Error(kValue)
  // if called twice before update().
  bool step(optim::Optimizer& optimizer);
  // Adapts the scale after the steps of all optimizers, or sets it. Throws Error(kValue) if no
  // gradients were unscaled since the last update and no scale is given.
  void update(std::optional<double> new_scale = std::nullopt);

  // Returns the scale; 1 if disabled.
  double get_scale() const { return options_.enabled ? scale_ : 1; }
  bool is_enabled() const { return options_.enabled; }
  const GradScalerOptions& options() const { return options_; }
  double get_growth_factor() const { return options_.growth_factor; }
  double get_backoff_factor() const { return options_.backoff_factor; }
  int64_t get_growth_interval() const { return options_.growth_interval; }
  void set_growth_factor(double factor);
  void set_backoff_factor(double factor);
  void set_growth_interval(int64_t steps);

  // Returns PyTorch's names: "scale", "growth_factor", "backoff_factor", "growth_interval" and
  // "_growth_tracker"; nothing if disabled.
  TensorMap state_dict() const;
  // Throws Error(kValue), and changes nothing, if a name is missing or a value has no meaning.
  void load_state_dict(const TensorMap& state);

 private:
  struct Progress {
    std::vector<Tensor> finite;  // on each device, whether all gradients are
    bool stepped = false;
  };
  bool all_finite(const Progress& progress) const;
  void set_scale(double scale);

  GradScalerOptions options_;
  double scale_;
  int64_t growth_tracker_ = 0;                              // finite steps since the scale changed
  std::map<const optim::Optimizer*, Progress> optimizers_;  // since the last update
};

}  // namespace mytorch::nn
