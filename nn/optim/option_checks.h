// Checks of an optimizer's options. Each throws Error(kValue), naming optimizer, option, value and
// bound.
#pragma once

#include <initializer_list>
#include <utility>

#include "mytorch/nn/optim/options.h"

namespace mytorch::nn::optim {

void check_option(const char* optimizer, bool good, const char* option, double value,
                  const char* bound);
void check_not_negative(const char* optimizer,
                        std::initializer_list<std::pair<const char*, double>> options);
void check_betas(const char* optimizer, const Betas& betas);

}  // namespace mytorch::nn::optim
