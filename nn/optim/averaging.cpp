#include "mytorch/nn/optim/averaging.h"

#include <vector>

#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/ops/lerp.h"

namespace mytorch::nn::optim {

void detail::check_averaging(const AveragingOptions& options) {
  if (options.decay.has_value() && !(*options.decay >= 0 && *options.decay <= 1)) {
    fail(ErrorCode::kValue, "[AveragedModel] decay is ", *options.decay,
         ": give a weight from 0 to 1");
  }
}

void detail::average(Module& average, Module& model, const AveragingOptions& options,
                     int64_t count) {
  if (recording_graph() && (count == 0 || !options.decay.has_value())) {
    fail(
        ErrorCode::kUnsupported,
        "[AveragedModel] update_parameters counts its calls on the host, which a compiled function "
        "does once: call it outside of the function, or, with a decay, after a first call outside");
  }
  NoGradGuard no_grad;
  const double step =
      options.decay.has_value() ? 1 - *options.decay : 1 / static_cast<double>(count + 1);
  const auto move = [&](const std::vector<Tensor>& to, const std::vector<Tensor>& from, bool mean) {
    if (to.size() != from.size()) {
      fail(ErrorCode::kValue, "[AveragedModel] the model has ", from.size(),
           " tensors, its average has ", to.size(), ": average one model");
    }
    for (size_t i = 0; i < to.size(); ++i) {
      if (count == 0 || !mean || !to[i].is_floating_point()) {
        to[i].copy_(from[i]);
      } else {
        to[i].lerp_(from[i].detach().to(to[i]), step);
      }
    }
  };
  move(average.parameters(), model.parameters(), true);
  move(average.buffers(), model.buffers(), options.use_buffers);
}

void update_bn(Module& model, const std::function<void()>& run) {
  struct Norm {
    BatchNorm* module;
    std::optional<double> momentum;
  };
  std::vector<Norm> norms;
  std::vector<std::pair<Module*, bool>> modes;
  for (const auto& [name, module] : model.named_modules()) {
    modes.emplace_back(module, module->training());
    if (auto* norm = dynamic_cast<BatchNorm*>(module)) norms.push_back({norm, norm->momentum()});
  }
  if (norms.empty()) return;
  const auto restore = [&] {
    for (const Norm& norm : norms) norm.module->set_momentum(norm.momentum);
    for (size_t i = 0; i < modes.size(); ++i) modes[i].first->train(modes[i].second);
  };
  for (const Norm& norm : norms) {
    norm.module->reset_running_stats();
    norm.module->set_momentum({});  // cumulative averages
  }
  model.train();
  NoGradGuard no_grad;
  try {
    run();
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

}  // namespace mytorch::nn::optim
