// What happens around a call of an engine.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/inlined_vector.h"
#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"
#include "core/types/status.h"
#include "dispatcher/profiler/recorder.h"
#include "distributed/group/outside.h"
#include "distributed/group/state.h"
#include "mytorch/profiler.h"

namespace mytorch::distributed {

// ---- work ----

struct Work::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  // Of Group::coalesced: it has not started the calls yet; it never will, because of an exception.
  bool collecting = false, abandoned = false;
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
  if (state_->abandoned) {
    fail(ErrorCode::kValue,
         "[wait] the call was not started: Group::coalesced has ended by an exception");
  }
  if (state_->collecting) {
    fail(ErrorCode::kValue,
         "[wait] the call is one of Group::coalesced, which starts them together at its end: wait "
         "after it");
  }
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
  if (const auto finish = std::exchange(state->finish, nullptr); finish != nullptr) finish();
  state->kept.clear();
}

bool Work::done() const {
  if (state_ == nullptr) return true;
  if (state_->collecting) return false;
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
  if (!name.messages.empty() || name.other() >= 0) return who + name.text(state.rank);
  return absl::StrCat(who, "call #", name.number, ", ", name.signature.text());
}

// Returns where the program makes a call: where it has noted that, or, if the call fails on the
// thread that makes it, where this is.
CallSite caller(const CallSite& noted) { return noted.known() ? noted : CallSite::here(); }

}  // namespace

mt_comm_call call_of(const GroupState& state, void* stream) {
  mt_comm_call call{};
  call.size = sizeof(call);
  call.stream = stream;
  const double seconds = state.session != nullptr ? state.session->timeout() : 0;
  call.timeout_ns = static_cast<int64_t>(seconds * 1e9);
  return call;
}

void fail_call(GroupState& state, const CallName& name, int status) {
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

void check_alive(GroupState& state, const char* op) {
  if (!state.failed) return;
  fail(ErrorCode::kIo, "[", op, "] group ", state.name,
       " has failed and takes no more calls: ", state.reason());
}

void keep_operands(const std::vector<Tensor>& operands) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<Tensor>;
  const std::lock_guard<std::mutex> lock(mutex);
  kept->insert(kept->end(), operands.begin(), operands.end());
}

namespace {

struct Begun {
  CallName name;
  uint64_t record;
};

Begun begin(GroupState& state, const Call& call, void* stream) {
  check_alive(state, call.signature.op);
  if (call.peers.empty()) ++state.sequence;
  CallName name{.number = state.sequence, .signature = call.signature, .site = call.site};
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

// A section of the profiles that are being recorded, named by the call and its group.
class ProfiledCall {
 public:
  ProfiledCall(const GroupState& state, std::span<const Task> tasks) {
    if (!profiler::recording()) [[likely]]
      return;
    const char* op = tasks.size() > 1 ? "coalesced" : tasks[0].call.signature.op;
    range_.emplace(absl::StrCat(op, " of group ", state.name).c_str());
  }
  bool waits() const { return range_.has_value() && profiler::waiting(); }

 private:
  std::optional<profiler::Range> range_;
};

void run_on_host(GroupState& state, const Task& task, const std::vector<Tensor>& operands) {
  const std::lock_guard<std::mutex> lock(state.call_mutex);
  const ProfiledCall profiled(state, {&task, 1});
  const Begun begun = begin(state, task.call, nullptr);
  take_host_error();
  const int status = task.start(call_of(state, nullptr));
  {
    const std::lock_guard<std::mutex> progress(state.progress_mutex);
    state.under_way = false;
  }
  recorder().finish(begun.record, status == MT_OK ? CallState::kDone : CallState::kFailed);
  if (status == MT_OK) return;
  keep_operands(operands);
  fail_call(state, begun.name, status);
}

void device_step(int status, const char* what) {
  if (status != MT_OK)
    fail(ErrorCode::kDevice, "[distributed] cannot ", what, ": ", take_host_error());
}

// Calls the engine for each task: together, if there are several and it can start them so.
int start_all(const GroupState& state, std::span<const Task> tasks, const mt_comm_call& call) {
  const mt_comm& comm = state.engine->comm;
  const bool together = tasks.size() > 1 && (comm.flags & MT_COMM_COALESCES) != 0;
  int status = together ? comm.begin(comm.self, state.group) : MT_OK;
  for (size_t i = 0; i < tasks.size() && status == MT_OK; ++i) status = tasks[i].start(call);
  if (together && status == MT_OK) status = comm.end(comm.self, state.group, &call);
  return status;
}

using AllBegun = absl::InlinedVector<Begun, 1>;

// Leaves a call that ends with the stream's work so far to the session's thread, which watches it.
void watch(GroupState& state, void* stream, uint64_t record, const CallName& name) {
  const DeviceType& type = device_type(state.slot);
  const double seconds = state.session->timeout();
  const auto deadline =
      seconds > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds))
                  : Clock::time_point::max();
  void* event = type.ops->record_event(type.self, state.device.index, stream);
  const std::lock_guard<std::mutex> progress(state.progress_mutex);
  state.pending.push_back({event, deadline, record, name, {}});
}

// Calls that were captured are made by each replay of their graph, as one call of the group: with
// the signature of the last collective, or, if there are only messages, between their ranks.
void watch_replays(const std::shared_ptr<GroupState>& shared, const CallName& name) {
  StreamCapture* capture = find_capture(shared->device);
  if (capture == nullptr) return;
  GroupState& state = *shared;
  if (std::exchange(state.capture, capture->id) != capture->id) {
    state.replayed = std::make_shared<Call>();
    std::weak_ptr<GroupState> group = shared;
    capture->around_replay[shared.get()] =
        [group, call = state.replayed](void* stream) -> std::function<void()> {
      const std::shared_ptr<GroupState> live = group.lock();
      if (live == nullptr) return [] {};
      const std::lock_guard<std::mutex> lock(live->call_mutex);
      const Begun begun = begin(*live, *call, stream);
      return [live, begun, stream] { watch(*live, stream, begun.record, begun.name); };
    };
  }
  Call& call = *state.replayed;
  const bool first = call.signature.op[0] == '\0';
  if (name.messages.empty()) {
    call.signature = name.signature;
    call.peers.clear();
  } else if (first || !call.peers.empty()) {
    call.signature = {};
    for (const CallName::Message& message : name.messages) {
      if (std::find(call.peers.begin(), call.peers.end(), message.peer) == call.peers.end()) {
        call.peers.push_back(message.peer);
      }
    }
  }
  std::strncpy(call.signature.op, "replay", sizeof(call.signature.op));
  call.site = name.site;
}

void watch_all(const std::shared_ptr<GroupState>& shared, void* stream, const AllBegun& begun) {
  const bool captured = num_captures() != 0;
  for (const Begun& call : begun) {
    if (captured && shared->session != nullptr) watch_replays(shared, call.name);
    if (captured || shared->session == nullptr) {
      recorder().finish(call.record, CallState::kDone);
    } else {
      watch(*shared, stream, call.record, call.name);
    }
  }
}

// Returns the stream of the group's asynchronous calls, ordered after the thread's.
void* own_stream(GroupState& state, const DeviceType& type, void* current) {
  const int32_t index = state.device.index;
  if (state.stream == nullptr) state.stream = type.ops->create_stream(type.self, index, 1);
  void* ready = type.ops->record_event(type.self, index, current);
  device_step(type.ops->wait_event(type.self, index, state.stream, ready), "order a collective");
  type.ops->destroy_event(type.self, ready);
  return state.stream;
}

// Queues calls on the thread's stream or, if `work` is given, on the group's own. Work keeps the
// operands until a stream waits for it; memory that is freed afterwards is used again in the order
// of the stream.
void run_on_stream(const std::shared_ptr<GroupState>& shared, std::span<const Task> tasks,
                   Work::State* work) {
  GroupState& state = *shared;
  const std::lock_guard<std::mutex> lock(state.call_mutex);
  const ProfiledCall profiled(state, tasks);
  const DeviceType& type = device_type(state.slot);
  const mt_device device{state.device.type, state.device.index};
  void* stream = context(state.slot, device)->stream;
  if (work != nullptr) stream = own_stream(state, type, stream);
  AllBegun begun;
  for (const Task& task : tasks) begun.push_back(begin(state, task.call, stream));
  take_host_error();
  const int status = start_all(state, tasks, call_of(state, stream));
  if (status != MT_OK) {
    for (const Begun& call : begun) recorder().finish(call.record, CallState::kFailed);
    fail_call(state, begun.back().name, status);
  }
  watch_all(shared, stream, begun);
  if (profiled.waits() && num_captures() == 0) {
    device_step(type.ops->synchronize(type.self, device.index, stream), "wait for a collective");
  }
  if (work == nullptr) return;
  work->group = shared;
  work->record = begun.back().record;
  work->event = type.ops->record_event(type.self, device.index, stream);
}

// Starts asynchronous calls, whose operands `work` has.
void start_async(const std::shared_ptr<GroupState>& state, std::vector<Task> tasks,
                 const std::shared_ptr<Work::State>& work) {
  if (!state->device.is_cpu()) {
    run_on_stream(state, tasks, work.get());
    return;
  }
  // Later calls queue behind asynchronous ones, so that their order is that of the program.
  if (state->worker == nullptr) state->worker = std::make_unique<Worker>();
  // The job must not keep the group: its worker would wait for itself.
  state->worker->add([state = state.get(), tasks = std::move(tasks), work] {
    std::exception_ptr error;
    try {
      for (const Task& task : tasks) run_on_host(*state, task, work->kept);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(work->mutex);
    work->error = error;
    work->done = true;
    work->changed.notify_all();
  });
}

// The calls that Group::coalesced collects on this thread.
struct Coalescing {
  const std::shared_ptr<GroupState> state;
  const std::shared_ptr<Work::State> work;
  std::vector<Task> tasks;
  std::vector<std::function<void()>> finishes;
  Coalescing* outer;  // of another group
};
thread_local Coalescing* coalescing = nullptr;

Coalescing* coalescing_of(const GroupState* state) {
  Coalescing* found = coalescing;
  while (found != nullptr && found->state.get() != state) found = found->outer;
  return found;
}

Work collect(Coalescing& scope, Task task, std::vector<Tensor> kept, std::function<void()> finish,
             bool async) {
  if (!async) {
    fail(ErrorCode::kValue, "[", task.call.signature.op, "] within Group::coalesced of group ",
         scope.state->name,
         ", which starts its calls at its end: pass async, or call it before or after");
  }
  scope.tasks.push_back(std::move(task));
  scope.work->kept.insert(scope.work->kept.end(), kept.begin(), kept.end());
  if (finish != nullptr) scope.finishes.push_back(std::move(finish));
  return Work(scope.work);
}

}  // namespace

Work run_call(const std::shared_ptr<GroupState>& state, Call call, Start start,
              std::vector<Tensor> kept, std::function<void()> finish, bool async) {
  const bool notes = checks() || (state->session != nullptr && state->session->notes_callers());
  if (notes) call.site = CallSite::here();
  Task task{std::move(call), std::move(start)};
  if (coalescing != nullptr) [[unlikely]] {
    Coalescing* scope = coalescing_of(state.get());
    if (scope != nullptr) {
      return collect(*scope, std::move(task), std::move(kept), std::move(finish), async);
    }
  }
  if (!async && !(state->device.is_cpu() && state->worker != nullptr)) {
    if (state->device.is_cpu()) {
      run_on_host(*state, task, kept);
    } else {
      run_on_stream(state, {&task, 1}, nullptr);
    }
    if (finish != nullptr) finish();
    return Work();
  }
  auto work = std::make_shared<Work::State>();
  work->kept = std::move(kept);
  work->finish = std::move(finish);
  std::vector<Task> tasks;
  tasks.push_back(std::move(task));
  start_async(state, std::move(tasks), work);
  Work result(std::move(work));
  if (!async) result.wait();
  return result;
}

Work Group::coalesced(const std::function<void()>& body) const {
  const OutsideOfGraphs outside("Group::coalesced");
  checked(state_, "coalesced");
  if (coalescing_of(state_.get()) != nullptr) {
    fail(ErrorCode::kValue, "[coalesced] group ", state_->name,
         " collects calls already: make these calls there, without another coalesced");
  }
  Coalescing scope{state_, std::make_shared<Work::State>(), {}, {}, coalescing};
  scope.work->collecting = true;
  coalescing = &scope;
  const absl::Cleanup leave = [&] { coalescing = scope.outer; };
  const auto abandon = [&] {
    scope.work->kept.clear();
    scope.work->abandoned = true;
  };
  try {
    body();
  } catch (...) {
    abandon();
    throw;
  }
  coalescing = scope.outer;
  scope.work->collecting = false;
  if (scope.tasks.empty()) return Work();
  scope.work->finish = [finishes = std::move(scope.finishes)] {
    for (const auto& finish : finishes) finish();
  };
  try {
    start_async(state_, std::move(scope.tasks), scope.work);
  } catch (...) {  // the Works that the body has kept must not wait for ever
    abandon();
    throw;
  }
  return Work(scope.work);
}

}  // namespace mytorch::distributed
