#include "mytorch/autograd/callback.h"

#include <gtest/gtest.h>

#include <string>

#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

TEST(QueueCallback, RunsOnceAtTheEndOfTheBackward) {
  const Tensor x = mytorch::ones({3}).requires_grad_();
  const Tensor y = x * 2;
  std::string events;
  y.register_hook([&](const Tensor&) {
    events += "hook ";
    autograd::queue_callback([&] {
      events += x.grad().defined() ? "end " : "early ";
      autograd::queue_callback([&] { events += "last "; });
    });
  });
  EXPECT_FALSE(autograd::in_backward());
  y.sum().backward();
  EXPECT_EQ(events, "hook end last ");
  EXPECT_FALSE(autograd::in_backward());
  (x * 3).sum().backward();
  EXPECT_EQ(events, "hook end last ");
}

TEST(QueueCallback, OfANestedBackwardRunsAfterTheOuterOne) {
  const Tensor x = mytorch::ones({3}).requires_grad_();
  const Tensor inner = mytorch::ones({2}).requires_grad_();
  const Tensor y = x * 2;
  std::string events;
  y.register_hook([&](const Tensor&) {
    const Tensor z = [&] {
      const EnableGradGuard grad;
      return inner * 2;
    }();
    z.register_hook([&](const Tensor&) { autograd::queue_callback([&] { events += "end "; }); });
    autograd::backward({z}, {mytorch::ones({2})});
    events += "nested ";
  });
  y.sum().backward();
  EXPECT_EQ(events, "nested end ");
}

TEST(QueueCallback, IsRefusedOutsideAndDroppedByErrors) {
  EXPECT_THROW(autograd::queue_callback([] {}), Error);
  const Tensor x = mytorch::ones({3}).requires_grad_();
  const Tensor y = x * 2;
  bool ran = false;
  y.register_hook([&](const Tensor&) {
    autograd::queue_callback([&] { ran = true; });
    throw Error(ErrorCode::kValue, "on purpose");
  });
  EXPECT_THROW(y.sum().backward(), Error);
  EXPECT_FALSE(ran);
  EXPECT_FALSE(autograd::in_backward());
}

}  // namespace
}  // namespace mytorch
