// Groups of parameters with their options.
#include "mytorch/nn/optim/param_groups.h"

#include <memory>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/options_epoch.h"

namespace mytorch::nn::optim {

OptimizerParamGroup::OptimizerParamGroup(std::vector<Tensor> params,
                                         std::unique_ptr<OptimizerOptions> options)
    : params_(std::move(params)), options_(std::move(options)) {}
OptimizerParamGroup::OptimizerParamGroup(std::initializer_list<Tensor> params) : params_(params) {}
OptimizerParamGroup::OptimizerParamGroup(const OptimizerParamGroup& other)
    : params_(other.params_), options_(other.options_ ? other.options_->clone() : nullptr) {}
OptimizerParamGroup::OptimizerParamGroup(OptimizerParamGroup&& other) noexcept = default;
OptimizerParamGroup& OptimizerParamGroup::operator=(OptimizerParamGroup other) {
  params_ = std::move(other.params_);
  set_options(std::move(other.options_));
  return *this;
}
OptimizerParamGroup::~OptimizerParamGroup() = default;
void OptimizerParamGroup::set_options(std::unique_ptr<OptimizerOptions> options) {
  if (options_ != nullptr) options_changed();  // recordings may refer to them
  options_ = std::move(options);
}

ParamGroups::ParamGroups(std::vector<Tensor> params) { groups_.emplace_back(std::move(params)); }
ParamGroups::ParamGroups(std::initializer_list<Tensor> params) { groups_.emplace_back(params); }
ParamGroups::ParamGroups(std::vector<OptimizerParamGroup> groups) : groups_(std::move(groups)) {}
ParamGroups::ParamGroups(std::initializer_list<OptimizerParamGroup> groups) : groups_(groups) {}
ParamGroups::ParamGroups(const ParamGroups& other) = default;
ParamGroups::ParamGroups(ParamGroups&& other) noexcept = default;
ParamGroups& ParamGroups::operator=(ParamGroups other) {
  groups_ = std::move(other.groups_);
  return *this;
}
ParamGroups::~ParamGroups() = default;

OptimizerOptions& OptimizerParamGroup::options() {
  if (options_ == nullptr) {
    fail(ErrorCode::kValue,
         "[OptimizerParamGroup] the group has no options: give them, or add it to an optimizer");
  }
  return *options_;
}
const OptimizerOptions& OptimizerParamGroup::options() const {
  if (options_ == nullptr) const_cast<OptimizerParamGroup*>(this)->options();  // throws
  return *options_;
}

}  // namespace mytorch::nn::optim
