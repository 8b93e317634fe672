// The name that DeviceGraph (device_graph.h) had first. Compiled functions, whose graphs are of
// operators, are in compile.h.
#pragma once

#include "mytorch/device_graph.h"

namespace mytorch {

using Graph = DeviceGraph;

}  // namespace mytorch
