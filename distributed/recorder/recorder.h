// The flight recorder: the last calls of the process, always on.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/types/call_site.h"
#include "mytorch/dtype.h"
#include "mytorch/list.h"

namespace mytorch::distributed {

// What must agree across the ranks of a call. Plain bytes, so that ranks can exchange it; unused
// fields are zero.
struct Signature {
  static constexpr int kDims = 6;
  char op[24] = {};
  int32_t dtype = -1;
  int32_t reduction = -1;
  int32_t root = -1;
  int32_t ndim = -1;  // -1: sizes may differ between ranks
  double scale = 1;
  int64_t sizes[kDims] = {};  // the first ones
  int64_t numel = -1;

  std::string text() const;  // "all_reduce float32 (3, 4) sum"
  bool operator==(const Signature& other) const;
};
Signature signature_of(const char* op);

// A call as ranks speak of it. Calls of all ranks are numbered in each group, and messages in each
// pair of ranks, because the others do not count them. One-sided calls have no numbers.
struct CallName {
  struct Message {
    int peer;
    uint64_t number;  // of those between the two ranks
  };
  uint64_t number = 0;  // of the last call of all ranks
  Signature signature = {};
  std::vector<Message> messages = {};  // if there are any, only these ranks make the call
  CallSite site = {};                  // where the program noted it
  int owner = -1;    // of a one-sided call, the rank of the window, which makes no call
  int awaited = -1;  // of a wait, the rank that has not done what the others wait for

  // The only other rank that the call concerns, or -1.
  int other() const { return owner >= 0 ? owner : awaited; }
  // "#3 all_reduce float32 (3, 4) sum", "send float32 (4,), message #2 of ranks 0 and 1", or
  // "window_put float32 (4,) on the window of rank 1"
  std::string text(int rank) const;
};

enum class CallState : uint8_t { kStarted, kDone, kFailed };

struct RecordedCall {
  std::string group;
  int rank = 0;
  CallName name;
  CallState state = CallState::kStarted;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class Recorder {
 public:
  static constexpr size_t kCalls = 1000;
  // Returns a number for `finish`.
  uint64_t start(const std::string& group, int rank, const CallName& name);
  void finish(uint64_t id, CallState state);
  std::vector<RecordedCall> calls() const;  // the oldest first
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::array<RecordedCall, kCalls> calls_;
  uint64_t next_ = 0;
};
Recorder& recorder();

}  // namespace mytorch::distributed
