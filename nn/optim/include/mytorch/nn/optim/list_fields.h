// For the files that define optimizers: the options that an aggregate declares, by name.
#pragma once

#include "mytorch/nn/optim/options.h"

namespace mytorch::nn::optim {

template <class Args>
void list_fields(OptionVisitor& visitor, Args& args) {
#define MYTORCH_LIST_FIELD(name) \
  if constexpr (requires { args.name; }) visitor.visit(#name, args.name);
  MYTORCH_OPTIMIZER_OPTION_NAMES(MYTORCH_LIST_FIELD)
#undef MYTORCH_LIST_FIELD
}

}  // namespace mytorch::nn::optim
