// Measures cases on a device with asynchronous execution.
#pragma once

#include <ostream>
#include <vector>

#include "bench/harness/runner.h"

namespace mytorch::bench {

// Returns one row, for the dispatcher's choice or the pinned backend. `time` is the time per call
// in a batch that is queued as a whole, followed by one synchronization. `split.frontend` is the
// time of the host alone; `split.kernel` is the time per call in a replayed graph (mytorch/graph.h)
// of a batch, which has no host time. Calls cycle through sets of arguments that together exceed
// the device's caches.
std::vector<Row> measure_on_device(const std::vector<OpRecord>& catalog, const Case& c,
                                   const Options& options, std::ostream& notes);

}  // namespace mytorch::bench
