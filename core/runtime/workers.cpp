#include "core/runtime/workers.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/runtime/processors.h"

namespace mytorch::workers {
namespace {

// How long a thread spins before it sleeps: on a quiet machine, longer than the serial parts of a
// training step; on a busy one, about as long as it takes to sleep and to be woken.
constexpr int64_t kQuietSpin = 2'000'000;  // ns
constexpr int64_t kBusySpin = 3'000;
// A spinning thread that does not see the clock for this long asks whether it was running.
constexpr int64_t kGap = 200'000;
constexpr int64_t kAskEvery = 1'000'000;
// How long others run each time, where the system does not say.
constexpr int64_t kUsualSlice = 1'500'000;
// The machine is busy if a thread loses more than this much and more than a fifth of its time:
// services that wake up now and then take less, and so does a bad choice of the system's scheduler.
constexpr int64_t kMuch = 6'000'000;
// How long the machine counts as busy after that. Doubles while it happens again and again.
constexpr int64_t kShortestBusy = 100'000'000;
constexpr int64_t kLongestBusy = 1'600'000'000;
// On a busy machine, a loop that took longer than its caller alone would have is the caller's for
// 16 times the loss, then 32 times and so on, up to 512.
constexpr int kFirstLoss = 4;
constexpr int kLastLoss = 9;
constexpr int64_t kLeastLoss = 1'000;  // ns
constexpr int64_t kMaxWorkers = 4096;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// ---- whether other programs want the processors ----

std::atomic<int64_t> busy_until{0};  // or 0 if it is quiet
std::atomic<int64_t> busy_ended{0};
std::atomic<int64_t> busy_length{kShortestBusy};

// Whether the machine is busy. Sets `time` if it is.
bool is_busy(int64_t& time) {
  int64_t until = busy_until.load(std::memory_order_relaxed);
  if (until == 0) [[likely]]
    return false;
  time = now();
  if (time < until) return true;
  busy_until.compare_exchange_strong(until, 0, std::memory_order_relaxed);
  return false;
}

void become_busy(int64_t until) {
  busy_ended.store(until, std::memory_order_relaxed);
  busy_until.store(until, std::memory_order_relaxed);
}

// Returns how long this thread has been ready to run while others ran, or -1 if the system does not
// say.
int64_t delayed() {
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  char text[64] = {};
  const ssize_t size = read(file, text, sizeof(text) - 1);
  close(file);
  const char* const space = size > 0 ? std::strchr(text, ' ') : nullptr;
  return space == nullptr ? -1 : std::strtoll(space, nullptr, 10);
}

// Returns how long it has been so since the last call, and 0 at the first. Asks the system, which
// takes microseconds, once in a millisecond: its services preempt threads often, but for less.
int64_t newly_delayed(int64_t time) {
  thread_local int64_t asked = 0, preempted = -1, before = 0;
  if (time - asked < kAskEvery) return 0;
  asked = time;
  rusage usage;
  if (getrusage(RUSAGE_THREAD, &usage) != 0 || usage.ru_nivcsw == preempted) return 0;
  const bool first = preempted < 0;
  const int64_t times = usage.ru_nivcsw - preempted, total = delayed();
  preempted = usage.ru_nivcsw;
  if (total < 0) return first ? 0 : times * kUsualSlice;
  const int64_t lost = first ? 0 : total - before;
  before = total;
  return lost;
}

// Called by a thread that has lost its processor for `gap`.
void count_lost(int64_t time, int64_t gap) {
  thread_local int64_t lost = 0, counted = time;
  lost = std::max<int64_t>(0, lost - (time - counted) / 5) + gap;
  counted = time;
  const int64_t ended = busy_ended.load(std::memory_order_relaxed);
  if (lost < kMuch || time < ended) return;
  lost = 0;
  int64_t length = busy_length.load(std::memory_order_relaxed);
  length = time - ended < length ? std::min(2 * length, kLongestBusy) : kShortestBusy;
  busy_length.store(length, std::memory_order_relaxed);
  become_busy(time + length);
}

// Spins until done() returns true. Returns false if it is time to sleep.
template <class Done>
bool spin(Done done) {
  if (done()) return true;
  const int64_t start = now();
  bool looked = false;
  for (int64_t last = start;;) {
    for (int i = 0; i < 16; ++i) {
      pause();
      if (done()) return true;
    }
    const int64_t time = now();
    bool busy = time < busy_until.load(std::memory_order_relaxed);
    if (!busy && (time - last > kGap || (!looked && time - start > kBusySpin))) {
      looked = true;
      if (const int64_t lost = newly_delayed(time); lost > 0) count_lost(time, lost);
      busy = time < busy_until.load(std::memory_order_relaxed);
    }
    if (time - start > (busy ? kBusySpin : kQuietSpin)) return false;
    last = time;
  }
}

// ---- loops and workers ----

// The loop of a calling thread. Loops are reused, never freed: a worker may still wake the caller
// of a loop that has ended.
struct ParallelLoop {
  static constexpr uint32_t kSleeps = 1u << 31;  // the caller sleeps until pending becomes 0

  Piece run = nullptr;
  void* user = nullptr;
  bool together = false;
  std::vector<int64_t> piece_of;                 // by worker
  std::vector<int64_t> offered;                  // the caller's list of workers
  alignas(64) std::atomic<uint32_t> pending{0};  // pieces that are not done, without the caller's

  void finish(uint32_t pieces) {
    if (pending.fetch_sub(pieces, std::memory_order_acq_rel) - pieces == kSleeps) {
      futex_wake(pending);
    }
  }

  void wait() {
    if (spin([this] { return pending.load(std::memory_order_acquire) == 0; })) return;
    for (;;) {
      const uint32_t value = pending.fetch_or(kSleeps, std::memory_order_acq_rel) | kSleeps;
      if (value == kSleeps) break;
      futex_wait(pending, value);
    }
  }
};

// What workers of a busy machine were worth to loops of one kind.
struct LoopKind {
  uintptr_t key = 0;
  int64_t not_before = 0;  // the next try
  int losses = 0;          // in a row
};

LoopKind& kind_of(uintptr_t key) {
  // On the heap: a library that is opened at run time has little room for its threads' variables.
  using Kinds = std::array<LoopKind, 64>;
  thread_local constinit Kinds* kinds = nullptr;
  if (kinds == nullptr) [[unlikely]] {
    kinds = new Kinds{};
    struct Reaper {
      ~Reaper() { delete std::exchange(kinds, nullptr); }  // loops may follow, at the exit
    };
    thread_local const Reaper reaper;
  }
  LoopKind& kind = (*kinds)[(key ^ key >> 6 ^ key >> 12) % kinds->size()];
  if (kind.key != key) kind = {key, 0, 0};
  return kind;
}

// The loop has taken `total`, and its caller `own` for one of its `pieces`.
void learn(LoopKind& kind, int64_t time, int64_t total, int64_t own, int64_t pieces) {
  const int64_t loss = total - own * pieces;
  if (loss < -own * pieces / 16) {
    kind.losses = 0;
    return;
  }
  const int doublings = std::min(kFirstLoss + kind.losses++, kLastLoss);
  kind.not_before = time + (std::max(loss, kLeastLoss) << doublings);
}

struct alignas(64) PoolWorker {
  static constexpr uintptr_t kIdle = 0;
  static constexpr uintptr_t kRunning = 1;

  std::atomic<uintptr_t> job{kIdle};  // or a Loop*, which offers a piece
  std::atomic<uint32_t> asleep{0};    // what the worker sleeps on
  std::atomic<uint64_t> begun{0};

  // Offers a piece of the loop. Returns whether the worker was idle.
  bool offer(ParallelLoop& loop) {
    if (job.load(std::memory_order_relaxed) != kIdle) return false;
    uintptr_t idle = kIdle;
    if (!job.compare_exchange_strong(idle, reinterpret_cast<uintptr_t>(&loop))) return false;
    // The worker announces its sleep before it looks for a job the last time.
    if (asleep.load() != 0) {
      asleep.store(0);
      futex_wake(asleep);
    }
    return true;
  }

  // Takes the piece back. Returns false if the worker has begun it.
  bool take_back(ParallelLoop& loop) {
    auto offered = reinterpret_cast<uintptr_t>(&loop);
    return job.load(std::memory_order_relaxed) == offered &&
           job.compare_exchange_strong(offered, kIdle, std::memory_order_acq_rel);
  }

  // Waits for an offer and accepts it.
  ParallelLoop& next() {
    for (;;) {
      const auto offered = [this] { return job.load(std::memory_order_relaxed) != kIdle; };
      if (!spin(offered)) {
        asleep.store(1);
        while (job.load() == kIdle && asleep.load(std::memory_order_acquire) != 0) {
          futex_wait(asleep, 1);
        }
        asleep.store(0, std::memory_order_relaxed);
      }
      uintptr_t loop = job.load(std::memory_order_relaxed);
      if (loop != kIdle && job.compare_exchange_strong(loop, kRunning, std::memory_order_acquire)) {
        return *reinterpret_cast<ParallelLoop*>(loop);
      }
    }
  }
};

class WorkerPool {
 public:
  int64_t count() const { return count_.load(std::memory_order_acquire); }
  PoolWorker& worker(int64_t i) { return *workers_[static_cast<size_t>(i)]; }

  // Creates workers until there are `wanted`. Returns how many there are.
  int64_t grow(int64_t wanted) {
    wanted = std::min(wanted, kMaxWorkers);
    if (count() >= wanted || full_.load(std::memory_order_relaxed)) return count();
    const std::scoped_lock lock(mutex_);
    // Signals are for the program's threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      while (count() < wanted) {
        const int64_t i = count();
        workers_[static_cast<size_t>(i)] = std::make_unique<PoolWorker>();
        std::thread([this, i] { work(i); }).detach();
        count_.store(i + 1, std::memory_order_release);
      }
    } catch (const std::exception&) {  // no memory, or no more threads
      full_.store(true, std::memory_order_relaxed);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return count();
  }

  ParallelLoop* take_loop() {
    const std::scoped_lock lock(mutex_);
    if (loops_.empty()) return new ParallelLoop;
    ParallelLoop* loop = loops_.back();
    loops_.pop_back();
    return loop;
  }
  void give_loop(ParallelLoop* loop) {
    const std::scoped_lock lock(mutex_);
    loops_.push_back(loop);
  }

  // Waits until the pool has a thread for each piece of the loops that run together, this one
  // included: each must get all of its threads, or two loops could wait for each other's.
  void admit(int64_t workers) {
    std::unique_lock<std::mutex> lock(admission_mutex_);
    admission_.wait(
        lock, [&] { return admitted_ == 0 || grow(admitted_ + workers) >= admitted_ + workers; });
    admitted_ += workers;
  }
  void leave(int64_t workers) {
    {
      const std::scoped_lock lock(admission_mutex_);
      admitted_ -= workers;
      if (!full_.load(std::memory_order_relaxed)) return;
    }
    admission_.notify_all();
  }

  void add_stolen(uint64_t pieces) { stolen_.fetch_add(pieces, std::memory_order_relaxed); }

  WorkerStats stats() {
    WorkerStats all;
    all.threads = count();
    all.stolen = stolen_.load(std::memory_order_relaxed);
    for (int64_t i = 0; i < all.threads; ++i) {
      all.begun += worker(i).begun.load(std::memory_order_relaxed);
    }
    return all;
  }

 private:
  void work(int64_t i) {
    pthread_setname_np(pthread_self(), "mytorch");
    PoolWorker& self = *workers_[static_cast<size_t>(i)];
    for (;;) {
      ParallelLoop& loop = self.next();
      loop.run(loop.user, loop.piece_of[static_cast<size_t>(i)]);
      uint32_t done = 1;
      // Helps the next workers, whose processors may be taken, as long as they have not begun.
      if (!loop.together) {
        for (int64_t next = i + 1; next < count() && worker(next).take_back(loop); ++next) {
          loop.run(loop.user, loop.piece_of[static_cast<size_t>(next)]);
          ++done;
        }
        if (done > 1) add_stolen(done - 1);
      }
      self.begun.store(self.begun.load(std::memory_order_relaxed) + done,
                       std::memory_order_relaxed);
      self.job.store(PoolWorker::kIdle, std::memory_order_release);
      loop.finish(done);  // the last access to the loop
    }
  }

  std::mutex mutex_;
  std::array<std::unique_ptr<PoolWorker>, kMaxWorkers> workers_;
  std::atomic<int64_t> count_{0};
  std::atomic<bool> full_{false};
  std::atomic<uint64_t> stolen_{0};
  std::vector<ParallelLoop*> loops_;
  std::mutex admission_mutex_;
  std::condition_variable admission_;
  int64_t admitted_ = 0;
};

// Never destroyed: its threads run until the process ends. After a fork the child has none of them
// and begins with a new pool.
std::atomic<WorkerPool*> current{nullptr};

WorkerPool& pool() {
  if (WorkerPool* const known = current.load(std::memory_order_acquire)) [[likely]]
    return *known;
  static WorkerPool* const first = [] {
    auto* const created = new WorkerPool;
    current.store(created, std::memory_order_release);
    pthread_atfork(nullptr, nullptr,
                   [] { current.store(new WorkerPool, std::memory_order_release); });
    return created;
  }();
  return *first;
}

struct ThreadLoop {
  ParallelLoop* loop = pool().take_loop();
  ~ThreadLoop() { pool().give_loop(loop); }
};

ParallelLoop& thread_loop() {
  thread_local ThreadLoop own;
  return *own.loop;
}

// Offers pieces 1 and up of the loop to idle workers. Returns the first piece that none was
// offered.
int64_t offer_pieces(ParallelLoop& loop, int64_t pieces) {
  WorkerPool& threads = pool();
  static const int64_t processors = available_processors();
  int64_t count = threads.grow(pieces - 1);
  int64_t piece = 1;
  for (int64_t w = 0; piece < pieces; ++w) {
    if (w == count) {
      // Other callers' loops are running: there may be a thread for each processor, and there must
      // be one for each piece that others may wait for.
      const int64_t wanted = count + pieces - piece;
      count = threads.grow(loop.together ? wanted : std::min(wanted, processors - 1));
      if (w >= count) break;
    }
    if (loop.piece_of.size() < static_cast<size_t>(count)) {
      loop.piece_of.resize(static_cast<size_t>(count));
    }
    loop.piece_of[static_cast<size_t>(w)] = piece;
    if (!threads.worker(w).offer(loop)) continue;
    loop.offered.push_back(w);
    ++piece;
  }
  return piece;
}

void begin_loop(ParallelLoop& loop, int64_t pieces, Piece run, void* user, bool together) {
  loop.run = run;
  loop.user = user;
  loop.together = together;
  loop.offered.clear();
  loop.pending.store(static_cast<uint32_t>(pieces - 1), std::memory_order_relaxed);
}

}  // namespace

namespace {

void run_loop(ParallelLoop& loop, int64_t pieces, Piece run, void* user, int64_t* own_time) {
  begin_loop(loop, pieces, run, user, false);
  const int64_t not_offered = offer_pieces(loop, pieces);
  const int64_t start = own_time == nullptr ? 0 : now();
  run(user, 0);
  if (own_time != nullptr) *own_time = now() - start;
  for (int64_t piece = not_offered; piece < pieces; ++piece) run(user, piece);
  auto own = static_cast<uint32_t>(pieces - not_offered);
  // The last first: workers help the other way round.
  for (size_t i = loop.offered.size(); i-- > 0;) {
    const int64_t w = loop.offered[i];
    if (!pool().worker(w).take_back(loop)) continue;
    run(user, loop.piece_of[static_cast<size_t>(w)]);
    pool().add_stolen(1);
    ++own;
  }
  if (own > 0) loop.pending.fetch_sub(own, std::memory_order_acq_rel);
  loop.wait();
}

}  // namespace

void run_pieces(int64_t pieces, uintptr_t key, Piece run, void* user) {
  int64_t start = 0;
  if (!is_busy(start)) return run_loop(thread_loop(), pieces, run, user, nullptr);
  LoopKind& kind = kind_of(key);
  if (start < kind.not_before) {
    for (int64_t piece = 0; piece < pieces; ++piece) run(user, piece);
    return;
  }
  int64_t own = 0;
  run_loop(thread_loop(), pieces, run, user, &own);
  const int64_t end = now();
  learn(kind, end, end - start, own, pieces);
}

void run_together(int64_t pieces, Piece run, void* user) {
  ParallelLoop& loop = thread_loop();
  begin_loop(loop, pieces, run, user, true);
  pool().admit(pieces - 1);
  int64_t piece = offer_pieces(loop, pieces);
  // The system creates no more threads, and ordinary loops still run on those that there are.
  for (int64_t w = 0; piece < pieces; w = (w + 1) % pool().count()) {
    if (std::find(loop.offered.begin(), loop.offered.end(), w) != loop.offered.end()) continue;
    loop.piece_of[static_cast<size_t>(w)] = piece;
    if (!pool().worker(w).offer(loop)) {
      std::this_thread::yield();
      continue;
    }
    loop.offered.push_back(w);
    ++piece;
  }
  run(user, 0);
  loop.wait();
  pool().leave(pieces - 1);
}

int64_t ensure(int64_t threads) { return std::min(threads, pool().grow(threads - 1) + 1); }

WorkerStats stats() { return pool().stats(); }

void pretend_busy(int64_t milliseconds) { become_busy(now() + milliseconds * 1'000'000); }

}  // namespace mytorch::workers
