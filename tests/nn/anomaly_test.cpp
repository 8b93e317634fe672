// Anomaly mode names the modules that recorded an operation.
#include <gtest/gtest.h>

#include <string>

#include "mytorch/autograd.h"
#include "mytorch/error.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/linear.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/sum.h"

namespace mytorch::nn {
namespace {

// Its gradient is infinity times 0.
struct RootOfZero : Module {
  Tensor forward(const Tensor& x) override { return sqrt(mul(x, 0)); }
};

struct Net : Module {
  Sequential layers{Linear(2, 2), RootOfZero()};
  Net() { register_module("layers", layers); }
  Tensor forward(const Tensor& x) override { return layers(x); }
};

std::string message_of_backward(const Tensor& loss) {
  try {
    loss.backward();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(AnomalyMode, NamesTheModulesOfAnOperation) {
  Net net;
  const autograd::AnomalyMode anomaly;
  const std::string message = message_of_backward(sum(net(ones({1, 2}))));
  EXPECT_NE(message.find("mul was recorded in Net.layers.1, by:"), std::string::npos) << message;
  EXPECT_NE(message.find(" in Net.layers.0\n"), std::string::npos) << message;
  EXPECT_EQ(autograd::NameScope::path(), "");
}

}  // namespace
}  // namespace mytorch::nn
