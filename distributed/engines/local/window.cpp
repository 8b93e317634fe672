// One-sided calls among threads: copies under the lock of the owner's part of the window.
#include "distributed/engines/local/window.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "distributed/engines/local/shared.h"
#include "mytorch/backend/comm.h"

namespace mytorch::comm_local {
namespace {

struct Window {
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Shared> shared;  // of the group
};
Window& of(mt_window* window) { return *reinterpret_cast<Window*>(window); }

// Runs `work` on the window of a rank, from a byte on, unless the group has failed.
template <class Work>
int on_part(mt_window* window, int32_t owner, int64_t offset, Work work) {
  return sdk::guarded_comm(host, [&]() -> int {
    Window& self = of(window);
    {
      const std::lock_guard<std::mutex> lock(self.shared->mutex);
      if (self.shared->failed != MT_OK) return self.shared->failed;
    }
    Memory::Part& part = self.memory->parts[static_cast<size_t>(owner)];
    const std::lock_guard<std::mutex> lock(part.mutex);
    work(part.at(offset));
    return MT_OK;
  });
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

int local_window_create(void*, mt_group* group, int64_t bytes, const mt_comm_call* call,
                        mt_window** window) {
  *window = nullptr;
  return sdk::guarded_comm(host, [&] {
    // Before the ranks meet: this may fail.
    std::vector<Memory::Block> blocks((static_cast<size_t>(bytes) + 63) / 64);
    auto made = std::make_unique<Window>();
    Slot slot;
    slot.name = "window_create";
    const int status = collective(group, slot, call, [&](Local& self, Shared& shared) {
      if (self.rank == 0) shared.memory = std::make_shared<Memory>(shared.ranks());
      shared.meet_again();
      *made = {shared.memory, self.shared};
      made->memory->parts[static_cast<size_t>(self.rank)].blocks = std::move(blocks);
      shared.meet_again();
      if (self.rank == 0) shared.memory = nullptr;
    });
    if (status == MT_OK) *window = reinterpret_cast<mt_window*>(made.release());
    return status;
  });
}

int local_window_free(void*, mt_window* window, const mt_comm_call* call) {
  const std::unique_ptr<Window> self(&of(window));
  if (call == nullptr) return MT_OK;
  return sdk::guarded_comm(host, [&] { return self->shared->meet(*call); });
}

int local_window_put(void*, mt_window* window, const void* data, int64_t bytes, int32_t owner,
                     int64_t offset, const mt_comm_call*) {
  return on_part(window, owner, offset,
                 [&](void* to) { copy(to, data, static_cast<size_t>(bytes)); });
}

int local_window_get(void*, mt_window* window, void* data, int64_t bytes, int32_t owner,
                     int64_t offset, const mt_comm_call*) {
  return on_part(window, owner, offset,
                 [&](const void* from) { copy(data, from, static_cast<size_t>(bytes)); });
}

int local_window_accumulate(void*, mt_window* window, const void* data, void* before, int64_t count,
                            mt_dtype dtype, const mt_reduction* reduction, int32_t owner,
                            int64_t offset, const mt_comm_call*) {
  return on_part(window, owner, offset, [&](void* to) {
    if (before != nullptr) copy(before, to, sdk::bytes_of(count, dtype));
    sdk::accumulate(dtype, *reduction, to, data, count);
  });
}

}  // namespace mytorch::comm_local
