#include "nn/parallel/norm_of_ranks.h"

#include <algorithm>
#include <cmath>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/parallel/parallelize.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clip_grads_with_norm_.h"
#include "mytorch/ops/get_total_norm.h"
#include "mytorch/ops/maximum.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/ops/zeros.h"
#include "nn/parallel/split_parameters.h"

namespace mytorch::nn {
namespace parallel {

using distributed::Group;
using distributed::ReduceOp;

// A group appears with the first parameter that it shares, whether or not that has a gradient, so
// that all ranks reduce over the same groups in the same order.
void NormOfRanks::add(const Tensor& parameter, const Group* split) {
  auto sharing = sharings_.begin();
  if (split != nullptr) {
    sharing = std::find_if(sharing, sharings_.end(), [&](const Sharing& each) {
      return each.group.state() == split->state();
    });
    if (sharing == sharings_.end()) sharing = sharings_.insert(sharing, Sharing{*split});
  }
  Tensor grad = parameter.grad();
  if (!grad.defined() || grad.numel() == 0) return;
  grad = grad.detach();
  if (grad.is_complex() && norm_type_ == 2) grad = mytorch::view_as_real(grad);  // of the same norm
  sharing->gradients.push_back(grad);
}

Tensor NormOfRanks::power_of(const std::vector<Tensor>& gradients) const {
  if (gradients.empty()) return mytorch::zeros(IntList(nullptr, 0), kFloat64, device_);
  // Gradients that are offloaded to the host are reduced by the group's device.
  const Tensor norm = mytorch::get_total_norm(gradients, norm_type_).to(device_, kFloat64);
  return std::isinf(norm_type_) ? norm : mytorch::pow(norm, norm_type_);
}

void NormOfRanks::reduce(const Tensor& power, const Group& group) const {
  group.all_reduce(power, {std::isinf(norm_type_) ? ReduceOp::kMax : ReduceOp::kSum});
}

optim::GradientNorm NormOfRanks::clip(double max_norm, const std::vector<Group>& others) const {
  if (!(max_norm >= 0)) {
    fail(ErrorCode::kValue, "[clip_grad_norm_] max_norm is ", max_norm, ": give 0 or more");
  }
  if (!(norm_type_ > 0)) {  // zeros in place of what a rank lacks would count
    fail(ErrorCode::kValue, "[clip_grad_norm_] norm_type is ", norm_type_,
         ": give more than 0, inf for the largest magnitude");
  }
  const NoGradGuard no_grad;
  Tensor total;
  std::vector<Tensor> all;
  for (const Sharing& sharing : sharings_) {
    const Tensor power = power_of(sharing.gradients);
    if (sharing.group.defined()) reduce(power, sharing.group);
    all.insert(all.end(), sharing.gradients.begin(), sharing.gradients.end());
    if (!total.defined()) {
      total = power;
    } else {
      total = std::isinf(norm_type_) ? mytorch::maximum(total, power) : mytorch::add(total, power);
    }
  }
  for (const Group& group : others) reduce(total, group);
  if (!std::isinf(norm_type_)) total = mytorch::pow(total, 1 / norm_type_);
  total = total.to(all.empty() || all[0].dtype() != kFloat64 ? kFloat32 : kFloat64);
  if (!all.empty()) {
    total = total.to(all[0].device());
    mytorch::clip_grads_with_norm_(all, total, max_norm);
  }
  return optim::GradientNorm(total);
}

}  // namespace parallel

optim::GradientNorm clip_grad_norm_(Module& module, double max_norm,
                                    const ClipGradNormArgs& options) {
  const auto splits = parallel::split_parameters(module);
  const NamedList<Tensor> parameters = module.named_parameters();
  parallel::NormOfRanks norm(options.norm_type,
                             parameters.empty() ? Device(kCPU) : parameters[0].second.device());
  for (const auto& [name, parameter] : parameters) {
    const auto split = splits.find(name);
    norm.add(parameter, split == splits.end() ? nullptr : &split->second.group);
  }
  std::vector<distributed::Group> others;
  if (options.stages.defined()) others.push_back(options.stages);
  return norm.clip(max_norm, others);
}

}  // namespace mytorch::nn
