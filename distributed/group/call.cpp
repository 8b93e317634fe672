// What happens around a call of an engine.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"
#include "core/types/status.h"
#include "distributed/group/outside.h"
#include "distributed/group/state.h"

namespace mytorch::distributed {

// ---- work ----

struct Work::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  std::vector<Tensor> kept;
  std::function<void()> finish;
  // On a device: what the waiting stream waits for.
  std::shared_ptr<GroupState> group;
  void* event = nullptr;
  uint64_t record = 0;

  ~State() {
    if (event == nullptr) return;
    const DeviceType& type = device_type(group->slot);
    if (!kept.empty() && num_captures() == 0) keep_until_done(type);
    type.ops->destroy_event(type.self, event);
  }
  // Nobody has waited: no stream is ordered after the call, so the operands must outlive it.
  void keep_until_done(const DeviceType& type) {
    if (group->session != nullptr) {
      const std::lock_guard<std::mutex> lock(group->progress_mutex);
      for (Pending& item : group->pending) {
        if (item.record == record) item.kept = std::move(kept);
      }
      return;
    }
    while (type.ops->query_event(type.self, event) == 0) std::this_thread::yield();
  }
};

void Work::wait() {
  if (state_ == nullptr) return;
  const OutsideOfGraphs outside("Work::wait");
  const std::shared_ptr<State> state = std::exchange(state_, nullptr);
  if (state->event != nullptr) {
    const GroupState& group = *state->group;
    const DeviceType& type = device_type(group.slot);
    const mt_device device{group.device.type, group.device.index};
    if (type.ops->wait_event(type.self, device.index, context(group.slot, device)->stream,
                             state->event) != MT_OK) {
      fail(ErrorCode::kDevice, "[distributed] cannot wait for a collective: ", take_host_error());
    }
  } else {
    std::unique_lock<std::mutex> lock(state->mutex);
    state->changed.wait(lock, [&] { return state->done; });
    if (state->error != nullptr) std::rethrow_exception(state->error);
  }
  if (state->finish != nullptr) state->finish();
  state->kept.clear();
}

bool Work::done() const {
  if (state_ == nullptr) return true;
  if (state_->event != nullptr) {
    const DeviceType& type = device_type(state_->group->slot);
    return type.ops->query_event(type.self, state_->event) == 1;
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->done;
}

Worker::Worker() : thread_([this] { run(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  // The last reference to a group may be in a job.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Worker::add(std::function<void()> job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Worker::run() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

// ---- groups ----

GroupState::GroupState(const Engine* engine_, mt_group* group_, int rank_, int size_,
                       Device device_, std::string name_, std::vector<int> world_ranks_,
                       std::shared_ptr<Session> session_)
    : engine(engine_),
      group(group_),
      rank(rank_),
      size(size_),
      device(device_),
      slot(device_slot(device_.type)),
      name(std::move(name_)),
      world_ranks(std::move(world_ranks_)),
      session(std::move(session_)) {}

GroupState::~GroupState() {
  worker.reset();
  const DeviceType& type = device_type(slot);
  for (const Pending& item : pending) type.ops->destroy_event(type.self, item.event);
  engine->comm.destroy(engine->comm.self, group);
}

void GroupState::fail(const std::string& reason) {
  {
    const std::lock_guard<std::mutex> lock(failure_mutex);
    if (failed) return;
    failure = reason;
    failed = true;
  }
  engine->comm.abort(engine->comm.self, group);
}

std::string GroupState::reason() {
  const std::lock_guard<std::mutex> lock(failure_mutex);
  return failure;
}

GroupState& checked(const std::shared_ptr<GroupState>& state, const char* op) {
  if (state == nullptr) {
    fail(ErrorCode::kValue, "[", op,
         "] the group is undefined: this rank is in none, or init() was not called");
  }
  return *state;
}

namespace {

bool checks() {
  static const bool on = [] {
    const char* value = std::getenv("MYTORCH_DISTRIBUTED_CHECK");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  return on;
}

std::string place(const GroupState& state, const CallName& name) {
  const std::string who = absl::StrCat("rank ", state.rank, " of group ", state.name, ", ");
  if (!name.messages.empty()) return who + name.text(state.rank);
  return absl::StrCat(who, "call #", name.number, ", ", name.signature.text());
}

mt_comm_call call_of(const GroupState& state, void* stream) {
  mt_comm_call call{};
  call.size = sizeof(call);
  call.stream = stream;
  const double seconds = state.session != nullptr ? state.session->timeout() : 0;
  call.timeout_ns = static_cast<int64_t>(seconds * 1e9);
  return call;
}

// Returns where the program makes a call: where it has noted that, or, if the call fails on the
// thread that makes it, where this is.
CallSite caller(const CallSite& noted) { return noted.known() ? noted : CallSite::here(); }

// Throws the Error of a call that failed, and ends the group.
[[noreturn]] void fail_call(GroupState& state, const CallName& name, int status) {
  const std::string op = name.signature.op;
  const std::string message = take_host_error();
  const std::string what = absl::StrCat(place(state, name), called_from(caller(name.site)));
  if (status == MT_COMM_TIMEOUT) {
    std::string text =
        absl::StrCat("[", op, "] ", what, ": not finished within ", state.session->timeout(),
                     " s: ", state.session->diagnose(state, name));
    try {
      state.session->store()->set(failure_key(state), text);
    } catch (const Error&) {  // the others find out by themselves
    }
    state.fail(text);
    throw Error(ErrorCode::kIo, text);
  }
  if (status == MT_COMM_ABORTED || status == MT_COMM_RANK_FAILED) {
    std::string why = state.reason();
    // Another rank has ended the group; it says why.
    for (int tries = 0; why.empty() && state.session != nullptr && tries < 40; ++tries) {
      try {
        why = state.session->store()->find(failure_key(state)).value_or("");
      } catch (const Error& error) {
        why = error.what();
      }
      if (why.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (why.empty()) why = state.reason();
    }
    if (why.empty()) why = message.empty() ? "another rank has ended the group" : message;
    state.fail(why);
    fail(ErrorCode::kIo, "[", op, "] ", what, ": ended, because ", why);
  }
  const std::string text = absl::StrCat(
      message.empty() ? absl::StrCat("the engine failed with status ", status) : message, " (",
      what, ")");
  state.fail(text);
  fail_status(status, op.c_str(), text);
}

struct Begun {
  CallName name;
  uint64_t record;
};

Begun begin(GroupState& state, const Call& call, void* stream) {
  if (state.failed) {
    fail(ErrorCode::kIo, "[", call.signature.op, "] group ", state.name,
         " has failed and takes no more calls: ", state.reason());
  }
  if (call.peers.empty()) ++state.sequence;
  CallName name{state.sequence, call.signature, {}, call.site};
  {
    const std::lock_guard<std::mutex> lock(state.progress_mutex);
    for (const int peer : call.peers) name.messages.push_back({peer, ++state.messages[peer]});
    state.last = name;
    state.under_way = true;
    state.since = Clock::now();
  }
  const uint64_t record = recorder().start(state.name, state.rank, name);
  if (checks() && state.size > 1) {
    try {
      const int status = compare(state, name, call, call_of(state, stream));
      if (status != MT_OK) fail_call(state, name, status);
    } catch (const Error&) {
      recorder().finish(record, CallState::kFailed);
      throw;
    }
  }
  return {std::move(name), record};
}

void run_on_host(GroupState& state, const Call& call, const Start& start) {
  const std::lock_guard<std::mutex> lock(state.call_mutex);
  const Begun begun = begin(state, call, nullptr);
  take_host_error();
  const int status = start(call_of(state, nullptr));
  {
    const std::lock_guard<std::mutex> progress(state.progress_mutex);
    state.under_way = false;
  }
  recorder().finish(begun.record, status == MT_OK ? CallState::kDone : CallState::kFailed);
  if (status != MT_OK) fail_call(state, begun.name, status);
}

void device_step(int status, const char* what) {
  if (status != MT_OK)
    fail(ErrorCode::kDevice, "[distributed] cannot ", what, ": ", take_host_error());
}

// Queues the call on the thread's stream or, if `async`, on the group's own. Work keeps the
// operands until a stream waits for it; memory that is freed afterwards is used again in the order
// of the stream.
Work run_on_stream(const std::shared_ptr<GroupState>& shared, const Call& call, const Start& start,
                   std::vector<Tensor> kept, std::function<void()> finish, bool async) {
  GroupState& state = *shared;
  const std::lock_guard<std::mutex> lock(state.call_mutex);
  const DeviceType& type = device_type(state.slot);
  const mt_device device{state.device.type, state.device.index};
  void* current = context(state.slot, device)->stream;
  void* stream = current;
  if (async) {
    if (state.stream == nullptr) {
      state.stream = type.ops->create_stream(type.self, device.index, 1);
    }
    stream = state.stream;
    void* ready = type.ops->record_event(type.self, device.index, current);
    device_step(type.ops->wait_event(type.self, device.index, stream, ready), "order a collective");
    type.ops->destroy_event(type.self, ready);
  }
  const Begun begun = begin(state, call, stream);
  take_host_error();
  const int status = start(call_of(state, stream));
  if (status != MT_OK) {
    recorder().finish(begun.record, CallState::kFailed);
    fail_call(state, begun.name, status);
  }
  if (state.session != nullptr && num_captures() == 0) {
    const double seconds = state.session->timeout();
    const auto deadline =
        seconds > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds))
                    : Clock::time_point::max();
    void* event = type.ops->record_event(type.self, device.index, stream);
    const std::lock_guard<std::mutex> progress(state.progress_mutex);
    state.pending.push_back({event, deadline, begun.record, begun.name, {}});
  } else {
    recorder().finish(begun.record, CallState::kDone);
  }
  if (!async) {
    if (finish != nullptr) finish();
    return Work();
  }
  auto work = std::make_shared<Work::State>();
  work->group = shared;
  work->record = begun.record;
  work->kept = std::move(kept);
  work->finish = std::move(finish);
  work->event = type.ops->record_event(type.self, device.index, stream);
  return Work(std::move(work));
}

}  // namespace

Work run_call(const std::shared_ptr<GroupState>& state, Call call, Start start,
              std::vector<Tensor> kept, std::function<void()> finish, bool async) {
  const bool notes = checks() || (state->session != nullptr && state->session->notes_callers());
  if (notes) call.site = CallSite::here();
  if (!state->device.is_cpu()) {
    return run_on_stream(state, call, start, std::move(kept), std::move(finish), async);
  }
  if (!async && state->worker == nullptr) {
    run_on_host(*state, call, start);
    if (finish != nullptr) finish();
    return Work();
  }
  // Later calls queue behind asynchronous ones, so that their order is that of the program.
  if (state->worker == nullptr) state->worker = std::make_unique<Worker>();
  auto work = std::make_shared<Work::State>();
  work->kept = std::move(kept);
  work->finish = std::move(finish);
  // The job must not keep the group: its worker would wait for itself.
  state->worker->add([state = state.get(), call, start = std::move(start), work] {
    std::exception_ptr error;
    try {
      run_on_host(*state, call, start);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(work->mutex);
    work->error = error;
    work->done = true;
    work->changed.notify_all();
  });
  Work result(std::move(work));
  if (!async) result.wait();
  return result;
}

}  // namespace mytorch::distributed
