#include "chip.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

#include "mytorch/backend/error.h"

namespace npu {

namespace sdk = mytorch::sdk;

// ---- memory ------------------------------------------------------------------------------------

Memory::Memory(size_t bytes) : bytes_(bytes) {
  const int file = memfd_create("npu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) throw std::bad_alloc();
  void* chip = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  void* host = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  close(file);
  if (chip == MAP_FAILED || host == MAP_FAILED) throw std::bad_alloc();
  chip_ = static_cast<char*>(chip);
  host_ = static_cast<char*>(host);
  free_[0] = bytes;
}

void* Memory::allocate(size_t bytes) {
  if (bytes > bytes_) return nullptr;
  bytes = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    const auto [offset, size] = *piece;
    if (size < bytes) continue;
    free_.erase(piece);
    if (size > bytes) free_[offset + bytes] = size - bytes;
    taken_[offset] = bytes;
    used_ += bytes;
    return host_ + offset;
  }
  return nullptr;
}

void Memory::release(void* data) {
  if (data == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = taken_.find(static_cast<size_t>(static_cast<char*>(data) - host_));
  if (found == taken_.end()) return;
  auto [offset, size] = *found;
  taken_.erase(found);
  used_ -= size;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    std::prev(next)->second += size;
  } else {
    free_[offset] = size;
  }
}

size_t Memory::free_bytes() {
  std::lock_guard<std::mutex> lock(mutex_);
  return bytes_ - used_;
}

// Returns the memory of the chip: NPU_MEMORY in MiB, by default 512. It is never destroyed, because
// threads may release tensors after main().
Memory& memory() {
  static Memory* const instance = [] {
    const char* text = std::getenv("NPU_MEMORY");
    const long mib = text != nullptr ? std::atol(text) : 0;
    return new Memory(static_cast<size_t>(mib > 0 ? mib : 512) << 20);
  }();
  return *instance;
}

// ---- events ------------------------------------------------------------------------------------

void Event::set() {
  std::lock_guard<std::mutex> lock(mutex_);
  set_ = true;
  changed_.notify_all();
}
void Event::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return set_; });
}
bool Event::is_set() {
  std::lock_guard<std::mutex> lock(mutex_);
  return set_;
}

// ---- streams -----------------------------------------------------------------------------------

namespace {

struct Streams {
  std::mutex mutex;
  std::set<Stream*> all;
};
Streams& streams() {
  static Streams* const instance = new Streams;
  return *instance;
}

}  // namespace

class Worker {
 public:
  explicit Worker(std::function<void()> body) : thread_(std::move(body)) {}
  ~Worker() { thread_.join(); }

 private:
  std::thread thread_;
};

Stream::Stream() : worker_(std::make_unique<Worker>([this] { work(); })) {
  std::lock_guard<std::mutex> lock(streams().mutex);
  streams().all.insert(this);
}

Stream::~Stream() {
  {
    std::lock_guard<std::mutex> lock(streams().mutex);
    streams().all.erase(this);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  worker_.reset();
}

void Stream::queue(std::function<void()> work) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

EventPointer Stream::record() {
  auto event = std::make_shared<Event>();
  queue([event] { event->set(); });
  return event;
}

int Stream::wait(std::string* message) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  *message = std::exchange(message_, {});
  return std::exchange(status_, 0);
}

void Stream::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !queue_.empty() || ends_; });
    if (queue_.empty()) return;
    std::function<void()> next = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::string message;
    const int status = sdk::status_of(std::exchange(next, nullptr),
                                      [&](int, const char* text) { message = text; });
    lock.lock();
    busy_ = false;
    if (status != MT_OK && status_ == MT_OK) {
      status_ = status;
      message_ = message;
    }
    if (queue_.empty()) changed_.notify_all();
  }
}

void drain_all_streams() {
  // Waits for events, because Stream::wait() would take the errors of other users.
  std::vector<EventPointer> events;
  {
    std::lock_guard<std::mutex> lock(streams().mutex);
    for (Stream* stream : streams().all) events.push_back(stream->record());
  }
  for (const EventPointer& event : events) event->wait();
}

}  // namespace npu
