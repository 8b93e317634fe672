// Tensors from literals, containers and the program's memory, and back.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <sstream>
#include <vector>

#include "mytorch/ops/arange.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/polygamma.h"
#include "mytorch/ops/randint.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/tensor.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch {
namespace {

using testing::expect_error;
using testing::values;
using Numbers = std::vector<double>;

void expect(const Tensor& found, ScalarType dtype, IntList sizes, const Numbers& expected) {
  EXPECT_EQ(found.dtype(), dtype);
  EXPECT_EQ(found.sizes().vec(), sizes.vec());
  EXPECT_EQ(values(found), expected);
}

TEST(TensorLiterals, HaveTheTypeOfTheirNumbers) {
  expect(tensor(1), kInt64, {}, {1});
  expect(tensor(1.5), kFloat32, {}, {1.5});
  expect(tensor(true), kBool, {}, {1});
  expect(tensor({1, 2, 3}), kInt64, {3}, {1, 2, 3});
  expect(tensor({1, 2.5}), kFloat32, {2}, {1, 2.5});
  expect(tensor({true, false}), kBool, {2}, {1, 0});
  expect(tensor({true, false, true, true}), kBool, {4}, {1, 0, 1, 1});
  expect(tensor({uint8_t{3}, uint8_t{4}}), kInt64, {2}, {3, 4});
  expect(tensor({}), kFloat32, {0}, {});
  expect(tensor({1, 2}, kFloat64), kFloat64, {2}, {1, 2});
  expect(tensor({1, 2}, dtype(kInt8).device(kCPU)), kInt8, {2}, {1, 2});
  EXPECT_TRUE(tensor({1.0}, requires_grad()).requires_grad());
}

TEST(TensorLiterals, AreExact) {
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;
  EXPECT_EQ(tensor({kOdd}).item<int64_t>(), kOdd);
  EXPECT_EQ(tensor(std::numeric_limits<int64_t>::min()).item<int64_t>(),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(tensor({0.1}, kFloat64).item<double>(), 0.1);
}

TEST(TensorLiterals, Nest) {
  expect(tensor({{1, 2}, {3, 4}, {5, 6}}), kInt64, {3, 2}, {1, 2, 3, 4, 5, 6});
  expect(tensor({{1.5, 2}}), kFloat32, {1, 2}, {1.5, 2});
  expect(tensor({{{1}, {2}}, {{3}, {4}}}), kInt64, {2, 2, 1}, {1, 2, 3, 4});
  expect(tensor({{}, {}}), kFloat32, {2, 0}, {});
}

TEST(TensorLiterals, RefuseRaggedListsAndLostValues) {
  expect_error(ErrorCode::kShape, {"[tensor]", "3 elements", "2"}, [] {
    tensor({{1, 2}, {1, 2, 3}});
  });
  expect_error(ErrorCode::kShape, {"[tensor]", "beside a list"}, [] { tensor({{1, 2}, 3}); });
  expect_error(ErrorCode::kShape, {"[tensor]", "beside a list"}, [] { tensor({3, {1, 2}}); });
  expect_error(ErrorCode::kValue, {"[tensor]", "300", "uint8"}, [] { tensor({300}, kUInt8); });
  // Of a list of the program, too.
  expect_error(ErrorCode::kValue, {"[tensor]", "300", "uint8"}, [] {
    tensor(std::vector<int64_t>{1, 300}, kUInt8);
  });
  expect_error(ErrorCode::kValue, {"[tensor]", "-1", "uint8"},
               [] { tensor(std::vector<int8_t>{-1}, kUInt8); });
  expect_error(ErrorCode::kValue, {"[tensor]", "1e+20", "int64"},
               [] { tensor(std::vector<double>{1e20}, kInt64); });
  expect_error(ErrorCode::kValue, {"[tensor]", "nan", "int32"},
               [] { tensor(std::vector<float>{NAN}, kInt32); });
  EXPECT_EQ(tensor(std::vector<double>{2.75, -2.75}, kInt8).to_vector<int64_t>(),
            (std::vector<int64_t>{2, -2}));
  EXPECT_EQ(tensor(std::vector<int64_t>{300}, kBool).to_vector<int64_t>(),
            (std::vector<int64_t>{1}));
  expect_error(ErrorCode::kValue, {"[tensor]", "-1", "uint8"}, [] { tensor({-1}, kUInt8); });
  expect_error(ErrorCode::kValue, {"[tensor]", "nan", "int64"}, [] { tensor({NAN}, kInt64); });
  expect_error(ErrorCode::kValue, {"[tensor]", "int64"}, [] { tensor({9.3e18}, kInt64); });
}

TEST(TensorOfContainers, OfEveryType) {
  expect(tensor(std::vector<double>{1.5, 2}), kFloat32, {2}, {1.5, 2});
  expect(tensor(std::vector<double>{1.5}, kFloat64), kFloat64, {1}, {1.5});
  expect(tensor(std::vector<float>{1.5F}), kFloat32, {1}, {1.5});
  expect(tensor(std::vector<int>{1, -2}), kInt64, {2}, {1, -2});
  expect(tensor(std::vector<int64_t>{1}), kInt64, {1}, {1});
  expect(tensor(std::vector<uint8_t>{255}), kInt64, {1}, {255});
  expect(tensor(std::vector<uint8_t>{255}, kUInt8), kUInt8, {1}, {255});
  expect(tensor(std::vector<bool>{true, false}), kBool, {2}, {1, 0});
  expect(tensor(std::vector<Half>{Half(1.5F)}), kFloat16, {1}, {1.5});
  expect(tensor(std::array<int16_t, 2>{1, 2}), kInt64, {2}, {1, 2});
  const int memory[] = {1, 2, 3};
  expect(tensor(std::span<const int>(memory)), kInt64, {3}, {1, 2, 3});
  expect(tensor(std::vector<float>()), kFloat32, {0}, {});
}

TEST(ToVector, ConvertsAndFollowsStrides) {
  const Tensor x = arange(6).reshape({2, 3}).t();
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ((x > 2).to_vector<bool>(), (std::vector<bool>{false, true, false, true, false, true}));
  EXPECT_EQ(tensor({1.0}).requires_grad_().to_vector<double>(), (std::vector<double>{1}));
  EXPECT_TRUE(zeros({0, 3}).to_vector<float>().empty());
}

TEST(FromBlob, HasTheTypeOfTheMemory) {
  double memory[] = {1, 2, 3, 4};
  expect(from_blob(memory, {2, 2}), kFloat64, {2, 2}, {1, 2, 3, 4});
  expect(from_blob(memory, {2, 2}, {1, 2}), kFloat64, {2, 2}, {1, 3, 2, 4});
  expect(from_blob(static_cast<void*>(memory), {2}, kFloat64), kFloat64, {2}, {1, 2});
  expect_error(ErrorCode::kType, {"[from_blob]", "float64", "float32"},
               [&] { from_blob(memory, {2}, kFloat32); });
  expect_error(ErrorCode::kValue, {"[from_blob]", "null"},
               [] { from_blob(static_cast<float*>(nullptr), {1}); });
  expect_error(ErrorCode::kShape, {"[from_blob]", "beyond"}, [&] {
    from_blob(memory, {int64_t{1} << 40, int64_t{1} << 40});
  });
}

TEST(FromBlob, CallsTheDeleterOnce) {
  float memory[] = {1, 2};
  int calls = 0;
  {
    const Tensor x = from_blob(memory, {2}, [&](void* data) { calls += data == memory; });
    const Tensor view = x[0];
    EXPECT_EQ(calls, 0);
  }
  EXPECT_EQ(calls, 1);
}

TEST(FromBlob, OverConstMemoryIsNeverWritten) {
  const float memory[] = {1, 2};
  const Tensor x = from_blob(memory, {2});
  EXPECT_EQ(values(x + x), (Numbers{2, 4}));
  const auto refused = [](auto write) {
    expect_error(ErrorCode::kValue, {"`const` memory", "clone()"}, write);
  };
  refused([&] { x.add_(1); });
  refused([&] { x.fill_(0); });
  refused([&] { x[0] = 5; });
  refused([&] { x.view({1, 2}).zero_(); });
  refused([&] { x.detach().zero_(); });
  refused([&] { x.index_put_({x > 0}, 0); });
  refused([&] { sum_out(x[0], x); });
  refused([&] { x.data<float>(); });
  Tensor y = zeros({2});
  y.set_data(x);
  refused([&] { y.mul_(2); });
  EXPECT_EQ(memory[0], 1);
  EXPECT_EQ(values(x.clone().add_(1)), (Numbers{2, 3}));
}

TEST(TensorOptionsTest, ReplaceDtypeAndDevice) {
  const TensorOptions options = TensorOptions().device(kCPU).dtype(kFloat64);
  EXPECT_EQ(zeros({2}, options).dtype(), kFloat64);
  EXPECT_EQ(zeros({2}, kCPU).dtype(), kFloat32);
  EXPECT_EQ(ones({2}, dtype(kInt8)).dtype(), kInt8);
  EXPECT_EQ(zeros({2}, ones({1}, kInt16).options()).dtype(), kInt16);
  EXPECT_TRUE(ones({2}, requires_grad().dtype(kFloat64)).requires_grad());
  EXPECT_FALSE(ones({2}, requires_grad(false)).requires_grad());
  EXPECT_EQ(randint(5, {2}, dtype(kInt32), Generator(3)).dtype(), kInt32);
  EXPECT_EQ(arange(3, dtype(kFloat64)).dtype(), kFloat64);
  EXPECT_EQ(scalar_tensor(2, dtype(kInt32)).dtype(), kInt32);
  EXPECT_EQ(ones({2}).to(dtype(kInt8)).dtype(), kInt8);
  EXPECT_EQ(zeros({2}, {}).dtype(), kFloat32);
  EXPECT_EQ(ones({2}).to("cpu").device(), kCPU);
  EXPECT_EQ(tensor({1}, "cpu").device(), kCPU);
  EXPECT_EQ(zeros({2}, TensorOptions().layout(kStrided).dtype(kInt8)).dtype(), kInt8);
}

TEST(TensorOptionsTest, ArePrinted) {
  std::ostringstream text;
  text << requires_grad().dtype(kFloat64) << "; " << ones({1}, kInt8).options().pinned_memory(true);
  EXPECT_EQ(text.str(),
            "dtype=float64, device=cpu, requires_grad=true; "
            "dtype=int8, device=cpu, requires_grad=false, pinned_memory=true");
}

TEST(TensorOptionsTest, PinnedMemoryIsOfADevice) {
  const auto pinned = [] { return zeros({2}, TensorOptions().pinned_memory(true)); };
  if (device_count(MT_DEVICE_CUDA) > 0) {
    EXPECT_EQ(pinned().to_vector<float>(), (std::vector<float>{0, 0}));
    EXPECT_EQ(ones({1}).pin_memory().item<float>(), 1);
  } else {
    EXPECT_THROW(pinned(), Error);
    EXPECT_THROW(ones({1}).pin_memory(), Error);
  }
}

TEST(Names, OfLibtorch) {
  const Tensor x = ones({2, 3}, kFloat);
  EXPECT_EQ(kLong, kInt64);
  EXPECT_EQ(x.ndimension(), 2);
  EXPECT_EQ(x.get_device(), -1);
  EXPECT_TRUE(x.is_same_size(zeros({2, 3})));
  EXPECT_FALSE(x.is_same_size(zeros({3, 2})));
  EXPECT_EQ(ones({1}).polygamma(1).item<float>(), polygamma(1, ones({1})).item<float>());
  EXPECT_EQ(x.scalar_type(), kFloat32);
  EXPECT_EQ(x.nbytes(), 24);
  EXPECT_EQ(x.itemsize(), 4);
  EXPECT_TRUE(x.is_cpu() && !x.is_cuda() && x.is_signed());
  EXPECT_EQ(x.data_ptr<float>(), x.data_ptr());
  EXPECT_EQ(x.const_data_ptr<float>()[5], 1);
  EXPECT_EQ(x.sum().item().toDouble(), 6);
  EXPECT_EQ(x.sum().item().to<int>(), 6);
  EXPECT_EQ(x.toType(kDouble).dtype(), kFloat64);
  EXPECT_TRUE(x.sum().is_nonzero());
  EXPECT_EQ(x.cpu().device(), Device(kCPU, 0));
  EXPECT_EQ(Device(kCUDA, 1).index, 1);
  EXPECT_EQ(x.new_zeros({4}).dtype(), kFloat32);
  EXPECT_EQ(values(x.new_full({2}, 7)), (Numbers{7, 7}));
  EXPECT_EQ(x.gelu().sizes().vec(), x.sizes().vec());
}

TEST(Iteration, YieldsViewsOfTheFirstDimension) {
  const Tensor x = arange(6).reshape({3, 2});
  int64_t total = 0;
  for (const Tensor& row : x) {
    EXPECT_TRUE(row.is_view());
    total = total * 10 + row[1].item<int64_t>();
  }
  EXPECT_EQ(total, 135);
  for (Tensor row : x) row.add_(1);
  EXPECT_EQ(values(x[0]), (Numbers{1, 2}));
  for (const Tensor& none : zeros({0, 2})) FAIL() << none;
  EXPECT_EQ(std::vector<Tensor>(x.begin(), x.end()).size(), 3u);
  expect_error(ErrorCode::kShape, {"0-dim", "item()"}, [] {
    for (const Tensor& none : tensor(1)) FAIL() << none;
  });
}

}  // namespace
}  // namespace mytorch
