#include "mytorch/nn/parallel/parameter_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

constexpr int64_t kUnbounded = ParameterServerOptions::kUnbounded;

Sequential served_net() {
  Sequential net(Linear(6, 16), Tanh(), Linear(16, 8), Tanh(), Linear(8, 3));
  ranks::set_parameters(net, 0);
  net.to(kFloat64);
  return net;
}

Tensor served_loss(Sequential& net, int64_t step, int64_t begin, int64_t size) {
  const ranks::Data data = ranks::batch(step, begin, size, 6, 3);
  return cross_entropy(net(data.x.to(kFloat64)), data.y);
}

// The parameters after some steps of one process.
std::vector<Tensor> one_process(int64_t steps) {
  Sequential net = served_net();
  optim::AdamW optimizer(net.parameters(), {.lr = 0.05, .weight_decay = 0.1});
  for (int64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    served_loss(net, step, 0, ranks::kBatch).backward();
    optimizer.step();
  }
  return net.parameters();
}

using AdamWServer = ParameterServer<optim::AdamW>;

// Steps [begin, end) of a worker.
void work(AdamWServer& server, Sequential& net, int64_t begin, int64_t end, int place,
          int workers) {
  const int64_t size = ranks::kBatch / workers;
  for (int64_t step = begin; step < end; ++step) {
    server.pull();
    net.zero_grad();
    served_loss(net, step, place * size, size).backward();
    server.push();
  }
}

void expect_parameters(Sequential& net, const std::vector<Tensor>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ranks::expect_close(net.parameters()[i], expected[i], 1e-12, "parameter " + std::to_string(i));
  }
}

class ServedRanks : public ::testing::TestWithParam<int> {};
TEST_P(ServedRanks, SynchronousIsOneProcess) {
  const std::vector<Tensor> expected = one_process(6);
  distributed::run_local(GetParam(), [&](const distributed::Group& world) {
    Sequential net = served_net();
    // Only the parameters of rank 0 count.
    if (world.rank() != 0) {
      net.to(kFloat32);
      ranks::set_parameters(net, 5);
      net.to(kFloat64);
    }
    AdamWServer server(net.parameters(), {.lr = 0.05, .weight_decay = 0.1});
    work(server, net, 0, 6, world.rank(), world.size());
    ranks::expect(server.clock() == 6, "the clock");
    ranks::expect(server.staleness() == 0, "a synchronous worker is ahead");
    server.close();
    expect_parameters(net, expected);
  });
}

// A vector for each rank, whose elements no other gradient has.
Tensor numbered(int rank, int step, int64_t n) {
  return mytorch::arange(n).to(kFloat64).add(1000.0 * rank + 7.0 * step + 1);
}

// The parameter is minus the sum of all gradients: with SGD and a rate of 1, each was applied once.
void apply_each_once(const distributed::Group& world, int64_t staleness, int steps) {
  const int64_t sizes[] = {5, 0, 64, 1};
  std::vector<Tensor> parameters;
  for (const int64_t n : sizes) {
    parameters.push_back(mytorch::zeros({n}, kFloat64).requires_grad_());
  }
  ParameterServer<optim::SGD> server(parameters, {.lr = 1},
                                     {.staleness = staleness, .group = world});
  for (int step = 0; step < steps; ++step) {
    server.pull();
    ranks::expect(server.staleness() <= staleness, "too far ahead");
    for (const Tensor& p : parameters) p.set_grad(numbered(world.rank(), step, p.numel()));
    server.push();
    ranks::expect(server.clock() == step + 1, "the clock");
  }
  server.close();
  for (const Tensor& p : parameters) {
    Tensor sum = mytorch::zeros({p.numel()}, kFloat64);
    for (int rank = 0; rank < world.size(); ++rank) {
      for (int step = 0; step < steps; ++step) sum = sum - numbered(rank, step, p.numel());
    }
    ranks::expect(mytorch::equal(p.detach(), sum),
                  "found " + p.detach().str() + ", expected " + sum.str());
  }
}

TEST_P(ServedRanks, EachGradientIsAppliedOnce) {
  for (const int64_t staleness : {int64_t{1}, int64_t{3}, kUnbounded}) {
    distributed::run_local(GetParam(), [&](const distributed::Group& world) {
      apply_each_once(world, staleness, 25);
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, ServedRanks, ::testing::Values(1, 2, 3, 4));

// Rank 0 serves, ranks 1 and 2 work, rank 3 looks on.
TEST(ParameterServer, SomeRanksServe) {
  const std::vector<Tensor> expected = one_process(4);
  distributed::run_local(4, [&](const distributed::Group& world) {
    Sequential net = served_net();
    AdamWServer server(net.parameters(), {.lr = 0.05, .weight_decay = 0.1},
                       {.servers = {0}, .workers = {2, 1}});
    if (world.rank() == 1 || world.rank() == 2) {
      work(server, net, 0, 4, world.rank() - 1, 2);
    } else {
      ranks::expect_error([&] { server.push(); }, "is no worker");
      server.pull();
    }
    server.close();
    expect_parameters(net, expected);
  });
}

// Parameters that some workers, or none, use.
TEST(ParameterServer, GradientsMayBeLeftOut) {
  distributed::run_local(2, [&](const distributed::Group& world) {
    std::vector<Tensor> parameters;
    for (int i = 0; i < 3; ++i) {
      parameters.push_back(mytorch::ones({2}, kFloat64).requires_grad_());
    }
    ParameterServer<optim::SGD> server(parameters, {.lr = 1, .weight_decay = 0.5});
    parameters[0].set_grad(mytorch::ones({2}, kFloat64));
    if (world.rank() == 0) parameters[1].set_grad(mytorch::ones({2}, kFloat64));
    server.push();
    server.pull();
    // 1 - (1 + 0.5), 1 - (1 / 2 + 0.5), and no update, which would decay.
    const double expected[] = {-0.5, 0, 1};
    for (size_t i = 0; i < 3; ++i) {
      ranks::expect(parameters[i].detach()[1].item<double>() == expected[i],
                    "parameter " + std::to_string(i) + ": " + parameters[i].detach().str());
    }
    server.close();
  });
}

// Parameters of 16 bits with master weights, strided gradients, and whole matrices.
TEST(ParameterServer, TakesAnyParametersAndOptimizers) {
  distributed::run_local(2, [&](const distributed::Group& world) {
    const Tensor half = mytorch::ones({3}, kBFloat16).requires_grad_();
    ParameterServer<optim::SGD> server({half}, {.lr = 1.0 / 1024});
    for (int step = 0; step < 32; ++step) {
      server.pull();
      half.set_grad(mytorch::ones({3}, kBFloat16));
      server.push();
    }
    server.close();
    // 1 / 1024 alone is lost in bfloat16.
    ranks::expect(half.detach()[0].item<double>() == 1 - 32.0 / 1024, half.detach().str());

    const Tensor matrix = ranks::batch(0, 0, 4, 3, 2).x.clone().requires_grad_();
    const Tensor alone = matrix.detach().clone().requires_grad_();
    ParameterServer<optim::Muon> muon({matrix}, {.lr = 0.1});
    optim::Muon expected({alone}, {.lr = 0.1});
    const Tensor gradient = ranks::batch(1, 0, 3, 4, 2).x.t();
    matrix.set_grad(gradient);
    alone.set_grad(gradient);
    muon.push();
    expected.step();
    muon.close();
    ranks::expect_close(matrix, alone, 1e-6, "a matrix");
    (void)world;
  });
}

// The slow worker takes a step whenever the fast one is as far ahead as it may be: the fast one
// gets there, and no further.
TEST(ParameterServer, BoundsStaleness) {
  constexpr int64_t kBound = 2, kStepsOfBoth = 8;
  std::atomic<int64_t> pushed_by_fast = 0, most = 0;
  std::atomic<bool> over = false;
  distributed::run_local(2, [&](const distributed::Group& world) {
    const Tensor p = mytorch::zeros({1}, kFloat64).requires_grad_();
    ParameterServer<optim::SGD> server({p}, {.lr = 1}, {.staleness = kBound});
    const absl::Cleanup leaves = [&] { over = true; };
    for (int64_t step = 0; step < kStepsOfBoth; ++step) {
      if (world.rank() == 1) {
        const int64_t there = std::min(kStepsOfBoth, step + kBound + 1);
        while (pushed_by_fast < there && !over) std::this_thread::yield();
      }
      server.pull();
      ranks::expect(server.staleness() <= kBound, "the bound was exceeded");
      if (world.rank() == 0) {
        most = std::max<int64_t>(most, server.staleness());
        const std::vector<int64_t> clocks = server.clocks();
        ranks::expect(clocks[0] == step, "its own gradients are missing");
        ranks::expect(clocks[1] >= step - kBound, "the slow worker's gradients are missing");
        // With `most` steps of the fast one, the value has all of its gradients and the slow one's.
        ranks::expect(p.detach().item<double>() <= static_cast<double>(-step - (step - kBound)),
                      "values without the gradients that the bound asks for");
      }
      p.set_grad(mytorch::ones({1}, kFloat64));
      server.push();
      if (world.rank() == 0) ++pushed_by_fast;
    }
    server.close();
    ranks::expect(p.detach().item<double>() == -2.0 * kStepsOfBoth, "lost gradients");
  });
  EXPECT_EQ(most, kBound);
}

TEST(ParameterServer, UnboundedWorkersDoNotWait) {
  std::atomic<bool> done = false;
  distributed::run_local(2, [&](const distributed::Group& world) {
    const Tensor p = mytorch::zeros({1}, kFloat64).requires_grad_();
    ParameterServer<optim::SGD> server({p}, {.lr = 1}, {.staleness = kUnbounded});
    const absl::Cleanup leaves = [&] { done = true; };
    while (world.rank() == 1 && !done) std::this_thread::yield();
    for (int step = 0; step < 20 && world.rank() == 0; ++step) {
      server.pull();
      p.set_grad(mytorch::ones({1}, kFloat64));
      server.push();
    }
    if (world.rank() == 0) {
      server.wait();
      ranks::expect((server.clocks() == std::vector<int64_t>{20, 0}), "clocks");
      server.pull();
      ranks::expect(server.staleness() == 20, "staleness");
      done = true;
    }
    server.close();
    ranks::expect(p.detach().item<double>() == -20, "lost gradients");
  });
}

// A worker that has closed is not waited for.
TEST(ParameterServer, WorkersMayHaveDifferentNumbersOfSteps) {
  for (const int64_t staleness : {0, 1}) {
    distributed::run_local(3, [&](const distributed::Group& world) {
      const Tensor p = mytorch::zeros({1}, kFloat64).requires_grad_();
      ParameterServer<optim::SGD> server({p}, {.lr = 1}, {.staleness = staleness});
      for (int step = 0; step <= world.rank(); ++step) {
        server.pull();
        p.set_grad(mytorch::full({1}, 6, kFloat64));
        server.push();
      }
      server.close();
      // Synchronous: three means of 6; otherwise each of the 6 gradients.
      const double expected = staleness == 0 ? -3 * 6 : -6 * 6;
      ranks::expect(p.detach().item<double>() == expected, p.detach().str());
    });
  }
}

// Who closes first waits for the others longer than the deadline of the group.
TEST(ParameterServer, WorkersMayTrainLongAfterOneHasClosed) {
  std::atomic<bool> closing = false;
  distributed::run_local(
      2,
      [&](const distributed::Group& world) {
        const Tensor p = mytorch::zeros({1}, kFloat64).requires_grad_();
        ParameterServer<optim::SGD> server({p}, {.lr = 1}, {.staleness = kUnbounded});
        if (world.rank() == 0) {
          closing = true;
        } else {
          while (!closing) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          p.set_grad(mytorch::ones({1}, kFloat64));
          server.push();
        }
        server.close();
        ranks::expect(p.detach().item<double>() == -1, p.detach().str());
      },
      1);
}

TEST(ParameterServer, ResumesFromItsState) {
  const std::vector<Tensor> expected = one_process(6);
  std::mutex mutex;
  TensorMap saved;  // of all servers
  const optim::AdamWArgs options{.lr = 0.05, .weight_decay = 0.1};
  distributed::run_local(3, [&](const distributed::Group& world) {
    Sequential net = served_net();
    AdamWServer server(net.parameters(), options);
    work(server, net, 0, 3, world.rank(), world.size());
    server.wait();
    world.barrier();
    const TensorMap mine = server.state_dict();
    const std::lock_guard<std::mutex> lock(mutex);
    for (const auto& [name, tensor] : mine) saved[name] = tensor;
  });
  EXPECT_EQ(saved.count("parameter5.value"), 1u);
  EXPECT_EQ(saved.count("parameter5.exp_avg"), 1u);
  distributed::run_local(2, [&](const distributed::Group& world) {
    Sequential net = served_net();
    net.to(kFloat32);
    ranks::set_parameters(net, 3);
    net.to(kFloat64);
    AdamWServer server(net.parameters(), options);
    TensorMap wrong = saved;
    wrong.erase("parameter0.value");
    wrong["parameter1.value"] = mytorch::zeros({1});
    ranks::expect_error([&] { server.load_state_dict(wrong); }, ".value'");
    // If one rank refuses its part, none takes its own.
    const TensorMap before = server.state_dict();
    ranks::expect_error([&] { server.load_state_dict(world.rank() == 1 ? wrong : saved); },
                        world.rank() == 1 ? ".value'" : "rank 1 refuses its arguments");
    const TensorMap after = server.state_dict();
    ranks::expect(before.size() == after.size(), "a refused state was taken");
    for (const auto& [name, tensor] : before) {
      ranks::expect(after.count(name) == 1 && mytorch::equal(after.at(name), tensor),
                    "a refused state changed " + name);
    }
    server.load_state_dict(saved);
    work(server, net, 3, 6, world.rank(), world.size());
    server.close();
    expect_parameters(net, expected);
  });
}

TEST(ParameterServer, ChangesOptionsBetweenSteps) {
  distributed::run_local(2, [&](const distributed::Group& world) {
    const Tensor p = mytorch::zeros({1}, kFloat64).requires_grad_();
    ParameterServer<optim::SGD> server({p}, {.lr = 1});
    for (int step = 0; step < 2; ++step) {
      p.set_grad(mytorch::ones({1}, kFloat64));
      server.push();
      server.pull();
      world.barrier();
      server.with_optimizer([](optim::SGD& optimizer) { optimizer.set_lr(0, 4); });
      world.barrier();
    }
    server.close();
    ranks::expect(p.detach().item<double>() == -5, p.detach().str());
  });
}

// Returns the messages of the ranks.
std::vector<std::string> failures_of(int ranks, double timeout,
                                     const std::function<void(const distributed::Group&)>& body) {
  std::vector<std::string> messages(static_cast<size_t>(ranks));
  distributed::run_local(
      ranks,
      [&](const distributed::Group& world) {
        try {
          body(world);
        } catch (const Error& error) {
          messages[static_cast<size_t>(world.rank())] = error.what();
        }
      },
      timeout);
  return messages;
}

void expect_in_message(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(ParameterServer, NamesAWorkerThatDoesNotCome) {
  std::atomic<int> failed = 0;
  const auto messages = failures_of(3, 1, [&](const distributed::Group& world) {
    const Tensor p = mytorch::zeros({1}, kFloat64).requires_grad_();
    ParameterServer<optim::SGD> server({p}, {.lr = 1});
    while (world.rank() == 1 && failed < 2) std::this_thread::yield();
    if (world.rank() == 1) return;
    try {
      p.set_grad(mytorch::ones({1}, kFloat64));
      server.push();
      server.pull();
    } catch (const Error&) {
      ++failed;
      throw;
    }
  });
  for (const int rank : {0, 2}) {
    expect_in_message(messages[static_cast<size_t>(rank)],
                      "ParameterServer::pull, waiting for rank 1");
  }
  // The first to find out says how; its word ends the other one.
  const std::string both = messages[0] + messages[2];
  expect_in_message(both, "not finished within 1 s: rank 1 has not come: its last call is #");
}

TEST(ParameterServer, NamesAWorkerThatEnds) {
  const auto messages = failures_of(3, 60, [&](const distributed::Group& world) {
    const Tensor p = mytorch::zeros({1}, kFloat64).requires_grad_();
    ParameterServer<optim::SGD> server({p}, {.lr = 1}, {.staleness = 1, .servers = {0}});
    if (world.rank() == 1) throw Error(ErrorCode::kValue, "out of data");
    for (int step = 0; step < 5; ++step) {
      server.pull();
      p.set_grad(mytorch::ones({1}, kFloat64));
      server.push();
    }
  });
  for (const int rank : {0, 2}) {
    expect_in_message(messages[static_cast<size_t>(rank)],
                      "rank 1 of group world has ended without coming to ");
  }
}

TEST(ParameterServer, PassesOnTheErrorOfAServer) {
  const auto messages = failures_of(2, 60, [&](const distributed::Group& world) {
    const Tensor p = mytorch::zeros({1}, kFloat64).requires_grad_();
    ParameterServer<optim::SGD> server({p}, {.lr = 1}, {.servers = {1}});
    server.with_optimizer([](optim::SGD& optimizer) { optimizer.options().momentum = -1; });
    world.barrier();
    p.set_grad(mytorch::ones({1}, kFloat64));
    server.push();
    server.pull();
  });
  for (const std::string& message : messages) {
    expect_in_message(message,
                      "[ParameterServer] the server on rank 1 could not update its parameters");
    expect_in_message(message, "momentum");
  }
}

// The server keeps the type that they had.
TEST(ParameterServer, ParametersMayGetAnotherType) {
  distributed::run_local(2, [&](const distributed::Group& world) {
    Linear net(3, 2);
    ranks::set_parameters(net, 0);
    const Tensor before = net.weight.detach().clone();
    ParameterServer<optim::SGD> server(net.parameters(), {.lr = 0.5});
    if (world.rank() == 1) net.to(kFloat64);
    for (int64_t step = 0; step < 2; ++step) {
      server.pull();
      net.zero_grad();
      net.weight.sum().backward();
      server.push();
    }
    server.close();
    ranks::expect_close(net.weight.to(kFloat64), before.to(kFloat64) - 1, 1e-6, "weight");
  });
}

TEST(ParameterServer, RefusesBadArguments) {
  distributed::run_local(2, [&](const distributed::Group& world) {
    const Tensor p = mytorch::zeros({2}, kFloat64).requires_grad_();
    using Server = ParameterServer<optim::SGD>;
    const optim::SGDArgs rate{.lr = 1};
    ranks::expect_error([&] { Server({p}, rate, {.staleness = -1}); }, "staleness is -1");
    ranks::expect_error([&] { Server({p}, rate, {.servers = {2}}); }, "servers has rank 2");
    ranks::expect_error([&] { Server({p}, rate, {.workers = {0, 0}}); }, "once each");
    ranks::expect_error([&] { Server({Tensor()}, rate); }, "parameter 0 is undefined");
    const Tensor other = mytorch::zeros({world.rank() + 1}, kFloat64).requires_grad_();
    ranks::expect_error([&] { Server({other}, rate); }, "give all ranks the same types");
    ranks::expect_error([&] { Server({mytorch::zeros({2}, kInt64)}, rate); }, "parameter");
    Server server({p}, rate);
    server.close();
    ranks::expect_error([&] { server.pull(); }, "closed");
  });
}

// Without a launcher.
TEST(ParameterServer, ServesOneRankAlone) { apply_each_once(distributed::world(), 0, 5); }

}  // namespace
}  // namespace mytorch::nn
