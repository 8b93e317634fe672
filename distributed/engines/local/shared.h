// What the ranks of a group share, and how they meet.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/backend/comm.h"

namespace mytorch::comm_local {

inline const mt_host* host = nullptr;

// What a rank brings to a collective. The fields that must agree come first.
struct Slot {
  const char* name = nullptr;
  int64_t count = 0;
  uint32_t dtype = 0;
  int32_t op = 0;
  int32_t root = 0;
  double scale = 1;
  const void* send = nullptr;
  void* recv = nullptr;
  const int64_t* send_counts = nullptr;
  const int64_t* send_offsets = nullptr;
  const int64_t* recv_counts = nullptr;
  int32_t color = 0, key = 0;

  bool agrees(const Slot& other) const {
    return std::strcmp(name, other.name) == 0 && count == other.count && dtype == other.dtype &&
           op == other.op && root == other.root && scale == other.scale;
  }
  std::string text() const {
    return std::string(name) + " of " + std::to_string(count) + " elements of type " +
           std::to_string(dtype >> 8) + ":" + std::to_string(dtype & 255) + ", reduction " +
           std::to_string(op) + ", root " + std::to_string(root);
  }
};

// A message under way. The sender keeps it until it is done, or nobody has taken it.
struct Message {
  const void* data;
  size_t bytes;
  bool taken = false;
  bool done = false;
};

// The memory of a window, by rank.
struct Memory {
  struct alignas(64) Block {
    char bytes[64];
  };
  struct Part {
    std::mutex mutex;
    std::vector<Block> blocks;
    char* at(int64_t offset) { return reinterpret_cast<char*>(blocks.data()) + offset; }
  };
  explicit Memory(int32_t ranks) : parts(static_cast<size_t>(ranks)) {}
  std::vector<Part> parts;
};

// What the ranks of a group share.
struct Shared {
  explicit Shared(int32_t ranks) : slots(static_cast<size_t>(ranks)) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Slot> slots;
  int32_t arrived = 0;
  uint64_t round = 0;
  int failed = MT_OK;
  int32_t joined = 0;
  std::map<std::pair<int32_t, int32_t>, std::vector<Message*>> mail;  // by (from, to)
  std::map<int32_t, std::shared_ptr<Shared>> parts;                   // of a split, by color
  std::shared_ptr<Memory> memory;                                     // of a window that is made

  int32_t ranks() const { return static_cast<int32_t>(slots.size()); }

  void fail(int status) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (failed == MT_OK) failed = status;
    changed.notify_all();
  }

  // Waits until `ready` or the deadline. Returns a status; a deadline that passes ends the group.
  template <class Ready>
  int wait(std::unique_lock<std::mutex>& lock, const mt_comm_call& call, Ready ready) {
    const auto over = [&] { return failed != MT_OK || ready(); };
    if (call.timeout_ns <= 0) {
      changed.wait(lock, over);
    } else if (!changed.wait_for(lock, std::chrono::nanoseconds(call.timeout_ns), over)) {
      failed = MT_COMM_ABORTED;
      changed.notify_all();
      return MT_COMM_TIMEOUT;
    }
    return ready() ? MT_OK : failed;
  }

  // Waits until every rank has come, which may never be.
  int meet(const mt_comm_call& call) {
    std::unique_lock<std::mutex> lock(mutex);
    if (failed != MT_OK) return failed;
    if (const auto mine = arrive()) {
      return wait(lock, call, [&] { return round != *mine; });
    }
    return MT_OK;
  }

  // The same between ranks that have met, all of which are on their way: no deadline and no failure
  // ends it, because a rank that left would free what others read.
  void meet_again() {
    std::unique_lock<std::mutex> lock(mutex);
    if (const auto mine = arrive()) {
      changed.wait(lock, [&] { return round != *mine; });
    }
  }

 private:
  // The round to wait for, or nothing for the last rank, which ends it.
  std::optional<uint64_t> arrive() {
    if (++arrived < ranks()) return round;
    arrived = 0;
    ++round;
    changed.notify_all();
    return std::nullopt;
  }
};

struct Queued {
  bool sends;
  void* data;
  size_t bytes;
  int32_t peer;
};

struct Local {
  std::shared_ptr<Shared> shared;
  int32_t rank;
  bool grouping = false;
  std::vector<Queued> queue;
};
inline Local& of(mt_group* group) { return *reinterpret_cast<Local*>(group); }

// Runs one collective: publishes the slot, meets, checks that all agree, works, and meets again, so
// that no rank leaves while another one reads its buffers. `work` may meet again in between; what
// it throws, it throws on all ranks, before it reads what belongs to another one.
template <class Work>
int collective(mt_group* group, const Slot& slot, const mt_comm_call* call, Work work) {
  return sdk::guarded_comm(host, [&]() -> int {
    Local& self = of(group);
    Shared& shared = *self.shared;
    shared.slots[static_cast<size_t>(self.rank)] = slot;
    if (const int status = shared.meet(*call)) return status;
    for (int32_t other = 1; other < shared.ranks(); ++other) {
      if (shared.slots[0].agrees(shared.slots[static_cast<size_t>(other)])) continue;
      // All ranks find the same pair, and leave together.
      const std::string text = "the ranks disagree: rank 0 calls " + shared.slots[0].text() +
                               "; rank " + std::to_string(other) + " calls " +
                               shared.slots[static_cast<size_t>(other)].text();
      shared.meet_again();
      throw sdk::Error(MT_ERROR_VALUE, text);
    }
    work(self, shared);
    shared.meet_again();
    return MT_OK;
  });
}

}  // namespace mytorch::comm_local
