// Where a program has called the library, for messages and records.
#pragma once

#include <string>

namespace mytorch {

// The innermost calls of a thread outside of libmytorch.
class CallSite {
 public:
  // Captures the present ones, which takes microseconds. Names are looked up by text().
  static CallSite here();

  bool known() const { return frames_[0] != nullptr; }
  // Returns "train_step() at 0x12ab in mnist, from main at 0x1410 in mnist", or "" if none is
  // known. Objects without symbols have the numbers alone, which addr2line resolves.
  std::string text() const;

 private:
  static constexpr int kFrames = 8;  // those of std::function are left out of the text
  const void* frames_[kFrames] = {};
};

// Returns " (called from ...)", to end a message with, or "" if no call is known.
std::string called_from(const CallSite& site = CallSite::here());

}  // namespace mytorch
