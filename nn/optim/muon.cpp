#include "mytorch/nn/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/addmm.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/lerp.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/transpose.h"
#include "nn/optim/number.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, MuonArgs&);

void Muon::check(const MuonArgs& options) {
  check_not_negative(kName, {{"momentum", options.momentum}});
  check_option(kName, options.ns_steps >= 0 && options.ns_steps < 100, "ns_steps",
               static_cast<double>(options.ns_steps), "0 to 99");
  const std::string adjust = options.adjust_lr_fn.value_or("original");
  if (adjust != "original" && adjust != "match_rms_adamw") {
    fail(ErrorCode::kValue, "[Muon] adjust_lr_fn is \"", adjust,
         "\": give \"original\" or \"match_rms_adamw\"");
  }
  check_not_negative(kName, {{"weight_decay", options.weight_decay}, {"eps", options.eps}});
}

namespace {

Tensor orthogonalize(const Tensor& update, const MuonArgs& options) {
  const auto [a, b, c] = options.ns_coefficients;
  const bool tall = update.size(0) > update.size(1);
  Tensor x = update.to(kBFloat16);
  if (tall) x = x.t();
  x = div(x, clamp_min(linalg_vector_norm(x), options.eps));
  for (int64_t i = 0; i < options.ns_steps; ++i) {
    const Tensor gram = matmul(x, x.t());
    x = addmm(x, addmm(gram, gram, gram, b, c), x, a);
  }
  return tall ? x.t() : x;
}

}  // namespace

const char* Muon::refusal_of(const Tensor& parameter) {
  if (parameter.is_complex()) return "is complex: give it to another optimizer, such as AdamW";
  if (parameter.dim() == 2) return nullptr;
  return "does not have two dimensions: give it to another optimizer, such as AdamW";
}

void Muon::update(const Batch& batch, const MuonArgs& options) {
  const Number lr(batch.lr);
  const Number shrink = 1 - lr * options.weight_decay;
  const std::vector<Tensor> buffers = batch.state(0);
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Tensor &parameter = batch.parameters[i], &gradient = batch.gradients[i];
    buffers[i].lerp_(gradient, 1 - options.momentum);
    const Tensor update =
        options.nesterov ? lerp(gradient, buffers[i], options.momentum) : buffers[i];
    const auto rows = static_cast<double>(parameter.size(0));
    const auto columns = static_cast<double>(parameter.size(1));
    const double adjustment = options.adjust_lr_fn == "match_rms_adamw"
                                  ? 0.2 * std::sqrt(std::max(rows, columns))
                                  : std::sqrt(std::max(1.0, rows / columns));
    const Number rate = lr * adjustment;
    parameter.mul_(shrink.operand());
    parameter.sub_(orthogonalize(update, options).to(parameter.dtype()).mul_(rate.operand()));
  }
}

}  // namespace mytorch::nn::optim
