// A rank alone, without distributed::init, on a device.
#include <gtest/gtest.h>

#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "tests/dispatcher/fake_device.h"

namespace mytorch::distributed {
namespace {

TEST(RankAlone, CopiesOnAnyDevice) {
  static testing::FakeDevice& fake =
      testing::FakeDevice::create({.name = "alone", .has_kernel = {}, .compiles = {}});
  const Group group = world();
  const auto there = [&](const Tensor& x) { return x.to(fake.device()); };
  const auto expect = [](const Tensor& found, const std::vector<float>& values) {
    EXPECT_EQ(found.to(kCPU).to_vector<float>(), values);
  };
  const Tensor x = there(mytorch::tensor({1.0, 2, 3, 4}));
  const auto fresh = [&] { return there(mytorch::zeros({4})); };
  group.broadcast(x, 0);
  group.all_reduce(x, {ReduceOp::kAverage}, true).wait();
  expect(x, {1, 2, 3, 4});
  group.all_reduce(x, {ReduceOp::kSum, 2});
  group.reduce(x, 0);
  expect(x, {2, 4, 6, 8});
  Tensor out = fresh();
  group.gather(out, x, 0);
  expect(out, {2, 4, 6, 8});
  out = fresh();
  group.scatter(out, x, 0);
  expect(out, {2, 4, 6, 8});
  out = there(mytorch::zeros({1, 4}));
  group.all_gather(out, x);
  expect(out, {2, 4, 6, 8});
  out = fresh();
  group.all_gather_v(out, x, {4});
  expect(out, {2, 4, 6, 8});
  out = fresh();
  group.reduce_scatter(out, x, {ReduceOp::kSum, 0.5});
  expect(out, {1, 2, 3, 4});
  out = fresh();
  group.reduce_scatter_v(out, x, {4});
  expect(out, {2, 4, 6, 8});
  out = fresh();
  group.all_to_all(out, x);
  expect(out, {2, 4, 6, 8});
  out = fresh();
  group.exchange({{x, 0, true}, {out, 0, false}});
  expect(out, {2, 4, 6, 8});
  group.barrier();

  nn::Linear model(4, 2);
  nn::Linear own = nn::clone(model);
  model.to(fake.device());
  nn::DistributedDataParallel parallel(model);
  parallel(x).square().sum().backward();
  own(x.to(kCPU)).square().sum().backward();
  const Tensor found = model.weight.grad().to(kCPU), expected = own.weight.grad();
  EXPECT_TRUE(mytorch::allclose(found, expected, 1e-5, 1e-5));

  nn::Linear whole = nn::clone(own), part = nn::clone(own);
  part.to(fake.device());
  nn::FullyShardedDataParallel sharded(part);
  nn::optim::SGD of_whole(whole.parameters(), {.lr = 0.1});
  nn::optim::SGD of_part(part.parameters(), {.lr = 0.1});
  for (int step = 0; step < 2; ++step) {
    of_whole.zero_grad();
    of_part.zero_grad();
    whole(x.to(kCPU)).square().sum().backward();
    sharded(x).square().sum().backward();
    of_whole.step();
    of_part.step();
  }
  for (const auto& [name, tensor] : sharded.full_state_dict()) {
    EXPECT_TRUE(mytorch::allclose(tensor.to(kCPU), whole.state_dict().at(name), 1e-5, 1e-5))
        << name;
  }
  EXPECT_TRUE(fake.take_races().empty());
}

}  // namespace
}  // namespace mytorch::distributed
