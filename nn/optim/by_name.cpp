#include "mytorch/nn/optim/by_name.h"

#include <utility>

#include "core/types/errors.h"
#include "mytorch/nn/optim/adadelta.h"
#include "mytorch/nn/optim/adafactor.h"
#include "mytorch/nn/optim/adagrad.h"
#include "mytorch/nn/optim/adam.h"
#include "mytorch/nn/optim/adamax.h"
#include "mytorch/nn/optim/asgd.h"
#include "mytorch/nn/optim/lbfgs.h"
#include "mytorch/nn/optim/lion.h"
#include "mytorch/nn/optim/muon.h"
#include "mytorch/nn/optim/nadam.h"
#include "mytorch/nn/optim/radam.h"
#include "mytorch/nn/optim/rmsprop.h"
#include "mytorch/nn/optim/sgd.h"

namespace mytorch::nn::optim {
namespace {

struct Class {
  const char* name;
  std::unique_ptr<OptimizerOptions> (*options)();
  std::unique_ptr<Optimizer> (*make)(ParamGroups parameters, const OptimizerOptions& options);
};

template <class Self>
Class class_of(const char* name) {
  using Args = typename Self::Args;
  using Options = OptimizerOptionsOf<Args>;
  return {
      name, []() -> std::unique_ptr<OptimizerOptions> { return std::make_unique<Options>(); },
      [](ParamGroups parameters, const OptimizerOptions& options) -> std::unique_ptr<Optimizer> {
        const auto* own = dynamic_cast<const Options*>(&options);
        if (own == nullptr) {
          fail(ErrorCode::kValue,
               "[make_optimizer] the options are of another class: give those "
               "of default_options()");
        }
        return std::make_unique<Self>(std::move(parameters), Args(own->args()));
      }};
}

const Class& find(std::string_view name) {
  static const Class classes[] = {
      class_of<Adadelta>("Adadelta"), class_of<Adafactor>("Adafactor"),
      class_of<Adagrad>("Adagrad"),   class_of<Adam>("Adam"),
      class_of<AdamW>("AdamW"),       class_of<Adamax>("Adamax"),
      class_of<ASGD>("ASGD"),         class_of<LBFGS>("LBFGS"),
      class_of<Lion>("Lion"),         class_of<Muon>("Muon"),
      class_of<NAdam>("NAdam"),       class_of<RAdam>("RAdam"),
      class_of<RMSprop>("RMSprop"),   class_of<SGD>("SGD"),
  };
  for (const Class& each : classes) {
    if (each.name == name) return each;
  }
  const auto append = [](std::string* out, const Class& each) { *out += each.name; };
  fail(ErrorCode::kValue, "[make_optimizer] there is no optimizer '", name, "': give one of ",
       absl::StrJoin(classes, ", ", append));
}

}  // namespace

std::unique_ptr<OptimizerOptions> default_options(std::string_view name) {
  return find(name).options();
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, ParamGroups parameters,
                                          const OptimizerOptions& options) {
  return find(name).make(std::move(parameters), options);
}

}  // namespace mytorch::nn::optim
