// One-sided calls: their checks, and how they end.
#include "mytorch/distributed/window.h"

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/runtime/context.h"
#include "core/types/errors.h"
#include "distributed/group/buffer.h"
#include "distributed/group/collective.h"
#include "distributed/group/outside.h"
#include "distributed/group/state.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/full.h"

namespace mytorch::distributed {

struct Window::State {
  Group group;
  mt_window* window = nullptr;
  std::vector<int64_t> bytes;  // by rank

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (window == nullptr) return;
    const mt_comm& comm = group.state()->engine->comm;
    comm.window_free(comm.self, window, nullptr);
  }
};

namespace {

// Whether this thread asks again and again. Then calls that succeed are not recorded, because they
// would soon be the only ones.
thread_local bool polling = false;

class Polling {
 public:
  Polling() : before_(std::exchange(polling, true)) {}
  ~Polling() { polling = before_; }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

 private:
  const bool before_;
};

}  // namespace

void run_on_window(GroupState& state, const Signature& signature, int owner, const Start& start,
                   const std::vector<Tensor>& operands) {
  check_alive(state, signature.op);
  CallName name{.number = state.sequence, .signature = signature, .owner = owner};
  if (state.session != nullptr && state.session->notes_callers()) name.site = CallSite::here();
  std::optional<uint64_t> record;
  if (!polling) record = recorder().start(state.name, state.rank, name);
  take_host_error();
  const int status = start(call_of(state, nullptr));
  if (status != MT_OK) keep_operands(operands);
  if (!record.has_value() && status != MT_OK) {
    record = recorder().start(state.name, state.rank, name);
  }
  if (record.has_value()) {
    recorder().finish(*record, status == MT_OK ? CallState::kDone : CallState::kFailed);
  }
  if (status != MT_OK) fail_call(state, name, status);
}

Window::Window(const Group& group, int64_t bytes) {
  const char* op = "Window";
  const OutsideOfGraphs outside(op);
  GroupState& state = distributed::checked(group.state(), op);
  need(state.engine->comm.window_create != nullptr, state, "windows");
  if (bytes < 0) {
    fail(ErrorCode::kValue, "[Window] bytes is ", bytes, ": give how many this rank lends, from 0");
  }
  auto made = std::make_shared<State>();
  made->group = group;
  const Tensor mine = mytorch::full({1}, bytes, kInt64, state.device);
  const Tensor all = mytorch::empty({group.size()}, kInt64, state.device);
  group.all_gather(all, mine);
  made->bytes = all.to_vector<int64_t>();
  run_call(
      group.state(), {signature_of("window_create")},
      [&](const mt_comm_call& call) {
        const mt_comm& comm = state.engine->comm;
        return comm.window_create(comm.self, state.group, bytes, &call, &made->window);
      },
      {}, nullptr, false);
  state_ = std::move(made);
}

Window::State& Window::checked(const char* op) const {
  if (state_ == nullptr || state_->window == nullptr) {
    fail(ErrorCode::kValue, "[", op, "] the window is undefined: it was not made, or was closed");
  }
  return *state_;
}

const Group& Window::group() const { return checked("Window::group").group; }

int64_t Window::bytes(int owner) const {
  const State& state = checked("Window::bytes");
  check_rank(owner, *state.group.state(), "owner", "Window::bytes");
  return state.bytes[static_cast<size_t>(owner)];
}

namespace {

void check_place(const Tensor& tensor, GroupState& state, const std::vector<int64_t>& bytes,
                 int owner, int64_t offset, const char* op) {
  check_operand(tensor, state, "tensor", op);
  if (tensor.device() != state.device) {  // of a rank alone, too
    fail(ErrorCode::kDevice, "[", op, "] the tensor is on ", tensor.device().str(),
         ", and the window on ", state.device.str(), ": move the tensor");
  }
  check_rank(owner, state, "owner", op);
  const int64_t all = bytes[static_cast<size_t>(owner)];
  if (offset < 0 || offset > all || tensor.nbytes() > all - offset) {
    fail(ErrorCode::kValue, "[", op, "] ", tensor.nbytes(), " bytes from byte ", offset,
         " are outside of the window of rank ", owner, ", which has ", all, " bytes");
  }
}

mt_reduction checked_reduction(const Tensor& tensor, const GroupState& state, Reduction reduction,
                               int64_t offset, const char* op) {
  Collective{CollectiveKind::kAllReduce, op, -1, reduction}.check(tensor, state);
  if (reduction.op == ReduceOp::kAverage) {
    fail(ErrorCode::kValue, "[", op,
         "] a window has no average, because it does not know of how many: scale a sum");
  }
  if (offset % tensor.element_size() != 0) {
    fail(ErrorCode::kValue, "[", op, "] offset is ", offset, ": it must be a multiple of ",
         tensor.element_size(), ", the bytes of an element");
  }
  return {sizeof(mt_reduction), static_cast<int32_t>(reduction.op), 0, reduction.scale};
}

}  // namespace

void Window::put(const Tensor& tensor, int owner, int64_t offset) const {
  const OutsideOfGraphs outside("Window::put");
  move(tensor, owner, offset, /*puts=*/true);
}

void Window::get(const Tensor& tensor, int owner, int64_t offset) const {
  const OutsideOfGraphs outside("Window::get");
  move(tensor, owner, offset, /*puts=*/false);
}

void Window::move(const Tensor& tensor, int owner, int64_t offset, bool puts) const {
  const char* op = puts ? "window_put" : "window_get";
  State& self = checked(op);
  GroupState& state = *self.group.state();
  check_place(tensor, state, self.bytes, owner, offset, op);
  const Buffer data(tensor, state, "tensor", op);
  const int64_t bytes = tensor.nbytes();
  run_on_window(state, signature_for(op, tensor), owner,
                [&](const mt_comm_call& call) {
                  const mt_comm& comm = state.engine->comm;
                  return puts ? comm.window_put(comm.self, self.window, data.read(), bytes, owner,
                                                offset, &call)
                              : comm.window_get(comm.self, self.window, data.write(), bytes, owner,
                                                offset, &call);
                },
                {data.memory()});
  if (!puts) data.write_back()();
}

void Window::poll(const Tensor& tensor, int owner, int64_t offset) const {
  const Polling quiet;
  get(tensor, owner, offset);
}

namespace {

// `before` may be undefined.
void accumulate_into(GroupState& state, mt_window* window, const Tensor& tensor,
                     const Tensor& before, int owner, int64_t offset, const mt_reduction& reduction,
                     const char* op) {
  const Buffer data(tensor, state, "tensor", op);
  Signature signature = signature_for(op, tensor);
  signature.reduction = reduction.op;
  signature.scale = reduction.scale;
  void* const result = before.defined() ? before.impl()->abi.dl.data : nullptr;
  run_on_window(state, signature, owner,
                [&](const mt_comm_call& call) {
                  const mt_comm& comm = state.engine->comm;
                  return comm.window_accumulate(comm.self, window, data.read(), result,
                                                tensor.numel(), data.memory().impl()->abi.dl.dtype,
                                                &reduction, owner, offset, &call);
                },
                {data.memory(), before});
}

}  // namespace

void Window::accumulate(const Tensor& tensor, int owner, int64_t offset,
                        Reduction reduction) const {
  const char* op = "window_accumulate";
  const OutsideOfGraphs outside("Window::accumulate");
  State& self = checked(op);
  GroupState& state = *self.group.state();
  check_place(tensor, state, self.bytes, owner, offset, op);
  accumulate_into(state, self.window, tensor, Tensor(), owner, offset,
                  checked_reduction(tensor, state, reduction, offset, op), op);
}

Tensor Window::get_accumulate(const Tensor& tensor, int owner, int64_t offset,
                              Reduction reduction) const {
  const char* op = "window_accumulate";
  const OutsideOfGraphs outside("Window::get_accumulate");
  State& self = checked(op);
  GroupState& state = *self.group.state();
  check_place(tensor, state, self.bytes, owner, offset, op);
  const mt_reduction abi = checked_reduction(tensor, state, reduction, offset, op);
  Tensor before = mytorch::empty(tensor.sizes(), tensor.dtype(), tensor.device());
  accumulate_into(state, self.window, tensor, before, owner, offset, abi, op);
  return before;
}

int64_t Window::fetch_add(int64_t amount, int owner, int64_t offset) const {
  const Device device = checked("window_accumulate").group.device();
  return get_accumulate(mytorch::full({1}, amount, kInt64, device), owner, offset).item<int64_t>();
}

namespace {

// One wait for other ranks.
struct Waiting {
  GroupState& state;
  const char* op;
  Clock::time_point begun = Clock::now();
  Clock::time_point asked = begun;  // the store, whether the awaited rank has left

  CallName name(int rank) const {
    return {.number = state.sequence, .signature = signature_of(op), .awaited = rank};
  }
  // Whether the rank has left. Asks once in a second.
  bool has_left(int rank) {
    const auto now = Clock::now();
    if (now - asked <= std::chrono::seconds(1)) return false;
    asked = now;
    return state.session->has_ended(state, rank);
  }
  bool late() const {
    const double timeout = state.session->timeout();
    return timeout > 0 && Seconds(Clock::now() - begun).count() > timeout;
  }
};

}  // namespace

void Window::wait(const char* op, const std::function<std::optional<int>()>& awaited,
                  bool deadline) const {
  const OutsideOfGraphs outside("Window::wait");
  const Polling quiet;
  GroupState& state = *checked(op).group.state();
  Waiting waiting{state, op};
  for (int64_t spins = 0;; ++spins) {
    check_alive(state, op);
    const std::optional<int> rank = awaited();
    if (!rank.has_value()) return;
    check_rank(*rank, state, "the awaited rank", op);
    if (state.session != nullptr) {
      if (waiting.has_left(*rank)) {
        if (awaited() != rank) continue;  // it did what this one waits for, and left
        const std::string why = state.session->ended(state, waiting.name(*rank));
        if (why.empty()) continue;  // it is about to leave
        state.fail(why);
        fail_call(state, waiting.name(*rank), MT_COMM_ABORTED);
      }
      if (deadline && waiting.late()) fail_call(state, waiting.name(*rank), MT_COMM_TIMEOUT);
    }
    if (spins < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(spins < 1000 ? 50 : 500));
    }
  }
}

void Window::close() {
  const OutsideOfGraphs outside("Window::close");
  State& self = checked("Window::close");
  GroupState& state = *self.group.state();
  run_call(
      self.group.state(), {signature_of("window_free")},
      [&](const mt_comm_call& call) {
        const mt_comm& comm = state.engine->comm;
        // Not before: if the call is not made, the last copy of the window frees it.
        return comm.window_free(comm.self, std::exchange(self.window, nullptr), &call);
      },
      {}, nullptr, false);
  state_ = nullptr;
}

}  // namespace mytorch::distributed
