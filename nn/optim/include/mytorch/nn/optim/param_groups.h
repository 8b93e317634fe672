// The parameters of an optimizer, in groups. Part of optimizer.h.
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <vector>

#include "mytorch/nn/optim/options.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::optim {

// Parameters with options of their own; without options, those of the optimizer's defaults().
class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params,  // NOLINT(google-explicit-constructor)
                      std::unique_ptr<OptimizerOptions> options = nullptr);
  OptimizerParamGroup(std::initializer_list<Tensor> params);  // NOLINT
  OptimizerParamGroup(const OptimizerParamGroup& other);
  OptimizerParamGroup(OptimizerParamGroup&& other) noexcept;
  OptimizerParamGroup& operator=(OptimizerParamGroup other);
  ~OptimizerParamGroup();

  const std::vector<Tensor>& params() const { return params_; }
  bool has_options() const { return options_ != nullptr; }
  // Throw Error(kValue) if there are no options.
  OptimizerOptions& options();
  const OptimizerOptions& options() const;
  void set_options(std::unique_ptr<OptimizerOptions> options);

 private:
  std::vector<Tensor> params_;
  std::unique_ptr<OptimizerOptions> options_;
};

// The argument of an optimizer: a list of parameters, or groups of them.
class ParamGroups {
 public:
  ParamGroups(std::vector<Tensor> params);                         // NOLINT
  ParamGroups(std::initializer_list<Tensor> params);               // NOLINT
  ParamGroups(std::vector<OptimizerParamGroup> groups);            // NOLINT
  ParamGroups(std::initializer_list<OptimizerParamGroup> groups);  // NOLINT
  ParamGroups(const ParamGroups& other);
  ParamGroups(ParamGroups&& other) noexcept;
  ParamGroups& operator=(ParamGroups other);
  ~ParamGroups();
  template <class Model>
  requires requires(const Model& model) { model.parameters(); }
  ParamGroups(const Model& /*model*/) {  // NOLINT
    static_assert(
        !requires(const Model& model) { model.parameters(); },
        "an optimizer takes a model's parameters: write model.parameters()");
  }
  std::vector<OptimizerParamGroup>& groups() { return groups_; }

 private:
  std::vector<OptimizerParamGroup> groups_;
};

namespace detail {
// What converts to ParamGroups, for the deleted constructors of optimizers. They are chosen for
// misspelt options, and their messages have the type of the options.
struct AnyParamGroups {
  template <std::convertible_to<ParamGroups> Parameters>
  AnyParamGroups(const Parameters& parameters);  // NOLINT(google-explicit-constructor)
};
}  // namespace detail

}  // namespace mytorch::nn::optim
