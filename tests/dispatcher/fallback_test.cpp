// The fallback of a device's operators to the CPU.
#include <cstdlib>

#include "mytorch/backends.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/native_dropout.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/nonzero.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::bare;
using testing::expect_error;
using testing::slow_paths_of;
using testing::Values;
using testing::values;

class FallbackTest : public ::testing::Test {
 protected:
  FallbackTest() { allow_fallback(true); }
  ~FallbackTest() override { allow_fallback(false); }
  static Tensor on_device(const Tensor& x) { return x.to(bare().device()); }
};

TEST_F(FallbackTest, IsForbiddenByDefault) {
  const Tensor x = on_device(tensor({-1.0, 2}));
  allow_fallback(false);
  expect_error(ErrorCode::kUnsupported, {"[neg]", "bare", "allow_fallback(true)"}, [&] { neg(x); });
  allow_fallback(true);
  EXPECT_EQ(values(neg(x)), (Values{1, -2}));
  allow_fallback(false);
  expect_error(ErrorCode::kUnsupported, {"[neg]"}, [&] { neg(x); });
}

TEST_F(FallbackTest, IsCountedAndWarnsOnce) {
  const Tensor x = on_device(tensor({4.0, 9}));
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(sqrt(x)), (Values{2, 3}));
  exp(x);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(slow_paths_of("sqrt").fallbacks, 3u);
  EXPECT_EQ(slow_paths_of("exp").fallbacks, 1u);
  auto count = [&](const std::string& text) {
    int n = 0;
    for (size_t at = said.find(text); at != said.npos; at = said.find(text, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("warning: [sqrt] runs on the CPU for bare"), 1);
  EXPECT_EQ(count("warning: [exp]"), 1);
}

TEST_F(FallbackTest, StridesViewsAndNumbers) {
  const Tensor memory = on_device(tensor({1.0, 2, 3, 4, 5, 6}));
  const Tensor odd = Tensor::adopt(new_view(memory.impl(), {3}, {2}, 1));
  EXPECT_EQ(values(add(odd, 10).contiguous()), (Values{12, 14, 16}));
  odd.mul_(100);
  EXPECT_EQ(values(memory), (Values{1, 200, 3, 400, 5, 600}));
  const Tensor turned = Tensor::adopt(new_view(memory.impl(), {3, 2}, {1, 3}, 0));
  EXPECT_EQ(values(mm(turned, turned.t()).sum()), values(mm(turned, turned.t()).to(kCPU).sum()));
  add_out(turned, turned, scalar_tensor(1));
  EXPECT_EQ(values(memory), (Values{2, 201, 4, 401, 6, 601}));
  EXPECT_EQ(values(sum(memory)), Values{1215});
}

TEST_F(FallbackTest, CreationListsAndWrittenArguments) {
  const Tensor ones_there = ones({2, 2}, kFloat32, bare().device());
  EXPECT_EQ(ones_there.device(), bare().device());
  EXPECT_EQ(values(cat({ones_there, ones_there * 2})), (Values{1, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(values(arange(4, kFloat32, bare().device())), (Values{0, 1, 2, 3}));
  const Tensor index = on_device(tensor(std::vector<int64_t>{1, 0}).view({1, 2}));
  EXPECT_EQ(values(gather(ones_there.cumsum(1), 1, index)), (Values{2, 1}));
  // Random numbers do not depend on the device.
  Generator a(7), b(7);
  const Tensor here = empty({5}).uniform_(0, 1, a);
  const Tensor there = empty({5}, kFloat32, bare().device()).uniform_(0, 1, b);
  EXPECT_EQ(values(there), values(here));
  EXPECT_EQ(values(zeros({0, 3}, kFloat32, bare().device()) + 1), Values{});
}

TEST_F(FallbackTest, CopiesOutputsOfUnknownSize) {
  const Tensor x = on_device(tensor({0, 2.5, 0, 1}));
  EXPECT_EQ(values(x.to(kInt64)), (Values{0, 2, 0, 1}));
  const Tensor places = nonzero(x);
  EXPECT_EQ(places.device(), bare().device());
  EXPECT_EQ(values(places), (Values{1, 3}));
  EXPECT_EQ(places.sizes().vec(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(nonzero(x * 0).numel(), 0);
}

// A call without a kernel uses the random number drawn for it, also for given outputs.
TEST_F(FallbackTest, DropoutIntoOutputsIsTheSame) {
  const Tensor x = on_device(ones({64}));
  const auto [kept, mask] = native_dropout(x, 0.5, true, Generator(3));
  const Tensor out = on_device(ones({64}));
  const Tensor out_mask = on_device(ones({64}, kBool));
  native_dropout_out(out, out_mask, x, 0.5, true, Generator(3));
  EXPECT_EQ(values(out), values(kept));
  EXPECT_EQ(values(out_mask), values(mask));
}

TEST_F(FallbackTest, GradientsStayOnTheDevice) {
  const Tensor x = on_device(tensor({1.0, 2, 3})).requires_grad_();
  (x * x).sum().backward();
  EXPECT_EQ(x.grad().device(), bare().device());
  EXPECT_EQ(values(x.grad()), (Values{2, 4, 6}));
}

TEST_F(FallbackTest, FailedCopiesAreErrors) {
  const Tensor x = on_device(tensor({1.0, 2}));
  for (const char* function : {"copy", "synchronize"}) {
    bare().let_fail(function);
    expect_error(ErrorCode::kDevice, {"bare", "failed"}, [&] { neg(x); });
    bare().let_fail("");
  }
  EXPECT_EQ(values(neg(x)), (Values{-1, -2}));
}

TEST_F(FallbackTest, DoesNotChangeTheLayout) {
  const Tensor memory = on_device(tensor({1.0, 2, 3, 4, 5, 6}));
  const Tensor turned = Tensor::adopt(new_view(memory.impl(), {3, 2}, {1, 3}, 0));
  EXPECT_EQ(neg(turned).strides().vec(), turned.strides().vec());
}

int by_environment() {
  setenv("MYTORCH_FALLBACK", "1", 1);
  const Tensor x = tensor({1.0, 2}).to(bare().device());
  return values(neg(x)) == Values{-1, -2} ? 0 : 1;
}

TEST(FallbackDeathTest, EnvironmentAllowsIt) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(by_environment()), ::testing::ExitedWithCode(0),
              "\\[neg\\] runs on the CPU");
}

}  // namespace
}  // namespace mytorch
