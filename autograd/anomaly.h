// Descriptions of nodes, for messages.
#pragma once

#include <string>

#include "autograd/access.h"

namespace mytorch::autograd {

NodeOrigin current_origin();
// Returns where the node was recorded and the operations that led to it, a line for each; "" if it
// was made outside anomaly mode.
std::string describe_origin(const Node& node);
// Returns the operator that a node differentiates: "log_softmax" for "LogSoftmaxBackward".
std::string operator_name(const Node& node);
// Returns the name that set_name gave to an input of a node, or "".
std::string name_at(const Edge& edge);

}  // namespace mytorch::autograd
