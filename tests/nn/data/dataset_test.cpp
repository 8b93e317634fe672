#include "mytorch/nn/data/dataset.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "tests/nn/data/expect_error.h"

namespace mytorch::nn::data {
namespace {

using mytorch::testing::expect_error;

// Returns 0, 1, 2, ... in the given shape.
Tensor iota(IntList sizes) {
  Tensor result =
      Tensor::adopt(new_tensor(sizes.data(), static_cast<int>(sizes.size()), kFloat32, kCPU, 0));
  for (int64_t i = 0; i < result.numel(); ++i) result.data<float>()[i] = static_cast<float>(i);
  return result;
}

std::vector<float> floats(const Tensor& tensor) {
  EXPECT_TRUE(tensor.is_contiguous());
  const float* data = tensor.const_data<float>();
  return {data, data + tensor.numel()};
}

// A user-defined dataset: examples one by one, here from a function.
class FunctionDataset final : public Dataset {
 public:
  explicit FunctionDataset(std::function<Example(int64_t)> get) : get_(std::move(get)) {}
  int64_t size() const override { return 10; }
  Example get(int64_t index) const override { return get_(index); }

 private:
  std::function<Example(int64_t)> get_;
};

TEST(TensorDatasetTest, ExamplesAreRows) {
  const Tensor data = iota({4, 2});
  const TensorDataset dataset(data, tensor(std::vector<int64_t>{7, 8, 9, 10}));
  EXPECT_EQ(dataset.size(), 4);
  const Example example = dataset.get(2);
  EXPECT_EQ(floats(example.data), (std::vector<float>{4, 5}));
  EXPECT_EQ(example.target.dim(), 0);
  EXPECT_EQ(*example.target.const_data<int64_t>(), 9);
  const Batch batch = dataset.get_batch({3, 0, 3});
  EXPECT_EQ(batch.data.sizes().vec(), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(floats(batch.data), (std::vector<float>{6, 7, 0, 1, 6, 7}));
  EXPECT_EQ(batch.target.sizes().vec(), (std::vector<int64_t>{3}));
  EXPECT_EQ(batch.target.const_data<int64_t>()[1], 7);
}

TEST(TensorDatasetTest, BatchesAreCopiesAndExamplesAreViews) {
  const Tensor data = iota({3, 2});
  const TensorDataset dataset(data);
  const Batch batch = dataset.get_batch({0});
  const Example example = dataset.get(0);
  data.data<float>()[0] = 42;
  EXPECT_EQ(floats(batch.data)[0], 0);
  EXPECT_EQ(floats(example.data)[0], 42);
  EXPECT_FALSE(batch.target.defined());
  EXPECT_FALSE(example.target.defined());
}

TEST(TensorDatasetTest, OutlivesItsTensors) {
  Example example;
  {
    const TensorDataset dataset(iota({3, 2}));
    example = dataset.get(1);
  }
  EXPECT_EQ(floats(example.data), (std::vector<float>{2, 3}));
}

TEST(TensorDatasetTest, TakesTensorsThatAreNotContiguous) {
  const Tensor base = iota({2, 3});
  const Tensor transposed = Tensor::adopt(new_view(base.impl(), {3, 2}, {1, 3}, 0));
  const TensorDataset dataset(transposed);
  EXPECT_EQ(floats(dataset.get(1).data), (std::vector<float>{1, 4}));
  EXPECT_EQ(floats(dataset.get_batch({2, 0}).data), (std::vector<float>{2, 5, 0, 3}));
}

TEST(TensorDatasetTest, TakesRowsWithoutElements) {
  const TensorDataset dataset(iota({3, 0}));
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.get_batch({2, 1}).data.sizes().vec(), (std::vector<int64_t>{2, 0}));
}

TEST(TensorDatasetTest, RejectsTensorsThatDisagree) {
  expect_error(ErrorCode::kShape, {"[TensorDataset]", "(4, 2)", "(3,)"}, [] {
    TensorDataset(iota({4, 2}), iota({3}));
  });
  expect_error(ErrorCode::kShape, {"data"}, [] { TensorDataset(iota({})); });
  expect_error(ErrorCode::kShape, {"target"}, [] { TensorDataset(iota({1}), iota({})); });
  expect_error(ErrorCode::kValue, {"undefined"}, [] { TensorDataset{Tensor()}; });
}

TEST(TensorDatasetTest, RejectsIndicesOutsideOfTheData) {
  const TensorDataset dataset(iota({4, 2}));
  expect_error(ErrorCode::kValue, {"[TensorDataset]", "index 4"}, [&] { dataset.get(4); });
  expect_error(ErrorCode::kValue, {"index -1"}, [&] { dataset.get_batch({-1}); });
}

TEST(DatasetTest, StacksExamples) {
  const FunctionDataset dataset([](int64_t index) {
    return Example{tensor({double(index), 1}), tensor(std::vector<int64_t>{index, 0, 0})};
  });
  const Batch batch = dataset.get_batch({5, 2});
  EXPECT_EQ(batch.data.sizes().vec(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(floats(batch.data), (std::vector<float>{5, 1, 2, 1}));
  EXPECT_EQ(batch.target.sizes().vec(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(batch.target.const_data<int64_t>()[3], 2);
}

TEST(DatasetTest, StacksExamplesThatAreNotContiguous) {
  const FunctionDataset dataset([](int64_t) {
    const Tensor base = iota({2, 2});
    return Example{Tensor::adopt(new_view(base.impl(), {2, 2}, {1, 2}, 0)), {}};
  });
  EXPECT_EQ(floats(dataset.get_batch({0}).data), (std::vector<float>{0, 2, 1, 3}));
}

TEST(DatasetTest, RejectsExamplesThatDisagree) {
  const FunctionDataset shapes([](int64_t index) { return Example{iota({index + 1}), {}}; });
  expect_error(ErrorCode::kShape, {"examples 3 and 4", "(4,)", "(5,)"}, [&] {
    shapes.get_batch({3, 4});
  });
  const FunctionDataset types([](int64_t index) {
    return Example{tensor({1.0, 2.0}, index == 1 ? kFloat64 : kFloat32), {}};
  });
  expect_error(ErrorCode::kType, {"float32", "float64"}, [&] { types.get_batch({0, 1}); });
  for (int64_t with_target : {0, 1, 2}) {
    const FunctionDataset targets([=](int64_t index) {
      return Example{iota({1}), index == with_target ? iota({1}) : Tensor()};
    });
    expect_error(ErrorCode::kValue, {"target"}, [&] { targets.get_batch({0, 1, 2}); });
  }
  const FunctionDataset nothing([](int64_t) { return Example{}; });
  expect_error(ErrorCode::kValue, {"undefined"}, [&] { nothing.get_batch({0}); });
  expect_error(ErrorCode::kValue, {"index 10"}, [&] { nothing.get_batch({10}); });
}

}  // namespace
}  // namespace mytorch::nn::data
