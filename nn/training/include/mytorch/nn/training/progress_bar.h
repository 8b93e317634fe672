// A line on the terminal that shows how far a loop has come.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>

#include "mytorch/std_function.h"

namespace mytorch::nn {

struct ProgressBarOptions {
  std::string label = {};       // precedes the bar
  std::ostream* out = nullptr;  // null: standard error
  // Absent: show the bar if standard error is a terminal, `out` is null, and none of the
  // environment variables NO_COLOR and CI is set.
  std::optional<bool> show = {};
  double interval = 0.1;                    // seconds between updates of the line
  std::function<double()> clock = nullptr;  // seconds, for tests; null: the steady clock
};

// Shows a bar, the rate, the time left and metrics:
//
//   nn::ProgressBar bar(loader.size(), {.label = "epoch 1"});
//   for (const auto& [x, y] : loader) {
//     ...
//     bar.advance(1, {{"loss", loss.item<double>()}});
//   }
//
//   epoch 1  42% [############..................] 42/100 12.3/s 0:05 left loss 0.6931
class ProgressBar {
 public:
  using Metrics = std::initializer_list<std::pair<const char*, double>>;

  explicit ProgressBar(int64_t total, ProgressBarOptions options = {});
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(int64_t n = 1, Metrics metrics = {});
  // Draws the last state and ends the line. The destructor calls it.
  void close();
  bool shown() const { return shown_; }

 private:
  void draw(double now);
  void write(const std::string& text);

  int64_t total_;
  ProgressBarOptions options_;
  bool shown_;
  bool open_ = true;
  int64_t done_ = 0;
  double start_;
  double next_;
  std::string metrics_;
};

}  // namespace mytorch::nn
