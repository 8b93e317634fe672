// What was measured, for people and as Google Benchmark's JSON; and another file's results beside
// it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "bench/harness/runner.h"

namespace mytorch::bench {

// "4.21 ms": three significant digits and a unit.
std::string duration_text(double seconds);

// A table with a line for each row as it comes, and the row's reproducer below it.
class Table {
 public:
  explicit Table(std::ostream& out) : out_(out) {}
  void machine(const Machine& machine, int threads);
  void device(const Machine& m, Device device);
  void row(const Row& row);

 private:
  std::ostream& out_;
  bool has_head_ = false;
};

// The file that `--json` writes: `context` and `benchmarks` of Google Benchmark's format. Beside
// that format's own fields each entry has suite, case, backend, cache, dtype and the row's other
// numbers.
nlohmann::ordered_json to_json(const std::vector<Row>& rows, const Machine& machine, int threads);
// Writes it; throws Error(kIo).
void write_json(const nlohmann::ordered_json& json, const std::string& path);

// One result of a file, ours or a peer's.
struct Other {
  std::string name;   // the case
  std::string label;  // the backend, or "" where the file has none
  std::string cache;  // "" fits every row, and so does an empty dtype or threads = 0
  std::string dtype;
  int threads = 0;
  double seconds = 0;
};

// The results of a file in Google Benchmark's format. Of repetitions the median counts: the
// aggregate of that name, or else that of the iterations. Throws Error(kIo), Error(kValue).
std::vector<Other> read_results(const std::string& path);

// For each row and each result for the same case how many times faster the row is. At the end the
// geometric mean over the cases, of the fastest row of each.
void print_comparison(const std::vector<Row>& rows, const std::vector<Other>& others,
                      std::ostream& out);

}  // namespace mytorch::bench
