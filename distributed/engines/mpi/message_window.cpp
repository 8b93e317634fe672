// Windows by messages: each rank has a thread that does what the others ask of its memory. It tests
// for messages, because MPI's waiting takes a processor, and rests while there are none.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
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
// How long an answer that is under way has to finish when its window goes.
constexpr std::chrono::seconds kGrace(1);

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
    Lent<Question> question(Question{request});
    std::vector<MPI_Request> requests;
    send(&question->request, sizeof(Request), kByte, what.owner, kRequestTag, &requests);
    if (what.kind != WindowCall::kGet) {
      send(what.data, what.count, what.dtype, what.owner, kDataTag, &requests);
    }
    if (what.result != nullptr) {
      receive(what.result, what.count, what.dtype, what.owner, kReplyTag, &requests);
    } else {
      receive(&question->done, 1, kByte, what.owner, kReplyTag, &requests);
    }
    const int status = finish(group_, std::move(requests), call);
    if (status == MT_OK) question.finished();
    return status;
  }

  int free(const mt_comm_call&) override {
    stop();
    const Serialized serialized;
    check(MPI_Comm_free(&comm_), "MPI_Comm_free");
    return MT_OK;
  }

 private:
  // Aligned for any type.
  struct alignas(64) Block {
    char bytes[64];
  };
  // What MPI uses of a call, beside its operands, and of its answer.
  struct Question {
    Request request;
    char done = 0;
  };
  struct Answer {
    Request request = {};
    std::unique_ptr<Block[]> data = nullptr, result = nullptr;
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

  // Waits for the messages of an answer, without a deadline: who asks has one, and the end of the
  // group ends both. When the window or the process goes, nobody may ever finish them.
  bool finish_answer(std::vector<MPI_Request>& requests) {
    using Clock = std::chrono::steady_clock;
    std::optional<Clock::time_point> until;
    return finish_unless(std::exchange(requests, {}), [&] {
      if (group_.aborted) return true;
      if (!stopping_ && !leaving) return false;
      if (!until.has_value()) until = Clock::now() + kGrace;
      return Clock::now() >= *until;
    });
  }

  // Answers one request, if there is one.
  bool answer() {
    int there = 0;
    MPI_Status status;
    {
      const Serialized serialized;
      check(MPI_Iprobe(MPI_ANY_SOURCE, kRequestTag, comm_, &there, &status), "MPI_Iprobe");
    }
    if (there == 0) return false;
    const int from = status.MPI_SOURCE;
    Lent<Answer> lent(Answer{});
    std::vector<MPI_Request> requests;
    receive(&lent->request, sizeof(Request), kByte, from, kRequestTag, &requests);
    if (!finish_answer(requests)) return false;
    const Request request = lent->request;
    const size_t bytes = sdk::bytes_of(request.count, request.dtype);
    const bool writes = request.kind != WindowCall::kGet;
    const bool returns = !writes || request.fetches != 0;
    lent->data = std::make_unique_for_overwrite<Block[]>(writes ? bytes / 64 + 1 : 0);
    lent->result = std::make_unique_for_overwrite<Block[]>(returns ? bytes / 64 + 1 : 0);
    void* const data = lent->data.get();
    void* const result = lent->result.get();
    if (writes) receive(data, request.count, request.dtype, from, kDataTag, &requests);
    if (!finish_answer(requests)) return false;
    WindowCall what{static_cast<WindowCall::Kind>(request.kind),
                    group_.rank,
                    request.offset,
                    request.count,
                    request.dtype,
                    data,
                    returns ? result : nullptr,
                    {sizeof(mt_reduction), request.op, 0, request.scale}};
    apply(what);
    if (returns) {
      send(result, request.count, request.dtype, from, kReplyTag, &requests);
    } else {
      send("", 1, kByte, from, kReplyTag, &requests);
    }
    if (!finish_answer(requests)) return false;
    lent.finished();
    return true;
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
      any_failed = true;
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
