// Windows by messages: each rank has a thread that does what the others ask of its memory. It tests
// for messages, because MPI's waiting takes a processor, and rests while there are none.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
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

constexpr int kRequestTag = 0, kDataTag = 1, kReplyTag = 2;
constexpr mt_dtype kByte{MT_UINT, 8, 1};
constexpr mt_comm_call kNoDeadline{sizeof(mt_comm_call), nullptr, 0};

// What a rank asks for. Plain bytes; the ranks run the same program.
struct Request {
  int64_t offset, count;
  double scale;
  int32_t kind, op;
  mt_dtype dtype;
  int32_t fetches;  // whether an accumulation returns what was there
};

class MessageWindow : public Window {
 public:
  MessageWindow(Communicator& group, MPI_Comm comm, int64_t bytes)
      : group_(group),
        comm_(comm),
        blocks_((static_cast<size_t>(bytes) + 63) / 64),
        thread_((++serving, [this] { serve(); })) {}
  ~MessageWindow() override { stop(); }

  int run(const WindowCall& what, const mt_comm_call& call) override {
    {
      const std::lock_guard<std::mutex> lock(memory_);
      if (error_ != nullptr) std::rethrow_exception(error_);
    }
    if (what.owner == group_.rank) {
      apply(what);
      return MT_OK;
    }
    // One call of a rank at a time, so that its messages need no numbers.
    const std::lock_guard<std::mutex> lock(calls_);
    const bool fetches = what.kind == WindowCall::kAccumulate && what.result != nullptr;
    const Request request{what.offset,       what.count, what.reduction.scale, what.kind,
                          what.reduction.op, what.dtype, fetches ? 1 : 0};
    std::vector<MPI_Request> requests;
    char done = 0;
    send(&request, sizeof(request), kByte, what.owner, kRequestTag, &requests);
    if (what.kind != WindowCall::kGet) {
      send(what.data, what.count, what.dtype, what.owner, kDataTag, &requests);
    }
    if (what.result != nullptr) {
      receive(what.result, what.count, what.dtype, what.owner, kReplyTag, &requests);
    } else {
      receive(&done, 1, kByte, what.owner, kReplyTag, &requests);
    }
    return finish(group_, std::move(requests), call);
  }

  int free(const mt_comm_call&) override {
    stop();
    const Serialized serialized;
    check(MPI_Comm_free(&comm_), "MPI_Comm_free");
    return MT_OK;
  }

 private:
  struct alignas(64) Block {
    char bytes[64];
  };

  void send(const void* data, int64_t count, mt_dtype dtype, int to, int tag,
            std::vector<MPI_Request>* requests) {
    const Serialized serialized;
    const Elements elements(count, dtype);
    requests->push_back(MPI_REQUEST_NULL);
    check(MPI_Isend(data, elements.count(), elements.type(), to, tag, comm_, &requests->back()),
          "MPI_Isend");
  }
  void receive(void* data, int64_t count, mt_dtype dtype, int from, int tag,
               std::vector<MPI_Request>* requests) {
    const Serialized serialized;
    const Elements elements(count, dtype);
    requests->push_back(MPI_REQUEST_NULL);
    check(MPI_Irecv(data, elements.count(), elements.type(), from, tag, comm_, &requests->back()),
          "MPI_Irecv");
  }

  // Does a call on this rank's memory.
  void apply(const WindowCall& what) {
    const size_t bytes = sdk::bytes_of(what.count, what.dtype);
    char* const memory = reinterpret_cast<char*>(blocks_.data()) + what.offset;
    const std::lock_guard<std::mutex> lock(memory_);
    if (bytes == 0) return;
    if (what.result != nullptr) std::memcpy(what.result, memory, bytes);
    if (what.kind == WindowCall::kPut) std::memcpy(memory, what.data, bytes);
    if (what.kind == WindowCall::kAccumulate) {
      sdk::accumulate(what.dtype, what.reduction, memory, what.data, what.count);
    }
  }

  // Answers one request, if there is one. The thread waits without a deadline: who asks has one,
  // and the end of the group ends both.
  bool answer() {
    int there = 0;
    MPI_Status status;
    {
      const Serialized serialized;
      check(MPI_Iprobe(MPI_ANY_SOURCE, kRequestTag, comm_, &there, &status), "MPI_Iprobe");
    }
    if (there == 0) return false;
    const int from = status.MPI_SOURCE;
    Request request{};
    const auto finish_all = [&](std::vector<MPI_Request>& requests) {
      return finish(group_, std::move(requests), kNoDeadline) == MT_OK;
    };
    std::vector<MPI_Request> requests;
    receive(&request, sizeof(request), kByte, from, kRequestTag, &requests);
    if (!finish_all(requests)) return false;
    const size_t bytes = sdk::bytes_of(request.count, request.dtype);
    const bool writes = request.kind != WindowCall::kGet;
    const bool returns = !writes || request.fetches != 0;
    // Aligned for any type.
    auto data = std::make_unique_for_overwrite<Block[]>(writes ? bytes / 64 + 1 : 0);
    auto result = std::make_unique_for_overwrite<Block[]>(returns ? bytes / 64 + 1 : 0);
    requests.clear();
    if (writes) receive(data.get(), request.count, request.dtype, from, kDataTag, &requests);
    if (!finish_all(requests)) return give_up(data, result);
    WindowCall what{static_cast<WindowCall::Kind>(request.kind),
                    group_.rank,
                    request.offset,
                    request.count,
                    request.dtype,
                    data.get(),
                    returns ? result.get() : nullptr,
                    {sizeof(mt_reduction), request.op, 0, request.scale}};
    apply(what);
    requests.clear();
    if (returns) {
      send(result.get(), request.count, request.dtype, from, kReplyTag, &requests);
    } else {
      send("", 1, kByte, from, kReplyTag, &requests);
    }
    return finish_all(requests) || give_up(data, result);
  }
  // Leaves memory to MPI, which may still use it.
  static bool give_up(std::unique_ptr<Block[]>& data, std::unique_ptr<Block[]>& result) {
    (void)data.release();
    (void)result.release();
    return false;
  }

  void serve() {
    constexpr int kSpins = 1000;
    try {
      for (int idle = 0; !stopping_ && !leaving && !group_.aborted;) {
        idle = answer() ? 0 : std::min(idle + 1, kSpins);
        if (idle < kSpins) {
          sched_yield();
        } else {
          std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
      }
    } catch (...) {
      // The next call of this rank throws it. Those of the others end at their deadline.
      const std::lock_guard<std::mutex> lock(memory_);
      error_ = std::current_exception();
    }
    --serving;
  }
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

  Communicator& group_;
  MPI_Comm comm_;
  std::vector<Block> blocks_;
  std::mutex memory_, calls_;
  std::exception_ptr error_;  // why nothing is answered any more
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace

std::unique_ptr<Window> make_message_window(Communicator& group, int64_t bytes) {
  MPI_Comm comm = MPI_COMM_NULL;
  {
    const Serialized serialized;
    check(MPI_Comm_dup(group.comm, &comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  return std::make_unique<MessageWindow>(group, comm, bytes);
}

}  // namespace mytorch::comm_mpi
