// What became slower since an earlier run.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/harness/report.h"

namespace mytorch::bench {

enum class Verdict { kSame, kFaster, kSlower };
const char* verdict_name(Verdict verdict);

// A row and its result in the earlier run.
struct Change {
  size_t row = 0;  // its index
  Other before;
  Verdict verdict = Verdict::kSame;
};

// Two medians differ beyond their spread if the difference is more than three times the sum of
// their deviations, and more than 2 %, which is what the same program differs by from one process
// to the next. On a busy machine, whose deviations are large, a row is also slower if even its
// least time is more than three deviations, and 2 %, above the earlier median.
Verdict compare(double before, double before_deviation, const Summary& now);

// Finds the earlier result of each row: of the same case, type, backend, caches, device and number
// of threads. Rows that are not in the earlier run have none.
std::vector<Change> changes_of(const std::vector<Row>& rows, const std::vector<Other>& baseline);

// Measures the rows that became slower up to twice more, with `again`, and keeps each one's fastest
// result: what was slow because of the machine is not slow three times.
void confirm(std::vector<Row>& rows, std::vector<Change>& changes,
             const std::function<std::vector<Row>(const Row&)>& again, std::ostream& out);

// Prints what changed. Returns the number of rows that became slower.
int print_changes(const std::vector<Row>& rows, const std::vector<Change>& changes,
                  std::ostream& out);

}  // namespace mytorch::bench
