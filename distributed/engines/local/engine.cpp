// Process groups among the threads of one process. Ranks publish the addresses of their buffers,
// meet at a barrier, and read each other's memory. Elements are reduced in the order of the ranks.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "distributed/engines/local/shared.h"
#include "distributed/engines/local/window.h"
#include "mytorch/backend/comm.h"

namespace mytorch::comm_local {

using sdk::at;
using sdk::bytes_of;
using sdk::Error;
using sdk::guarded_comm;

namespace {

std::mutex meeting_mutex;
std::map<std::string, std::shared_ptr<Shared>>& meetings() {
  static auto* const all = new std::map<std::string, std::shared_ptr<Shared>>;
  return *all;
}

void copy(void* to, const void* from, int64_t count, mt_dtype dtype) {
  if (to != from && count > 0) std::memmove(to, from, bytes_of(count, dtype));
}

Slot slot_of(const char* name, const void* send, void* recv, int64_t count, mt_dtype dtype,
             int32_t root = 0, const mt_reduction* reduction = nullptr) {
  Slot slot;
  slot.name = name;
  slot.count = count;
  slot.dtype = sdk::dtype_key(dtype);
  slot.root = root;
  slot.send = send;
  slot.recv = recv;
  if (reduction != nullptr) {
    slot.op = reduction->op;
    slot.scale = reduction->scale;
  }
  return slot;
}

std::vector<const void*> sends(const Shared& shared) {
  std::vector<const void*> all;
  for (const Slot& slot : shared.slots) all.push_back(slot.send);
  return all;
}

// The elements that a rank of the group reduces for all.
std::pair<int64_t, int64_t> share_of(int32_t rank, int32_t ranks, int64_t count) {
  const int64_t each = (count + ranks - 1) / ranks;
  return {std::min(count, rank * each), std::min(count, (rank + 1) * each)};
}

int local_broadcast(void*, mt_group* group, const void* send, void* recv, int64_t count,
                    mt_dtype dtype, int32_t root, const mt_comm_call* call) {
  return collective(group, slot_of("broadcast", send, recv, count, dtype, root), call,
                    [&](Local&, Shared& shared) {
                      copy(recv, shared.slots[static_cast<size_t>(root)].send, count, dtype);
                    });
}

int local_reduce(void*, mt_group* group, const void* send, void* recv, int64_t count,
                 mt_dtype dtype, const mt_reduction* reduction, int32_t root,
                 const mt_comm_call* call) {
  return collective(group, slot_of("reduce", send, recv, count, dtype, root, reduction), call,
                    [&](Local& self, Shared& shared) {
                      sdk::check_reduction(dtype, *reduction);
                      const auto [begin, end] = share_of(self.rank, shared.ranks(), count);
                      sdk::reduce_range(dtype, *reduction, sends(shared).data(), shared.ranks(),
                                        shared.slots[static_cast<size_t>(root)].recv, begin, end);
                    });
}

int local_all_reduce(void*, mt_group* group, const void* send, void* recv, int64_t count,
                     mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call) {
  return collective(group, slot_of("all_reduce", send, recv, count, dtype, 0, reduction), call,
                    [&](Local& self, Shared& shared) {
                      sdk::check_reduction(dtype, *reduction);
                      // Each rank reduces its share; nobody else reads or writes these elements of
                      // its buffers.
                      const int32_t ranks = shared.ranks();
                      const auto [begin, end] = share_of(self.rank, ranks, count);
                      sdk::reduce_range(dtype, *reduction, sends(shared).data(), ranks, recv, begin,
                                        end);
                      shared.meet_again();
                      for (int32_t other = 0; other < ranks; ++other) {
                        if (other == self.rank) continue;
                        const auto [first, last] = share_of(other, ranks, count);
                        copy(at(recv, first, dtype),
                             at(shared.slots[static_cast<size_t>(other)].recv, first, dtype),
                             last - first, dtype);
                      }
                    });
}

int local_scatter(void*, mt_group* group, const void* send, void* recv, int64_t count,
                  mt_dtype dtype, int32_t root, const mt_comm_call* call) {
  return collective(
      group, slot_of("scatter", send, recv, count, dtype, root), call,
      [&](Local& self, Shared& shared) {
        copy(recv, at(shared.slots[static_cast<size_t>(root)].send, self.rank * count, dtype),
             count, dtype);
      });
}

int local_gather(void*, mt_group* group, const void* send, void* recv, int64_t count,
                 mt_dtype dtype, int32_t root, const mt_comm_call* call) {
  return collective(
      group, slot_of("gather", send, recv, count, dtype, root), call,
      [&](Local& self, Shared& shared) {
        copy(at(shared.slots[static_cast<size_t>(root)].recv, self.rank * count, dtype), send,
             count, dtype);
      });
}

int local_all_gather(void*, mt_group* group, const void* send, void* recv, int64_t count,
                     mt_dtype dtype, const mt_comm_call* call) {
  return collective(group, slot_of("all_gather", send, recv, count, dtype), call,
                    [&](Local&, Shared& shared) {
                      for (int32_t other = 0; other < shared.ranks(); ++other) {
                        copy(at(recv, other * count, dtype),
                             shared.slots[static_cast<size_t>(other)].send, count, dtype);
                      }
                    });
}

int local_all_gather_v(void*, mt_group* group, const void* send, void* recv, const int64_t* counts,
                       const int64_t* offsets, mt_dtype dtype, const mt_comm_call* call) {
  return collective(group, slot_of("all_gather_v", send, recv, 0, dtype), call,
                    [&](Local&, Shared& shared) {
                      for (int32_t other = 0; other < shared.ranks(); ++other) {
                        copy(at(recv, offsets[other], dtype),
                             shared.slots[static_cast<size_t>(other)].send, counts[other], dtype);
                      }
                    });
}

// Reduces elements [first, first + count) of all ranks into `recv`.
void reduce_part(Shared& shared, void* recv, int64_t first, int64_t count, mt_dtype dtype,
                 const mt_reduction& reduction) {
  sdk::check_reduction(dtype, reduction);
  std::vector<const void*> from = sends(shared);
  for (const void*& data : from) data = at(data, first, dtype);
  sdk::reduce_range(dtype, reduction, from.data(), shared.ranks(), recv, 0, count);
}

int local_reduce_scatter(void*, mt_group* group, const void* send, void* recv, int64_t count,
                         mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call) {
  return collective(group, slot_of("reduce_scatter", send, recv, count, dtype, 0, reduction), call,
                    [&](Local& self, Shared& shared) {
                      reduce_part(shared, recv, self.rank * count, count, dtype, *reduction);
                    });
}

int local_reduce_scatter_v(void*, mt_group* group, const void* send, void* recv,
                           const int64_t* counts, mt_dtype dtype, const mt_reduction* reduction,
                           const mt_comm_call* call) {
  return collective(group, slot_of("reduce_scatter_v", send, recv, 0, dtype, 0, reduction), call,
                    [&](Local& self, Shared& shared) {
                      int64_t first = 0;
                      for (int32_t rank = 0; rank < self.rank; ++rank) first += counts[rank];
                      reduce_part(shared, recv, first, counts[self.rank], dtype, *reduction);
                    });
}

int local_all_to_all(void*, mt_group* group, const void* send, void* recv, int64_t count,
                     mt_dtype dtype, const mt_comm_call* call) {
  return collective(group, slot_of("all_to_all", send, recv, count, dtype), call,
                    [&](Local& self, Shared& shared) {
                      for (int32_t other = 0; other < shared.ranks(); ++other) {
                        const Slot& from = shared.slots[static_cast<size_t>(other)];
                        copy(at(recv, other * count, dtype),
                             at(from.send, self.rank * count, dtype), count, dtype);
                      }
                    });
}

int local_all_to_all_v(void*, mt_group* group, const void* send, const int64_t* send_counts,
                       const int64_t* send_offsets, void* recv, const int64_t* recv_counts,
                       const int64_t* recv_offsets, mt_dtype dtype, const mt_comm_call* call) {
  Slot slot = slot_of("all_to_all_v", send, recv, 0, dtype);
  slot.send_counts = send_counts;
  slot.send_offsets = send_offsets;
  slot.recv_counts = recv_counts;
  return collective(group, slot, call, [&](Local& self, Shared& shared) {
    // Every rank compares all pairs, so that all find the same one and leave together: a rank that
    // left alone would free what the others read.
    for (int32_t from = 0; from < shared.ranks(); ++from) {
      for (int32_t to = 0; to < shared.ranks(); ++to) {
        const int64_t sent = shared.slots[static_cast<size_t>(from)].send_counts[to];
        const int64_t expected = shared.slots[static_cast<size_t>(to)].recv_counts[from];
        if (sent == expected) continue;
        const std::string text = "rank " + std::to_string(from) + " sends " + std::to_string(sent) +
                                 " elements to rank " + std::to_string(to) + ", which expects " +
                                 std::to_string(expected);
        shared.meet_again();
        throw Error(MT_ERROR_VALUE, text);
      }
    }
    for (int32_t other = 0; other < shared.ranks(); ++other) {
      const Slot& from = shared.slots[static_cast<size_t>(other)];
      copy(at(recv, recv_offsets[other], dtype), at(from.send, from.send_offsets[self.rank], dtype),
           recv_counts[other], dtype);
    }
  });
}

int local_barrier(void*, mt_group* group, const mt_comm_call* call) {
  return guarded_comm(host, [&] { return of(group).shared->meet(*call); });
}

// ---- point to point ----

// Posts all sends, receives, and waits until the sends are taken.
int exchange(Local& self, const std::vector<Queued>& queue, const mt_comm_call& call) {
  Shared& shared = *self.shared;
  std::unique_lock<std::mutex> lock(shared.mutex);
  if (shared.failed != MT_OK) return shared.failed;
  std::vector<std::unique_ptr<Message>> sent;
  for (const Queued& item : queue) {
    if (!item.sends) continue;
    sent.push_back(std::make_unique<Message>(Message{item.data, item.bytes}));
    shared.mail[{self.rank, item.peer}].push_back(sent.back().get());
  }
  shared.changed.notify_all();
  int status = MT_OK;
  std::string wrong;
  for (const Queued& item : queue) {
    if (item.sends) continue;
    auto& box = shared.mail[{item.peer, self.rank}];
    status = shared.wait(lock, call, [&] { return !box.empty(); });
    if (status != MT_OK) break;
    Message* message = box.front();
    if (message->bytes != item.bytes) {
      wrong = "rank " + std::to_string(item.peer) + " sent " + std::to_string(message->bytes) +
              " bytes to rank " + std::to_string(self.rank) + ", which expects " +
              std::to_string(item.bytes);
      status = shared.failed = MT_COMM_ABORTED;
      break;
    }
    box.erase(box.begin());
    // The sender waits, so the buffer is not touched while the lock is released.
    message->taken = true;
    lock.unlock();
    if (item.bytes > 0) std::memcpy(item.data, message->data, item.bytes);
    lock.lock();
    message->done = true;
    shared.changed.notify_all();
  }
  for (const auto& message : sent) {
    if (status == MT_OK) status = shared.wait(lock, call, [&] { return message->done; });
  }
  if (status != MT_OK) {  // nobody may find what is about to be destroyed
    shared.changed.notify_all();
    for (auto& [pair, box] : shared.mail) {
      for (const auto& message : sent) std::erase(box, message.get());
    }
    for (const auto& message : sent) {
      shared.changed.wait(lock, [&] { return !message->taken || message->done; });
    }
  }
  if (!wrong.empty()) throw Error(MT_ERROR_VALUE, wrong);
  return status;
}

int post(mt_group* group, const Queued& item, const mt_comm_call* call) {
  return guarded_comm(host, [&]() -> int {
    Local& self = of(group);
    if (!self.grouping) return exchange(self, {item}, *call);
    self.queue.push_back(item);
    return MT_OK;
  });
}

int local_send(void*, mt_group* group, const void* data, int64_t count, mt_dtype dtype, int32_t to,
               const mt_comm_call* call) {
  return post(group, {true, const_cast<void*>(data), bytes_of(count, dtype), to}, call);
}

int local_recv(void*, mt_group* group, void* data, int64_t count, mt_dtype dtype, int32_t from,
               const mt_comm_call* call) {
  return post(group, {false, data, bytes_of(count, dtype), from}, call);
}

int local_begin(void*, mt_group* group) {
  of(group).grouping = true;
  return MT_OK;
}

int local_end(void*, mt_group* group, const mt_comm_call* call) {
  return guarded_comm(host, [&] {
    Local& self = of(group);
    self.grouping = false;
    return exchange(self, std::exchange(self.queue, {}), *call);
  });
}

// ---- groups ----

int make_id(void*, mt_comm_id* id) {
  static std::mutex mutex;
  static uint64_t last = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  *id = {};
  const std::string text = "local-" + std::to_string(++last);
  std::memcpy(id->bytes, text.data(), text.size());
  return MT_OK;
}

int create(void*, const mt_comm_id* id, int32_t rank, int32_t ranks, mt_device,
           const mt_comm_call* call, mt_group** group) {
  return guarded_comm(host, [&]() -> int {
    const std::string key(id->bytes, sizeof(id->bytes));
    std::shared_ptr<Shared> shared;
    {
      const std::lock_guard<std::mutex> lock(meeting_mutex);
      auto& meeting = meetings()[key];
      if (meeting == nullptr) meeting = std::make_shared<Shared>(ranks);
      shared = meeting;
      if (shared->ranks() != ranks || rank < 0 || rank >= ranks) {
        throw Error(MT_ERROR_VALUE, "rank " + std::to_string(rank) + " of " +
                                        std::to_string(ranks) + " meets a group of " +
                                        std::to_string(shared->ranks()));
      }
      if (++shared->joined == ranks) meetings().erase(key);
    }
    if (const int status = shared->meet(*call)) return status;
    *group = reinterpret_cast<mt_group*>(new Local{std::move(shared), rank, false, {}});
    return MT_OK;
  });
}

int split(void*, mt_group* group, int32_t color, int32_t key, const mt_comm_call* call,
          mt_group** part) {
  *part = nullptr;
  Slot slot;
  slot.name = "split";
  slot.color = color;
  slot.key = key;
  return collective(group, slot, call, [&](Local& self, Shared& shared) {
    std::vector<int32_t> members;
    for (int32_t rank = 0; rank < shared.ranks(); ++rank) {
      if (shared.slots[static_cast<size_t>(rank)].color == color) members.push_back(rank);
    }
    if (color >= 0 && members[0] == self.rank) {
      const std::lock_guard<std::mutex> lock(shared.mutex);
      shared.parts[color] = std::make_shared<Shared>(static_cast<int32_t>(members.size()));
    }
    shared.meet_again();
    if (color < 0) return;
    std::stable_sort(members.begin(), members.end(), [&](int32_t a, int32_t b) {
      return shared.slots[static_cast<size_t>(a)].key < shared.slots[static_cast<size_t>(b)].key;
    });
    const auto place = std::find(members.begin(), members.end(), self.rank) - members.begin();
    const std::lock_guard<std::mutex> lock(shared.mutex);
    *part = reinterpret_cast<mt_group*>(
        new Local{shared.parts[color], static_cast<int32_t>(place), false, {}});
  });
}

void destroy(void*, mt_group* group) { delete &of(group); }
void abort_group(void*, mt_group* group) { of(group).shared->fail(MT_COMM_ABORTED); }
int async_error(void*, mt_group* group) {
  Shared& shared = *of(group).shared;
  const std::lock_guard<std::mutex> lock(shared.mutex);
  return shared.failed;
}

}  // namespace

extern "C" int mytorch_comm_local_init(const mt_host* given, mt_comm* comm);
extern "C" int mytorch_comm_local_init(const mt_host* given, mt_comm* comm) {
  host = given;
  comm->name = "local";
  comm->version = "1";
  comm->device_type = "cpu";
  comm->priority = 0;
  comm->flags = MT_COMM_ONE_PROCESS;
  comm->make_id = make_id;
  comm->create = create;
  comm->split = split;
  comm->destroy = destroy;
  comm->abort = abort_group;
  comm->async_error = async_error;
  MYTORCH_COMM_CALLS(comm, local);
  MYTORCH_COMM_WINDOWS(comm, local);
  return MT_OK;
}

}  // namespace mytorch::comm_local
