// A bar that shows how far an epoch is, on a terminal only.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

class Progress {
 public:
  // `label` stands in front of the bar.
  Progress(std::string label, int64_t total);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, double loss);
  void clear();  // wipes it off its line

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  int64_t total_;
  bool on_terminal_;
  bool drawn_ = false;
  Clock::time_point next_;  // drawing more often than the eye sees would only take time
};
