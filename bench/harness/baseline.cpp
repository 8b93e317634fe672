#include "bench/harness/baseline.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace mytorch::bench {
namespace {

bool same_row(const Row& row, const Other& other) {
  return other.name == row.what.name && other.label == row.backend && other.cache == row.cache &&
         other.dtype == row.what.dtype && other.threads == row.threads &&
         (other.device.empty() ? row.what.device.is_cpu() : other.device == row.what.device.str());
}

std::string ratio_text(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << value << "x";
  return text.str();
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::kSlower ? "slower" : verdict == Verdict::kFaster ? "faster" : "same";
}

Verdict compare(double before, double before_deviation, const Summary& now) {
  const double spread = 3 * (before_deviation + now.mad);
  if (now.median - before > spread && now.median > 1.02 * before) return Verdict::kSlower;
  if (now.least > before + 3 * before_deviation && now.least > 1.02 * before) {
    return Verdict::kSlower;
  }
  if (before - now.median > spread && before > 1.02 * now.median) return Verdict::kFaster;
  return Verdict::kSame;
}

std::vector<Change> changes_of(const std::vector<Row>& rows, const std::vector<Other>& baseline) {
  std::vector<Change> changes;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const Other& other : baseline) {
      if (!same_row(rows[i], other)) continue;
      changes.push_back({i, other, compare(other.seconds, other.deviation, rows[i].time)});
      break;
    }
  }
  return changes;
}

void confirm(std::vector<Row>& rows, std::vector<Change>& changes,
             const std::function<std::vector<Row>(const Row&)>& again, std::ostream& out) {
  for (Change& change : changes) {
    Row& row = rows[change.row];
    for (int attempt = 0; attempt < 2 && change.verdict == Verdict::kSlower; ++attempt) {
      out << "slower than before, measured again: " << row.what.name << " " << row.backend << "\n";
      for (Row& repeated : again(row)) {
        if (repeated.backend != row.backend || repeated.cache != row.cache) continue;
        const double least = std::min(row.time.least, repeated.time.least);
        if (repeated.time.median < row.time.median) row = std::move(repeated);
        row.time.least = least;
      }
      change.verdict = compare(change.before.seconds, change.before.deviation, row.time);
    }
  }
}

int print_changes(const std::vector<Row>& rows, const std::vector<Change>& changes,
                  std::ostream& out) {
  int slower = 0, faster = 0;
  for (const Change& change : changes) {
    if (change.verdict == Verdict::kSame) continue;
    (change.verdict == Verdict::kSlower ? slower : faster) += 1;
    const Row& row = rows[change.row];
    out << verdict_name(change.verdict) << ": " << std::left << std::setw(26) << row.what.name
        << std::setw(12) << row.backend << std::right << std::setw(10)
        << duration_text(change.before.seconds) << " -> " << std::setw(9)
        << duration_text(row.time.median) << "  "
        << ratio_text(row.time.median / change.before.seconds) << "\n    " << row_command(row)
        << "\n";
  }
  out << "baseline: " << slower << " slower, " << faster << " faster, "
      << changes.size() - static_cast<size_t>(slower + faster) << " within their spread, "
      << rows.size() - changes.size() << " not in the file" << std::endl;
  return slower;
}

}  // namespace mytorch::bench
