// FullyShardedDataParallel with shards on the host. On the CPU, nothing moves; the other device is
// MYTORCH_TEST_DEVICE, or one that is made up and finds work that does not wait for other work.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "mytorch/compile.h"
#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/deferred.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "tests/dispatcher/fake_device.h"
#include "tests/nn/parallel/checkpoint_folder.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using distributed::Group;
using mytorch::testing::FakeDevice;
using ranks::batch;
using ranks::Data;
using ranks::expect;
using ranks::expect_close;
using ranks::kBatch;

constexpr CPUOffload kOffload = {.offload_params = true};
constexpr int kOffloadSteps = 5;

FakeDevice* fake() {
  static FakeDevice* const device =
      std::getenv("MYTORCH_TEST_DEVICE") != nullptr
          ? nullptr
          : &FakeDevice::create(
                {.name = "offloaded", .has_kernel = {}, .compiles = {}, .pins = true});
  return device;
}
Device other_device() {
  return fake() != nullptr ? fake()->device() : Device(std::getenv("MYTORCH_TEST_DEVICE"));
}
void expect_no_races() {
  if (fake() == nullptr) return;
  for (const std::string& race : fake()->take_races()) ADD_FAILURE() << race;
}

// Has a buffer, frozen parameters, and parameters that no unit contains.
struct OffloadNet : Module {
  Linear first{6, 16};
  ModuleList blocks;
  Linear head{16, 5};
  Tensor shift = mytorch::full({5}, 0.25, kFloat32);
  OffloadNet() {
    register_module("first", first);
    for (int i = 0; i < 3; ++i) blocks.push_back(Linear(16, 16));
    register_module("blocks", blocks);
    register_module("head", head);
    register_buffer("shift", shift);
    ranks::set_parameters(*this, 0);
    blocks[1].requires_grad(false);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = tanh(first(x));
    for (size_t i = 0; i < blocks.size(); ++i) h = h + tanh(blocks[i](h));
    return head(h) + shift;
  }
};

struct OffloadCourse {
  std::vector<double> losses, norms;
  TensorMap state;
  bool operator==(const OffloadCourse& other) const {
    for (const auto& [name, tensor] : state) {
      if (!mytorch::equal(tensor, other.state.at(name))) return false;
    }
    return losses == other.losses && norms == other.norms && state.size() == other.state.size();
  }
};

// Each step adds up the gradients of two halves of a batch, the first without a reduction.
OffloadCourse train(const Group& g, FullyShardedDataParallelOptions options) {
  OffloadNet net;
  options.group = g;
  FullyShardedDataParallel parallel(net, options);
  optim::AdamW optimizer(net.parameters(), {.lr = 0.02});
  const Device place = options.device.value_or(kCPU);
  const int64_t size = kBatch / g.size() / 2;
  OffloadCourse course;
  for (int step = 0; step < kOffloadSteps; ++step) {
    optimizer.zero_grad();
    Tensor loss;
    for (const int64_t half : {0, 1}) {
      const Data data = batch(step, (g.rank() * 2 + half) * size, size, 6, 5);
      std::optional<FullyShardedDataParallel::NoSync> alone;
      if (half == 0) alone.emplace(parallel);
      loss = cross_entropy(parallel(data.x.to(place)).to(kFloat32), data.y.to(place));
      loss.backward();
    }
    course.norms.push_back(parallel.clip_grad_norm_(0.5).item<double>());
    optimizer.step();
    course.losses.push_back(loss.item<double>());
  }
  course.state = parallel.full_state_dict();
  return course;
}

void expect_near(const OffloadCourse& found, const OffloadCourse& expected, double tolerance) {
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    expect_close(found.losses[i], expected.losses[i], tolerance, "loss");
    expect_close(found.norms[i], expected.norms[i], tolerance, "norm");
  }
  for (const auto& [name, tensor] : expected.state) {
    expect_close(found.state.at(name), tensor, 10 * tolerance, name);
  }
}

class Offload : public CheckpointFolder {};

TEST_F(Offload, ChangesNoBitOnTheCPU) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool reshard : {true, false}) {
      for (const bool mixed : {false, true}) {
        FullyShardedDataParallelOptions options{.reshard_after_forward = reshard};
        if (mixed) options.mixed_precision = {kBFloat16, kFloat32};
        distributed::run_local(ranks, [&](const Group& g) {
          const OffloadCourse expected = train(g, options);
          FullyShardedDataParallelOptions offloaded = options;
          offloaded.cpu_offload = kOffload;
          expect(train(g, offloaded) == expected, "a bit differs");
        });
      }
    }
  }
}

TEST_F(Offload, TrainsOnAnotherDeviceAsOnTheCPU) {
  const OffloadCourse expected = train(distributed::world(), {});
  for (const bool reshard : {true, false}) {
    for (const bool prefetch : {true, false}) {
      for (const bool pinned : {true, false}) {
        const OffloadCourse found = train(distributed::world(), {.device = other_device(),
                                                                 .reshard_after_forward = reshard,
                                                                 .cpu_offload = {true, pinned},
                                                                 .prefetch = prefetch});
        expect_near(found, expected, 2e-5);
        expect_no_races();
      }
    }
  }
}

TEST_F(Offload, ComputesInBFloat16AndAddsUpInFloat32) {
  const OffloadCourse expected = train(distributed::world(), {});
  const OffloadCourse found = train(distributed::world(), {.device = other_device(),
                                                           .mixed_precision = {kBFloat16, kFloat32},
                                                           .cpu_offload = kOffload});
  expect_near(found, expected, 0.03);
  expect_no_races();
}

TEST_F(Offload, KeepsShardsGradientsAndStateOnTheHost) {
  const Device device = other_device();
  OffloadNet net;
  FullyShardedDataParallel parallel(net, {.device = device, .cpu_offload = kOffload});
  EXPECT_EQ(net.shift.device(), device);
  optim::AdamW optimizer(net.parameters(), {.lr = 0.02});
  const int64_t pinned = fake() != nullptr ? fake()->calls().pinned_bytes : 0;
  const Tensor x = batch(0, 0, kBatch, 6, 5).x.to(device);
  const Tensor y = parallel(x);
  EXPECT_EQ(y.device(), device);
  y.pow(2).mean().backward();
  optimizer.step();
  for (const auto& shard : parallel.shards()) {
    EXPECT_TRUE(shard.tensor.device().is_cpu()) << shard.name;
    EXPECT_EQ(shard.tensor.grad().defined(), !shard.name.starts_with("blocks.1.")) << shard.name;
    if (const Tensor grad = shard.tensor.grad(); grad.defined()) {
      EXPECT_TRUE(grad.device().is_cpu()) << shard.name;
    }
  }
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    EXPECT_TRUE(tensor.device().is_cpu()) << name;
  }
  if (fake() != nullptr) {
    EXPECT_GE(pinned, 4 * net.num_parameters());  // shards, then gradients, too
    EXPECT_GE(fake()->calls().pinned_bytes, pinned + 4 * net.num_parameters(true));
  }
  expect_no_races();
}

TEST_F(Offload, LeavesItsMemoryToTheDevice) {
  if (fake() == nullptr) GTEST_SKIP() << "this device does not tell its memory";
  const auto bytes_at_rest = [](CPUOffload offload) {
    OffloadNet net;
    FullyShardedDataParallel parallel(net, {.device = other_device(), .cpu_offload = offload});
    optim::AdamW optimizer(net.parameters(), {.lr = 0.02});
    parallel(batch(0, 0, kBatch, 6, 5).x.to(other_device())).sum().backward();
    optimizer.step();
    return fake()->calls().bytes;
  };
  (void)bytes_at_rest(kOffload);  // memory that the device keeps for kernels
  const int64_t offloaded = bytes_at_rest(kOffload), whole = bytes_at_rest({});
  OffloadNet net;
  // Parameters, and of those that are trained the gradients and two moments.
  EXPECT_GE(whole - offloaded, 4 * (net.num_parameters() + 3 * net.num_parameters(true)));
}

// The host writes to shards after a forward that no backward followed.
TEST_F(Offload, EvaluatesBetweenLoads) {
  const Device device = other_device();
  OffloadNet one, two;
  ranks::set_parameters(two, 3);
  const Tensor x = batch(0, 0, kBatch, 6, 5).x;
  OffloadNet net;
  FullyShardedDataParallel parallel(net, {.device = device, .cpu_offload = kOffload});
  for (const OffloadNet* expected : {&one, &two, &one}) {
    parallel.load_full_state_dict(expected->state_dict());
    const NoGradGuard no_grad;
    expect_close(parallel(x.to(device)).to(kCPU), OffloadNet(*expected)(x), 1e-5, "the result");
  }
  expect_no_races();
}

TEST_F(Offload, SavesWhatOtherRanksLoad) {
  const auto step = [](FullyShardedDataParallel& parallel, optim::Optimizer& optimizer,
                       Device device) {
    const Data data = batch(3, 0, kBatch, 6, 5);
    optimizer.zero_grad();
    cross_entropy(parallel(data.x.to(device)), data.y.to(device)).backward();
    optimizer.step();
    return parallel.full_state_dict();
  };
  TensorMap expected;
  {
    OffloadNet net;
    FullyShardedDataParallel parallel(net, {.device = other_device(), .cpu_offload = kOffload});
    optim::AdamW optimizer(net.parameters(), {.lr = 0.02});
    step(parallel, optimizer, other_device());
    save_sharded(path(), parallel, &optimizer);
    expected = step(parallel, optimizer, other_device());
  }
  distributed::run_local(2, [&](const Group&) {
    OffloadNet net;
    ranks::set_parameters(net, 5);
    FullyShardedDataParallel parallel(net, {.cpu_offload = kOffload});
    optim::AdamW optimizer(net.parameters(), {.lr = 0.02});
    load_sharded(path(), parallel, &optimizer);
    for (const auto& [name, tensor] : step(parallel, optimizer, kCPU)) {
      expect_close(tensor, expected.at(name), 2e-5, name);
    }
  });
  expect_no_races();
}

TEST_F(Offload, RecoversFromErrors) {
  const Device device = other_device();
  const Tensor x = batch(0, 0, kBatch, 6, 5).x.to(device);
  OffloadNet net;
  FullyShardedDataParallel parallel(net, {.device = device, .cpu_offload = kOffload});
  parallel(x).sum().backward();
  std::vector<Tensor> expected;
  for (const auto& shard : parallel.shards()) {
    if (const Tensor grad = shard.tensor.grad(); grad.defined()) expected.push_back(grad.clone());
    shard.tensor.set_grad({});
  }
  bool fails = true;
  net.blocks[2].register_forward_pre_hook([&](Module&, const Tensor&) {
    if (fails) throw Error(ErrorCode::kValue, "on purpose");
  });
  ranks::expect_error([&] { parallel(x); }, "on purpose");
  fails = false;
  bool fails_backward = true;
  const Tensor in = x.clone().requires_grad_();
  const Tensor first = in * 1;
  first.register_hook([&](const Tensor&) {
    if (fails_backward) throw Error(ErrorCode::kValue, "behind units");
  });
  ranks::expect_error([&] { parallel(first).sum().backward(); }, "behind units");
  fails_backward = false;
  for (const auto& shard : parallel.shards()) shard.tensor.set_grad({});
  parallel(x).sum().backward();
  size_t i = 0;
  for (const auto& shard : parallel.shards()) {
    if (const Tensor grad = shard.tensor.grad(); grad.defined()) {
      expect_close(grad, expected.at(i++), 1e-6, shard.name);
    }
  }
  expect_no_races();
}

TEST_F(Offload, TrainsInACompiledStepWithBreaks) {
  const auto run = [](Device device, bool compiled) {
    OffloadNet net;
    FullyShardedDataParallel parallel(net, {.device = device, .cpu_offload = kOffload});
    optim::SGD optimizer(net.parameters(), {.lr = 0.1});
    const std::function<Tensor(const Tensor&, const Tensor&)> body = [&](const Tensor& x,
                                                                         const Tensor& y) {
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(parallel(x), y);
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    auto step = mytorch::compile(body, {.allow_breaks = true});
    std::vector<double> losses;
    for (int64_t i = 0; i < 4; ++i) {
      const Data data = batch(i, 0, kBatch, 6, 5);
      const Tensor x = data.x.to(device), y = data.y.to(device);
      losses.push_back((compiled ? step(x, y) : body(x, y)).item<double>());
    }
    return losses;
  };
  for (const Device device : {kCPU, other_device()}) {
    const std::vector<double> expected = run(device, false), found = run(device, true);
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_close(found[i], expected[i], 2e-5, device.str());
    }
  }
  expect_no_races();
}

TEST_F(Offload, DrawsDeferredModels) {
  const auto make = [] {
    Sequential net(Linear(6, 8), BatchNorm1d(8), Linear(8, 5));
    init::trunc_normal_(net.at<Linear>(0).weight);
    return net;
  };
  const auto state_of = [](Sequential net) {
    FullyShardedDataParallel parallel(net, {.device = other_device(), .cpu_offload = kOffload});
    parallel(batch(0, 0, kBatch, 6, 5).x.to(other_device())).sum().backward();
    return parallel.full_state_dict();
  };
  manual_seed(3);
  const TensorMap expected = state_of(make());
  manual_seed(3);
  const TensorMap found = state_of(deferred_init(make));
  for (const auto& [name, tensor] : expected) expect_close(found.at(name), tensor, 1e-6, name);
  expect_no_races();
}

TEST_F(Offload, RefusesDevicesThatDoNotFit) {
  const Device device = other_device();
  distributed::run_local(2, [&](const Group&) {
    OffloadNet net;
    ranks::expect_error(
        [&] { FullyShardedDataParallel(net, {.device = device, .cpu_offload = kOffload}); },
        "the group is on cpu");
  });
  OffloadNet net;
  net.to(device);
  ranks::expect_error([&] { FullyShardedDataParallel(net, {.device = kCPU}); },
                      "units compute on cpu");
  ranks::expect_error([&] { FullyShardedDataParallel(net, {.device = Device(kCUDA, 99)}); }, "");
  // The device is that of the parameters, if this rank is alone.
  FullyShardedDataParallel parallel(net, {.cpu_offload = kOffload});
  EXPECT_EQ(parallel(batch(0, 0, 4, 6, 5).x.to(device)).device(), device);
}

}  // namespace
}  // namespace mytorch::nn
