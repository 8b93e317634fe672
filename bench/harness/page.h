// The page of `mytorch bench --report`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/harness/baseline.h"
#include "bench/harness/report.h"

namespace mytorch::bench {

// A file of results beside ours.
struct ResultFile {
  std::string path;
  std::vector<Other> results;
};

struct PageContents {
  std::vector<Row> rows;
  std::vector<std::pair<std::string, Machine>> devices;
  std::vector<ResultFile> files;
  std::string baseline;         // the path of the earlier run; empty: none
  std::vector<Change> changes;  // since then
  double load = 0;              // programs that wanted a processor before the run
};

// Returns the average number of programs that wanted a processor in the last minute.
double machine_load();

// Throws Error(kIo).
void write_report(const PageContents& contents, const std::string& path);

}  // namespace mytorch::bench
