// How one-sided calls fail. What they compute, window_bodies.cpp checks.
#include "mytorch/distributed/window.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "distributed/group/state.h"
#include "mytorch/mytorch.h"
#include "tests/distributed/bodies.h"

namespace mytorch::distributed {
namespace {

using bodies::expect_error;

// Returns the messages of ranks that wait for rank 1 at a window, which does `other`.
std::vector<std::string> waits(double timeout, const std::function<void()>& other,
                               std::atomic<int>* failed) {
  std::vector<std::string> messages(3);
  run_local(
      3,
      [&](const Group& world) {
        const Window window(world, 8);
        if (world.rank() == 1) return other();
        try {
          window.wait("turn", [&]() -> std::optional<int> {
            if (window.fetch_add(0, 1, 0) != 0) return std::nullopt;
            return 1;
          });
        } catch (const Error& error) {
          messages[static_cast<size_t>(world.rank())] = error.what();
          ++*failed;
          expect_error([&] { window.fetch_add(1, 0, 0); }, "has failed and takes no more calls");
          expect_error([&] { world.barrier(); }, "has failed and takes no more calls");
        }
      },
      timeout);
  return messages;
}

TEST(Windows, NameARankThatDoesNotComeWithinTheDeadline) {
  std::atomic<int> failed = 0;
  const auto messages = waits(
      1,
      [&] {
        while (failed < 2) std::this_thread::yield();
      },
      &failed);
  for (const int rank : {0, 2}) {
    EXPECT_NE(messages[static_cast<size_t>(rank)].find("turn, waiting for rank 1"),
              std::string::npos)
        << messages[static_cast<size_t>(rank)];
  }
  // The first to find out ends the group, and the other one says why.
  EXPECT_NE((messages[0] + messages[2])
                .find("not finished within 1 s: rank 1 has not come: its last call is #2 "
                      "window_create, finished"),
            std::string::npos)
      << messages[0] << messages[2];
}

TEST(Windows, NameARankThatEnds) {
  std::atomic<int> failed = 0;
  const auto messages = waits(
      60, [] {}, &failed);
  for (const int rank : {0, 2}) {
    const std::string& message = messages[static_cast<size_t>(rank)];
    EXPECT_NE(message.find("rank 1 of group world has ended without coming to turn, waiting for "
                           "rank 1"),
              std::string::npos)
        << message;
  }
}

TEST(Windows, AreRecorded) {
  run_local(2, [](const Group& world) {
    Window window(world, 32);
    window.put(mytorch::ones({3}), 1, 4);
    window.close();
  });
  const std::string text = flight_record();
  EXPECT_NE(text.find("world window_put float32 (3,) on the window of rank 1: done"),
            std::string::npos);
}

// An engine that was built against version 1.0 leaves the functions null, because its struct ends
// before them.
TEST(Windows, NeedAnEngineThatHasThem) {
  Engine engine;
  engine.name = "old";
  engine.comm.abort = [](void*, mt_group*) {};
  engine.comm.destroy = [](void*, mt_group*) {};
  const Group group(std::make_shared<GroupState>(&engine, nullptr, 0, 1, Device(), "world",
                                                 std::vector<int>{0}, nullptr));
  expect_error([&] { Window(group, 8); }, "the engine old has no windows: choose another one");
}

}  // namespace
}  // namespace mytorch::distributed
