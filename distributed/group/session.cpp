// The thread of a rank that watches its groups, and the search for the rank that hangs.
#include <algorithm>
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
    text = absl::StrCat(state.number, " ", state.under_way ? "under way" : "finished", " ",
                        state.signature.text());
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
  uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(state.progress_mutex);
    under_way = state.under_way;
    since = state.since;
    number = state.number;
  }
  if (under_way && Clock::now() - since > std::chrono::seconds(1) && store_->add("ended", 0) > 0) {
    for (int rank = 0; rank < state.size; ++rank) {
      if (!store_->find(ended_key(state.world_ranks[static_cast<size_t>(rank)])).has_value())
        continue;
      // A rank that ended because the group had failed has said so before.
      std::string why = store_->find(failure_key(state)).value_or("");
      if (why.empty()) {
        why = absl::StrCat("rank ", rank, " of group ", state.name,
                           " has ended without coming to call #", number);
        // The others may notice that the group ends before they notice why.
        try {
          store_->set(failure_key(state), why);
        } catch (const Error&) {  // they find out by themselves
        }
      }
      state.fail(why);
      return;
    }
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
    state.fail(absl::StrCat("the engine reports status ", status, " after call #", number));
  } else if (late.has_value()) {
    state.fail(absl::StrCat("rank ", state.rank, " of group ", state.name, ", call #", late->number,
                            ", ", late->signature.text(), called_from(late->site),
                            ": not finished within ", timeout_,
                            " s: ", diagnose(state, late->number, late->signature)));
  }
}

std::string Session::diagnose(GroupState& state, uint64_t number, const Signature& signature) {
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
      if (rank == state.rank) continue;
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
      const std::string last = store_->find(call_key(state, rank)).value_or("0 finished ");
      const uint64_t reached = std::strtoull(last.c_str(), nullptr, 10);
      const std::string what = last.substr(last.find(' ') + 1);
      const std::string its_call = what.substr(what.rfind("finished ", 0) == 0 ? 9 : 10);
      if (silent) {
        found.push_back(absl::StrCat(who,
                                     " does not answer: it is stopped or cut off, after call #",
                                     reached, its_call.empty() ? "" : " ", its_call));
      } else if (reached < number) {
        found.push_back(absl::StrCat(
            who, " has not come: its last call is #", reached, its_call.empty() ? "" : " ",
            its_call, what.rfind("finished", 0) == 0 ? ", finished" : ", under way"));
      } else if (reached == number && its_call != signature.text()) {
        found.push_back(absl::StrCat(who, " calls ", its_call, " as #", number));
      }
    }
  } catch (const Error& error) {
    return absl::StrCat("the ranks cannot be asked: ", error.what());
  }
  if (found.empty()) {
    return "all ranks have come: raise the deadline by MYTORCH_DISTRIBUTED_TIMEOUT, or check the "
           "network";
  }
  return absl::StrJoin(found, "; ");
}

}  // namespace mytorch::distributed
