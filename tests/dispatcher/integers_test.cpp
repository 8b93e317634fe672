// Integers wrap around in every kernel that adds them; signed overflow would be undefined.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

std::vector<int64_t> integers_of(const Tensor& x) {
  const Tensor flat = x.to(kInt64).contiguous();
  return {flat.const_data<int64_t>(), flat.const_data<int64_t>() + flat.numel()};
}

TEST(Integers, ScatteredSumsWrapAround) {
  const Tensor most = full({3}, INT64_MAX, kInt64);
  const Tensor sum = zeros({2}, kInt64).scatter_add(0, zeros({3}, kInt64), most);
  EXPECT_EQ(integers_of(sum), (std::vector<int64_t>{INT64_MAX - 2, 0}));
}

TEST(Integers, GradientsOfMaxPoolingWrapAround) {
  const Tensor most = full({1, 2, 2, 2}, INT64_MAX, kInt64);
  const Tensor places = zeros({1, 2, 2, 2}, kInt64);
  const auto last = [](const Tensor& x) {
    return x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
  };
  const std::vector<int64_t> expected = {-4, 0, 0, 0, -4, 0, 0, 0};
  EXPECT_EQ(integers_of(max_pool2d_with_indices_backward(most, {1, 2, 2, 2}, places)), expected);
  EXPECT_EQ(integers_of(max_pool2d_with_indices_backward(last(most), {1, 2, 2, 2}, last(places))),
            expected);
}

TEST(Integers, GradientsOfConvolutionsWrapAround) {
  const auto gradients = [](ScalarType type) {
    const Tensor x = full({4, 2, 40, 40}, INT32_MAX, type), w = full({2, 2, 3, 3}, 3, type);
    const Tensor y = full({4, 2, 38, 38}, INT32_MAX, type);
    std::vector<Tensor> both;
    both.push_back(convolution_backward_weight(y, x, w.sizes(), {1, 1}, {0, 0}, {1, 1}, false,
                                               {0, 0}, 1, w.strides()));
    both.push_back(conv_transpose2d(y, w));
    return both;
  };
  const std::vector<Tensor> narrow = gradients(kInt32), wide = gradients(kInt64);
  for (size_t i = 0; i < narrow.size(); ++i) {
    EXPECT_EQ(integers_of(narrow[i]), integers_of(wide[i].to(kInt32)));
  }
}

// A number that the type of the computation lacks would become another one without a word.
TEST(Integers, NumbersOutsideOfTheTypeAreRefused) {
  const Tensor bytes = tensor({0, 1, 200, 255}, kUInt8), small = tensor({100, -100}, kInt8);
  const auto refused = [](const auto& call, const std::string& begin) {
    try {
      call();
      ADD_FAILURE() << "no error: " << begin;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kValue);
      EXPECT_EQ(std::string(error.what()).substr(0, begin.size()), begin);
    }
  };
  refused([&] { clamp(bytes, 300, 400); }, "[clamp] the number 300 is outside of uint8");
  refused([&] { clamp_max(bytes, -1); }, "[clamp_max] the number -1 is outside of uint8");
  refused([&] { maximum(bytes, 256); }, "[maximum] the number 256 is outside of uint8");
  refused([&] { small + 128; }, "[add] the number 128 is outside of int8");
  refused([&] { small.transpose(0, 0).add_(-129); }, "[add] the number -129 is outside of int8");
  refused([&] { bytes - 256; }, "[sub] the number 256 is outside of uint8");
  refused([&] { bytes + -256; }, "[add] the number -256 is outside of uint8");
  refused([&] { floor_divide(bytes, -1); }, "[floor_divide] the number -1 is outside of uint8");
  refused([&] { masked_fill(bytes, bytes > 1, 300); }, "[masked_fill] the number 300");
  refused([&] { where(bytes > 1, bytes, -1); }, "[where] the number -1 is outside of uint8");
  refused([&] { tensor({1}, kInt32) * (int64_t{1} << 31); }, "[mul] the number 2147483648");
  refused([&] { bytes.clone().fill_(-1); }, "[fill_] -1 is not a value of uint8");
  refused([&] { full({2}, 1e10, kInt32); }, "[full] fill_: 1e+10 is not a value of int32");
  refused([&] { full({2}, INFINITY, kInt64); }, "[full] fill_: inf is not a value of int64");
  refused([&] { scatter(bytes, 0, tensor({0}), 300); }, "[scatter] full: fill_: 300");
  refused([&] { index_fill(bytes, 0, tensor({0}), 300); }, "[index_fill]");
  refused([&] { pad(bytes, {1, 1}, "constant", 300); }, "[pad]");
  refused([&] { hardtanh(small, -300, 300); }, "[hardtanh] min_val is -300, outside of int8");
  refused([&] { hardtanh(bytes, -1, 7); }, "[hardtanh] min_val is -1, outside of uint8");
  refused([&] { threshold(small, 3, 700); }, "[threshold] value is 700, outside of int8");
  refused([&] { add(small, small, 300); }, "[add] alpha is 300, outside of int8");
  refused([&] { addcmul(small, small, small, 300); }, "[addcmul] value is 300, outside of int8");
  refused([] { linspace(0, 300, 4, kUInt8); }, "[linspace] 300 is not a value of uint8");
  refused([] { arange(0, 400, 100, kUInt8); }, "[arange] 300 is not a value of uint8");
  EXPECT_EQ(integers_of(arange(0, 300, 100, kUInt8)), (std::vector<int64_t>{0, 100, 200}));
  // A search compares numbers, whatever the type of the line.
  EXPECT_EQ(searchsorted(tensor({1, 3, 200}, kUInt8), 300).item<int64_t>(), 3);
  EXPECT_EQ(searchsorted(tensor({1, 3, 200}, kUInt8), -1).item<int64_t>(), 0);
  EXPECT_EQ(bucketize(2.5, tensor({1, 3, 200}, kUInt8)).item<int64_t>(), 1);
  // Where the low bits alone count, an unsigned type stands for negative numbers.
  EXPECT_EQ(integers_of(bytes + -1), (std::vector<int64_t>{255, 0, 199, 254}));
  EXPECT_EQ(integers_of(add(bytes, bytes, -1)), (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(integers_of(bytes * -1), (std::vector<int64_t>{0, 255, 56, 1}));
  EXPECT_EQ(integers_of(bitwise_and(bytes, -2)), (std::vector<int64_t>{0, 0, 200, 254}));
  EXPECT_EQ(integers_of(clamp(small, -128, 127)), (std::vector<int64_t>{100, -100}));
  EXPECT_EQ(integers_of(full({1}, 255.9, kUInt8)), (std::vector<int64_t>{255}));
}

// Bounds beyond all values of the type bound nothing.
TEST(Integers, BoundsMayLieOutsideOfTheType) {
  const Tensor bytes = tensor({0, 1, 200, 255}, kUInt8), small = tensor({100, -100}, kInt8);
  const std::vector<int64_t> same = {0, 1, 200, 255};
  EXPECT_EQ(integers_of(clamp(bytes, -1, 300)), same);
  EXPECT_EQ(integers_of(clamp(bytes, -1)), same);
  EXPECT_EQ(integers_of(clamp_max(bytes, 1000)), same);
  EXPECT_EQ(integers_of(maximum(bytes, -5)), same);
  EXPECT_EQ(integers_of(minimum(bytes.view({2, 2}).t(), 300)),
            (std::vector<int64_t>{0, 200, 1, 255}));
  EXPECT_EQ(integers_of(clamp(small, -1000, 50)), (std::vector<int64_t>{50, -100}));
  EXPECT_EQ(integers_of(clamp(tensor({1, -1}, kInt32), 0, int64_t{1} << 40)),
            (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(integers_of(bytes.clone().clamp_(-1, 100)), (std::vector<int64_t>{0, 1, 100, 100}));
}

// Comparisons are those of the numbers, whatever the types.
TEST(Integers, ComparisonsAreExact) {
  const Tensor bytes = tensor({0, 1, 200, 255}, kUInt8), wide = tensor({-1}, kInt64);
  const std::vector<int64_t> none = {0, 0, 0, 0}, all = {1, 1, 1, 1};
  for (const Tensor& x : {bytes, bytes.view({2, 2}).t(), bytes.expand({3, 4}).select(0, 1)}) {
    EXPECT_EQ(integers_of(x < -1), none);
    EXPECT_EQ(integers_of(x > -1), all);
    EXPECT_EQ(integers_of(x == 256), none);
    EXPECT_EQ(integers_of(x <= 1000), all);
    EXPECT_EQ(integers_of(x.reshape({4}) > wide.squeeze()), all);  // 0-dim
    EXPECT_EQ(integers_of(x.reshape({4}) != wide), all);
  }
  EXPECT_EQ(integers_of(bytes.clone().lt_(-1)), none);
  EXPECT_EQ(integers_of(tensor({1, 2}, kInt8) < tensor(300)), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(integers_of(tensor({true, false}) == 2), (std::vector<int64_t>{0, 0}));
}

// What a fuzzer found: each call ends in a result or an Error, without undefined arithmetic.
TEST(Integers, ArgumentsAtTheEndsAreRefusedOrTaken) {
  EXPECT_THROW(randperm(5, kComplex64), Error);
  EXPECT_THROW(fft_fftfreq(INT64_MAX), Error);
  EXPECT_THROW(convolution_backward_input(ones({1, 1, 3}), ones({1, 1, 1}), {1, 1, INT64_MIN}, {1},
                                          {0}, {1}, true, {0}, 1),
               Error);
  // The stride of a dimension of one element may be any number.
  const Tensor one = ones({1}, kComplex64).as_strided({1}, {INT64_MAX});
  EXPECT_EQ(one.clone().abs().item<float>(), 1);
}

}  // namespace
}  // namespace mytorch
