// Prints results as a table and as Google Benchmark's JSON, and compares them with another file.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "bench/harness/runner.h"

namespace mytorch::bench {

// Returns the command line that measures only this row.
std::string row_command(const Row& row);

// Returns three significant digits and a unit: "4.21 ms".
std::string duration_text(double seconds);

// Prints a line for each row, and the row's reproducer below it.
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

// Returns the contents of the `--json` file: `context` and `benchmarks` of Google Benchmark's
// format. Each entry also has suite, case, backend, cache, dtype and the other numbers of the row.
nlohmann::ordered_json to_json(const std::vector<Row>& rows, const Machine& machine, int threads);
// Throws Error(kIo).
void write_json(const nlohmann::ordered_json& json, const std::string& path);

// One result of a file, which mytorch or a peer wrote.
struct Other {
  std::string name;   // the case
  std::string label;  // the backend, or "" if the file has none
  std::string cache;  // "" matches every row, as do an empty dtype and threads = 0
  std::string dtype;
  int threads = 0;
  double seconds = 0;
  double deviation = 0;  // the median absolute deviation; 0 if the file has none
  std::string device;    // "" if the file has none
};

// Reads results in Google Benchmark's format; errors name the option that gave the file. Of several
// repetitions it takes the median: the aggregate of that name, or the median of the iterations.
// Throws Error(kIo) and Error(kValue).
std::vector<Other> read_results(const std::string& path, const std::string& option = "--compare");

// Prints the speedup of each row over each result for the same case, and the geometric mean over
// the cases, for which the fastest row of each case counts.
void print_comparison(const std::vector<Row>& rows, const std::vector<Other>& others,
                      std::ostream& out);

}  // namespace mytorch::bench
