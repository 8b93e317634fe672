// The places where nodes were made, for anomaly mode.
#pragma once

#include <string>

#include "autograd/access.h"

namespace mytorch::autograd {

Origin current_origin();
// Returns the stack that made the node, one line per frame; "" if it was made outside anomaly mode.
std::string describe_origin(const Node& node);

}  // namespace mytorch::autograd
