// The epoch of library options: a number that advances when an option changes that graphs record
// as a constant, such as the training mode of a module.
#pragma once

#include <atomic>
#include <cstdint>

namespace mytorch {

namespace detail {
extern std::atomic<uint64_t> options_epoch;
}

inline uint64_t options_epoch() { return detail::options_epoch.load(std::memory_order_relaxed); }
// Call it after an option has changed. Compiled functions are recorded again.
inline void options_changed() { detail::options_epoch.fetch_add(1, std::memory_order_relaxed); }

}  // namespace mytorch
