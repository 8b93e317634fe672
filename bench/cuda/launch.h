// Launches without a framework, to compare with.
#pragma once

#include <cstdint>

// Queues a kernel that does nothing and takes as many bytes of parameters as an addition's, on a
// stream of its own: by the driver's function, which is the least that a launch costs, and by the
// runtime's <<<>>>.
void launch_nothing();
void launch_nothing_by_runtime();
void wait_for_nothing();
