// A launch without a framework, to compare with.
#pragma once

#include <cstdint>

// Queues a kernel that does nothing and takes as many bytes of parameters as an addition's, on a
// stream of its own.
void launch_nothing();
void wait_for_nothing();
