#include "distributed/recorder/recorder.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "core/types/errors.h"
#include "mytorch/abi_comm.h"

namespace mytorch::distributed {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

const char* reduction_name(int32_t op) {
  switch (op) {
    case MT_REDUCE_SUM:
      return "sum";
    case MT_REDUCE_PRODUCT:
      return "product";
    case MT_REDUCE_MIN:
      return "min";
    case MT_REDUCE_MAX:
      return "max";
    default:
      return "avg";
  }
}

}  // namespace

Signature signature_of(const char* op) {
  Signature signature;
  std::strncpy(signature.op, op, sizeof(signature.op) - 1);
  return signature;
}

std::string Signature::text() const {
  std::string text(op, ::strnlen(op, sizeof(op)));
  if (dtype >= 0 && dtype < kNumScalarTypes) {
    absl::StrAppend(&text, " ", dtype_name(static_cast<ScalarType>(dtype)));
  }
  if (ndim >= 0 && ndim <= kDims) {
    absl::StrAppend(&text, " ", shape_str(IntList(sizes, static_cast<size_t>(ndim))));
  } else if (ndim > kDims) {
    absl::StrAppend(&text, " ", numel, " elements in ", ndim, " dimensions");
  }
  if (reduction >= 0) absl::StrAppend(&text, " ", reduction_name(reduction));
  if (scale != 1) absl::StrAppend(&text, " scale ", scale);
  if (root >= 0) absl::StrAppend(&text, " root ", root);
  return text;
}

bool Signature::operator==(const Signature& other) const {
  return std::strncmp(op, other.op, sizeof(op)) == 0 && dtype == other.dtype &&
         reduction == other.reduction && root == other.root && ndim == other.ndim &&
         scale == other.scale && numel == other.numel &&
         std::equal(sizes, sizes + kDims, other.sizes);
}

std::string CallName::text(int rank) const {
  std::string text = signature.text();
  if (owner >= 0) return absl::StrCat(text, " on the window of rank ", owner);
  if (awaited >= 0) return absl::StrCat(text, ", waiting for rank ", awaited);
  if (messages.empty()) return absl::StrCat("#", number, text.empty() ? "" : " ", text);
  for (const Message& message : messages) {
    absl::StrAppend(&text, ", message #", message.number, " of ranks ",
                    std::min(rank, message.peer), " and ", std::max(rank, message.peer));
  }
  return text;
}

uint64_t Recorder::start(const std::string& group, int rank, const CallName& name) {
  const int64_t now = now_ns();
  const std::lock_guard<std::mutex> lock(mutex_);
  RecordedCall& call = calls_[next_ % kCalls];
  call.group = group;
  call.rank = rank;
  call.name = name;
  call.state = CallState::kStarted;
  call.start_ns = now;
  call.end_ns = 0;
  return next_++;
}

void Recorder::finish(uint64_t id, CallState state) {
  const int64_t now = now_ns();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (next_ - id > kCalls) return;  // overwritten
  calls_[id % kCalls].state = state;
  calls_[id % kCalls].end_ns = now;
}

std::vector<RecordedCall> Recorder::calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<RecordedCall> found;
  for (uint64_t id = next_ > kCalls ? next_ - kCalls : 0; id < next_; ++id) {
    found.push_back(calls_[id % kCalls]);
  }
  return found;
}

std::string Recorder::text() const {
  static constexpr const char* kStates[] = {"under way", "done", "failed"};
  std::string text;
  for (const RecordedCall& call : calls()) {
    char time[64];
    std::snprintf(time, sizeof(time), "%.3f", static_cast<double>(call.start_ns) / 1e9);
    absl::StrAppend(&text, time, " rank ", call.rank, " ", call.group, " ",
                    call.name.text(call.rank), ": ", kStates[static_cast<int>(call.state)]);
    if (call.end_ns != 0) {
      std::snprintf(time, sizeof(time), " after %.3f ms",
                    static_cast<double>(call.end_ns - call.start_ns) / 1e6);
      text += time;
    }
    const CallSite& site = call.name.site;
    if (site.known()) absl::StrAppend(&text, ", called from ", site.text());
    text += "\n";
  }
  return text;
}

Recorder& recorder() {
  static Recorder* const instance = new Recorder;
  return *instance;
}

}  // namespace mytorch::distributed
