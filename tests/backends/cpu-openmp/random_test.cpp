// Random fills and ranges against the reference.
#include <string>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/arange.h"
#include "mytorch/abi_ops/native_dropout.h"
#include "mytorch/abi_ops/normal_.h"
#include "mytorch/abi_ops/random_.h"
#include "mytorch/abi_ops/uniform_.h"
#include "mytorch/backend/philox.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

const Shape kDrawnShapes[] = {{}, {1}, {7}, {3000}, {5, 13, 33}, {0}};

class FloatingFill : public ::testing::TestWithParam<mt_dtype> {};
INSTANTIATE_TEST_SUITE_P(, FloatingFill, ::testing::ValuesIn(dtypes_where(sdk::is_floating)),
                         dtype_case);

TEST_P(FloatingFill, UniformHasTheBitsOfTheReference) {
  Random random(1);
  for (const Shape& shape : kDrawnShapes) {
    mt_args_uniform_ args{};
    args.from = -1.5, args.to = 2.25;
    args.generator = {0x123456789ABCDEFull, 0xFFFFFFFF00000007ull, nullptr};
    expect_same(cpu::register_random, "uniform_", args, &mt_args_uniform_::self, GetParam(), shape,
                random);
  }
}

TEST_P(FloatingFill, NormalHasTheBitsOfTheReference) {
  Random random(1);
  for (const Shape& shape : kDrawnShapes) {
    mt_args_normal_ args{};
    args.mean = 0.3, args.std = 1.7;
    args.generator = {42, 7, nullptr};
    expect_same(cpu::register_random, "normal_", args, &mt_args_normal_::self, GetParam(), shape,
                random);
  }
}

TEST_P(FloatingFill, DropoutKeepsElementsWithSmallUniformNumbers) {
  Random random(3);
  for (const Shape& shape : {Shape{2500}, Shape{3, 5, 7}, Shape{}}) {
    const TestTensor input = random.filled(GetParam(), shape);
    const TestTensor output = random.tensor(GetParam(), shape);
    const TestTensor mask = random.tensor(sdk::dtype_of<bool>, shape);
    mt_args_native_dropout args{};
    args.input = input;
    args.p = 0.3, args.train = {1, 1};
    args.generator = {11, 4, nullptr};
    args.output = output, args.mask = mask;
    TestContext context(2);
    ASSERT_EQ(run_cpu(cpu::register_random, "native_dropout", args, context), MT_OK);
    const sdk::philox::Stream stream(args.generator);
    const auto x = input.values<double>(), y = output.values<double>(), m = mask.values<double>();
    for (size_t i = 0; i < x.size(); ++i) {
      const float u = sdk::philox::uniform_of_bits<float>(stream.bits32(static_cast<int64_t>(i)));
      const bool kept = u < static_cast<float>(0.7);
      ASSERT_EQ(m[i], kept ? 1 : 0) << i;
      ASSERT_NEAR(y[i], kept ? x[i] / 0.7 : 0, 0.02) << i;
    }
  }
}

TEST(NormalFill, TailsHaveTheBitsOfTheReference) {
  Random random(2);
  for (const mt_dtype dtype : {sdk::dtype_of<float>, sdk::dtype_of<double>}) {
    mt_args_normal_ args{};
    args.std = 1;
    args.generator = {5, 0, nullptr};
    // Long enough for every branch of the float quantile.
    expect_same(cpu::register_random, "normal_", args, &mt_args_normal_::self, dtype, {200000},
                random);
  }
}

struct Range {
  const char* name;
  int64_t from;
  mt_optional_int to;
};
class IntegerFill : public ::testing::TestWithParam<std::tuple<Range, mt_dtype>> {};
INSTANTIATE_TEST_SUITE_P(
    , IntegerFill,
    ::testing::Combine(::testing::Values(Range{"to_1", -3, {1, 1}}, Range{"to_100", -3, {100, 1}},
                                         Range{"over_32_bits", -3, {int64_t{3} << 31, 1}},
                                         Range{"over_62_bits", -3, {int64_t{3} << 61, 1}},
                                         Range{"of_the_dtype", 0, {0, 0}}),
                       ::testing::ValuesIn(kAllDtypes)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" +
             sdk::dtype_name(std::get<1>(info.param));
    });

TEST_P(IntegerFill, HasTheBitsOfTheReference) {
  const auto& [range, dtype] = GetParam();
  Random random(1);
  for (const Shape& shape : kDrawnShapes) {
    mt_args_random__from args{};
    args.from = range.from, args.to = range.to;
    args.generator = {99, 3, nullptr};
    expect_same(cpu::register_random, "random_.from", args, &mt_args_random__from::self, dtype,
                shape, random);
  }
}

class Arange : public ::testing::TestWithParam<mt_dtype> {};
INSTANTIATE_TEST_SUITE_P(, Arange, ::testing::ValuesIn(dtypes_where([](mt_dtype dtype) {
                           return !sdk::is_bool(dtype);
                         })),
                         dtype_case);

TEST_P(Arange, IsStartPlusStepTimesIndex) {
  Random random(4);
  const bool floating = sdk::is_floating(GetParam());
  mt_args_arange_start_step args{};
  args.start = floating ? scalar(0.1) : scalar(int64_t{-5});
  args.step = floating ? scalar(0.7) : scalar(int64_t{3});
  expect_same(cpu::register_creation, "arange.start_step", args, &mt_args_arange_start_step::out,
              GetParam(), {101}, random);
}

}  // namespace
}  // namespace mytorch::testing
