// Modules and optimizers that move between devices while they train.
#include <gtest/gtest.h>

#include <vector>

#include "mytorch/nn/container.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/optim/adam.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sum.h"
#include "tests/dispatcher/fake_device.h"
#include "tests/nn/values.h"

namespace mytorch {
namespace {

using testing::FakeDevice;
using testing::values;

// Trains a model on each of the devices in turn, and returns its last weights.
std::vector<double> train(const nn::Sequential& start, const std::vector<Device>& devices,
                          ScalarType dtype) {
  nn::Sequential net = nn::clone(start);
  nn::optim::Adam adam(net.parameters(), {.lr = 0.1});
  const std::vector<Tensor> parameters = net.parameters();
  for (const Device device : devices) {
    net.to(device, dtype);
    for (const Tensor& parameter : parameters) EXPECT_TRUE(parameter.device() == device);
    for (int i = 0; i < 2; ++i) {
      adam.zero_grad();
      const Tensor x = ones({2, 3}, dtype).to(device);
      sum(net(x) * net(x)).backward();
      adam.step();
    }
  }
  return values(parameters[0].to(kCPU));
}

TEST(ModuleTo, OtherDevicesTrainTheSameParameters) {
  static FakeDevice& fake =
      FakeDevice::create({.name = "module_to", .has_kernel = {}, .compiles = {}});
  const nn::Sequential start(nn::Linear(3, 2), nn::Linear(2, 1));
  const std::vector<double> expected = train(start, {kCPU, kCPU, kCPU}, kFloat64);
  const std::vector<double> moved =
      train(start, {kCPU, fake.device(), fake.device(1), kCPU}, kFloat64);
  const std::vector<double> longer = train(start, {kCPU, kCPU, kCPU, kCPU}, kFloat64);
  ASSERT_EQ(moved.size(), longer.size());
  for (size_t i = 0; i < moved.size(); ++i) EXPECT_NEAR(moved[i], longer[i], 1e-12);
  EXPECT_NE(expected, longer);
  EXPECT_TRUE(fake.take_races().empty());
  EXPECT_EQ(fake.calls().blocks, 0);
}

}  // namespace
}  // namespace mytorch
