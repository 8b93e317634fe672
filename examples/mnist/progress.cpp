#include "progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(total),
      on_terminal_(isatty(STDOUT_FILENO) == 1),
      next_(Clock::now()) {}

void Progress::update(int64_t done, double loss) {
  if (!on_terminal_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  constexpr int kWidth = 30;
  const int filled = total_ > 0 ? static_cast<int>(kWidth * done / total_) : kWidth;
  const std::string bar = std::string(static_cast<size_t>(filled), '#') +
                          std::string(static_cast<size_t>(kWidth - filled), '.');
  std::printf("\r%s [%s] %3d%% loss %.4f", label_.c_str(), bar.c_str(),
              static_cast<int>(total_ > 0 ? 100 * done / total_ : 100), loss);
  std::fflush(stdout);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  std::printf("\r\033[K");
  std::fflush(stdout);
  drawn_ = false;
}
