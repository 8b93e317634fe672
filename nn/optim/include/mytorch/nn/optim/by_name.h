// Optimizers by the names of their classes, for programs that read the name when they run.
#pragma once

#include <memory>
#include <string_view>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

//   const auto options = default_options("Adam");
//   options->set_lr(0.1);
//   const auto optimizer = make_optimizer("Adam", model.parameters(), *options);
//
// Throws Error(kValue), listing the names, if there is no class of this one.
std::unique_ptr<OptimizerOptions> default_options(std::string_view name);
// Also throws Error(kValue) if the options, which become its defaults(), are of another class.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, ParamGroups parameters,
                                          const OptimizerOptions& options);

}  // namespace mytorch::nn::optim
