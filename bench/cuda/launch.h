// Launches without a framework, for comparison.
#pragma once

#include <cstdint>

// Queues an empty kernel with as many parameter bytes as an addition, on its own stream:
// launch_nothing() through the driver, the least that a launch costs, launch_nothing_by_runtime()
// with <<<>>>.
void launch_nothing();
void launch_nothing_by_runtime();
void wait_for_nothing();
