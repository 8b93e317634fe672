// Cases on a device whose work is queued.
#pragma once

#include <ostream>
#include <vector>

#include "bench/harness/runner.h"

namespace mytorch::bench {

// One row: what the dispatcher takes, or the backend that is pinned. `time` is that of a call among
// many that are queued and waited for together: what a program sees. Its split has the host's part,
// measured while the device keeps up, and what remains of the call where the host costs nothing: in
// a graph of as many calls (mytorch/graph.h) that is replayed. Calls take turns on sets of
// arguments that together are larger than the device's caches.
std::vector<Row> measure_on_device(const std::vector<OpRecord>& catalog, const Case& c,
                                   const Options& options, std::ostream& notes);

}  // namespace mytorch::bench
