// The file of measurements. Each line has its own checksum, so that damage affects only single
// lines.
#pragma once

#include <string>
#include <vector>

#include "dispatcher/choice/measured.h"

namespace mytorch {

// Identifies machines that can share measurements: processor model and count, and the library's
// version.
std::string machine_fingerprint();
// Returns the path of the table in MYTORCH_CACHE, else XDG_CACHE_HOME/mytorch, else
// ~/.cache/mytorch.
std::string table_path(const std::string& fingerprint);

struct TableFile {
  std::vector<Measurement> measurements;
  std::string problem;  // which part of the file was not used, and why; "" also if there is no file
};
TableFile read_table(const std::string& path, const std::string& fingerprint);

// Merges the measurements into the file; newer ones win. Replaces the file atomically under a lock
// that excludes other writers. Throws Error(kIo).
void merge_table(const std::string& path, const std::string& fingerprint,
                 const std::vector<Measurement>& measurements);
void remove_table(const std::string& path);

// Returns a hash of the contents that does not depend on their order.
uint64_t table_hash(const std::vector<Measurement>& measurements);

}  // namespace mytorch
