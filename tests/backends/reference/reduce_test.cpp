// Every fold, over every choice of dimensions.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/reference/test_program.h"

namespace mytorch::testing {
namespace {

// Returns the components of a fold's state after all of `values`, which have type T.
template <class T>
std::vector<double> fold_all(const char* fold, const std::vector<double>& values,
                             int components = 1) {
  TestProgram program;
  const bool logic = std::string(fold) == "all" || std::string(fold) == "any";
  int32_t step = program.input(0);
  if (logic) step = program.op("cast", MT_TYPE_BOOL, step);
  program.fold(fold, step, MT_DIM_ALL);
  const bool index = std::string(fold).substr(0, 3) == "arg";
  ProgramArgs args;
  const TestTensor in = TestTensor::of<T>({static_cast<int64_t>(values.size())}, values);
  args.in[0] = in;
  std::vector<TestTensor> outs;
  for (int c = 0; c < components; ++c) {
    program.output(c, program.state(c, logic ? MT_TYPE_BOOL : index && c == 0 ? MT_TYPE_INDEX : C));
    outs.push_back(TestTensor::empty(sdk::dtype_of<double>, {}));
    args.out[c] = outs.back();
  }
  EXPECT_EQ(program.run(args, sdk::dtype_of<T>), "") << fold;
  std::vector<double> state;
  for (const TestTensor& out : outs) state.push_back(out.values<double>()[0]);
  return state;
}

using V = std::vector<double>;

TEST(ReduceTest, SumIsCompensatedAndIntegersWrap) {
  EXPECT_EQ(fold_all<float>("sum", {1, 2, 3.5}), V{6.5});
  EXPECT_EQ(fold_all<float>("sum", {}), V{0});
  EXPECT_EQ(fold_all<double>("sum", {1, 1e100, 1, -1e100}), V{2});
  EXPECT_EQ(fold_all<double>("sum", {kInf, 1}), V{kInf});
  EXPECT_TRUE(std::isnan(fold_all<double>("sum", {kInf, -kInf})[0]));
  EXPECT_TRUE(std::isnan(fold_all<double>("sum", {kNaN, 1})[0]));
  EXPECT_EQ(fold_all<int64_t>("sum", {5, -7}), V{-2});
  EXPECT_EQ(fold_all<int8_t>("sum", {100, 100}), V{-56});  // wraps to the compute type
}

TEST(ReduceTest, ProdOfNothingIsOneAndIntegersWrap) {
  EXPECT_EQ(fold_all<float>("prod", {2, -3, 0.5}), V{-3});
  EXPECT_EQ(fold_all<int64_t>("prod", {2, -3, 7}), V{-42});
  EXPECT_EQ(fold_all<int64_t>("prod", {}), V{1});
  EXPECT_EQ(fold_all<uint8_t>("prod", {16, 17}), V{16});
}

TEST(ReduceTest, MaxAndMinPropagateNaN) {
  EXPECT_EQ(fold_all<float>("max", {-3, -1, -2}), V{-1});
  EXPECT_EQ(fold_all<float>("min", {3, 1, 2}), V{1});
  EXPECT_EQ(fold_all<float>("max", {-kInf, -kInf}), V{-kInf});
  EXPECT_TRUE(std::isnan(fold_all<float>("max", {1, kNaN, 2})[0]));
  EXPECT_TRUE(std::isnan(fold_all<float>("min", {1, kNaN, 0})[0]));
  EXPECT_EQ(fold_all<int64_t>("max", {-3, -1}), V{-1});
  EXPECT_EQ(fold_all<int64_t>("min", {-3, -1}), V{-3});
  EXPECT_EQ(fold_all<bool>("max", {0, 1}), V{1});
}

TEST(ReduceTest, ArgMaxAndArgMinGiveTheFirstExtremum) {
  EXPECT_EQ(fold_all<float>("argmax", {1, 5, 5, 2}, 2), (V{1, 5}));
  EXPECT_EQ(fold_all<float>("argmin", {4, 1, 1}, 2), (V{1, 1}));
  EXPECT_EQ(fold_all<int32_t>("argmax", {-5, -2, -2}, 2), (V{1, -2}));
  EXPECT_EQ(fold_all<float>("argmax", {-kInf, -kInf}, 2), (V{0, -kInf}));
  const V nan = fold_all<float>("argmin", {1, kNaN, -1, kNaN}, 2);
  EXPECT_EQ(nan[0], 1);
  EXPECT_TRUE(std::isnan(nan[1]));
}

TEST(ReduceTest, AllAndAnyOfNothingAreTrueAndFalse) {
  EXPECT_EQ(fold_all<float>("all", {1, kNaN, -2}), V{1});
  EXPECT_EQ(fold_all<float>("all", {1, 0}), V{0});
  EXPECT_EQ(fold_all<float>("all", {}), V{1});
  EXPECT_EQ(fold_all<float>("any", {}), V{0});
  EXPECT_EQ(fold_all<uint8_t>("any", {0, 3}), V{1});
  EXPECT_EQ(fold_all<uint8_t>("any", {0, 0}), V{0});
}

TEST(ReduceTest, WelfordHasCountMeanAndSquaredDistances) {
  const V state = fold_all<double>("welford", {1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 6}, 3);
  EXPECT_EQ(state[0], 4);
  EXPECT_EQ(state[1], 1e9 + 3);
  EXPECT_NEAR(state[2], 14, 1e-9);
  EXPECT_EQ(fold_all<double>("welford", {}, 3), (V{0, 0, 0}));
  EXPECT_TRUE(std::isnan(fold_all<double>("welford", {1, kInf}, 3)[2]));
}

TEST(ReduceTest, LogSumExpTakesInfinities) {
  const V state = fold_all<double>("logsumexp", {1000, 999, 1001}, 2);
  EXPECT_EQ(state[0], 1001);
  EXPECT_NEAR(state[1], 1 + std::exp(-1) + std::exp(-2), 1e-15);
  EXPECT_EQ(fold_all<double>("logsumexp", {-kInf, -kInf}, 2), (V{-kInf, 2}));
  EXPECT_EQ(fold_all<double>("logsumexp", {3, kInf, 5, kInf}, 2), (V{kInf, 2}));
  EXPECT_EQ(fold_all<double>("logsumexp", {-kInf, 2, -kInf}, 2), (V{2, 1}));
  EXPECT_EQ(fold_all<double>("logsumexp", {}, 2), (V{-kInf, 0}));
  EXPECT_TRUE(std::isnan(fold_all<double>("logsumexp", {1, kNaN, 2}, 2)[0]));
}

// sum(x * x) / n over the dimensions of an MT_DIM_LIST, of the 2 x 3 x 4 tensor 0 ... 23.
std::vector<double> mean_square(const TestTensor& in, const std::vector<int64_t>* dims,
                                Shape out_shape, bool keepdim) {
  TestProgram program;
  const int32_t x = program.input(0);
  program.fold("sum", program.op("mul", C, x, x), MT_DIM_LIST);
  program.output(0, program.op("div", C, program.state(0), program.op("count", C)));
  const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, std::move(out_shape));
  ProgramArgs args;
  args.in[0] = in;
  args.out[0] = out;
  if (dims != nullptr) args.dims = list(*dims);
  args.keepdim = keepdim;
  EXPECT_EQ(program.run(args, sdk::dtype_of<float>), "");
  return out.values<double>();
}

TEST(ReduceTest, ReducesAnySetOfDimensions) {
  V numbers;
  for (int i = 0; i < 24; ++i) numbers.push_back(i);
  const TestTensor contiguous = TestTensor::of<float>({2, 3, 4}, numbers);
  // The same logical values in reversed memory order.
  V permuted(24);
  for (int i = 0; i < 24; ++i) permuted[(i % 4 * 3 + i / 4 % 3) * 2 + i / 12] = i;
  const TestTensor strided = TestTensor::of<float>({4, 3, 2}, permuted).reversed();
  for (const TestTensor& in : {contiguous, strided}) {
    for (int mask = 1; mask < 8; ++mask) {
      for (const bool keepdim : {false, true}) {
        std::vector<int64_t> dims;
        Shape shape;
        V sums;
        const int64_t sizes[] = {2, 3, 4};
        int64_t outputs = 1;
        for (int d = 0; d < 3; ++d) {
          if ((mask >> d & 1) != 0) {
            dims.push_back(d == 2 ? -1 : d);
            if (keepdim) shape.push_back(1);
          } else {
            shape.push_back(sizes[d]);
            outputs *= sizes[d];
          }
        }
        sums.assign(static_cast<size_t>(outputs), 0);
        for (int64_t i = 0; i < 24; ++i) {
          const int64_t index[] = {i / 12, i / 4 % 3, i % 4};
          int64_t at = 0;
          for (int d = 0; d < 3; ++d) {
            if ((mask >> d & 1) == 0) at = at * sizes[d] + index[d];
          }
          sums[static_cast<size_t>(at)] += static_cast<double>(i * i) * outputs / 24;
        }
        const V got = mean_square(in, &dims, shape, keepdim);
        ASSERT_EQ(got.size(), sums.size());
        for (size_t i = 0; i < sums.size(); ++i) {
          EXPECT_FLOAT_EQ(got[i], sums[i]) << "mask " << mask << " keepdim " << keepdim;
        }
      }
    }
    const std::vector<int64_t> none;
    EXPECT_FLOAT_EQ(mean_square(in, nullptr, {}, false)[0], 4324.0 / 24);
    EXPECT_FLOAT_EQ(mean_square(in, &none, {}, false)[0], 4324.0 / 24);
  }
}

TEST(ReduceTest, ReducesASingleDimension) {
  const TestTensor in = TestTensor::of<int32_t>({2, 3}, {3, 9, 1, 7, 7, 8});
  TestProgram program;
  program.fold("argmax", program.input(0), MT_DIM_INT);
  program.output(0, program.state(1)).output(1, program.state(0, MT_TYPE_INDEX));
  const TestTensor values = TestTensor::empty(in.dtype(), {2});
  const TestTensor indices = TestTensor::empty(sdk::dtype_of<int64_t>, {2});
  ProgramArgs args;
  args.in[0] = in;
  args.dim = -1;
  args.out[0] = values;
  args.out[1] = indices;
  ASSERT_EQ(program.run(args, in.dtype()), "");
  EXPECT_EQ(values.values<int64_t>(), (std::vector<int64_t>{9, 8}));
  EXPECT_EQ(indices.values<int64_t>(), (std::vector<int64_t>{1, 2}));

  // OPTIONAL_INT: an absent dimension reduces the flattened tensor.
  TestProgram flat;
  flat.fold("argmin", flat.input(0), MT_DIM_OPTIONAL_INT);
  flat.output(0, flat.state(0, MT_TYPE_INDEX));
  const TestTensor index = TestTensor::empty(sdk::dtype_of<int64_t>, {});
  ProgramArgs flat_args;
  flat_args.in[0] = in;
  flat_args.out[0] = index;
  ASSERT_EQ(flat.run(flat_args, in.dtype()), "");
  EXPECT_EQ(index.values<int64_t>()[0], 2);
  flat_args.optional_dim = {0, 1};
  const TestTensor columns = TestTensor::empty(sdk::dtype_of<int64_t>, {3});
  flat_args.out[0] = columns;
  ASSERT_EQ(flat.run(flat_args, in.dtype()), "");
  EXPECT_EQ(columns.values<int64_t>(), (std::vector<int64_t>{0, 1, 0}));
}

TEST(ReduceTest, TakesEmptyAndZeroDimTensors) {
  // (2, 0, 3) over dim 1 gives six empty sums; over dim 0, none.
  const TestTensor in = TestTensor::empty(sdk::dtype_of<float>, {2, 0, 3});
  const std::vector<int64_t> middle = {1};
  const std::vector<int64_t> first = {0};
  TestProgram program;
  program.fold("sum", program.input(0), MT_DIM_LIST);
  program.output(0, program.state(0));
  const TestTensor out = TestTensor::empty(in.dtype(), {2, 3});
  ProgramArgs args;
  args.in[0] = in;
  args.dims = list(middle);
  args.out[0] = out;
  ASSERT_EQ(program.run(args, in.dtype()), "");
  EXPECT_EQ(out.values<double>(), V(6, 0.0));
  const TestTensor nothing = TestTensor::empty(in.dtype(), {0, 3});
  args.dims = list(first);
  args.out[0] = nothing;
  EXPECT_EQ(program.run(args, in.dtype()), "");

  const TestTensor one = TestTensor::of<float>({}, {2.5});
  const TestTensor result = TestTensor::empty(in.dtype(), {});
  args.in[0] = one;
  args.dims = list(first);
  args.out[0] = result;
  ASSERT_EQ(program.run(args, in.dtype()), "");
  EXPECT_EQ(result.values<double>(), V{2.5});
}

TEST(ReduceTest, MeanOfNothingIsNaN) {
  EXPECT_TRUE(
      std::isnan(mean_square(TestTensor::empty(sdk::dtype_of<float>, {0}), nullptr, {}, false)[0]));
}

TEST(ReduceTest, InputsBroadcastAndFinalNodesTakeScalars) {
  // sum over dim 1 of x (2, 3) * w (3,), then times the scalar; half results round once.
  TestProgram program;
  program.fold("sum", program.op("mul", C, program.input(0), program.input(1)), MT_DIM_INT);
  program.output(0, program.op("mul", C, program.state(0), program.scalar()));
  const TestTensor x = TestTensor::of<sdk::Half>({2, 3}, {1, 2, 3, 4, 5, 6});
  const TestTensor w = TestTensor::of<sdk::Half>({3}, {1, 10, 100});
  const TestTensor out = TestTensor::empty(x.dtype(), {2});
  ProgramArgs args;
  args.in[0] = x;
  args.in[1] = w;
  args.dim = 1;
  args.scalar = scalar(2);
  args.out[0] = out;
  ASSERT_EQ(program.run(args, x.dtype()), "");
  EXPECT_EQ(out.values<double>(), (V{642, 1308}));
}

TEST(ReduceTest, UnknownFoldsAreDeclined) {
  TestProgram program;
  program.fold("median", program.input(0), MT_DIM_ALL);
  program.output(0, program.state(0));
  ProgramArgs args;
  EXPECT_EQ(program.run(args, sdk::dtype_of<float>),
            "compile: status " + std::to_string(MT_DECLINED));
}

}  // namespace
}  // namespace mytorch::testing
