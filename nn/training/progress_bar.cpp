#include "mytorch/nn/training/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mytorch::nn {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

std::string formatted_time(double seconds) {
  const auto whole = static_cast<int64_t>(std::min(std::ceil(seconds), 1e9));
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

ProgressBar::ProgressBar(int64_t total, ProgressBarOptions options)
    : total_(std::max<int64_t>(total, 0)), options_(std::move(options)) {
  if (options_.clock == nullptr) options_.clock = steady_seconds;
  shown_ = options_.show.value_or(options_.out == nullptr && isatty(STDERR_FILENO) == 1 &&
                                  !is_set("NO_COLOR") && !is_set("CI"));
  start_ = options_.clock();
  next_ = start_;
}

ProgressBar::~ProgressBar() { close(); }

void ProgressBar::advance(int64_t n, Metrics metrics) {
  done_ += n;
  if (!shown_ || !open_) return;
  const double now = options_.clock();
  if (now < next_) return;
  next_ = now + options_.interval;
  metrics_.clear();
  for (const auto& [name, value] : metrics)
    absl::StrAppendFormat(&metrics_, " %s %.4g", name, value);
  draw(now);
}

void ProgressBar::close() {
  if (!open_) return;
  open_ = false;
  if (!shown_) return;
  draw(options_.clock());
  write("\n");
}

void ProgressBar::draw(double now) {
  constexpr int64_t kWidth = 30;
  const double fraction =
      total_ == 0 ? 1
                  : std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
  const auto filled = static_cast<size_t>(fraction * kWidth);
  const double rate = now > start_ ? static_cast<double>(done_) / (now - start_) : 0;
  std::string line = absl::StrCat("\r", options_.label, options_.label.empty() ? "" : " ");
  absl::StrAppendFormat(&line, "%3d%% [%s%s] %d/%d", static_cast<int>(100 * fraction),
                        std::string(filled, '#'), std::string(kWidth - filled, '.'), done_, total_);
  if (rate > 0) {
    absl::StrAppendFormat(&line, " %.3g/s", rate);
    if (open_) {
      const double left = static_cast<double>(std::max<int64_t>(total_ - done_, 0)) / rate;
      absl::StrAppend(&line, " ", formatted_time(left), " left");
    } else {
      absl::StrAppend(&line, " ", formatted_time(now - start_));
    }
  }
  // Erases the rest of a longer line before.
  write(absl::StrCat(line, metrics_, "\x1b[K"));
}

void ProgressBar::write(const std::string& text) {
  if (options_.out != nullptr) {
    options_.out->write(text.data(), static_cast<std::streamsize>(text.size())).flush();
  } else {
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  }
}

}  // namespace mytorch::nn
