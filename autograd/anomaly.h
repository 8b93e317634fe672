// Where nodes were made, for anomaly mode.
#pragma once

#include <string>

#include "autograd/access.h"

namespace mytorch::autograd {

Origin current_origin();
// The stack that made the node, a line each; "" when it was made outside anomaly mode.
std::string describe_origin(const Node& node);

}  // namespace mytorch::autograd
