#include "mytorch/nn/optim/sgd.h"

#include <utility>

#include "core/types/errors.h"
#include "mytorch/graph.h"
#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/sgd_steps_.h"

namespace mytorch::nn::optim {

template void list_fields(OptionList&, SGDArgs&);

SGD::SGD(ParamGroups parameters, SGDArgs options) : OptimizerWith("SGD", {"momentum"}, options) {
  add_param_groups(std::move(parameters));
}

void SGD::check(const SGDArgs& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  check_option(options.momentum >= 0, "momentum", options.momentum, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    fail(ErrorCode::kValue, "[SGD] nesterov requires momentum and no dampening, not momentum ",
         options.momentum, " and dampening ", options.dampening);
  }
}

void SGD::update(const Batch& batch) {
  const SGDArgs& options = this->args_of(batch.group);
  const bool momentum = options.momentum != 0;
  if (batch.first && momentum && options.dampening != 0 &&
      is_capturing(batch.parameters[0].device())) {
    fail(ErrorCode::kUnsupported,
         "[SGD] the first step is not dampened, unlike the others: run it before the capture");
  }
  // The first step initializes the buffer with the gradient.
  sgd_steps_(batch.parameters, batch.gradients, momentum ? batch.state(0) : std::vector<Tensor>(),
             batch.lr, options.momentum, batch.first ? 0 : options.dampening, options.weight_decay,
             options.nesterov, options.maximize);
}

}  // namespace mytorch::nn::optim
