// Forms of calls that programs for libtorch and Python use.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

using Sizes = std::vector<int64_t>;

template <class F>
std::string message_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Forms, SizesNeedNoBraces) {
  const Tensor x = arange(6);
  EXPECT_EQ(x.view(2, 3).sizes().vec(), (Sizes{2, 3}));
  EXPECT_EQ(x.view(6).sizes().vec(), (Sizes{6}));
  EXPECT_EQ(tensor({1.5}).view({}).sizes().vec(), (Sizes{}));
  EXPECT_EQ(x.reshape(3, int64_t{-1}).sizes().vec(), (Sizes{3, 2}));
  EXPECT_EQ(x.view(size_t{1}, 6).expand(4, -1).sizes().vec(), (Sizes{4, 6}));
  EXPECT_EQ(x.view(1, 2, 3).permute(2, 0, 1).sizes().vec(), (Sizes{3, 1, 2}));
  EXPECT_EQ(x.repeat(2, 1).sizes().vec(), (Sizes{2, 6}));
}

TEST(Forms, SizesAreVectorsAndArrays) {
  const Tensor x = arange(6);
  EXPECT_EQ(x.view(std::vector<int64_t>{2, 3}).sizes().vec(), (Sizes{2, 3}));
  EXPECT_EQ(x.view(std::array<int64_t, 2>{3, 2}).sizes().vec(), (Sizes{3, 2}));
  EXPECT_EQ(zeros(std::array<int64_t, 2>{3, 2}).sizes().vec(), (Sizes{3, 2}));
  EXPECT_EQ(x.view({2, 3}).sum(std::array<int64_t, 2>{0, 1}).item<int64_t>(), 15);
}

TEST(Forms, OneElementConvertsToANumber) {
  EXPECT_EQ(float(tensor({2.5f})), 2.5f);
  EXPECT_EQ(static_cast<double>(tensor(0.25)), 0.25);
  EXPECT_EQ(int64_t(tensor(7)), 7);
  EXPECT_NE(message_of([] { (void)float(zeros({2})); }), "no error");
  static_assert(!std::is_convertible_v<Tensor, float>, "only if asked for");
  static_assert(!std::is_constructible_v<bool, Tensor>, "`if (x)` is a mistake");
}

TEST(Forms, ANumberOrAListInBracesSuitsOneOverload) {
  const Tensor x = tensor({{3.0, 1, 2}, {5, 6, 4}});
  EXPECT_TRUE(argsort(x, 1).equal(tensor({{1, 2, 0}, {2, 0, 1}})));
  EXPECT_TRUE(argsort(x, 1, true).equal(tensor({{0, 2, 1}, {1, 0, 2}})));
  EXPECT_TRUE(argsort(x, int64_t{0}).equal(tensor({{0, 0, 0}, {1, 1, 1}})));
  EXPECT_TRUE(argsort(x, true, 1).equal(argsort(x, 1)));
  const Tensor points = tensor({{0.0, 0}, {1, 1}, {1, 0}});
  EXPECT_TRUE(std::get<0>(histogramdd(points, {2, 2})).equal(tensor({{1.0, 0}, {1, 1}})));
  EXPECT_EQ(std::get<0>(histogramdd(points, 3)).sizes().vec(), (Sizes{3, 3}));
  const Tensor edges = tensor({0.0, 0.5, 1});
  EXPECT_TRUE(std::get<0>(histogramdd(points, {edges, edges})).equal(tensor({{1.0, 0}, {1, 1}})));
}

TEST(Forms, UniqueDim) {
  const Tensor x = tensor({{1, 2}, {0, 1}, {1, 2}});
  const auto [rows, inverse, counts] = unique_dim(x, 0, true, true, true);
  EXPECT_TRUE(rows.equal(tensor({{0, 1}, {1, 2}})));
  EXPECT_TRUE(inverse.equal(tensor({1, 0, 1})));
  EXPECT_TRUE(counts.equal(tensor({1, 2})));
}

TEST(Forms, TransposedPrintedAndItsMemory) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(x.T().sizes().vec(), (Sizes{3, 2}));
  ::testing::internal::CaptureStderr();
  x.print();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "mytorch: [float32 (2, 3) on cpu]\n");
  const Tensor row = x[1];
  EXPECT_EQ(row.storage().nbytes(), x.storage().nbytes());
  EXPECT_GE(x.storage().nbytes(), 24u);
  EXPECT_EQ(row.storage().data(), x.raw_data());
  EXPECT_TRUE(row.storage().is_alias_of(x.storage()));
  EXPECT_FALSE(x.clone().storage().is_alias_of(x.storage()));
  static_cast<float*>(row.storage().mutable_data())[0] = 7;
  EXPECT_EQ(float(x[0][0]), 7);
}

// The bits of 1.0f are 0x3f800000, those of 2.0f 0x40000000 (IEEE 754).
TEST(ViewDtype, ReadsTheSameBytes) {
  const Tensor x = tensor({{1.0f, 2.0f}});
  EXPECT_TRUE(x.view(kInt32).equal(tensor({{0x3f800000, 0x40000000}}).to(kInt32)));
  EXPECT_TRUE(x.view(kInt16).equal(tensor({{0, 0x3f80, 0, 0x4000}}).to(kInt16)));
  EXPECT_EQ(x.view(kInt64).item<int64_t>(), 0x400000003f800000);
  EXPECT_TRUE(x.view(kFloat32).equal(x));
  EXPECT_TRUE(x.view(kUInt8).storage().is_alias_of(x.storage()));
  x.view(kInt32).fill_(0x40000000);
  EXPECT_TRUE(x.equal(full({1, 2}, 2.0)));
  EXPECT_FALSE(x.clone().requires_grad_().view(kInt32).requires_grad());
}

TEST(ViewDtype, StridesAndSizesFollowPyTorch) {
  const Tensor x = zeros({4, 6}).slice(0, 0, 4, 2);  // strides 12, 1
  EXPECT_EQ(x.view(kInt16).strides().vec(), (Sizes{24, 1}));
  EXPECT_EQ(x.view(kFloat64).strides().vec(), (Sizes{6, 1}));
  EXPECT_EQ(x.view(kFloat64).sizes().vec(), (Sizes{2, 3}));
  // Of the same size, any strides.
  EXPECT_EQ(x.t().view(kInt32).strides().vec(), (Sizes{1, 12}));
  const auto refused = [](const Tensor& y, ScalarType dtype, const char* part) {
    const std::string message = message_of([&] { y.view(dtype); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused(x.t(), kInt16, "has stride 12");
  refused(zeros({2, 3}), kFloat64, "no multiple of 2");
  refused(zeros({2, 3}).slice(1, 0, 2), kFloat64, "not all multiples of 2");
  refused(zeros({5}).slice(0, 1, 5), kFloat64, "use clone()");
  refused(zeros({}), kInt16, "unsqueeze");
  refused(zeros({2}, kUInt8), kBool, "need not be 0 and 1");
}

TEST(MemoryFormats, ChannelsLastIsAnOrderOfTheSameElements) {
  const Tensor x = arange(24).view(1, 2, 3, 4);
  EXPECT_EQ(x.suggest_memory_format(), MemoryFormat::Contiguous);
  const Tensor last = x.contiguous(MemoryFormat::ChannelsLast);
  EXPECT_TRUE(last.equal(x));
  EXPECT_EQ(last.strides().vec(), (Sizes{24, 1, 8, 2}));
  EXPECT_EQ(last.suggest_memory_format(), MemoryFormat::ChannelsLast);
  EXPECT_TRUE(last.is_contiguous(MemoryFormat::ChannelsLast));
  EXPECT_FALSE(last.is_contiguous());
  EXPECT_FALSE(x.is_contiguous(MemoryFormat::ChannelsLast));
  // What has the order is returned as it is.
  EXPECT_TRUE(last.contiguous(MemoryFormat::ChannelsLast).is_same(last));
  EXPECT_TRUE(last.to(MemoryFormat::Preserve).is_same(last));
  EXPECT_EQ(last.to(MemoryFormat::Contiguous).strides().vec(), x.strides().vec());
  const Tensor volume = zeros({2, 3, 4, 5, 6}).to(MemoryFormat::ChannelsLast3d);
  EXPECT_EQ(volume.strides().vec(), (Sizes{360, 1, 90, 18, 3}));
  EXPECT_EQ(volume.suggest_memory_format(), MemoryFormat::ChannelsLast3d);
  EXPECT_NE(message_of([] {
              zeros({2, 3}).to(MemoryFormat::ChannelsLast);
            }).find("has not the 4 dimensions"),
            std::string::npos);
}

TEST(MemoryFormats, ClonesHaveTheOrder) {
  const Tensor x = arange(24).view(1, 2, 3, 4);
  const Tensor last = x.clone(MemoryFormat::ChannelsLast);
  EXPECT_EQ(last.strides().vec(), (Sizes{24, 1, 8, 2}));
  EXPECT_TRUE(last.equal(x));
  const Tensor again = last.clone(MemoryFormat::ChannelsLast);
  EXPECT_EQ(again.strides().vec(), last.strides().vec());
  EXPECT_FALSE(again.storage().is_alias_of(last.storage()));
  const Tensor rows = x.clone(MemoryFormat::Contiguous);
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_FALSE(rows.storage().is_alias_of(x.storage()));
  EXPECT_TRUE(last.clone(MemoryFormat::Contiguous).is_contiguous());
  EXPECT_FALSE(x.clone(MemoryFormat::Preserve).storage().is_alias_of(x.storage()));
}

TEST(Forms, ReductionsTakeATypeAlone) {
  const Tensor x = tensor({{3, 4}, {6, 8}}).to(kInt32);
  EXPECT_EQ(x.sum(kFloat64).dtype(), kFloat64);
  EXPECT_EQ(x.sum(kFloat64).item<double>(), 21);
  EXPECT_EQ(x.mean(kFloat64).item<double>(), 5.25);
  EXPECT_EQ(x.to(kFloat32).norm(2, kFloat64).dtype(), kFloat64);
  EXPECT_TRUE(x.to(kFloat32).norm(2, {1}, true, kFloat64).equal(tensor({{5.0}, {10.0}}, kFloat64)));
  EXPECT_EQ(x.sum({}).item<int64_t>(), 21);
}

TEST(Forms, PropertiesOfLibtorch) {
  Tensor x = zeros({2, 3});
  EXPECT_EQ(x.layout(), kStrided);
  EXPECT_NE(message_of([] { (void)Tensor().layout(); }), "no error");
  const int64_t version = x._version();
  x.add_(1);
  EXPECT_EQ(x._version(), version + 1);
  EXPECT_TRUE(x.sizes().equals({2, 3}));
  EXPECT_FALSE(x.sizes().equals({3, 2}));
  EXPECT_EQ(x.to(x.options(), /*non_blocking=*/true).raw_data(), x.raw_data());
  EXPECT_NE(x.to(x.options(), false, /*copy=*/true).raw_data(), x.raw_data());
  x.reset();
  EXPECT_FALSE(x.defined());
  const auto options = TensorOptions().dtype<double>();
  EXPECT_EQ(options.dtype(), kFloat64);
  EXPECT_TRUE(options.has_dtype());
  EXPECT_FALSE(options.has_device());
  EXPECT_TRUE(Scalar(1.5).isFloatingPoint());
  EXPECT_TRUE(Scalar(1).isIntegral(false));
  EXPECT_TRUE(Scalar(true).isIntegral(true) && Scalar(true).isBoolean());
  EXPECT_FALSE(Scalar(true).isIntegral(false));
}

TEST(Forms, ChecksHaveCodesAndTheTextOfTheCondition) {
  const auto code_of = [](auto check) {
    try {
      check();
    } catch (const Error& error) {
      EXPECT_EQ(error.msg(), error.what());
      EXPECT_STREQ(error.what_without_backtrace(), "[INT64_MAX < 0] 3 is wrong");
      return error.code();
    }
    return ErrorCode{};
  };
  EXPECT_EQ(code_of([] { MYTORCH_CHECK(INT64_MAX < 0, 3, " is wrong"); }), ErrorCode::kValue);
  EXPECT_EQ(code_of([] { MYTORCH_CHECK_VALUE(INT64_MAX < 0, 3, " is wrong"); }), ErrorCode::kValue);
  EXPECT_EQ(code_of([] { MYTORCH_CHECK_INDEX(INT64_MAX < 0, 3, " is wrong"); }), ErrorCode::kValue);
  EXPECT_EQ(code_of([] { MYTORCH_CHECK_TYPE(INT64_MAX < 0, 3, " is wrong"); }), ErrorCode::kType);
  EXPECT_EQ(code_of([] { MYTORCH_CHECK_NOT_IMPLEMENTED(INT64_MAX < 0, 3, " is wrong"); }),
            ErrorCode::kUnsupported);
  EXPECT_EQ(code_of([] { MYTORCH_INTERNAL_ASSERT(INT64_MAX < 0, 3, " is wrong"); }),
            ErrorCode::kInternal);
  MYTORCH_INTERNAL_ASSERT(true);
  static bool warned = false;  // the tests may be repeated in one process
  ::testing::internal::CaptureStderr();
  for (int k = 0; k < 2; ++k) MYTORCH_WARN_ONCE("slow ", k);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), warned ? "" : "mytorch: warning: slow 0\n");
  warned = true;
}

TEST(Forms, BackwardOfSomeLeavesAndKeptGradients) {
  const Tensor x = ones({2}).requires_grad_(), y = ones({2}).requires_grad_();
  const Tensor z = x * y;
  EXPECT_FALSE(z.retains_grad());
  z.retain_grad();
  EXPECT_TRUE(z.retains_grad());
  const Tensor sum = z.sum();
  sum.backward({}, /*retain_graph=*/true, /*create_graph=*/false, /*inputs=*/{x});
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(y.grad().defined());
  sum.backward({}, std::nullopt, false);
  EXPECT_TRUE(y.grad().equal(ones({2})));
  EXPECT_NE(message_of([&] { sum.backward(); }), "no error");  // nullopt keeps no graph
}

TEST(Forms, InferenceModeFalseRecords) {
  const InferenceMode outer;
  {
    const InferenceMode inner(false);
    EXPECT_TRUE(grad_enabled());
    EXPECT_TRUE((ones({2}).requires_grad_() * 2).requires_grad());
  }
  EXPECT_FALSE(grad_enabled());
  EXPECT_TRUE(inference_mode_enabled());
}

TEST(Forms, AnomalyModeWithoutAScope) {
  autograd::AnomalyMode::set_enabled(true);
  EXPECT_TRUE(autograd::AnomalyMode::is_enabled());
  autograd::AnomalyMode::set_enabled(false);
  {
    const autograd::DetectAnomalyGuard guard;
    EXPECT_TRUE(autograd::AnomalyMode::is_enabled());
  }
  EXPECT_FALSE(autograd::AnomalyMode::is_enabled());
}

TEST(MemoryFormats, GradientsPass) {
  const Tensor x = ones({1, 2, 3, 4}).requires_grad_();
  (x.contiguous(MemoryFormat::ChannelsLast) * 2).sum().backward();
  EXPECT_TRUE(x.grad().equal(full({1, 2, 3, 4}, 2.0)));
}

}  // namespace
}  // namespace mytorch
