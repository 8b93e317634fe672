// Groups of threads.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "mytorch/mytorch.h"
#include "tests/distributed/bodies.h"

namespace mytorch::distributed {
namespace {

using bodies::expect_error;

class Threads : public ::testing::TestWithParam<std::tuple<int, size_t>> {};
TEST_P(Threads, Agree) {
  const auto& [ranks, body] = GetParam();
  run_local(ranks, bodies::all()[body].run, 60);
}
INSTANTIATE_TEST_SUITE_P(Ranks, Threads,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 8),
                                            ::testing::Range<size_t>(0, bodies::all().size())),
                         [](const auto& info) {
                           return bodies::all()[std::get<1>(info.param)].name +
                                  std::to_string(std::get<0>(info.param));
                         });

// Returns the messages of the ranks.
std::vector<std::string> failures(int ranks, double timeout,
                                  const std::function<void(const Group&)>& body) {
  std::vector<std::string> messages(static_cast<size_t>(ranks));
  run_local(
      ranks,
      [&](const Group& world) {
        try {
          body(world);
        } catch (const Error& error) {
          messages[static_cast<size_t>(world.rank())] = error.what();
        }
      },
      timeout);
  return messages;
}

TEST(Failures, MismatchedCallsAreReportedOnAllRanks) {
  const std::function<void(const Group&)> calls[] = {
      [](const Group& g) { g.all_reduce(mytorch::zeros({g.rank() == 2 ? 5 : 4})); },
      [](const Group& g) { g.all_reduce(mytorch::zeros({4}, g.rank() == 2 ? kInt64 : kFloat32)); },
      [](const Group& g) {
        if (g.rank() == 2) {
          g.broadcast(mytorch::zeros({4}), 0);
        } else {
          g.all_reduce(mytorch::zeros({4}));
        }
      },
      [](const Group& g) { g.broadcast(mytorch::zeros({4}), g.rank() == 2 ? 1 : 0); },
  };
  for (const auto& call : calls) {
    for (const std::string& message : failures(3, 20, call)) {
      EXPECT_NE(message.find("disagree"), std::string::npos) << message;
      EXPECT_NE(message.find("rank 2"), std::string::npos) << message;
    }
  }
}

TEST(Failures, UnevenPartsThatDoNotMatchEndTheGroup) {
  const auto messages = failures(2, 20, [](const Group& g) {
    const std::vector<int64_t> rows = {1, 1}, more = {2, 1};
    const Tensor in = mytorch::zeros({2, 1}), out = mytorch::zeros({g.rank() == 0 ? 2 : 3, 1});
    g.all_to_all_v(out, in, g.rank() == 0 ? rows : more, rows);
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("rank 0 sends 1 elements to rank 1, which expects 2"), std::string::npos)
        << message;
  }
}

// Functions that messages name. The writes keep compilers from making their calls jumps.
volatile int behind_a_call;

[[gnu::noinline]] void sums_gradients(const Group& group, const Tensor& gradient) {
  group.all_reduce(gradient);
  behind_a_call = 1;
}
[[gnu::noinline]] Work begins_to_sum(const Group& group, const Tensor& gradient) {
  Work work = group.all_reduce(gradient, {}, true);
  behind_a_call = 2;
  return work;
}

TEST(Failures, NameTheirCallers) {
  for (const std::string& message : failures(2, 20, [](const Group& g) {
         sums_gradients(g, mytorch::zeros({g.rank() == 1 ? 5 : 4}));
       })) {
    EXPECT_NE(message.find("called from mytorch::distributed::(anonymous namespace)::"
                           "sums_gradients"),
              std::string::npos)
        << message;
  }
  const std::string waited = failures(2, 1, [](const Group& g) {
    if (g.rank() == 0) begins_to_sum(g, mytorch::ones({2})).wait();
  })[0];
  EXPECT_NE(waited.find("begins_to_sum"), std::string::npos) << waited;
}

TEST(Failures, ADelayedRankIsNamedWithinTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const auto messages = failures(3, 1, [](const Group& g) {
    g.barrier();
    g.all_reduce(mytorch::ones({2, 3}));
    if (g.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(4));
    g.all_reduce(mytorch::ones({7}), {ReduceOp::kMax});
  });
  for (const int rank : {0, 2}) {
    const std::string& message = messages[static_cast<size_t>(rank)];
    EXPECT_NE(message.find("call #3, all_reduce float32 (7,) max"), std::string::npos) << message;
    EXPECT_NE(
        message.find("rank 1 has not come: its last call is #2 all_reduce float32 (2, 3) sum, "
                     "finished"),
        std::string::npos)
        << message;
  }
  EXPECT_FALSE(messages[1].empty());  // it comes too late
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Failures, ARankThatLeavesIsNamed) {
  const auto messages = failures(3, 30, [](const Group& g) {
    if (g.rank() != 1) g.all_reduce(mytorch::ones({7}));
  });
  EXPECT_NE(messages[0].find("rank 1 of group world has ended"), std::string::npos) << messages[0];
  EXPECT_NE(messages[2].find("rank 1 of group world has ended"), std::string::npos) << messages[2];
  EXPECT_EQ(messages[1], "");
}

TEST(Failures, AGroupThatFailedRefusesCalls) {
  const auto messages = failures(2, 20, [](const Group& g) {
    g.barrier();
    if (g.rank() == 0) g.abort("the test says so");
    try {
      g.all_reduce(mytorch::ones({2}));
    } catch (const Error&) {
    }
    g.barrier();
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("takes no more calls"), std::string::npos) << message;
  }
  EXPECT_NE(messages[0].find("the test says so"), std::string::npos) << messages[0];
}

TEST(Failures, AnAsynchronousCallThrowsWhenItIsWaitedFor) {
  const auto messages = failures(2, 1, [](const Group& g) {
    if (g.rank() == 1) return;
    Work work = g.all_reduce(mytorch::ones({2}), {}, true);
    work.wait();
  });
  EXPECT_NE(messages[0].find("[all_reduce]"), std::string::npos) << messages[0];
}

TEST(FlightRecorder, KeepsTheLastCalls) {
  run_local(2, [](const Group& g) {
    for (int i = 0; i < 600; ++i) g.all_reduce(mytorch::ones({2}));
    g.broadcast(mytorch::ones({5, 2}, kInt32), 1);
  });
  const std::string text = flight_record();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1000);
  EXPECT_NE(text.find("rank 1 world #601 broadcast int32 (5, 2) root 1: done after"),
            std::string::npos)
      << text.substr(text.size() - 300);
}

TEST(FlightRecorder, NamesCallersWhereADeadlineIsGiven) {
  run_local(
      2, [](const Group& g) { sums_gradients(g, mytorch::ones({2})); }, 20);
  const std::string text = flight_record();
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  EXPECT_NE(last.find(", called from mytorch::distributed::(anonymous namespace)::sums_gradients"),
            std::string::npos)
      << last;
  EXPECT_NE(last.find(" in distributed_test"), std::string::npos) << last;
}

TEST(World, IsThisRankAloneBeforeInit) {
  EXPECT_FALSE(initialized());
  EXPECT_EQ(world().size(), 1);
  const Tensor x = mytorch::ones({3});
  EXPECT_EQ(mytorch::all_reduce(x).to_vector<float>(), x.to_vector<float>());
}

TEST(World, InitRefusesContradictions) {
  expect_error([] { init({.rank = 2, .size = 2}); }, "rank 2 of 2 ranks");
  expect_error([] { init({.rank = 0}); }, "belong together");
  expect_error([] { init({.rank = 0, .size = 2, .engine = "pigeon"}); }, "pigeon");
  expect_error([] { init({.rank = 0, .size = 2, .engine = "local"}); }, "threads of one process");
  expect_error([] { init({.timeout = -1}); }, "number of seconds");
}

TEST(World, InitAndFinalize) {
  const Group group = init();
  EXPECT_EQ(group.size(), 1);
  EXPECT_TRUE(initialized());
  group.barrier();
  expect_error([] { init(); }, "joined a group already");
  finalize();
  EXPECT_FALSE(initialized());
}

TEST(RunLocal, RethrowsTheErrorOfARank) {
  expect_error(
      [] {
        run_local(3, [](const Group& g) {
          if (g.rank() == 1) (void)g.split(-1);
        });
      },
      "colors are not negative");
  expect_error([] { run_local(0, [](const Group&) {}); }, "give 1 to 4096");
}

}  // namespace
}  // namespace mytorch::distributed
