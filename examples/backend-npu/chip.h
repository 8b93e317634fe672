// The simulated accelerator: memory that the host cannot touch, and streams that work on their own.
// A real backend has its driver in this place.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace npu {

// A piece of memory that is mapped twice: where the host sees it, any access faults; where the chip
// sees it, it can be read and written. Device pointers are the host's.
class Memory {
 public:
  explicit Memory(size_t bytes);
  // A device pointer, aligned to 64 bytes; NULL where there is no such piece left.
  void* allocate(size_t bytes);
  void release(void* data);
  size_t total() const { return bytes_; }
  size_t free_bytes();
  // What the chip sees at a device pointer.
  char* view(const void* data) const {
    return data == nullptr ? nullptr : chip_ + (static_cast<const char*>(data) - host_);
  }

 private:
  std::mutex mutex_;
  size_t bytes_;
  size_t used_ = 0;
  char* host_;
  char* chip_;
  std::map<size_t, size_t> free_;  // offset to size; neighbours are joined
  std::unordered_map<size_t, size_t> taken_;
};

Memory& memory();

// What a stream has come to. Whoever queued a wait keeps it alive.
class Event {
 public:
  void set();
  void wait();
  bool is_set();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};
using EventPointer = std::shared_ptr<Event>;

// A queue with a worker of its own. Work may throw sdk::Error: the stream keeps the first one for
// whoever waits for it.
class Stream {
 public:
  Stream();
  ~Stream();  // when all that is queued has run
  void queue(std::function<void()> work);
  EventPointer record();
  // Waits for all that was queued so far. The first error since the last call, MT_OK where there
  // was none; its text.
  int wait(std::string* message);

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool ends_ = false;
  int status_ = 0;
  std::string message_;
  std::unique_ptr<class Worker> worker_;
};

// Waits until all streams are idle: memory whose release was queued is free then.
void drain_all_streams();

}  // namespace npu
