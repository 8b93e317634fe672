// Operators that write lists of tensors; graphs on devices without graph support.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "mytorch/call.h"
#include "mytorch/device_memory.h"
#include "mytorch/error.h"
#include "mytorch/grad_mode.h"
#include "mytorch/graph.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sgd_steps_.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/tensor.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

TEST(ListsTest, CalledByNameReturnTheWrittenLists) {
  const std::vector<Tensor> parameters = {ones({3}), ones({2, 2})};
  const std::vector<Tensor> gradients = {ones({3}), ones({2, 2})};
  const std::vector<Value> results =
      call("sgd_steps_", {parameters, gradients, std::vector<Tensor>{}, 0.25});
  ASSERT_EQ(results.size(), 2u);  // parameters and buffers
  ASSERT_EQ(results[0].tensors().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(results[0].tensors()[i].is_same(parameters[i]));
    EXPECT_EQ(parameters[i].flatten()[1].item<double>(), 0.75);
    EXPECT_GT(parameters[i].version(), 0u);
  }
  EXPECT_TRUE(results[1].tensors().empty());
  sgd_steps_({}, {}, {}, 0.25);  // nothing to do
}

TEST(ListsTest, RejectGradients) {
  const Tensor parameter = ones({3}).requires_grad_();
  expect_error(ErrorCode::kValue, {"NoGradGuard"},
               [&] { sgd_steps_({parameter}, {ones({3})}, {}, 0.25); });
  const NoGradGuard no_grad;
  sgd_steps_({parameter}, {ones({3})}, {}, 0.25);
  EXPECT_EQ(parameter[0].item<double>(), 0.75);
}

TEST(ListsTest, RejectInvalidListsBeforeWriting) {
  const Tensor a = ones({3}), b = ones({4});
  expect_error(ErrorCode::kShape, {"gradients[1]"}, [&] {
    sgd_steps_({a, b}, {ones({3}), ones({3})}, {}, 1);
  });
  expect_error(ErrorCode::kShape, {"momentum_buffers has 0"},
               [&] { sgd_steps_({a}, {ones({3})}, {}, 1, 0.5); });
  expect_error(ErrorCode::kType, {"float64"},
               [&] { sgd_steps_({a}, {ones({3}, kFloat64)}, {}, 1); });
  expect_error(ErrorCode::kShape, {"lr has shape"},
               [&] { sgd_steps_({a}, {ones({3})}, {}, ones({1})); });
  expect_error(ErrorCode::kValue, {"share memory"},
               [&] { sgd_steps_({ones({1}).expand({3})}, {ones({3})}, {}, 1); });
  EXPECT_EQ(a[0].item<double>(), 1);
}

TEST(GraphTest, CpuDoesNotSupportGraphs) {
  Graph graph(kCPU);
  bool ran = false;
  expect_error(ErrorCode::kUnsupported, {"cpu does not support graphs"},
               [&] { graph.capture([&] { ran = true; }); });
  EXPECT_FALSE(ran);
  EXPECT_FALSE(graph.captured());
  expect_error(ErrorCode::kValue, {"capture()"}, [&] { graph.replay(); });
  EXPECT_FALSE(is_capturing(kCPU));
  run_uncaptured(kCPU, [&] { ran = true; });
  EXPECT_TRUE(ran);
  expect_error(ErrorCode::kUnsupported, {"cpu"}, [] { memory_stats(kCPU); });
  expect_error(ErrorCode::kUnsupported, {"cpu"}, [] { empty_pinned({3}, kFloat32, kCPU); });
  synchronize(kCPU);
}

}  // namespace
}  // namespace mytorch
