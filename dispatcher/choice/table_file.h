// The file in which measurements are kept: lines of text, each with a checksum of its own, so that
// a damaged line costs no more than itself.
#pragma once

#include <string>
#include <vector>

#include "dispatcher/choice/measured.h"

namespace mytorch {

// What measurements of one machine have in common and those of another have not: processors, and
// the version of the library.
std::string machine_fingerprint();
// Where the table of such a machine lies: MYTORCH_CACHE, else XDG_CACHE_HOME/mytorch, else
// ~/.cache/mytorch.
std::string table_path(const std::string& fingerprint);

struct TableFile {
  std::vector<Measurement> measurements;
  std::string problem;  // what of the file was not used, and why; "" also where there is no file
};
TableFile read_table(const std::string& path, const std::string& fingerprint);

// Joins the measurements to those in the file, of which newer ones win; the file is replaced whole,
// under a lock that other writers wait for. Throws Error(kIo).
void merge_table(const std::string& path, const std::string& fingerprint,
                 const std::vector<Measurement>& measurements);
void remove_table(const std::string& path);

// Of the contents, whatever their order.
uint64_t table_hash(const std::vector<Measurement>& measurements);

}  // namespace mytorch
