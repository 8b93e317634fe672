// Logs of metrics: CSV, JSON lines, TensorBoard.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/owned.h"

namespace mytorch::nn {

using Metrics = std::vector<std::pair<std::string, double>>;

// Writes metrics to a file; each entry is in the file when log() returns. The constructors of the
// classes below make missing directories and throw Error(kIo), as log() does, if writing fails.
//
//   nn::CsvLog log("runs/resnet/log.csv", step);
//   log.log(step, {{"loss", loss}, {"accuracy", accuracy}});
class MetricLog {
 public:
  virtual ~MetricLog();
  virtual void log(int64_t step, const Metrics& metrics) = 0;

 protected:
  class File;
  explicit MetricLog(Owned<File> file);
  Owned<File> file_;
};

// One line per entry: the step and the metrics. The first entry determines the columns; later ones
// must have the same, or log() throws Error(kValue).
class CsvLog final : public MetricLog {
 public:
  // Continues an existing file from `first_step`, as when a run is resumed: keeps the lines of
  // earlier steps and removes the others. Removes all of them for 0.
  explicit CsvLog(const std::string& path, int64_t first_step = 0);
  void log(int64_t step, const Metrics& metrics) override;

 private:
  std::string header_;  // empty before the first entry
};

// Returns the columns of a file of CsvLog, including "step". Throws Error(kIo), naming the line,
// for other files.
std::map<std::string, std::vector<double>> read_csv_log(const std::string& path);

// One JSON object per entry: {"step":3,"loss":0.25}. Appends to an existing file. NaN and
// infinities, which JSON lacks, are null.
class JsonLinesLog final : public MetricLog {
 public:
  explicit JsonLinesLog(const std::string& path);
  void log(int64_t step, const Metrics& metrics) override;
};

// An event file for TensorBoard's scalars, `tensorboard --logdir DIRECTORY`. Each object writes a
// new file; TensorBoard joins the files of a directory. Values are rounded to float32.
class TensorBoardLog final : public MetricLog {
 public:
  explicit TensorBoardLog(const std::string& directory);
  void log(int64_t step, const Metrics& metrics) override;
};

}  // namespace mytorch::nn
