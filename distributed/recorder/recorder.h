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
  static constexpr int kNotCompared = -2;  // as `ndim`: of a call that not all ranks make
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

enum class CallState : uint8_t { kStarted, kDone, kFailed };

struct RecordedCall {
  std::string group;
  int rank = 0;
  uint64_t number = 0;
  Signature signature;
  CallSite site;  // where the program noted it
  CallState state = CallState::kStarted;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class Recorder {
 public:
  static constexpr size_t kCalls = 1000;
  // Returns a number for `finish`.
  uint64_t start(const std::string& group, int rank, uint64_t number, const Signature& signature,
                 const CallSite& site);
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
