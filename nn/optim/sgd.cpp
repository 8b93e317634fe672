#include "mytorch/nn/optim/sgd.h"

#include "core/types/errors.h"
#include "mytorch/graph.h"
#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/sgd_steps_.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, SGDArgs&);

void SGD::check(const SGDArgs& options) {
  check_not_negative(kName,
                     {{"momentum", options.momentum}, {"weight_decay", options.weight_decay}});
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    fail(ErrorCode::kValue, "[SGD] nesterov requires momentum and no dampening, not momentum ",
         options.momentum, " and dampening ", options.dampening);
  }
}

void SGD::update(const Batch& batch, const SGDArgs& options) {
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
