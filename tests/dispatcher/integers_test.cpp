// Integers wrap around in every kernel that adds them; signed overflow would be undefined.
#include <gtest/gtest.h>

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
