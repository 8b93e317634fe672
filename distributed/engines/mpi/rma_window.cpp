// Windows by MPI's one-sided operations. Each call locks the window of its owner, alone unless it
// only reads, and has taken effect when it unlocks it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/engines/mpi/communicator.h"
#include "distributed/engines/mpi/types.h"
#include "distributed/engines/mpi/window.h"
#include "mytorch/backend/comm.h"

namespace mytorch::comm_mpi {
namespace {

using Clock = std::chrono::steady_clock;

// A thread for calls that block in MPI, one after the other. Who waits for one may leave it at a
// deadline, and the thread with it: MPI waits for ever for a lock that a dead rank holds.
class Aside {
 public:
  // A job, and its caller. `begin` is called before the caller's memory is touched, and returns
  // whether the caller is still there; from then on the memory is left to MPI.
  struct Job {
    std::function<void(Job&)> work;
    std::mutex mutex = {};
    std::condition_variable changed = {};
    bool left = false, done = false;
    std::exception_ptr error = {};
    bool begin() {
      const std::lock_guard<std::mutex> lock(mutex);
      return !left;
    }
  };

  Aside() : queue_(std::make_shared<Queue>()), thread_([queue = queue_] { serve(*queue); }) {}
  ~Aside() {
    {
      const std::lock_guard<std::mutex> lock(queue_->mutex);
      queue_->stopping = true;
    }
    queue_->changed.notify_all();
    stuck_ ? thread_.detach() : thread_.join();
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  int run(Communicator& group, const mt_comm_call& call, std::function<void(Job&)> work) {
    const auto deadline = Clock::now() + std::chrono::nanoseconds(call.timeout_ns);
    const auto job = std::make_shared<Job>();
    job->work = std::move(work);
    {
      const std::lock_guard<std::mutex> lock(queue_->mutex);
      queue_->jobs.push_back(job);
    }
    queue_->changed.notify_one();
    std::unique_lock<std::mutex> lock(job->mutex);
    while (!job->changed.wait_for(lock, std::chrono::milliseconds(10), [&] { return job->done; })) {
      const bool late = call.timeout_ns > 0 && Clock::now() >= deadline;
      if (!late && !group.aborted) continue;
      const int status = group.aborted ? int{MT_COMM_ABORTED} : int{MT_COMM_TIMEOUT};
      job->left = stuck_ = group.aborted = any_failed = true;
      return status;
    }
    if (job->error != nullptr) std::rethrow_exception(job->error);
    return MT_OK;
  }

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<Job>> jobs;
    bool stopping = false;
  };

  static void serve(Queue& queue) {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock<std::mutex> lock(queue.mutex);
        queue.changed.wait(lock, [&] { return queue.stopping || !queue.jobs.empty(); });
        if (queue.stopping) return;
        job = std::move(queue.jobs.front());
        queue.jobs.pop_front();
      }
      std::exception_ptr error;
      try {
        job->work(*job);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard<std::mutex> lock(job->mutex);
      job->error = error;
      job->done = true;
      job->changed.notify_all();
    }
  }

  std::shared_ptr<Queue> queue_;
  std::atomic<bool> stuck_{false};
  std::thread thread_;
};

// Calls f(first, n) for parts of `count` that MPI takes.
template <class F>
void in_parts(int64_t count, F f) {
  for (int64_t first = 0; first < count; first += max_count()) {
    f(first, static_cast<int>(std::min(max_count(), count - first)));
  }
}

class RmaWindow : public Window {
 public:
  RmaWindow(Communicator& group, MPI_Win window) : group_(group), window_(window) {}

  int run(const WindowCall& what, const mt_comm_call& call) override {
    return aside_.run(group_, call, [window = window_, what](Aside::Job& job) {
      const int kind = what.kind == WindowCall::kGet ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE;
      check(MPI_Win_lock(kind, what.owner, 0, window), "MPI_Win_lock");
      try {
        if (job.begin()) locked(window, what);
      } catch (...) {
        MPI_Win_unlock(what.owner, window);
        throw;
      }
      check(MPI_Win_unlock(what.owner, window), "MPI_Win_unlock");
    });
  }

  int free(const mt_comm_call& call) override {
    return aside_.run(group_, call, [window = window_](Aside::Job&) {
      MPI_Win freed = window;
      check(MPI_Win_free(&freed), "MPI_Win_free");
    });
  }

 private:
  static MPI_Aint place(const WindowCall& what, int64_t first) {
    return static_cast<MPI_Aint>(what.offset + first * sdk::itemsize(what.dtype));
  }
  static void get(MPI_Win window, const WindowCall& what, void* to) {
    in_parts(what.count, [&](int64_t first, int n) {
      const MPI_Datatype type = mpi_type(what.dtype);
      check(MPI_Get(sdk::at(to, first, what.dtype), n, type, what.owner, place(what, first), n,
                    type, window),
            "MPI_Get");
    });
  }
  static void put(MPI_Win window, const WindowCall& what, const void* from) {
    in_parts(what.count, [&](int64_t first, int n) {
      const MPI_Datatype type = mpi_type(what.dtype);
      check(MPI_Put(sdk::at(from, first, what.dtype), n, type, what.owner, place(what, first), n,
                    type, window),
            "MPI_Put");
    });
  }

  // Does a call while this rank holds the lock.
  static void locked(MPI_Win window, const WindowCall& what) {
    if (what.kind == WindowCall::kGet) return get(window, what, what.result);
    if (what.kind == WindowCall::kPut) return put(window, what, what.data);
    if (what.reduction.scale == 1 && is_builtin(what.dtype, what.reduction.op)) {
      return accumulate(window, what);
    }
    // MPI has no such operation, and takes none of ours here.
    std::vector<char> elements(sdk::bytes_of(what.count, what.dtype));
    get(window, what, elements.data());
    check(MPI_Win_flush(what.owner, window), "MPI_Win_flush");
    if (what.result != nullptr && !elements.empty()) {
      std::memcpy(what.result, elements.data(), elements.size());
    }
    sdk::accumulate(what.dtype, what.reduction, elements.data(), what.data, what.count);
    put(window, what, elements.data());
    check(MPI_Win_flush(what.owner, window), "MPI_Win_flush");
  }
  static void accumulate(MPI_Win window, const WindowCall& what) {
    const MPI_Op op = mpi_op(what.dtype, what.reduction.op);
    const MPI_Datatype type = mpi_type(what.dtype);
    in_parts(what.count, [&](int64_t first, int n) {
      const void* data = sdk::at(what.data, first, what.dtype);
      const MPI_Aint at = place(what, first);
      if (what.result == nullptr) {
        check(MPI_Accumulate(data, n, type, what.owner, at, n, type, op, window), "MPI_Accumulate");
      } else {
        check(MPI_Get_accumulate(data, n, type, sdk::at(what.result, first, what.dtype), n, type,
                                 what.owner, at, n, type, op, window),
              "MPI_Get_accumulate");
      }
    });
  }

  Communicator& group_;
  MPI_Win window_;
  Aside aside_;
};

}  // namespace

namespace {

// Whether all ranks share memory, or wish for MPI's windows all the same. Between hosts, Open MPI 4
// makes none over TCP that several threads may call, and UCX without a network of its own crashes
// when it is asked for one.
bool may_try(Communicator& group) {
  MPI_Comm near = MPI_COMM_NULL;
  int size = 0;
  check(MPI_Comm_split_type(group.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near),
        "MPI_Comm_split_type");
  check(MPI_Comm_size(near, &size), "MPI_Comm_size");
  check(MPI_Comm_free(&near), "MPI_Comm_free");
  const char* const wish = std::getenv("MYTORCH_MPI_RMA");
  return size == group.ranks || (wish != nullptr && std::strcmp(wish, "1") == 0);
}

// Returns whether it holds on all ranks.
int agree(Communicator& group, bool mine, const mt_comm_call& call, bool* all) {
  struct Votes {
    int given, least;
  };
  Lent<Votes> votes(Votes{mine ? 1 : 0, 0});
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(&votes->given, &votes->least, 1, MPI_INT, MPI_MIN, group.comm, &request),
        "MPI_Iallreduce");
  if (const int status = finish(group, {request}, call)) return status;
  *all = votes->least != 0;
  votes.finished();
  return MT_OK;
}

}  // namespace

int make_rma_window(Communicator& group, int64_t bytes, const mt_comm_call& call,
                    std::unique_ptr<Window>* window) {
  if (!threads_may_call) return MT_OK;  // a call that waits for a lock would stop all others
  bool all = false;
  if (const int status = agree(group, may_try(group), call, &all)) return status;
  if (!all) return MT_OK;
  void* memory = nullptr;
  MPI_Win made = MPI_WIN_NULL;
  const int code = MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, group.comm,
                                    static_cast<void*>(&memory), &made);
  if (const int status = agree(group, code == MPI_SUCCESS, call, &all)) return status;
  if (!all) return MT_OK;
  check(MPI_Win_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
  check(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, group.rank, 0, made), "MPI_Win_lock");
  if (bytes > 0) std::memset(memory, 0, static_cast<size_t>(bytes));
  check(MPI_Win_unlock(group.rank, made), "MPI_Win_unlock");
  *window = std::make_unique<RmaWindow>(group, made);
  return MT_OK;
}

}  // namespace mytorch::comm_mpi
