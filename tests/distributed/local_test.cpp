// Groups of threads.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/profiler.h"
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
std::atomic<int> behind_a_call;

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
  // Without a deadline, where the call fails is where it is made.
  expect_error(
      [] {
        run_local(
            2, [](const Group& g) { sums_gradients(g, mytorch::zeros({g.rank() == 1 ? 5 : 4})); });
      },
      "sums_gradients");
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

// Messages are counted by the two ranks alone.
TEST(Failures, MessagesDoNotMakeOthersLate) {
  std::atomic<int> failed = 0;
  const auto messages = failures(3, 1, [&](const Group& g) {
    g.barrier();
    const Tensor x = mytorch::ones({2});
    for (int i = 0; i < 5 && g.rank() < 2; ++i) {
      if (g.rank() == 0) g.send(x, 1);
      if (g.rank() == 1) g.recv(x, 0);
    }
    if (g.rank() == 2) g.exchange({});  // with nobody
    bodies::expect(g.sequence() == 1, "messages are counted as calls of all ranks");
    while (g.rank() == 2 && failed < 2) std::this_thread::yield();
    try {
      g.all_reduce(x);
    } catch (const Error&) {
      ++failed;
      throw;
    }
  });
  for (const int rank : {0, 1}) {
    const std::string& message = messages[static_cast<size_t>(rank)];
    EXPECT_NE(message.find("call #2, all_reduce float32 (2,) sum (called from "), std::string::npos)
        << message;
    EXPECT_NE(message.find("not finished within 1 s: rank 2 has not come: its last call is #1 "
                           "barrier, finished"),
              std::string::npos)
        << message;
    EXPECT_EQ(message.find(rank == 0 ? "rank 1 has" : "rank 0 has"), std::string::npos) << message;
  }
  const std::string text = flight_record();
  EXPECT_NE(text.find("rank 1 world recv float32 (2,), message #5 of ranks 0 and 1: done"),
            std::string::npos)
      << text.substr(text.size() - std::min<size_t>(text.size(), 2000));
}

TEST(Failures, AMessageNamesTheOtherRankAlone) {
  std::atomic<bool> failed = false;
  const auto messages = failures(3, 1, [&](const Group& g) {
    const Tensor x = mytorch::ones({2});
    if (g.rank() == 0) g.send(x, 2);
    if (g.rank() == 2) g.recv(x, 0);
    while (g.rank() != 0 && !failed) std::this_thread::yield();
    if (g.rank() != 0) return;
    try {
      g.recv(x, 1);
    } catch (const Error&) {
      failed = true;
      throw;
    }
  });
  EXPECT_NE(messages[0].find("rank 0 of group world, recv float32 (2,), message #1 of ranks 0 and "
                             "1 (called from "),
            std::string::npos)
      << messages[0];
  EXPECT_NE(messages[0].find("not finished within 1 s: rank 1 has not come: its last call is #0, "
                             "finished"),
            std::string::npos)
      << messages[0];
  EXPECT_EQ(messages[0].find("rank 2"), std::string::npos) << messages[0];
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

// ---- profiles ----

TEST(Profiled, CallsAreSectionsNamedByGroup) {
  mytorch::profiler::Profile profile;
  run_local(2, [](const Group& g) {
    const Group half = g.split(g.rank());
    const Tensor x = mytorch::ones({4});
    g.all_reduce(x);
    g.all_reduce(x, {}, true).wait();
    (void)mytorch::all_reduce(x, "sum", half);
    (void)mytorch::broadcast(x, 0, g);
  });
  std::map<std::string, uint64_t> calls;
  for (const auto& time : profile.times()) calls[time.op] += time.calls;
  EXPECT_EQ(calls["all_reduce of group world"], 4);
  EXPECT_EQ(calls["broadcast of group world"], 2);
  EXPECT_EQ(calls["all_reduce of group world/1.0"], 1);
  EXPECT_EQ(calls["all_reduce of group world/1.1"], 1);
}

// ---- compiled functions ----

Tensor numbers(const Group& g, int64_t call) {
  return mytorch::arange(0, 6, 1, kFloat32).reshape({2, 3}) + static_cast<double>(10 * call) +
         static_cast<double>(g.rank());
}

// What each collective operator gives, in one function.
std::vector<Tensor> by_operators(const Group& g, const Tensor& x) {
  const Tensor sum = mytorch::all_reduce(x * 2, "sum", g);
  const Tensor all = mytorch::all_gather_into_tensor(x + 1, g);
  return {sum * 3,
          mytorch::reduce(x, 1, "max", g),
          mytorch::broadcast(x - 1, 1, g) + sum,
          all,
          mytorch::reduce_scatter_tensor(all, "avg", g),
          mytorch::all_to_all_single(x, {}, {}, g),
          mytorch::gather_into_tensor(x + 2, 1, g),
          mytorch::scatter_tensor(all * 2, 0, g),
          mytorch::all_gather_v(x.narrow(0, 0, 1 + g.rank()), {1, 2}, g),
          mytorch::reduce_scatter_v(all, {3, 1}, "sum", g)};
}

// Rank 0 sends to rank 1, and gets an answer.
Tensor by_messages(const Group& g, const Tensor& x) {
  if (g.rank() == 1) return mytorch::send(mytorch::recv(x, 0, g) * x, 0, g);
  const Tensor sent = mytorch::send(x * 3, 1, g);
  return mytorch::recv(x, 1, g) + sent.sum();
}

TEST(Compiled, OperatorsCommunicateInEachReplay) {
  run_local(2, [](const Group& g) {
    auto compiled = mytorch::compile([&](const Tensor& x) { return by_operators(g, x); });
    for (int64_t call = 0; call < 4; ++call) {
      const Tensor x = numbers(g, call);
      const std::vector<Tensor> expected = by_operators(g, x), found = compiled(x);
      for (size_t i = 0; i < expected.size(); ++i) {
        bodies::expect(mytorch::equal(found[i], expected[i]),
                       "result " + std::to_string(i) + " of call " + std::to_string(call));
      }
    }
    bodies::expect(compiled.stats().recorded == 1 && compiled.stats().replayed == 3, "replays");
  });
}

TEST(Compiled, MessagesAreSentInEachReplay) {
  run_local(2, [](const Group& g) {
    auto compiled = mytorch::compile([&](const Tensor& x) { return by_messages(g, x); });
    for (int64_t call = 0; call < 4; ++call) {
      const Tensor found = compiled(numbers(g, call));
      if (g.rank() == 1) continue;
      const Tensor mine = numbers(g, call);
      bodies::expect(mytorch::equal(found, mine * 3 * (mine + 1)), "call " + std::to_string(call));
    }
    bodies::expect(compiled.stats().replayed == 3, "replays");
  });
}

// A result that follows from tensors of outside alone is communicated all the same: these may
// change on one rank only.
TEST(Compiled, OperatorsOnTensorsFromOutsideCommunicateInEachReplay) {
  run_local(2, [](const Group& g) {
    const Tensor outside = mytorch::full({3}, g.rank() + 1.0);
    auto compiled = mytorch::compile(
        [&](const Tensor& x) { return x + mytorch::all_reduce(outside * 2, "sum", g); });
    for (int call = 0; call < 5; ++call) {
      if (call == 3 && g.rank() == 1) outside.fill_(5);
      const float expected = call < 3 ? 6 : 12;
      bodies::expect(compiled(mytorch::zeros({3}))[0].item<float>() == expected,
                     "call " + std::to_string(call));
    }
  });
}

TEST(Compiled, GradientsOfOperatorsCommunicateInEachReplay) {
  run_local(2, [](const Group& g) {
    const Tensor w = mytorch::full({3}, 2.0, mytorch::requires_grad());
    auto step = mytorch::compile([&](const Tensor& x) {
      w.set_grad({});
      const Tensor loss = mytorch::all_reduce(w * x, "avg", g).pow(2).sum();
      loss.backward();
      return loss.detach();
    });
    for (int call = 1; call < 4; ++call) {
      const Tensor x = mytorch::full({3}, static_cast<double>(call * (g.rank() + 1)));
      (void)step(x);
      // Of both ranks' losses, (w * 1.5 * call)^2, by w * x / 2.
      const double mean = 2 * 1.5 * call;
      const double expected = 2 * 2 * mean * call * (g.rank() + 1) / 2;
      bodies::expect(w.grad()[0].item<double>() == expected, "call " + std::to_string(call));
    }
    bodies::expect(step.stats().replayed > 0, "replays");
  });
}

struct Method {
  const char* name;
  const char* operator_name;  // that graphs hold
  std::function<void(const Group&, const Tensor&)> call;
};
const std::vector<Method>& methods() {
  static const std::vector<Method> all = {
      {"Group::broadcast", "mytorch::broadcast()", [](auto& g, auto& x) { g.broadcast(x, 1); }},
      {"Group::all_reduce", "mytorch::all_reduce()", [](auto& g, auto& x) { g.all_reduce(x); }},
      {"Group::reduce", "mytorch::reduce()", [](auto& g, auto& x) { g.reduce(x, 1); }},
      {"Group::gather", "mytorch::gather_into_tensor()",
       [](auto& g, auto& x) {
         g.gather(mytorch::cat({x, x}).mul_(0), x, 1);
       }},
      {"Group::scatter", "mytorch::scatter_tensor()",
       [](auto& g, auto& x) {
         g.scatter(x, mytorch::cat({x, x}), 1);
       }},
      {"Group::all_gather", "mytorch::all_gather_into_tensor()",
       [](auto& g, auto& x) {
         const Tensor all = mytorch::cat({x, x}).mul_(0);
         g.all_gather(all, x);
         x.add_(all.narrow(0, 0, 2));
       }},
      {"Group::all_gather_v", "mytorch::all_gather_v()",
       [](auto& g, auto& x) {
         const Tensor all = mytorch::cat({x, x}).mul_(0);
         g.all_gather_v(all, x, {2, 2});
         x.add_(all.narrow(0, 0, 2));
       }},
      {"Group::reduce_scatter", "mytorch::reduce_scatter_tensor()",
       [](auto& g, auto& x) {
         g.reduce_scatter(x, mytorch::cat({x, x * 2}));
       }},
      {"Group::reduce_scatter_v", "mytorch::reduce_scatter_v()",
       [](auto& g, auto& x) {
         g.reduce_scatter_v(x, mytorch::cat({x, x * 2}), {2, 2});
       }},
      {"Group::all_to_all", "mytorch::all_to_all_single()",
       [](auto& g, auto& x) { g.all_to_all(x, x + 1); }},
      {"Group::all_to_all_v", "mytorch::all_to_all_single()",
       [](auto& g, auto& x) {
         g.all_to_all_v(x, x + 1, {1, 1}, {1, 1});
       }},
      {"Group::send", nullptr,
       [](auto& g, auto& x) {
         if (g.rank() == 0) g.send(x, 1);
         if (g.rank() == 1) g.recv(x, 0);
       }},
      {"Group::recv", nullptr,
       [](auto& g, auto& x) {
         if (g.rank() == 0) g.recv(x, 1);
         if (g.rank() == 1) g.send(x, 0);
       }},
      {"Group::exchange", nullptr,
       [](auto& g, auto& x) {
         const Tensor sent = x + 1;
         g.exchange({{sent, 1 - g.rank(), true}, {x, 1 - g.rank(), false}});
       }},
      {"Group::barrier", nullptr, [](auto& g, auto&) { g.barrier(); }},
      {"Group::split", nullptr, [](auto& g, auto& x) { x.add_(g.split(0).size()); }},
      {"Group::subgroup", nullptr,
       [](auto& g, auto& x) {
         x.add_(g.subgroup({0, 1}).size());
       }},
      {"Group::all_reduce", "mytorch::all_reduce()",
       [](auto& g, auto& x) {
         const Tensor strided = x.t();
         Work work = g.all_reduce(strided, {}, true);
         work.wait();
         strided.mul_(2);
       }},
  };
  return all;
}

// A replay would leave the call out.
TEST(Compiled, MethodsOfGroupsAreRefused) {
  run_local(2, [](const Group& g) {
    for (const Method& method : methods()) {
      auto compiled = mytorch::compile([&](const Tensor& x) {
        const Tensor y = x * 2;
        method.call(g, y);
        return y;
      });
      const bool other = method.operator_name == nullptr;  // the ranks call two methods
      const std::string name = other && g.rank() == 1 ? "Group::" : method.name;
      const auto call = [&] { compiled(numbers(g, 0)); };
      expect_error(call, name);
      expect_error(call, "communicates outside of operators");
      if (method.operator_name != nullptr) expect_error(call, method.operator_name);
      expect_error(call, "CompileOptions::allow_breaks");
    }
    bodies::expect(g.sequence() == 0, "a refused call was made");
  });
}

TEST(Compiled, WaitingForACallIsRefused) {
  run_local(2, [](const Group& g) {
    Work work = g.all_reduce(mytorch::ones({3}), {}, true);
    auto compiled = mytorch::compile([&](const Tensor& x) {
      const Tensor y = x * 2;
      work.wait();
      return y;
    });
    expect_error([&] { compiled(mytorch::ones({3})); }, "Work::wait");
    work.wait();
  });
}

TEST(Compiled, MethodsOfGroupsSplitAFunctionWithBreaks) {
  run_local(2, [](const Group& g) {
    for (const Method& method : methods()) {
      const auto function = [&](const Tensor& x) {
        const Tensor y = x * 2;
        method.call(g, y);
        return y * 3 + 1;
      };
      auto compiled = mytorch::compile(function, {.allow_breaks = true});
      for (int64_t call = 0; call < 4; ++call) {
        const Tensor x = numbers(g, call);
        bodies::expect(mytorch::equal(compiled(x), function(x)),
                       std::string(method.name) + ", call " + std::to_string(call));
      }
      const CompileStats stats = compiled.stats();
      bodies::expect(stats.replayed_segments > 0 && !stats.breaks.empty() &&
                         stats.breaks[0].op.starts_with("Group::"),
                     std::string(method.name) + " breaks no graph");
    }
  });
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
