// A progress bar for an epoch, shown only on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

class Progress {
 public:
  // Prints `label` before the bar.
  Progress(std::string label, int64_t total);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, double loss);
  void clear();  // erases the bar

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  int64_t total_;
  bool on_terminal_;
  bool drawn_ = false;
  Clock::time_point next_;  // earliest time of the next redraw
};
