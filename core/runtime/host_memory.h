// The memory of the host.
#pragma once

#include <cstdint>

namespace mytorch {

// Returns the number of bytes that the process can still write to: the available memory of the
// machine, swap included, or less if a control group of the process has a lower limit. Reads files
// of the system; returns UINT64_MAX if there are none.
uint64_t available_host_memory();

}  // namespace mytorch
