// A group, and how its calls are made: each is started without blocking and then tested, so that
// deadlines and `abort` end it.
#pragma once

#include <mpi.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "distributed/engines/mpi/types.h"
#include "mytorch/backend/comm.h"

namespace mytorch::comm_mpi {

inline const mt_host* host = nullptr;
inline bool threads_may_call = false;  // at the same time
inline std::atomic<bool> any_failed{false};
// Threads that serve windows, and whether they must end because the process does.
inline std::atomic<int> serving{0};
inline std::atomic<bool> leaving{false};

// Serializes calls of MPI if it does not take them from several threads.
inline std::recursive_mutex mpi_mutex;
class Serialized {
 public:
  Serialized() {
    if (!threads_may_call) mpi_mutex.lock();
  }
  ~Serialized() {
    if (!threads_may_call) mpi_mutex.unlock();
  }
  Serialized(const Serialized&) = delete;
  Serialized& operator=(const Serialized&) = delete;
};

struct Communicator {
  MPI_Comm comm = MPI_COMM_NULL;
  int32_t rank = 0;
  int32_t ranks = 1;
  std::atomic<bool> aborted{false};
  bool grouping = false;
  std::vector<MPI_Request> requests;  // of sends and receives between begin and end
};
inline Communicator& of(mt_group* group) { return *reinterpret_cast<Communicator*>(group); }

// Memory that MPI reads and writes during calls. It is freed once they have finished; after a
// deadline, an abort or an error it is left to MPI, which may still use it.
template <class T>
class Lent {
 public:
  explicit Lent(T value) : value_(std::make_unique<T>(std::move(value))) {}
  ~Lent() { (void)value_.release(); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  T* operator->() const { return value_.get(); }
  void finished() { value_ = nullptr; }

 private:
  std::unique_ptr<T> value_;
};

// Waits until requests have finished or `over()`, which is asked now and then. Returns whether they
// have finished; otherwise they are left to MPI.
template <class Over>
bool finish_unless(std::vector<MPI_Request> requests, Over over) {
  for (int64_t spins = 0;; ++spins) {
    int done = 0;
    {
      const Serialized serialized;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
    }
    if (done != 0) return true;
    // Processes may share processors, so waiting gives way to the others.
    if (spins % 64 == 63) {
      sched_yield();
      if (!over()) continue;
      any_failed = true;
      return false;
    }
  }
}

// Waits for requests. After a deadline they are left to MPI, and the group is dead.
inline int finish(Communicator& self, std::vector<MPI_Request> requests, const mt_comm_call& call) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::nanoseconds(call.timeout_ns);
  int status = MT_OK;
  finish_unless(std::move(requests), [&] {
    if (self.aborted) {
      status = MT_COMM_ABORTED;
    } else if (call.timeout_ns > 0 && Clock::now() >= deadline) {
      self.aborted = true;
      status = MT_COMM_TIMEOUT;
    }
    return status != MT_OK;
  });
  return status;
}

// Starts a call by start(communicator, &request) and waits for it.
template <class Start>
int run(mt_group* group, const mt_comm_call* call, const char* name, Start start) {
  return sdk::guarded_comm(host, [&]() -> int {
    Communicator& self = of(group);
    if (self.aborted) return MT_COMM_ABORTED;
    MPI_Request request = MPI_REQUEST_NULL;
    try {
      {
        const Serialized serialized;
        check(start(self, &request), name);
      }
      return finish(self, {request}, *call);
    } catch (...) {
      self.aborted = true;
      any_failed = true;
      throw;
    }
  });
}

}  // namespace mytorch::comm_mpi
