// The simulated accelerator: memory that the host cannot access, and asynchronous streams. In a
// real backend, this is the driver.
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

// Device memory, mapped twice: the host's mapping faults on every access; the chip's mapping is
// readable and writable. Device pointers are addresses of the host's mapping.
class Memory {
 public:
  explicit Memory(size_t bytes);
  // Returns a device pointer aligned to 64 bytes, or NULL if no free block is large enough.
  void* allocate(size_t bytes);
  void release(void* data);
  size_t total() const { return bytes_; }
  size_t free_bytes();
  // Converts a device pointer to an address of the chip's mapping.
  char* view(const void* data) const {
    return data == nullptr ? nullptr : chip_ + (static_cast<const char*>(data) - host_);
  }

 private:
  std::mutex mutex_;
  size_t bytes_;
  size_t used_ = 0;
  char* host_;
  char* chip_;
  std::map<size_t, size_t> free_;  // from offset to size; adjacent blocks are merged
  std::unordered_map<size_t, size_t> taken_;
};

Memory& memory();

// A point in a stream's work. A queued wait keeps the event alive.
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

// A queue with its own worker thread. Work may throw sdk::Error; the stream keeps the first error
// for the next wait().
class Stream {
 public:
  Stream();
  ~Stream();  // waits for the queued work
  void queue(std::function<void()> work);
  EventPointer record();
  // Waits for the queued work. Returns the status of the first error since the last call, or MT_OK,
  // and sets `message` to its text.
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

// Waits for all streams, so that queued releases have freed their memory.
void drain_all_streams();

}  // namespace npu
