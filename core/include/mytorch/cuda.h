// Shorthands for NVIDIA GPUs, addressed by index.
#pragma once

#include <string>

#include "mytorch/device_memory.h"
#include "mytorch/generator.h"
#include "mytorch/graph.h"
#include "mytorch/timed_event.h"

namespace mytorch::cuda {

using mytorch::Graph;
using mytorch::TimedEvent;

inline Device device(int index = 0) { return Device(MT_DEVICE_CUDA, index); }
// Returns the number of devices that a loaded backend serves; 0 without a backend or a GPU.
inline int device_count() { return mytorch::device_count(MT_DEVICE_CUDA); }
inline bool is_available() { return device_count() > 0; }
inline MemoryStats memory_stats(int index = 0) { return mytorch::memory_stats(device(index)); }
inline std::string memory_summary(int index = 0) { return mytorch::memory_summary(device(index)); }
inline void empty_cache(int index = 0) { mytorch::empty_cache(device(index)); }
inline void reset_peak_memory(int index = 0) { mytorch::reset_peak_memory(device(index)); }
// A seed serves every device.
inline void manual_seed(uint64_t seed) { mytorch::manual_seed(seed); }
inline void manual_seed_all(uint64_t seed) { mytorch::manual_seed(seed); }
inline void synchronize(int index = 0) { mytorch::synchronize(device(index)); }

}  // namespace mytorch::cuda
