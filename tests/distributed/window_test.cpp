// How one-sided calls fail. What they compute, window_bodies.cpp checks.
#include "mytorch/distributed/window.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "distributed/group/state.h"
#include "mytorch/mytorch.h"
#include "tests/distributed/bodies.h"

namespace mytorch::distributed {
namespace {

using bodies::expect_error;

// Returns the messages of ranks that wait for rank 1 at a window, which does `other`.
std::vector<std::string> waits(double timeout, const std::function<void()>& other,
                               std::atomic<int>* failed, bool deadline = true) {
  std::vector<std::string> messages(3);
  run_local(
      3,
      [&](const Group& world) {
        const Window window(world, 8);
        if (world.rank() == 1) return other();
        try {
          const auto awaited = [&]() -> std::optional<int> {
            if (window.fetch_add(0, 1, 0) != 0) return std::nullopt;
            return 1;
          };
          window.wait("turn", awaited, deadline);
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
  for (const bool deadline : {true, false}) {
    std::atomic<int> failed = 0;
    const auto messages = waits(
        60, [] {}, &failed, deadline);
    for (const int rank : {0, 2}) {
      const std::string& message = messages[static_cast<size_t>(rank)];
      EXPECT_NE(message.find("rank 1 of group world has ended without coming to turn, waiting for "
                             "rank 1"),
                std::string::npos)
          << message;
    }
  }
}

TEST(Windows, MayEndAfterDoingWhatOthersWaitFor) {
  std::atomic<bool> ended = false;
  run_local(2, [&](const Group& world) {
    const Window window(world, 8);
    if (world.rank() == 1) {
      ended = true;
      return;
    }
    int asked = 0;
    window.wait("turn", [&]() -> std::optional<int> {
      if (++asked > 1) return std::nullopt;
      // The answer is old when the wait looks for the rank, which it does once in a second.
      while (!ended) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      return 1;
    });
    EXPECT_GE(asked, 2);
  });
}

TEST(Windows, WaitBeyondTheDeadlineIfAsked) {
  std::atomic<bool> waiting = false, over = false;
  run_local(
      2,
      [&](const Group& world) {
        const Window window(world, 8);
        if (world.rank() == 1) {
          while (!waiting) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          window.fetch_add(1, 1, 0);
          while (!over) std::this_thread::yield();  // who ends may come too late
          return;
        }
        const absl::Cleanup ends = [&] { waiting = over = true; };
        const auto awaited = [&]() -> std::optional<int> {
          waiting = true;
          if (window.fetch_add(0, 1, 0) != 0) return std::nullopt;
          return 1;
        };
        window.wait("turn", awaited, /*deadline=*/false);
      },
      1);
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

// Polls would soon be all that the recorder has.
TEST(Windows, AreNotRecordedWhenTheyArePolled) {
  run_local(2, [](const Group& world) {
    Window window(world, 64);
    int polls = 0;
    window.wait("turn", [&]() -> std::optional<int> {
      window.get(mytorch::zeros({11}), 1, 0);
      if (++polls == 3) return std::nullopt;
      return 1;
    });
    window.poll(mytorch::zeros({12}), 1, 0);
    window.get(mytorch::zeros({13}), 1, 0);
    window.close();
  });
  const std::string text = flight_record();
  EXPECT_EQ(text.find("window_get float32 (11,)"), std::string::npos);
  EXPECT_EQ(text.find("window_get float32 (12,)"), std::string::npos);
  EXPECT_NE(text.find("window_get float32 (13,)"), std::string::npos);
}

std::shared_ptr<GroupState> alone(const Engine& engine) {
  return std::make_shared<GroupState>(&engine, nullptr, 0, 1, Device(), "world",
                                      std::vector<int>{0}, nullptr);
}

// An engine whose windows are made and freed, and refuse to be read.
int freed = 0;
Engine counting_engine() {
  Engine engine;
  engine.name = "counting";
  engine.comm.abort = [](void*, mt_group*) {};
  engine.comm.destroy = [](void*, mt_group*) {};
  engine.comm.all_gather = [](void*, mt_group*, const void* send, void* recv, int64_t count,
                              mt_dtype, const mt_comm_call*) -> int {
    std::memcpy(recv, send, static_cast<size_t>(count) * sizeof(int64_t));
    return MT_OK;
  };
  engine.comm.window_create = [](void*, mt_group*, int64_t, const mt_comm_call*,
                                 mt_window** window) -> int {
    *window = reinterpret_cast<mt_window*>(&freed);
    return MT_OK;
  };
  engine.comm.window_free = [](void*, mt_window*, const mt_comm_call*) -> int {
    ++freed;
    return MT_OK;
  };
  engine.comm.window_get = [](void*, mt_window*, void*, int64_t, int32_t, int64_t,
                              const mt_comm_call*) -> int { return MT_ERROR_IO; };
  return engine;
}

TEST(Windows, AreFreedAlsoIfTheirGroupFailsBeforeTheyClose) {
  const Engine engine = counting_engine();
  freed = 0;
  {
    const std::shared_ptr<GroupState> state = alone(engine);
    Window window(Group(state), 8);
    state->fail("the test ends it");
    expect_error([&] { window.close(); }, "has failed and takes no more calls: the test ends it");
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 1);
  {
    Window window(Group(alone(engine)), 8);
    window.close();
    EXPECT_EQ(freed, 2);
  }
  EXPECT_EQ(freed, 2);
}

TEST(Windows, AreRecordedWhenAPollFails) {
  const Engine engine = counting_engine();
  const Window window(Group(alone(engine)), 64);
  expect_error([&] { window.poll(mytorch::zeros({14}), 0, 0); }, "the engine failed with status");
  const std::string text = flight_record();
  EXPECT_NE(text.find("world window_get float32 (14,) on the window of rank 0: failed"),
            std::string::npos)
      << text;
}

// An engine that was built against version 1.0 leaves the functions null, because its struct ends
// before them.
TEST(Windows, NeedAnEngineThatHasThem) {
  Engine engine;
  engine.name = "old";
  engine.comm.abort = [](void*, mt_group*) {};
  engine.comm.destroy = [](void*, mt_group*) {};
  const Group group(alone(engine));
  expect_error([&] { Window(group, 8); }, "the engine old has no windows: choose another one");
}

}  // namespace
}  // namespace mytorch::distributed
