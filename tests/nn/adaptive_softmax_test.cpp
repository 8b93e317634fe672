// AdaptiveLogSoftmaxWithLoss, compared with PyTorch 2.x.
#include "mytorch/nn/adaptive_softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mytorch/ops/argmax.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/equal.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/randn.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/golden.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using Inputs = std::vector<Tensor>;

AdaptiveLogSoftmaxWithLoss example() {
  return filled_module(
      AdaptiveLogSoftmaxWithLoss(12, 20, {4, 9, 14}, {.div_value = 2, .head_bias = true}));
}

Tensor classes(const std::vector<int64_t>& of) { return tensor(of); }

TEST(AdaptiveSoftmax, AgreesWithPyTorch) {
  AdaptiveLogSoftmaxWithLoss module = example();
  std::string keys;
  for (const auto& [name, value] : module.named_parameters()) keys += name + " ";
  EXPECT_EQ(keys,
            "head.weight head.bias tail.0.0.weight tail.0.1.weight tail.1.0.weight "
            "tail.1.1.weight tail.2.0.weight tail.2.1.weight ");
  const Tensor target = classes({0, 3, 17, 4, 8, 3, 19});
  expect_golden("output", [&](const Inputs& x) { return module(x[0], target).output; }, {{7, 12}},
                {{7}, 25.0695065736, -17.6320766747});
  expect_golden("loss", [&](const Inputs& x) { return module(x[0], target).loss; }, {{7, 12}},
                {{}, 4.88830059606, -3.56243702712});
  expect_golden("log_prob", [&](const Inputs& x) { return module.log_prob(x[0]); }, {{7, 12}},
                {{7, 20}, 37.6577480376, -45.256541908});
  expect_golden("unbatched", [&](const Inputs& x) { return module(x[0], tensor(10)).output; },
                {{12}}, {{}, -3.70827654699, 4.30662132128});
  expect_values(module.predict(wave({7, 12}, 0)), {0, 0, 2, 0, 0, 2, 0});
  // Widths are floored as Python's // does it: 11 // 1.1 is 9.
  AdaptiveLogSoftmaxWithLoss odd(11, 6, {2, 4}, {.div_value = 1.1});
  EXPECT_EQ(odd.parameters()[1].sizes().vec(), (Shape{9, 11}));
  EXPECT_EQ(odd.parameters()[3].sizes().vec(), (Shape{9, 11}));
}

TEST(AdaptiveSoftmax, IsADistribution) {
  AdaptiveLogSoftmaxWithLoss module(8, 30, {3, 10});
  const Tensor x = 5 * randn({200, 8});
  const Tensor all = module.log_prob(x);
  expect_values(exp(all).sum(1), std::vector<double>(200, 1), 1e-5);
  const Tensor best = argmax(all, 1);
  EXPECT_TRUE(equal(module.predict(x), best));
  EXPECT_GT(best.max().item<int64_t>(), 2);  // some in the clusters, others in the head
  EXPECT_LT(best.min().item<int64_t>(), 3);
  const auto [output, loss] = module(x, best);
  expect_values(output, values(gather(all, 1, best.unsqueeze(1))), 1e-5);
  expect_values(loss, values(-mean(output)));
}

TEST(AdaptiveSoftmax, TrainsOnlyTheClustersOfTargets) {
  AdaptiveLogSoftmaxWithLoss module(8, 30, {3, 10});
  module(ones({2, 8}), classes({1, 5})).loss.backward();
  for (const auto& item : module.named_parameters()) {
    EXPECT_EQ(item.value().grad().defined(), item.key().rfind("tail.1", 0) != 0) << item.key();
  }
  EXPECT_TRUE(std::isnan(module(empty({0, 8}), empty({0}, kInt64)).loss.item<double>()));
}

TEST(AdaptiveSoftmax, HooksSeeTheOutput) {
  AdaptiveLogSoftmaxWithLoss module(8, 30, {3, 10});
  module.register_forward_hook(
      [](Module&, const Tensor&, const Tensor& output) { return output * 0; });
  expect_values(module(ones({2, 8}), classes({1, 5})).output, {0, 0});
  const AdaptiveLogSoftmaxWithLoss built(
      AdaptiveLogSoftmaxWithLossOptions(8, 30, {3, 10}).div_value(2).head_bias(true));
  EXPECT_EQ(built.describe(),
            "AdaptiveLogSoftmaxWithLoss(8, 30, cutoffs=(3, 10), div_value=2, head_bias=true)");
}

TEST(AdaptiveSoftmax, RefusesWhatItCannotTake) {
  const auto cutoffs = [](std::initializer_list<int64_t> of) {
    expect_error(ErrorCode::kValue, {"[AdaptiveLogSoftmaxWithLoss]", "cutoffs", "29"},
                 [&] { AdaptiveLogSoftmaxWithLoss(8, 30, of); });
  };
  cutoffs({});
  cutoffs({0});
  cutoffs({3, 3});
  cutoffs({10, 3});
  cutoffs({3, 30});
  cutoffs({INT64_MAX, INT64_MIN});
  for (const double div_value : {0.0, -1.0, 1e-300, static_cast<double>(NAN)}) {
    expect_error(ErrorCode::kValue, {"div_value"}, [&] {
      AdaptiveLogSoftmaxWithLoss(8, 30, {3, 10}, {.div_value = div_value});
    });
  }
  AdaptiveLogSoftmaxWithLoss module(8, 30, {3, 10});
  expect_error(ErrorCode::kShape, {"(2, 8)", "(3,)"}, [&] {
    module(ones({2, 8}), classes({0, 1, 2}));
  });
  expect_error(ErrorCode::kShape, {"(2, 7)"}, [&] { module(ones({2, 7}), classes({0, 1})); });
  expect_error(ErrorCode::kShape, {"()"}, [&] { module(tensor(1.0), tensor(1)); });
  expect_error(ErrorCode::kShape, {"(8,)"}, [&] { module.predict(ones({8})); });
  expect_error(ErrorCode::kType, {"int64"}, [&] { module(ones({2, 8}), ones({2})); });
  for (const int64_t outside : {int64_t{-1}, int64_t{30}, INT64_MIN, INT64_MAX}) {
    expect_error(ErrorCode::kValue, {"0 to 29"}, [&] {
      module(ones({2, 8}), classes({0, outside}));
    });
  }
}

}  // namespace
}  // namespace mytorch::nn
