#include "core/runtime/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

namespace mytorch {
namespace {

// Returns the number of processors in the affinity mask. The system refuses masks that are too
// small for the processors that the machine could have.
int processors_of_affinity() {
  for (size_t count = CPU_SETSIZE; count <= (size_t{1} << 20); count *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(count),
                                                               [](cpu_set_t* s) { CPU_FREE(s); });
    const size_t bytes = CPU_ALLOC_SIZE(count);
    if (set == nullptr) break;
    if (sched_getaffinity(0, bytes, set.get()) == 0) {
      return std::max(CPU_COUNT_S(bytes, set.get()), 1);
    }
  }
  return 1;
}

}  // namespace

double processors_of_groups(const ControlGroups& groups) {
  double least = std::numeric_limits<double>::infinity();
  groups.visit("cpu", [&](int version, const std::string& folder) {
    double quota = -1, period = 0;
    if (version == 2) {
      std::ifstream file(folder + "/cpu.max");  // "150000 100000" or "max 100000"
      if (!(file >> quota >> period)) return;
    } else {
      std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;  // -1: no limit
      std::ifstream(folder + "/cpu.cfs_period_us") >> period;
    }
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  });
  return least;
}

int available_processors() {
  const int mask = processors_of_affinity();
  const double groups = std::round(processors_of_groups(ControlGroups()));
  return groups < mask ? std::max(static_cast<int>(groups), 1) : mask;
}

}  // namespace mytorch
