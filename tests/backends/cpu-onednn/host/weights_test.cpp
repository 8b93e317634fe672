// Cached weights through the framework: a write to a weight invalidates its cached copies, and
// results do not depend on the chosen backend.
#include <gtest/gtest.h>

#include "mytorch/backends.h"
#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

class OnednnWeights : public ::testing::Test {
 protected:
  OnednnWeights()
      : input(rand({2, 32, 20, 20})),
        weight(sub(rand({32, 32, 3, 3}), 0.5)),
        pin("cpu", "cpu-onednn") {}

  Tensor convolve() const {
    return convolution(input, weight, {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
  }
  // Runs several times, so that a reordered copy of the weight is cached and used.
  void expect_right(const char* after) const {
    Tensor expected;
    {
      Prefer other("cpu", "cpu-openmp");
      expected = convolve();
    }
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(allclose(convolve(), expected, 1e-4, 1e-4)) << after << ", call " << i;
    }
  }

  NoGradGuard no_grad;
  Tensor input, weight;
  Prefer pin;
};

TEST_F(OnednnWeights, AreRepackedAfterEveryWrite) {
  expect_right("at first");
  weight.mul_(2);
  expect_right("in place");
  weight.copy_(rand({32, 32, 3, 3}));
  expect_right("a copy");
  weight.select(0, 3).fill_(7);
  expect_right("through a view");
  weight.view({-1}).add_(1);
  expect_right("through another shape");
  mul_out(weight, weight, rand({32, 32, 3, 3}));
  expect_right("as out");
  weight.detach().neg_();
  expect_right("through a detached tensor");
}

TEST_F(OnednnWeights, AreRepackedAfterWritesThroughPointers) {
  expect_right("at first");
  auto* const data = static_cast<float*>(weight.raw_mutable_data());
  data[0] = 3;
  expect_right("through a pointer");
  data[1] = -2;  // a write that the host does not count
  expect_right("through the same pointer, later");
}

TEST_F(OnednnWeights, OfAFreedTensorAreNotReusedForTheNext) {
  for (int i = 0; i < 6; ++i) {
    weight = Tensor();
    weight = rand({32, 32, 3, 3});
    expect_right("another tensor");
  }
}

}  // namespace
}  // namespace mytorch
