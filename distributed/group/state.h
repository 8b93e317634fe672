// A group, the calls that it makes, and what its ranks know of each other.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "distributed/loader/engine.h"
#include "distributed/recorder/recorder.h"
#include "mytorch/distributed.h"

namespace mytorch::distributed {

using Clock = std::chrono::steady_clock;

struct GroupState;

// A rank of the program: its store, its deadline, and a thread that tells the other ranks what this
// one does, and learns who is lost.
class Session {
 public:
  // `notes_callers` is whether each call notes where the program makes it.
  Session(std::shared_ptr<Store> store, int rank, int size, double timeout, bool one_process,
          bool notes_callers = false);
  ~Session();

  const std::shared_ptr<Store>& store() const { return store_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  double timeout() const { return timeout_; }  // seconds; 0: none
  bool one_process() const { return one_process_; }
  bool notes_callers() const { return notes_callers_; }

  void watch(const std::shared_ptr<GroupState>& state);
  // Publishes what the rank does now in a group.
  void publish(GroupState& state);
  // Says for each rank of the group that has not come to a call where it is instead.
  std::string diagnose(GroupState& state, const CallName& call);
  bool has_ended(const GroupState& state, int rank);
  // Returns why a call will never finish, because a rank that it waits for has left; or "".
  std::string ended(GroupState& state, const CallName& call);
  // Leaves: ends the thread, and waits for the others to leave if this process serves the store.
  // Must come before the last reference goes, because the thread may hold it for a moment.
  void stop();

 private:
  void run();
  void look_after(GroupState& state, const std::vector<int>& lost);

  std::shared_ptr<Store> store_;
  int rank_, size_;
  double timeout_;
  bool one_process_, notes_callers_;
  std::mutex mutex_;
  std::condition_variable stopping_changed_;
  bool stopping_ = false;
  uint64_t beats_ = 0;
  std::vector<std::weak_ptr<GroupState>> groups_;
  std::thread thread_;
};

// Runs the asynchronous calls of a group on the CPU, in order.
class Worker {
 public:
  Worker();
  ~Worker();
  void add(std::function<void()> job);

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

// Work of a device's stream that the host has not seen finish.
struct Pending {
  void* event;
  Clock::time_point deadline;
  uint64_t record;
  CallName name;
  std::vector<Tensor> kept;  // operands of a Work that nobody waited for
};

// What ranks that make a call must agree on.
struct Call {
  Signature signature = {};
  std::vector<int> peers = {};  // of messages, which only these ranks and this one know of
  // Numbers of elements of parts, one for each rank: equal on all; or, what this rank sends is what
  // the others expect.
  std::vector<int64_t> parts = {}, sent = {}, expected = {};
  CallSite site = {};  // set by run_call, if the program notes it
};

struct GroupState {
  GroupState(const Engine* engine_, mt_group* group_, int rank_, int size_, Device device_,
             std::string name_, std::vector<int> world_ranks_, std::shared_ptr<Session> session_);
  ~GroupState();

  const Engine* engine;
  mt_group* group;
  int rank, size;
  Device device;
  int slot;  // of the device type
  std::string name;
  std::vector<int> world_ranks;      // by rank of this group
  std::shared_ptr<Session> session;  // null for a rank alone

  std::mutex call_mutex;              // one call at a time
  std::atomic<uint64_t> sequence{0};  // without messages
  std::atomic<uint64_t> splits{0};
  std::unique_ptr<Worker> worker;
  void* stream = nullptr;  // of asynchronous calls on a device
  // What replays of the graph do that is being captured; the number of the capture.
  uint64_t capture = 0;
  std::shared_ptr<Call> replayed;

  // Of the last call; for the session's thread.
  std::mutex progress_mutex;
  CallName last;
  std::map<int, uint64_t> messages;  // how many there were, by the other rank
  bool under_way = false;
  Clock::time_point since;
  std::string published;
  std::vector<Pending> pending;

  std::atomic<bool> failed{false};
  std::mutex failure_mutex;
  std::string failure;

  // Ends the group, with the first reason given.
  void fail(const std::string& reason);
  std::string reason();
};

// The store's key under which a rank that ends a group says why, before it does.
std::string failure_key(const GroupState& state);

// Exchanges what ranks must agree on, before a call, and throws Error(kValue) on all of them if
// they do not. Returns the engine's status.
int compare(GroupState& state, const CallName& name, const Call& call,
            const mt_comm_call& comm_call);

// Runs a call of the group: numbers and records it, compares what ranks must agree on if
// MYTORCH_DISTRIBUTED_CHECK=1, and turns its status into an Error. `start` calls the engine; `kept`
// are the operands; `finish` runs on the caller's thread when results may be read.
using Start = std::function<int(const mt_comm_call& call)>;
struct Task {
  Call call;
  Start start;
};
Work run_call(const std::shared_ptr<GroupState>& state, Call call, Start start,
              std::vector<Tensor> kept, std::function<void()> finish, bool async);

// Keeps the operands of a call on the host that failed, for ever. After a deadline or an abort, the
// engine may still read and write them: nothing tells MPI to stop. The group has failed, so these
// are few.
void keep_operands(const std::vector<Tensor>& operands);

// Runs a one-sided call on the window of rank `owner`, and turns its status into an Error. Unlike
// the calls above, it is made by any thread, beside others, and has no number. `operands` is the
// memory that the engine uses.
void run_on_window(GroupState& state, const Signature& signature, int owner, const Start& start,
                   const std::vector<Tensor>& operands);

// The circumstances of a call that is made now.
mt_comm_call call_of(const GroupState& state, void* stream);
// Throws the Error of a call that failed with a status of an engine, and ends the group.
[[noreturn]] void fail_call(GroupState& state, const CallName& name, int status);
// Throws Error(kIo) if the group has failed.
void check_alive(GroupState& state, const char* op);

// Joins the ranks of a session. The engine's id goes through the store.
std::shared_ptr<GroupState> make_group(const Engine& engine, int rank, int size, Device device,
                                       const std::string& name, double timeout, Store* store,
                                       std::shared_ptr<Session> session);

// Throws Error(kValue) for a group without state.
GroupState& checked(const std::shared_ptr<GroupState>& state, const char* op);

}  // namespace mytorch::distributed
