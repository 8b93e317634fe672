// What a rank learns from the store about the others.
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "distributed/group/state.h"

namespace mytorch::distributed {
namespace {

// A group of an engine that does nothing, whose rank 1 waits in a call. Returns the reason by which
// its session ends it.
std::string reason_of(const std::shared_ptr<Store>& store, CallName call = {.number = 7}) {
  Engine engine;
  engine.comm.abort = [](void*, mt_group*) {};
  engine.comm.destroy = [](void*, mt_group*) {};
  const auto session = std::make_shared<Session>(store, 1, 3, 30, true);
  const auto state = std::make_shared<GroupState>(&engine, nullptr, 1, 3, Device(), "world",
                                                  std::vector<int>{0, 1, 2}, session);
  {
    const std::lock_guard<std::mutex> lock(state->progress_mutex);
    state->last = std::move(call);
    state->under_way = true;
    state->since = Clock::now() - std::chrono::seconds(10);
  }
  session->watch(state);
  while (!state->failed) std::this_thread::yield();
  session->stop();
  return state->reason();
}

void end(Store& store, int rank) {
  store.set("ended/" + std::to_string(rank), "1");
  store.add("ended", 1);
}

TEST(Session, NamesTheRankThatHasEnded) {
  const auto store = memory_store();
  end(*store, 2);
  EXPECT_EQ(reason_of(store), "rank 2 of group world has ended without coming to call #7");
  EXPECT_EQ(store->find("failure/world"),
            "rank 2 of group world has ended without coming to call #7");
}

// Rank 2 takes no part in a message of ranks 0 and 1.
TEST(Session, NamesTheRankThatHasEndedBeforeAMessage) {
  const auto store = memory_store();
  end(*store, 2);
  end(*store, 0);
  EXPECT_EQ(reason_of(store, {7, signature_of("recv"), {{0, 4}}}),
            "rank 0 of group world has ended without coming to recv, message #4 of ranks 0 and 1");
}

// Rank 0 saw that rank 2 had ended, said so and ended, before this rank looked.
TEST(Session, TakesTheReasonOfARankThatEndedForIt) {
  const auto store = memory_store();
  end(*store, 2);
  store->set("failure/world", "rank 2 of group world has ended without coming to call #7");
  end(*store, 0);
  EXPECT_EQ(reason_of(store), "rank 2 of group world has ended without coming to call #7");
}

}  // namespace
}  // namespace mytorch::distributed
