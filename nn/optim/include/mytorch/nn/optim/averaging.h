// Averages of a model's parameters over the steps of training.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "mytorch/nn/module.h"
#include "mytorch/std_function.h"

namespace mytorch::nn::optim {

struct AveragingOptions {
  // The weight of the average so far, for an exponential moving average (EMA); absent: all models
  // have the same weight, as in stochastic weight averaging (Izmailov et al., UAI 2018).
  std::optional<double> decay = {};
  bool use_buffers = false;  // whether to average floating-point buffers instead of copying them
};

namespace detail {
void check_averaging(const AveragingOptions& options);
// Moves the average of `count` models towards `model`.
void average(Module& average, Module& model, const AveragingOptions& options, int64_t count);
}  // namespace detail

// A copy of a model whose parameters are the average of those at each update_parameters:
//
//   optim::AveragedModel ema(model, {.decay = 0.999});
//   for (...) { ...; sgd.step(); ema.update_parameters(model); }
//   ema.module().eval();
//   ema(x);
template <class M>
class AveragedModel {
 public:
  explicit AveragedModel(const M& model, AveragingOptions options = {})
      : options_(options), module_(clone(model)) {
    detail::check_averaging(options);
    module_.requires_grad(false);
  }
  // The first update copies the parameters.
  void update_parameters(M& model) {
    detail::average(module_, model, options_, num_averaged_);
    ++num_averaged_;
  }
  int64_t num_averaged() const { return num_averaged_; }
  M& module() { return module_; }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return module_(std::forward<Args>(args)...);
  }

 private:
  AveragingOptions options_;
  M module_;
  int64_t num_averaged_ = 0;
};

// Recomputes the running statistics of all batch norms of a model, which its average does not have:
// `run` calls the model with the training data, in training mode and without recording gradients.
//
//   optim::update_bn(ema.module(), [&] { for (const auto& [x, y] : loader) ema(x); });
void update_bn(Module& model, const std::function<void()>& run);

}  // namespace mytorch::nn::optim
