// The thread of a rank that watches its groups, and the search for the rank that hangs.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <utility>

#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "distributed/group/state.h"

namespace mytorch::distributed {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);

std::string beat_key(int rank) { return absl::StrCat("beat/", rank); }
std::string call_key(const GroupState& state, int rank) {
  return absl::StrCat("call/", state.name, "/", rank);
}
std::string ended_key(int rank) { return absl::StrCat("ended/", rank); }

// Whether a call waits for a rank: for all, but messages are those of two, and one-sided calls
// concern one.
bool makes(const CallName& call, int rank) {
  if (call.other() >= 0) return rank == call.other();
  return call.messages.empty() ||
         std::any_of(call.messages.begin(), call.messages.end(),
                     [&](const CallName::Message& message) { return message.peer == rank; });
}

// What a rank publishes: the number of its last call of all ranks, whether its last call is under
// way, and that call; and a line of the ranks with which it had messages, and how many.
struct Progress {
  uint64_t number = 0;
  bool under_way = false;
  std::string call = "#0";
  std::map<int, uint64_t> messages;

  explicit Progress(const std::string& text) {
    const size_t space = text.find(' '), end = text.find('\n');
    if (space == std::string::npos || end == std::string::npos) return;  // no call yet
    number = std::strtoull(text.c_str(), nullptr, 10);
    const std::string last = text.substr(space + 1, end - space - 1);
    under_way = last.starts_with("under way ");
    call = last.substr(std::strlen(under_way ? "under way " : "finished "));
    std::istringstream in(text.substr(end + 1));
    char colon = 0;
    uint64_t count = 0;
    for (int peer = 0; in >> peer >> colon >> count;) messages[peer] = count;
  }

  // Whether this is the progress of a rank that has come to a call which `asking` makes.
  bool has_come(int asking, int rank, const CallName& call_of_asking) const {
    if (call_of_asking.other() >= 0) return call_of_asking.awaited < 0;
    if (call_of_asking.messages.empty()) return number >= call_of_asking.number;
    const auto found = messages.find(asking);
    uint64_t most = 0;
    for (const CallName::Message& message : call_of_asking.messages) {
      if (message.peer == rank) most = std::max(most, message.number);
    }
    return found != messages.end() && found->second >= most;
  }
  // Whether the rank makes another call of all ranks with the same number.
  bool is_other(int asking, const CallName& call_of_asking) const {
    return call_of_asking.messages.empty() && call_of_asking.other() < 0 &&
           number == call_of_asking.number && call.starts_with("#") &&
           call != call_of_asking.text(asking);
  }
};

}  // namespace

std::string failure_key(const GroupState& state) { return "failure/" + state.name; }

Session::Session(std::shared_ptr<Store> store, int rank, int size, double timeout, bool one_process,
                 bool notes_callers)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      one_process_(one_process),
      notes_callers_(notes_callers),
      thread_([this] { run(); }) {}

Session::~Session() { stop(); }

void Session::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  stopping_changed_.notify_all();
  thread_.join();
  try {
    store_->set(ended_key(rank_), "1");
    store_->add("ended", 1);
    // Who serves the store leaves last.
    const auto deadline = Clock::now() + std::chrono::seconds(5);
    while (rank_ == 0 && !one_process_ && store_->add("ended", 0) < size_ &&
           store_->lost_ranks().empty() && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  } catch (const Error&) {  // the store is gone
  }
}

void Session::watch(const std::shared_ptr<GroupState>& state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  groups_.push_back(state);
}

void Session::publish(GroupState& state) {
  std::string text;
  {
    const std::lock_guard<std::mutex> lock(state.progress_mutex);
    text = absl::StrCat(state.last.number, " ", state.under_way ? "under way" : "finished", " ",
                        state.last.text(state.rank), "\n");
    for (const auto& [peer, count] : state.messages) absl::StrAppend(&text, peer, ":", count, " ");
    if (text == state.published) return;
    state.published = text;
  }
  store_->set(call_key(state, state.rank), text);
}

void Session::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_changed_.wait_for(lock, kTick, [&] { return stopping_; })) {
    std::vector<std::shared_ptr<GroupState>> groups;
    std::erase_if(groups_, [&](const std::weak_ptr<GroupState>& weak) {
      std::shared_ptr<GroupState> state = weak.lock();
      if (state != nullptr) groups.push_back(std::move(state));
      return weak.expired();
    });
    lock.unlock();
    try {
      store_->set(beat_key(rank_), std::to_string(++beats_));
      const std::vector<int> lost = store_->lost_ranks();
      for (const auto& state : groups) {
        publish(*state);
        look_after(*state, lost);
      }
    } catch (const Error& error) {
      for (const auto& state : groups) {
        if (state->size > 1)
          state->fail(absl::StrCat("rank 0, which serves the store, is gone: ", error.what()));
      }
    }
    groups.clear();
    lock.lock();
  }
}

bool Session::has_ended(const GroupState& state, int rank) {
  const int in_world = state.world_ranks[static_cast<size_t>(rank)];
  return store_->find(ended_key(in_world)).has_value();
}

std::string Session::ended(GroupState& state, const CallName& call) {
  if (store_->add("ended", 0) == 0) return "";
  for (int rank = 0; rank < state.size; ++rank) {
    if (!makes(call, rank) || !has_ended(state, rank)) continue;
    // A rank that ended because the group had failed has said so before.
    std::string why = store_->find(failure_key(state)).value_or("");
    if (why.empty()) {
      const bool numbered = call.messages.empty() && call.other() < 0;
      why = absl::StrCat("rank ", rank, " of group ", state.name, " has ended without coming to ",
                         numbered ? absl::StrCat("call #", call.number) : call.text(state.rank));
      // The others may notice that the group ends before they notice why.
      try {
        store_->set(failure_key(state), why);
      } catch (const Error&) {  // they find out by themselves
      }
    }
    return why;
  }
  return "";
}

void Session::look_after(GroupState& state, const std::vector<int>& lost) {
  if (state.failed) return;
  for (int rank = 0; rank < state.size; ++rank) {
    const int in_world = state.world_ranks[static_cast<size_t>(rank)];
    if (std::find(lost.begin(), lost.end(), in_world) == lost.end()) continue;
    state.fail(absl::StrCat("rank ", rank, " of group ", state.name, " has died",
                            rank == in_world ? "" : absl::StrCat(" (rank ", in_world, " of all)")));
    return;
  }
  // A rank that has left will not come to a call that is under way.
  Clock::time_point since;
  bool under_way = false;
  CallName last;
  {
    const std::lock_guard<std::mutex> lock(state.progress_mutex);
    under_way = state.under_way;
    since = state.since;
    last = state.last;
  }
  if (under_way && Clock::now() - since > std::chrono::seconds(1)) {
    if (const std::string why = ended(state, last); !why.empty()) return state.fail(why);
  }
  // Work on a device.
  const DeviceType& type = device_type(state.slot);
  std::vector<Pending> over;  // destroyed without the lock
  std::optional<Pending> late;
  {
    const std::lock_guard<std::mutex> lock(state.progress_mutex);
    if (state.pending.empty()) return;
    std::erase_if(state.pending, [&](Pending& item) {
      if (type.ops->query_event(type.self, item.event) == 0) return false;
      recorder().finish(item.record, CallState::kDone);
      type.ops->destroy_event(type.self, item.event);
      over.push_back(std::move(item));
      return true;
    });
    state.under_way = !state.pending.empty();
    if (!state.pending.empty() && Clock::now() > state.pending.front().deadline) {
      late = state.pending.front();
    }
  }
  const int status = state.engine->comm.async_error != nullptr
                         ? state.engine->comm.async_error(state.engine->comm.self, state.group)
                         : MT_OK;
  if (status != MT_OK && status != MT_COMM_PENDING) {
    state.fail(absl::StrCat("the engine reports status ", status, " after call #", last.number));
  } else if (late.has_value()) {
    state.fail(absl::StrCat("rank ", state.rank, " of group ", state.name, ", call ",
                            late->name.text(state.rank), called_from(late->name.site),
                            ": not finished within ", timeout_,
                            " s: ", diagnose(state, late->name)));
  }
}

std::string Session::diagnose(GroupState& state, const CallName& call) {
  std::vector<std::string> found;
  try {
    publish(state);
    // Ranks that live publish within a tick, and their hearts beat.
    std::vector<std::string> beats;
    for (const int rank : state.world_ranks) {
      beats.push_back(store_->find(beat_key(rank)).value_or(""));
    }
    std::this_thread::sleep_for(6 * kTick);
    const std::vector<int> lost = store_->lost_ranks();
    for (int rank = 0; rank < state.size; ++rank) {
      if (rank == state.rank || !makes(call, rank)) continue;
      const int in_world = state.world_ranks[static_cast<size_t>(rank)];
      const std::string who = absl::StrCat("rank ", rank);
      if (std::find(lost.begin(), lost.end(), in_world) != lost.end()) {
        found.push_back(who + " has died");
        continue;
      }
      if (store_->find(ended_key(in_world)).has_value()) {
        found.push_back(who + " has ended");
        continue;
      }
      const std::string beat = store_->find(beat_key(in_world)).value_or("");
      const bool silent = beat == beats[static_cast<size_t>(rank)];
      const Progress progress(store_->find(call_key(state, rank)).value_or(""));
      if (silent) {
        found.push_back(absl::StrCat(who, " does not answer: it is stopped or cut off, after call ",
                                     progress.call));
      } else if (!progress.has_come(state.rank, rank, call)) {
        found.push_back(absl::StrCat(who, " has not come: its last call is ", progress.call, ", ",
                                     progress.under_way ? "under way" : "finished"));
      } else if (progress.is_other(state.rank, call)) {
        found.push_back(absl::StrCat(who, " calls ", progress.call));
      }
    }
  } catch (const Error& error) {
    return absl::StrCat("the ranks cannot be asked: ", error.what());
  }
  if (found.empty() && call.other() >= 0) {
    return absl::StrCat("rank ", call.other(),
                        " answers: raise the deadline by MYTORCH_DISTRIBUTED_TIMEOUT, or check the "
                        "network");
  }
  if (found.empty()) {
    return "all ranks have come: raise the deadline by MYTORCH_DISTRIBUTED_TIMEOUT, or check the "
           "network";
  }
  return absl::StrJoin(found, "; ");
}

}  // namespace mytorch::distributed
