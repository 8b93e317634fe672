// The memory that a function takes beyond what is there.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "mytorch/threads.h"

namespace mytorch {

// The largest resident size since it was reset, in bytes; -1 where the system does not tell.
inline int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    int64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  return -1;
}
inline bool reset_peak_memory_of_process() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;
  return file.good();
}

// Returns by how many bytes a function makes the process grow, with the scratch memory of two
// threads; -1 where nothing tells, as under sanitizers, which keep freed memory for a while.
template <class F>
int64_t growth(F&& f) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return -1;
#endif
  const int threads = num_threads();
  set_num_threads(2);
  const bool good = reset_peak_memory_of_process();
  const int64_t before = peak_memory();
  f();
  set_num_threads(threads);
  return good && before >= 0 ? peak_memory() - before : -1;
}

}  // namespace mytorch
