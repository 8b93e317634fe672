// Pointwise programs and reductions, from the call to the result, on an emulated device: kernels
// read the parameters that the host lays out, and the results match the reference. Needs no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/pointwise/text.h"
#include "backends/cuda/programs/compile.h"
#include "backends/cuda/runtime/faults.h"
#include "mytorch/abi_ops.h"
#include "tests/backends/cuda/emulated/device.h"
#include "tests/backends/cuda/emulated/kernels.h"
#include "tests/backends/cuda/record_programs.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {
namespace {

// Returns the kernel of a program, as the host asks for it.
mt_kernel_entry kernel(const std::string& op, size_t variant, mt_dtype compute) {
  mt_kernel_entry made{};
  cuda::compile_program(*program_of(op, variant), compute, {}, made);
  return made;
}

// Returns a complex tensor over the parts of a real one, whose last dimension is 2.
TestTensor complex_of(const TestTensor& parts) {
  const sdk::TensorView view = parts.view();
  Shape shape(view.shape().begin(), view.shape().end() - 1);
  Shape strides(view.strides().begin(), view.strides().end() - 1);
  for (int64_t& stride : strides) stride /= 2;
  TestTensor t = parts.as_strided(std::move(shape), std::move(strides));
  auto* const abi = const_cast<mt_tensor*>(static_cast<const mt_tensor*>(t));
  abi->dl.dtype = {MT_COMPLEX, static_cast<uint8_t>(2 * parts.dtype().bits), 1};
  abi->flags |= view.get()->flags & MT_TENSOR_CONTIGUOUS;
  return t;
}

// Returns the numbers of a tensor, row-major; of complex elements both parts.
std::vector<double> numbers_of(const TestTensor& t) {
  if (!sdk::is_complex(t.dtype())) return t.values<double>();
  const sdk::TensorView view = t.view();
  Shape shape(view.shape().begin(), view.shape().end());
  Shape strides(view.strides().begin(), view.strides().end());
  for (int64_t& stride : strides) stride *= 2;
  shape.push_back(2);
  strides.push_back(1);
  const TestTensor parts = t.as_strided(std::move(shape), std::move(strides));
  const_cast<mt_tensor*>(static_cast<const mt_tensor*>(parts))->dl.dtype = {
      MT_FLOAT, static_cast<uint8_t>(t.dtype().bits / 2), 1};
  return parts.values<double>();
}

// Runs the call on the emulated device and on the reference, and compares the outputs `outs`.
template <class Args>
void check(const std::string& op, Args args, mt_dtype compute,
           const std::vector<const mt_tensor * Args::*>& outs, double bound = 1e-5) {
  args.header.size = sizeof(Args);
  args.header.compute = compute;
  std::vector<TestTensor> got;
  std::vector<TestTensor> want;
  Args ref = args;
  for (const auto out : outs) {
    const sdk::TensorView view = args.*out;
    // Both outputs get the same strides.
    int64_t span = 1;
    for (int d = 0; d < view.ndim(); ++d) span += (view.size(d) - 1) * view.stride(d);
    const Shape shape(view.shape().begin(), view.shape().end());
    const Shape strides(view.strides().begin(), view.strides().end());
    for (auto* list : {&got, &want}) {
      list->push_back(TestTensor::empty(view.dtype(), {span}).as_strided(shape, strides));
    }
    args.*out = got.back();
    ref.*out = want.back();
    if ((view.get()->flags & MT_TENSOR_CONTIGUOUS) != 0) {
      const_cast<mt_tensor*>(args.*out)->flags |= MT_TENSOR_CONTIGUOUS;
    }
  }
  TestContext context;
  const mt_kernel_entry ours = kernel(op, args.header.variant, compute);
  ASSERT_EQ(ours.run(ours.self, context.get(), &args), MT_OK) << context.error;
  mt_kernel_entry compiled{};
  compiled.size = sizeof(compiled);
  const mt_backend& refs = reference();
  ASSERT_EQ(
      refs.compile(refs.self, program_of(op, args.header.variant), compute, nullptr, 0, &compiled),
      MT_OK);
  ASSERT_EQ(compiled.run(compiled.self, context.get(), &ref), MT_OK) << context.error;
  for (size_t k = 0; k < outs.size(); ++k) {
    const std::vector<double> a = numbers_of(got[k]);
    const std::vector<double> b = numbers_of(want[k]);
    int wrong = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const bool close =
          std::isnan(b[i]) ? std::isnan(a[i])
                           : a[i] == b[i] || std::abs(a[i] - b[i]) <= bound * (1 + std::abs(b[i]));
      if (!close && ++wrong <= 3) {
        ADD_FAILURE() << op << " output " << k << " element " << i << " is " << a[i] << ", not "
                      << b[i];
      }
    }
  }
}

template <class T>
TestTensor numbers(Shape shape, int seed = 1) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  std::vector<double> values;
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<int>(state >> 24) % 41 - 20 + (sdk::is_float_type<T> ? 0.5 : 0));
  }
  TestTensor t = TestTensor::of<T, double>(std::move(shape), values);
  const mt_tensor* abi = t;
  const_cast<mt_tensor*>(abi)->flags |= MT_TENSOR_CONTIGUOUS;
  return t;
}
template <class T>
TestTensor space(Shape shape) {
  TestTensor t = TestTensor::empty(sdk::dtype_of<T>, std::move(shape));
  const mt_tensor* abi = t;
  const_cast<mt_tensor*>(abi)->flags |= MT_TENSOR_CONTIGUOUS;
  return t;
}

using Add = mt_args_add_Tensor;

template <class A, class B, class C, class Out>
void add(const TestTensor& a, const TestTensor& b, const TestTensor& out, int variant = 1) {
  Add args{};
  args.header.variant = static_cast<uint16_t>(variant);
  args.self = a;
  args.other = b;
  args.alpha = scalar(3);
  args.out = out;
  check("add.Tensor", args, sdk::dtype_of<C>, {&Add::out}, sizeof(Out) == 2 ? 1e-2 : 1e-5);
}

// A call, by name.
struct Case {
  const char* name;
  void (*run)();
};
std::string name_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

class EmulatedContiguousAdd : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedContiguousAdd, MatchesTheReference) { GetParam().run(); }

const Case kContiguousAdds[] = {
    {"Float32",
     [] {
       add<float, float, float, float>(numbers<float>({3000}), numbers<float>({3000}, 2),
                                       space<float>({3000}));
     }},
    {"Number",
     [] {
       add<float, float, float, float>(numbers<float>({7}), TestTensor::host<double>(2.25),
                                       space<float>({7}));
     }},
    {"Int8",
     [] {
       add<int8_t, int8_t, int8_t, int8_t>(numbers<int8_t>({5000}), numbers<int8_t>({5000}, 3),
                                           space<int8_t>({5000}));
     }},
    {"SingleElementOfAnotherType",
     [] {
       add<sdk::BFloat16, float, sdk::BFloat16, sdk::BFloat16>(
           numbers<sdk::BFloat16>({40, 60}), numbers<float>({1}), space<sdk::BFloat16>({40, 60}));
     }},
    {"NotAlignedTo16Bytes",
     [] {
       const TestTensor memory = numbers<float>({3001});
       add<float, float, float, float>(memory.as_strided({3000}, {1}, 1), numbers<float>({3000}, 2),
                                       space<float>({3000}));
     }},
};
INSTANTIATE_TEST_SUITE_P(, EmulatedContiguousAdd, ::testing::ValuesIn(kContiguousAdds), name_of);

// Each case runs with the kernel for its types and layout, and with the general one.
class EmulatedStridedAdd : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedStridedAdd, MatchesTheReferenceInItsOwnKernel) {
  cuda::general_limit = 0;
  const int before = cuda::texts_compiled;
  GetParam().run();
  EXPECT_EQ(cuda::texts_compiled - before, 1);
}
TEST_P(EmulatedStridedAdd, MatchesTheReferenceInTheGeneralKernel) {
  cuda::general_limit = 4096;
  GetParam().run();
  cuda::general_limit = 0;
}

const Case kStridedAdds[] = {
    {"RepeatedRow",
     [] {
       add<float, float, float, float>(numbers<float>({12, 64}), numbers<float>({64}, 2),
                                       space<float>({12, 64}));
     }},
    {"RepeatedColumn",
     [] {
       add<float, float, float, float>(numbers<float>({12, 64}), numbers<float>({12, 1}, 2),
                                       space<float>({12, 64}));
     }},
    {"BothBroadcast",
     [] {
       add<float, double, float, float>(numbers<float>({5, 1, 7}), numbers<double>({1, 6, 7}, 2),
                                        space<float>({5, 6, 7}));
     }},
    {"ReversedDimensions",
     [] {
       add<sdk::Half, int64_t, float, sdk::Half>(
           numbers<sdk::Half>({3, 4, 5, 6}).as_strided({6, 5, 4, 3}, {1, 6, 30, 120}),
           numbers<int64_t>({4, 1}, 2), space<sdk::Half>({6, 5, 4, 3}));
     }},
    {"Bool",
     [] {
       add<bool, bool, bool, bool>(numbers<bool>({9, 9}).reversed(), numbers<bool>({9}),
                                   space<bool>({9, 9}));
     }},
};
INSTANTIATE_TEST_SUITE_P(, EmulatedStridedAdd, ::testing::ValuesIn(kStridedAdds), name_of);

// One kernel per compute type serves all types and layouts.
TEST(EmulatedPointwise, SmallCallsShareAKernel) {
  cuda::general_limit = 4096;
  const int before = cuda::texts_compiled;
  for (const Case& each : kStridedAdds) each.run();
  EXPECT_LE(cuda::texts_compiled - before, 2);  // float32, bool
  cuda::general_limit = 0;
}

TEST(EmulatedPointwise, TransposedOperandsUseTiles) {
  add<float, float, float, float>(numbers<float>({150, 130}),
                                  numbers<float>({130, 150}, 2).reversed(),
                                  space<float>({150, 130}));
  add<sdk::BFloat16, sdk::BFloat16, float, sdk::BFloat16>(
      numbers<sdk::BFloat16>({3, 90, 70}),
      numbers<sdk::BFloat16>({3, 70, 90}, 2).as_strided({3, 90, 70}, {6300, 1, 90}),
      space<sdk::BFloat16>({3, 90, 70}));
}

constexpr mt_dtype kComplex64 = {MT_COMPLEX, 64, 1};
constexpr mt_dtype kComplex128 = {MT_COMPLEX, 128, 1};

void add_complex(const TestTensor& a, const TestTensor& b, const TestTensor& out, mt_scalar alpha,
                 mt_dtype compute) {
  Add args{};
  args.header.variant = 1;  // with alpha
  args.self = a;
  args.other = b;
  args.alpha = alpha;
  args.out = out;
  check("add.Tensor", args, compute, {&Add::out});
}

TEST(EmulatedComplex, SumsMatchTheReference) {
  const double parts[] = {0.5, -2};
  mt_scalar alpha{};
  alpha.kind = MT_SCALAR_COMPLEX;
  alpha.v.z = parts;
  for (const int64_t limit : {0, 4096}) {  // small calls have no general kernel
    cuda::general_limit = limit;
    add_complex(complex_of(numbers<float>({3000, 2})), complex_of(numbers<float>({3000, 2}, 2)),
                complex_of(space<float>({3000, 2})), alpha, kComplex64);
    add_complex(complex_of(numbers<double>({70, 2})), TestTensor::host<double>(2.25),
                complex_of(space<double>({70, 2})), alpha, kComplex128);
  }
  cuda::general_limit = 0;
  // Of a real operand, broadcast and reversed.
  add_complex(complex_of(numbers<float>({12, 64, 2})), numbers<float>({64}, 2),
              complex_of(space<float>({12, 64, 2})), scalar(3), kComplex64);
  add_complex(complex_of(numbers<double>({30, 20, 2})).reversed(), numbers<float>({20, 1}, 2),
              complex_of(space<double>({20, 30, 2})), alpha, kComplex128);
  for (const bool wide : {false, true}) {  // transposed: tiles
    const auto operand = [&](Shape shape, int seed) {
      return wide ? complex_of(numbers<double>(std::move(shape), seed))
                  : complex_of(numbers<float>(std::move(shape), seed));
    };
    add_complex(operand({150, 130, 2}, 1), operand({130, 150, 2}, 2).reversed(),
                operand({150, 130, 2}, 3), alpha, wide ? kComplex128 : kComplex64);
  }
}

TEST(EmulatedComplex, FunctionsMatchTheReference) {
  const TestTensor z = complex_of(numbers<float>({300, 2}));
  mt_args_abs size{};
  size.self = z;
  const TestTensor real = space<float>({300});
  size.out = real;
  check("abs", size, kComplex64, {&mt_args_abs::out});
  mt_args_eq_Tensor equal{};
  const TestTensor other = complex_of(numbers<float>({300, 2}, 2));
  const TestTensor bools = space<bool>({300});
  equal.self = z;
  equal.other = other;
  equal.out = bools;
  check("eq.Tensor", equal, kComplex64, {&mt_args_eq_Tensor::out});
  mt_args_tanh tangent{};
  const TestTensor result = complex_of(space<float>({300, 2}));
  tangent.self = z;
  tangent.out = result;
  check("tanh", tangent, kComplex64, {&mt_args_tanh::out});
}

TEST(EmulatedPointwise, OutputsMayBeUnwanted) {
  using Args = mt_args_mul_grad_Tensor;
  const TestTensor grad = numbers<float>({33});
  const TestTensor self = numbers<float>({33}, 2);
  const TestTensor other = numbers<float>({33}, 3);
  Args args{};
  args.grad = grad;
  args.self = self;
  args.other = other;
  const TestTensor a = space<float>({33});
  const TestTensor b = space<float>({33});
  args.grad_self = a;
  args.grad_other = b;
  check("mul_grad.Tensor", args, sdk::dtype_of<float>, {&Args::grad_self, &Args::grad_other});
  args.grad_self = nullptr;
  args.other = nullptr;
  check("mul_grad.Tensor", args, sdk::dtype_of<float>, {&Args::grad_other});
}

TEST(EmulatedPointwise, ComparisonsGiveBools) {
  using Args = mt_args_lt_Tensor;
  const TestTensor a = numbers<int64_t>({50});
  const TestTensor b = numbers<int64_t>({50}, 2);
  const TestTensor out = space<bool>({50});
  Args args{};
  args.self = a;
  args.other = b;
  args.out = out;
  check("lt.Tensor", args, sdk::dtype_of<int64_t>, {&Args::out});
}

TEST(EmulatedPointwise, DivisionByZeroRecordsAFault) {
  using Args = mt_args_remainder_Tensor;
  const TestTensor a = numbers<int32_t>({50});
  const TestTensor b = TestTensor::of<int32_t, double>({50}, std::vector<double>(50, 3));
  const TestTensor out = space<int32_t>({50});
  Args args{};
  args.self = a;
  args.other = b;
  args.out = out;
  TestContext context;
  uint32_t& site = cuda::fault_of(*context.get())->site;
  site = 0;
  check("remainder.Tensor", args, sdk::dtype_of<int32_t>, {&Args::out});
  EXPECT_EQ(site, 0u);
  b.view().data<int32_t>()[49] = 0;
  args.header.size = sizeof(args);
  args.header.compute = sdk::dtype_of<int32_t>;
  const mt_kernel_entry ours = kernel("remainder.Tensor", 0, args.header.compute);
  ASSERT_EQ(ours.run(ours.self, context.get(), &args), MT_OK) << context.error;
  EXPECT_EQ(site, 7u);
}

// Its kernels serve all types, also of a program that has moved, as those of a graph do.
TEST(EmulatedProgram, IsTheSameIfItsContentsAre) {
  const mt_program* const known = program_of("softplus");
  const mt_kernel_entry ours = kernel("softplus", 0, sdk::dtype_of<float>);
  EXPECT_EQ(ours.self, kernel("softplus", 0, sdk::dtype_of<double>).self);
  std::vector<mt_node> nodes(known->nodes, known->nodes + known->num_nodes);
  mt_program program = *known;
  program.nodes = nodes.data();
  mt_kernel_entry made{};
  cuda::compile_program(program, sdk::dtype_of<float>, {}, made);
  EXPECT_EQ(ours.self, made.self);
  // The same memory, with another program in it.
  for (mt_node& node : nodes) {
    if (std::string(node.op) == "const") node.value += 1;
  }
  cuda::compile_program(program, sdk::dtype_of<float>, {}, made);
  EXPECT_NE(ours.self, made.self);
}

// ---- reductions

template <class T>
void sum(const TestTensor& x, std::vector<int64_t> dims, Shape out_shape, bool keepdim = false) {
  using Args = mt_args_sum_dim_IntList;
  Args args{};
  args.self = x;
  args.dim = list(dims);
  args.keepdim = keepdim;
  const TestTensor out = TestTensor::empty(sdk::dtype_of<T>, std::move(out_shape));
  args.out = out;
  check("sum.dim_IntList", args, sdk::dtype_of<T>, {&Args::out}, sizeof(T) == 2 ? 1e-2 : 1e-5);
}

class EmulatedSum : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedSum, MatchesTheReference) { GetParam().run(); }

const Case kSums[] = {
    {"All",
     [] {
       sum<float>(numbers<float>({70, 90}), {}, {});
     }},
    {"Rows",
     [] {
       sum<float>(numbers<float>({70, 96}), {1}, {70});
     }},
    {"Columns",
     [] {
       sum<float>(numbers<float>({70, 96}), {0}, {96});
     }},
    {"OddColumnsKeepdim",
     [] {
       sum<float>(numbers<float>({70, 33}), {0}, {1, 33}, true);
     }},
    {"OuterDimensions",
     [] {
       sum<double>(numbers<double>({5, 6, 7, 8}), {0, 2}, {6, 8});
     }},
    {"InnerDimensions",
     [] {
       sum<double>(numbers<double>({5, 6, 7, 8}), {1, 3}, {5, 7});
     }},
    {"BoolsAreCounted", [] { sum<int64_t>(numbers<bool>({300}), {0}, {}); }},
    {"Bfloat16",
     [] {
       sum<sdk::BFloat16>(numbers<sdk::BFloat16>({17, 24}), {1}, {17});
     }},
    {"NoElements",
     [] {
       sum<float>(numbers<float>({3, 0}), {1}, {3});
     }},
    {"ReversedDimensions",
     [] {
       sum<float>(numbers<float>({4, 5, 6}).reversed(), {1}, {6, 4});
     }},
    {"RepeatedRows",
     [] {
       sum<float>(numbers<float>({7}).as_strided({5, 7}, {0, 1}), {0}, {7});
     }},
    {"SplitAll", [] { sum<float>(numbers<float>({200000}), {}, {}); }},
    {"SplitColumns",
     [] {
       sum<float>(numbers<float>({9000, 16}), {0}, {16});
     }},
    {"SplitRows",
     [] {
       sum<float>(numbers<float>({3, 30001}), {1}, {3});
     }},
};
INSTANTIATE_TEST_SUITE_P(, EmulatedSum, ::testing::ValuesIn(kSums), name_of);

template <class T>
void largest(const TestTensor& x, int64_t dim, Shape out_shape, const char* op = "max.dim") {
  using Args = mt_args_max_dim;
  static_assert(sizeof(Args) == sizeof(mt_args_min_dim));
  Args args{};
  args.self = x;
  args.dim = dim;
  const TestTensor values = TestTensor::empty(sdk::dtype_of<T>, out_shape);
  const TestTensor indices = TestTensor::empty(sdk::dtype_of<int64_t>, out_shape);
  args.values = values;
  args.indices = indices;
  check(op, args, sdk::dtype_of<T>, {&Args::values, &Args::indices}, 0);
}

class EmulatedMaxAndMin : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedMaxAndMin, MatchTheReference) { GetParam().run(); }

const Case kMaxAndMin[] = {
    {"Rows",
     [] {
       largest<float>(numbers<float>({20, 64}), 1, {20});
     }},
    {"Columns",
     [] {
       largest<float>(numbers<float>({20, 64}), 0, {64});
     }},
    {"MinOfInt8",
     [] {
       largest<int8_t>(numbers<int8_t>({64, 40}), -1, {64}, "min.dim");
     }},
    {"SplitRows",
     [] {
       largest<float>(numbers<float>({2, 40000}), 1, {2});
     }},
    {"SplitColumns",
     [] {
       largest<double>(numbers<double>({20000, 4}), 0, {4});
     }},
};
INSTANTIATE_TEST_SUITE_P(, EmulatedMaxAndMin, ::testing::ValuesIn(kMaxAndMin), name_of);

TEST(EmulatedReduce, VarianceAndMeanOfRowsAndColumns) {
  using Args = mt_args_var_mean_correction;
  for (const bool rows : {true, false}) {
    const TestTensor x = numbers<float>({48, 48});
    const TestTensor variance = TestTensor::empty(sdk::dtype_of<float>, {48});
    const TestTensor average = TestTensor::empty(sdk::dtype_of<float>, {48});
    const std::vector<int64_t> dims = {rows ? 1 : 0};
    Args args{};
    args.self = x;
    args.dim = list(dims);
    args.correction = scalar(1);
    args.variance = variance;
    args.average = average;
    check("var_mean.correction", args, sdk::dtype_of<float>, {&Args::variance, &Args::average});
    args.average = nullptr;
    check("var_mean.correction", args, sdk::dtype_of<float>, {&Args::variance});
  }
}

// The spread of these numbers is 1e-6 of their mean.
TEST(EmulatedReduce, VarianceOfNumbersWithALargeMean) {
  using Args = mt_args_var_mean_correction;
  for (const bool rows : {true, false}) {
    std::vector<double> values = uniform_numbers(600 * 600, 3);
    for (double& each : values) each = 1e6 + each;
    const TestTensor x = TestTensor::of<float>({600, 600}, values);
    const TestTensor variance = TestTensor::empty(sdk::dtype_of<float>, {600});
    const TestTensor average = TestTensor::empty(sdk::dtype_of<float>, {600});
    const std::vector<int64_t> dims = {rows ? 1 : 0};
    Args args{};
    args.self = x;
    args.dim = list(dims);
    args.correction = scalar(0);
    args.variance = variance;
    check("var_mean.correction", args, sdk::dtype_of<float>, {&Args::variance}, 1e-5);
    args.average = average;
    check("var_mean.correction", args, sdk::dtype_of<float>, {&Args::average}, 1e-7);
  }
}

// The squares of these numbers exceed float32, or vanish in it.
TEST(EmulatedReduce, NormsOfLargeAndSmallNumbers) {
  using Args = mt_args_linalg_vector_norm;
  for (const double scale : {1e20, 1e-25}) {
    for (const bool rows : {true, false}) {
      std::vector<double> values = uniform_numbers(48 * 48, 3);
      for (double& each : values) each *= scale;
      const TestTensor x = TestTensor::of<float>({48, 48}, values);
      const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, {48});
      const std::vector<int64_t> dims = {rows ? 1 : 0};
      Args args{};
      args.self = x;
      args.dim = list(dims);
      args.out = out;
      for (const auto& [order, variant] : {std::pair{2, 3}, {3, 5}}) {
        args.ord = scalar(order);
        args.header.variant = static_cast<uint16_t>(variant);
        check("linalg_vector_norm", args, sdk::dtype_of<float>, {&Args::out},
              scale > 1 ? 1e-6 : 1e-5 * scale);
      }
    }
  }
}

TEST(EmulatedReduce, AllAndLogSumExp) {
  using All = mt_args_all_dims;
  const TestTensor x = numbers<float>({37, 5});
  const TestTensor out = TestTensor::empty(sdk::dtype_of<bool>, {5});
  const std::vector<int64_t> dims = {0};
  All all{};
  all.self = x;
  all.dim = list(dims);
  all.out = out;
  check("all.dims", all, sdk::dtype_of<float>, {&All::out});
  using Lse = mt_args_logsumexp;
  const TestTensor sums = TestTensor::empty(sdk::dtype_of<float>, {5});
  Lse lse{};
  lse.self = x;
  lse.dim = list(dims);
  lse.out = sums;
  check("logsumexp", lse, sdk::dtype_of<float>, {&Lse::out});
}

}  // namespace
}  // namespace mytorch::testing
