// Runs the parallel regions of a library that was built for GNU OpenMP, such as oneDNN or OpenBLAS,
// on the host's threads. With threads of its own the library would compete with them, and those of
// libgomp spin for milliseconds, which takes processors from programs that have work.
//
// backends/sdk/openmp/entries.cpp defines the functions of libgomp that such libraries call. The
// dynamic linker finds them before libgomp's, because the backend stands before its libraries in
// the list that it searches for them; it finds libgomp's if the program has loaded that already.
// Then, and in programs that link the backend's objects, the library runs on libgomp's threads.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "mytorch/abi_threads.h"

namespace mytorch::sdk {
inline namespace v1 {
namespace openmp {

// The barrier of a region. Waiting threads yield the processor: the last one may need it.
class Barrier {
 public:
  explicit Barrier(int32_t threads) : threads_(threads) {}
  void wait() {
    const uint32_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      round_.notify_all();
      return;
    }
    while (round_.load(std::memory_order_acquire) == round) {
      round_.wait(round, std::memory_order_acquire);
    }
  }

 private:
  const int32_t threads_;
  std::atomic<int32_t> arrived_{0};
  std::atomic<uint32_t> round_{0};
};

// What OpenMP calls the data environment of a thread.
struct Thread {
  mt_ctx* ctx = nullptr;  // of the Scope around the library's call
  int32_t threads = 1;    // that a region may have
  int32_t number = 0;     // in its region
  int32_t team = 1;       // threads of its region
  Barrier* barrier = nullptr;
  uint64_t calls = 0;  // that asked here for a number of threads
};
inline thread_local constinit Thread thread{};

// Returns how many of `wanted` threads the host has for a region.
inline int32_t possible_threads(mt_ctx& ctx, int32_t wanted) {
  if (wanted <= 1 || ctx.parallel_for == nullptr) return 1;
  std::atomic<int32_t> threads{1};
  ctx.parallel_for(
      &ctx, 0, wanted, MT_ASK_TOGETHER,
      [](void* user, int64_t, int64_t end) {
        // Hosts before mytorch/abi_threads.h call this for several ranges; the last one ends at
        // `wanted`.
        auto& most = *static_cast<std::atomic<int32_t>*>(user);
        int32_t seen = most.load(std::memory_order_relaxed);
        while (seen < end && !most.compare_exchange_weak(seen, static_cast<int32_t>(end))) {
        }
      },
      &threads);
  return threads.load(std::memory_order_relaxed);
}

// Calls body(data) on `threads` threads (0: as many as the scope has). A region in a region of
// several threads has one.
inline void parallel(void (*body)(void*), void* data, unsigned threads) {
  const Thread own = thread;
  const auto wanted = threads == 0 ? own.threads : static_cast<int32_t>(threads);
  const int32_t team = own.ctx != nullptr ? possible_threads(*own.ctx, wanted) : 1;
  if (team == 1) {
    thread.number = 0;
    thread.team = 1;
    body(data);
    thread.number = own.number;
    thread.team = own.team;
    return;
  }
  struct Region {
    void (*body)(void*);
    void* data;
    int32_t threads;
    int32_t team;
    Barrier barrier;
  } region{body, data, own.threads, team, Barrier(team)};
  own.ctx->parallel_for(
      own.ctx, 0, team, MT_TOGETHER,
      [](void* user, int64_t number, int64_t) {
        auto& of = *static_cast<Region*>(user);
        const Thread before = thread;
        thread = {nullptr, of.threads,  static_cast<int32_t>(number),
                  of.team, &of.barrier, before.calls};
        of.body(of.data);
        thread = before;
      },
      &region);
}

// The functions of libgomp in this process, if a library has loaded it.
struct Libgomp {
  void (*set_num_threads)(int) = nullptr;
  int (*get_max_threads)() = nullptr;
  int (*in_parallel)() = nullptr;
  int (*get_dynamic)() = nullptr;
  int (*get_thread_limit)() = nullptr;

  static const Libgomp& get() {
    static const Libgomp found = [] {
      Libgomp all;
      void* const library = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
      if (library == nullptr) return all;
      const auto find = [&](const char* name, auto& function) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      };
      find("omp_set_num_threads", all.set_num_threads);
      find("omp_get_max_threads", all.get_max_threads);
      find("omp_in_parallel", all.in_parallel);
      find("omp_get_dynamic", all.get_dynamic);
      find("omp_get_thread_limit", all.get_thread_limit);
      return all;
    }();
    return found;
  }
};

// Whether the library's calls arrive here. `probe` makes it ask for the number of threads.
template <class Probe>
bool arrives(Probe&& probe) {
  const uint64_t before = thread.calls;
  probe();
  return thread.calls != before;
}

// Returns the number of threads that each region of the library will have in a call with this
// context: 1 inside parallel_for. `here`: what arrives() has returned.
inline int threads_of(mt_ctx& ctx, bool here) {
  const int threads = possible_threads(ctx, ctx.num_threads);
  if (here || threads == 1) return threads;
  const Libgomp& gomp = Libgomp::get();
  if (gomp.in_parallel == nullptr || gomp.in_parallel() != 0 || gomp.get_dynamic() != 0) return 1;
  return std::min(threads, gomp.get_thread_limit());
}

// Sets the number of threads of the library's regions while it exists.
class Scope {
 public:
  Scope(mt_ctx& ctx, int threads, bool here) : here_(here) {
    if (here) {
      before_ = thread;
      thread.ctx = &ctx;
      thread.threads = threads;
      return;
    }
    const Libgomp& gomp = Libgomp::get();
    if (gomp.set_num_threads == nullptr) return;
    before_.threads = gomp.get_max_threads();
    if (before_.threads != threads) gomp.set_num_threads(threads);
    changed_ = before_.threads != threads;
  }
  ~Scope() {
    if (here_) {
      thread.ctx = before_.ctx;
      thread.threads = before_.threads;
    } else if (changed_) {
      Libgomp::get().set_num_threads(before_.threads);
    }
  }
  Scope(const Scope&) = delete;

 private:
  Thread before_;
  bool here_;
  bool changed_ = false;
};

}  // namespace openmp
}  // namespace v1
}  // namespace mytorch::sdk
