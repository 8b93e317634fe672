#include "nn/optim/option_checks.h"

#include <tuple>

#include "core/types/errors.h"

namespace mytorch::nn::optim {

void check_option(const char* optimizer, bool good, const char* option, double value,
                  const char* bound) {
  if (!good) fail(ErrorCode::kValue, "[", optimizer, "] ", option, " is ", value, ": give ", bound);
}

void check_not_negative(const char* optimizer,
                        std::initializer_list<std::pair<const char*, double>> options) {
  for (const auto& [option, value] : options) {
    check_option(optimizer, value >= 0, option, value, "0 or more");
  }
}

void check_betas(const char* optimizer, const Betas& betas) {
  const auto check = [&](const char* option, double beta) {
    check_option(optimizer, beta >= 0 && beta < 1, option, beta, "one from 0 up to, but not, 1");
  };
  check("beta1", std::get<0>(betas));
  check("beta2", std::get<1>(betas));
}

}  // namespace mytorch::nn::optim
