// Fused programs on an emulated device: the text of kernels, and the parameters that the host lays
// out, for elements and for rows.
#include "backends/cuda/fused/fused.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "backends/cuda/programs/program.h"
#include "backends/cuda/runtime/faults.h"
#include "tests/backends/cuda/emulated/device.h"
#include "tests/backends/cuda/emulated/kernels.h"
#include "tests/backends/cuda/fused_program.h"
#include "tests/backends/cuda/record_programs.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {
namespace {

constexpr mt_dtype kF32 = sdk::dtype_of<float>;

// The programs of calls that fusion makes: the check of an index, and the load of an element.
struct Selection {
  explicit Selection(const char* op) {
    const bool bound = std::string(op) == "bound";
    const auto add = [&](const char* name, int32_t type, uint32_t offset) {
      mt_node node{};
      node.op = name;
      node.type = type;
      node.offset = offset;
      for (int32_t& a : node.a) a = -1;
      nodes.push_back(node);
    };
    add("input", bound ? MT_TYPE_INDEX : MT_TYPE_COMPUTE, 0);
    add(bound ? "scalar" : "input", MT_TYPE_INDEX, 8);
    if (bound) add("scalar", MT_TYPE_INDEX, 24);
    add(op, bound ? MT_TYPE_INDEX : MT_TYPE_COMPUTE, 0);
    for (int32_t k = 0; k < (bound ? 3 : 2); ++k) nodes.back().a[k] = k;
    output.node = static_cast<int32_t>(nodes.size()) - 1;
    program.size = sizeof(program);
    program.name = "gather";
    program.nodes = nodes.data();
    program.num_nodes = static_cast<int32_t>(nodes.size());
    program.outputs = &output;
    program.num_outputs = 1;
    program.step = -1;
  }
  std::vector<mt_node> nodes;
  mt_program_output output{};
  mt_program program{};
};

mt_scalar whole(int64_t value) {
  mt_scalar scalar{};
  scalar.kind = MT_SCALAR_INT;
  scalar.v.i = value;
  return scalar;
}

// A fused program, as fusion makes it.
class Builder {
 public:
  explicit Builder(int inner = 0, bool exact = false) : inner_(inner), exact_(exact) {}

  int input(const TestTensor& tensor, bool row = false) {
    tensors_.push_back(tensor);
    return value(MT_FUSED_INPUT, tensor.dtype(), row);
  }
  int number(double number) {
    const int at = value(MT_FUSED_NUMBER, sdk::dtype_of<double>, true);
    values_.back().number = number;
    return at;
  }
  int table(const TestTensor& tensor, bool row = false) {
    tensors_.push_back(tensor);
    return value(MT_FUSED_TABLE, tensor.dtype(), row);
  }
  int position() { return value(MT_FUSED_POSITION, sdk::dtype_of<int64_t>, false); }
  int call(const std::string& op, std::vector<int> inputs, mt_dtype dtype, bool row = false,
           mt_dtype compute = kF32, std::vector<mt_scalar> scalars = {}) {
    return call(program_of(op), std::move(inputs), dtype, row, compute, std::move(scalars));
  }
  int call(const mt_program* program, std::vector<int> inputs, mt_dtype dtype, bool row,
           mt_dtype compute, std::vector<mt_scalar> scalars) {
    const int result = value(MT_FUSED_RESULT, dtype, row);
    auto& in = lists_.emplace_back(inputs.begin(), inputs.end());
    auto& out = lists_.emplace_back(1, result);
    const auto& numbers = scalars_.emplace_back(std::move(scalars));
    calls_.push_back({program, compute, 0, in.data(), numbers.data(), out.data()});
    return result;
  }
  // Returns the element of a table with an index that is checked for `size`.
  int select(int table, int index, int64_t size, bool row) {
    return call(&load_.program,
                {table, checked(index, size, values_[static_cast<size_t>(index)].row)},
                values_[static_cast<size_t>(table)].dtype, row,
                values_[static_cast<size_t>(table)].dtype, {});
  }
  int checked(int index, int64_t size, bool row) {
    const mt_dtype type = sdk::dtype_of<int64_t>;
    return call(&bound_.program, {index}, type, row, type, {whole(size), whole(1)});
  }
  void output(const TestTensor& tensor, int value) {
    tensors_.push_back(tensor);
    outputs_.push_back(value);
  }

  // Runs the kernel, once compiled.
  void run(const Shape& shape) {
    mt_fused_program program = fused_program("fused_test", values_, calls_, outputs_, exact_);
    void (*destroy)(void* self) = nullptr;
    program.destroy = &destroy;
    mt_kernel_entry kernel{};
    cuda::compile_fused(program, kernel);
    std::vector<char> bytes(sizeof(mt_fused_args) + tensors_.size() * sizeof(void*));
    auto& args = *reinterpret_cast<mt_fused_args*>(bytes.data());
    args.header.size = bytes.size();
    args.ndim = static_cast<int32_t>(shape.size());
    args.inner = inner_;
    std::copy(shape.begin(), shape.end(), args.shape);
    for (size_t k = 0; k < tensors_.size(); ++k) args.operands[k] = tensors_[k];
    ASSERT_EQ(kernel.supports(kernel.self, &args), nullptr);
    TestContext context;
    ASSERT_EQ(kernel.run(kernel.self, context.get(), &args), MT_OK) << context.error;
    ASSERT_NE(destroy, nullptr);
    destroy(kernel.self);
  }

 private:
  int value(int32_t kind, mt_dtype dtype, bool row) {
    values_.push_back({kind, row ? 1 : 0, dtype, 0, 0});
    return static_cast<int>(values_.size()) - 1;
  }

  const int inner_;
  const bool exact_;
  std::vector<TestTensor> tensors_;
  std::vector<mt_fused_value> values_;
  std::vector<mt_fused_call> calls_;
  std::deque<std::vector<int32_t>> lists_;
  std::vector<int32_t> outputs_;
  std::deque<std::vector<mt_scalar>> scalars_;
  const Selection bound_{"bound"}, load_{"load"};
};

const mt_ctx& any_context() {
  static TestContext context;
  return *context.get();
}

mt_scalar real(double value) {
  mt_scalar scalar{};
  scalar.kind = MT_SCALAR_FLOAT;
  scalar.v.d = value;
  return scalar;
}

template <class T>
TestTensor numbers(Shape shape, uint32_t seed) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  std::vector<double> values;
  uint32_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back((static_cast<int>(state >> 24) - 128) / 32.0);
  }
  TestTensor t = TestTensor::of<T, double>(std::move(shape), values);
  const_cast<mt_tensor*>(static_cast<const mt_tensor*>(t))->flags |= MT_TENSOR_CONTIGUOUS;
  return t;
}

void expect_close(const TestTensor& got, const std::vector<double>& want, double bound) {
  const std::vector<double> found = got.values<double>();
  ASSERT_EQ(found.size(), want.size());
  int wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::abs(found[i] - want[i]) <= bound * (1 + std::abs(want[i]))) continue;
    if (++wrong <= 3) ADD_FAILURE() << "element " << i << " is " << found[i] << ", not " << want[i];
  }
}

TEST(EmulatedFused, ChainsOfContiguousElements) {
  for (const int64_t n : {1, 5, 4096, 5000}) {
    const TestTensor x = numbers<float>({n}, 1), y = numbers<float>({n}, 2);
    const TestTensor out = numbers<float>({n}, 3), mask = numbers<bool>({n}, 4);
    Builder b;
    const int a = b.input(x), c = b.input(y);
    const int product = b.call("mul.Tensor", {a, b.number(0.5)}, kF32);
    const int t = b.call("tanh", {product}, kF32);
    const int larger = b.call("gt.Tensor", {t, c}, sdk::dtype_of<bool>);
    b.output(out, b.call("where.self", {larger, t, c}, kF32));
    b.output(mask, larger);
    b.run({n});
    std::vector<double> want, truth;
    const std::vector<double> xs = x.values<double>(), ys = y.values<double>();
    for (size_t i = 0; i < xs.size(); ++i) {
      const double v = std::tanh(xs[i] * 0.5);
      want.push_back(std::max(v, ys[i]));
      truth.push_back(v > ys[i] ? 1 : 0);
    }
    expect_close(out, want, 1e-5);
    expect_close(mask, truth, 0);
  }
}

TEST(EmulatedFused, ProgramsOfOtherNumbersShareAKernel) {
  const TestTensor x = numbers<float>({70}, 1), out = numbers<float>({70}, 2);
  const int before = cuda::texts_compiled;
  for (const double factor : {0.25, 3.0, -7.5}) {
    Builder b;
    const int product = b.call("mul.Tensor", {b.input(x), b.number(factor)}, kF32);
    const int sum = b.call("add.Tensor", {product, b.number(2 * factor)}, kF32);
    const mt_scalar slope = real(factor + 2);
    b.output(out, b.call("leaky_relu", {sum}, kF32, false, kF32, {slope}));
    b.run({70});
    std::vector<double> want;
    for (const double v : x.values<double>()) {
      const double of = (v + 2) * factor;
      want.push_back(of > 0 ? of : of * (factor + 2));
    }
    expect_close(out, want, 1e-5);
  }
  EXPECT_EQ(cuda::texts_compiled - before, 1);
  for (const double exponent : {2.0, 3.0}) {  // multiplications
    Builder b;
    b.output(out, b.call("pow.Tensor_Tensor", {b.input(x), b.number(exponent)}, kF32));
    b.run({70});
  }
  EXPECT_EQ(cuda::texts_compiled - before, 3);
}

TEST(EmulatedFused, StridedAndBroadcastOperands) {
  const TestTensor x = numbers<float>({24, 32}, 1).reversed();  // (32, 24)
  const TestTensor row = numbers<sdk::BFloat16>({24}, 2), column = numbers<float>({32, 1}, 3);
  const TestTensor out = numbers<float>({32, 24}, 4);
  Builder b;
  const int a = b.input(x), r = b.input(row), c = b.input(column);
  b.output(out, b.call("sub.Tensor", {b.call("mul.Tensor", {a, r}, kF32), c}, kF32));
  b.run({32, 24});
  const std::vector<double> xs = x.values<double>(), rs = row.values<double>();
  const std::vector<double> cs = column.values<double>();
  std::vector<double> want;
  for (size_t i = 0; i < 32; ++i) {
    for (size_t j = 0; j < 24; ++j) want.push_back(xs[i * 24 + j] * rs[j] - cs[i]);
  }
  expect_close(out, want, 1e-5);
}

// A fill is a copy of a number: of all elements, and of those of rows.
TEST(EmulatedFused, Fills) {
  mt_node node{};
  node.op = "input";
  for (int32_t& a : node.a) a = -1;
  mt_program_output output{};
  mt_program fill{};
  fill.size = sizeof(fill);
  fill.name = "fill_";
  fill.nodes = &node;
  fill.num_nodes = fill.num_outputs = 1;
  fill.outputs = &output;
  fill.step = -1;
  const TestTensor line = numbers<sdk::BFloat16>({300}, 1);
  Builder alone;
  const mt_dtype bf16 = sdk::dtype_of<sdk::BFloat16>;
  alone.output(line, alone.call(&fill, {alone.number(0.5)}, bf16, false, bf16, {}));
  alone.run({300});
  expect_close(line, std::vector<double>(300, 0.5), 0);
  const TestTensor x = numbers<float>({4, 40}, 2), out = numbers<float>({4, 40}, 3);
  const TestTensor row = numbers<float>({4, 1}, 4);
  Builder b(1);
  const int a = b.input(x);
  const int zeros = b.call(&fill, {b.number(0)}, kF32, false, kF32, {});
  const int sum = b.call("sum.dim_IntList", {b.call("mul.Tensor", {a, zeros}, kF32)}, kF32, true);
  b.output(out, b.call("add.Tensor", {zeros, sum}, kF32));
  b.output(row, b.call(&fill, {b.number(3)}, kF32, true, kF32, {}));
  b.run({4, 40});
  expect_close(out, std::vector<double>(160, 0), 0);
  expect_close(row, std::vector<double>(4, 3), 0);
}

TEST(EmulatedFused, ExactRoundsEveryValue) {
  const TestTensor x = numbers<sdk::BFloat16>({300}, 1);
  for (const bool exact : {true, false}) {
    const TestTensor out = numbers<sdk::BFloat16>({300}, 2);
    const mt_dtype bf16 = sdk::dtype_of<sdk::BFloat16>;
    Builder b(0, exact);
    const int a = b.input(x);
    const int sum = b.call("add.Tensor", {a, b.number(260)}, bf16, false, bf16);
    b.output(out, b.call("sub.Tensor", {sum, b.number(260)}, bf16, false, bf16));
    b.run({300});
    std::vector<double> want;
    for (const double v : x.values<double>()) {
      want.push_back(exact ? std::nearbyint((v + 260) / 2) * 2 - 260 : v);
    }
    expect_close(out, want, exact ? 0 : 1e-6);
  }
}

// Runs a softmax of rows, written from primitives.
template <class T>
void softmax(int64_t rows, int64_t columns, double bound) {
  const TestTensor x = numbers<T>({rows, columns}, 1), out = numbers<T>({rows, columns}, 2);
  const TestTensor sums = numbers<float>({rows, 1}, 3);
  const mt_dtype dtype = sdk::dtype_of<T>;
  Builder b(1);
  const int a = b.input(x);
  const int wide = b.call("mul.Tensor", {a, b.number(1)}, kF32);
  const int most = b.call("amax", {wide}, kF32, true);
  const int e = b.call("exp", {b.call("sub.Tensor", {wide, most}, kF32)}, kF32);
  const int sum = b.call("sum.dim_IntList", {e}, kF32, true);
  b.output(out, b.call("div.Tensor", {e, sum}, dtype));
  b.output(sums, sum);
  b.run({rows, columns});
  const std::vector<double> xs = x.values<double>();
  std::vector<double> want, want_sums;
  for (int64_t i = 0; i < rows; ++i) {
    double largest = -1e300, total = 0;
    const double* const row = xs.data() + i * columns;
    for (int64_t j = 0; j < columns; ++j) largest = std::max(largest, row[j]);
    for (int64_t j = 0; j < columns; ++j) total += std::exp(row[j] - largest);
    want_sums.push_back(total);
    for (int64_t j = 0; j < columns; ++j) want.push_back(std::exp(row[j] - largest) / total);
  }
  expect_close(out, want, bound);
  expect_close(sums, want_sums, 1e-4);
}

TEST(EmulatedFused, RowsOfOneWarp) {
  softmax<float>(9, 1, 1e-5);
  softmax<float>(9, 37, 1e-5);
  softmax<float>(6, 256, 1e-5);
}
TEST(EmulatedFused, RowsOfABlock) {
  softmax<float>(3, 4096, 1e-5);
  softmax<sdk::BFloat16>(2, 6000, 1e-2);
}
TEST(EmulatedFused, RowsThatAreReadAgain) { softmax<float>(2, 50001, 1e-5); }

TEST(EmulatedFused, RowsWithBroadcastOperandsAndOuterDimensions) {
  const TestTensor x = numbers<float>({4, 3, 40}, 1), weight = numbers<float>({40}, 2);
  const TestTensor out = numbers<float>({4, 3, 40}, 3);
  const TestTensor view = x.as_strided({3, 4, 40}, {40, 120, 1});  // (3, 4, 40)
  const TestTensor to = out.as_strided({3, 4, 40}, {40, 120, 1});
  Builder b(1);
  const int a = b.input(view), w = b.input(weight);
  const int mean = b.call("mean.dim", {a}, kF32, true);
  b.output(to, b.call("mul.Tensor", {b.call("sub.Tensor", {a, mean}, kF32), w}, kF32));
  b.run({3, 4, 40});
  const std::vector<double> xs = x.values<double>(), ws = weight.values<double>();
  std::vector<double> want;
  for (size_t i = 0; i < 12; ++i) {
    double mean_of = 0;
    for (size_t j = 0; j < 40; ++j) mean_of += xs[i * 40 + j] / 40;
    for (size_t j = 0; j < 40; ++j) want.push_back((xs[i * 40 + j] - mean_of) * ws[j]);
  }
  expect_close(out, want, 1e-5);
}

// Values near `shift`, so that the square of the mean is large beside the variance.
TEST(EmulatedFused, VariancesOfRows) {
  for (const int64_t columns : {1, 33, 4100}) {
    const TestTensor x = numbers<float>({3, columns}, 1), out = numbers<float>({3, 1}, 2);
    Builder b(1);
    const int a = b.input(x), shifted = b.call("add.Tensor", {a, b.number(1000)}, kF32);
    b.output(out, b.call("var.correction", {shifted}, kF32, true, kF32, {whole(0)}));
    b.run({3, columns});
    const std::vector<double> xs = x.values<double>();
    std::vector<double> want;
    for (int64_t i = 0; i < 3; ++i) {
      double mean = 0, sum = 0;
      for (int64_t j = 0; j < columns; ++j) mean += xs[static_cast<size_t>(i * columns + j)];
      mean /= static_cast<double>(columns);
      for (int64_t j = 0; j < columns; ++j) {
        const double d = xs[static_cast<size_t>(i * columns + j)] - mean;
        sum += d * d;
      }
      want.push_back(sum / static_cast<double>(columns));
    }
    expect_close(out, want, 1e-4);
  }
}

// Sums of exponentials are taken over runs, which are scaled to their largest elements: these may
// ascend or descend, be far apart, infinite or NaN, and be in any place of a run.
TEST(EmulatedFused, SumsOfExponentialsOfRows) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const std::vector<std::vector<double>> patterns = {
      {0},           {-kInf},     {kInf, 1},       {kInf, -kInf, 2},
      {nan, 1},      {nan, kInf}, {2, nan, -kInf}, {-kInf, 3},
      {1e30, -1e30}, {-1e38},     {88, -88, 0.5},  {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
      {-3, -5e4, -4}};
  for (const int64_t columns : {1, 3, 8, 50, 4104}) {
    const auto n = static_cast<size_t>(columns);
    // Each pattern at the front, at the end, and repeated with a slope up and down.
    std::vector<double> xs;
    for (const auto& pattern : patterns) {
      for (int form = 0; form < 4; ++form) {
        for (size_t j = 0; j < n; ++j) {
          const size_t from_end = n - 1 - j;
          double x = -7;
          if (form == 0 && j < pattern.size()) x = pattern[j];
          if (form == 1 && from_end < pattern.size()) x = pattern[from_end];
          const double slope = static_cast<double>(j) / 64;
          if (form >= 2) x = pattern[j % pattern.size()] + (form == 2 ? slope : -slope);
          xs.push_back(x);
        }
      }
    }
    const auto rows = static_cast<int64_t>(patterns.size()) * 4;
    const TestTensor x = TestTensor::of<float, double>({rows, columns}, xs);
    const_cast<mt_tensor*>(static_cast<const mt_tensor*>(x))->flags |= MT_TENSOR_CONTIGUOUS;
    const TestTensor out = numbers<float>({rows, 1}, 2);
    Builder b(1);
    b.output(out, b.call("logsumexp", {b.input(x)}, kF32, true));
    b.run({rows, columns});
    const std::vector<double> read = x.values<double>(), found = out.values<double>();
    for (size_t i = 0; i < found.size(); ++i) {
      double most = -kInf, sum = 0;
      for (size_t j = 0; j < n; ++j) most = std::fmax(most, read[i * n + j]);
      bool has_nan = false;
      for (size_t j = 0; j < n; ++j) {
        const double value = read[i * n + j];
        has_nan = has_nan || std::isnan(value);
        if (std::isinf(most)) continue;
        sum += std::exp(value - most);
      }
      const double want = has_nan ? nan : std::isinf(most) ? most : most + std::log(sum);
      SCOPED_TRACE(::testing::Message() << "row " << i << " of " << columns << " columns");
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(found[i])) << found[i];
      } else if (std::isinf(want)) {
        EXPECT_EQ(found[i], want);
      } else {
        EXPECT_NEAR(found[i], want, 1e-6 * (1 + std::abs(want)));
      }
    }
  }
}

// Returns indices, of which the last is `last`.
TestTensor indices(int64_t rows, int64_t size, int64_t last) {
  std::vector<double> values;
  for (int64_t i = 0; i < rows; ++i) values.push_back(static_cast<double>((i * 7 + 3) % size));
  values.back() = static_cast<double>(last);
  return TestTensor::of<int64_t, double>({rows, 1}, values);
}

// The cross-entropy of rows and its gradient: the logit of the label is a load, and the gradient
// differs from the softmax in its place.
TEST(EmulatedFused, CrossEntropyOfRows) {
  for (const int64_t columns : {1, 50, 5000}) {
    constexpr int64_t kRows = 5;
    const TestTensor x = numbers<float>({kRows, columns}, 1);
    const TestTensor label = indices(kRows, columns, columns - 1);
    const TestTensor loss = numbers<float>({kRows, 1}, 2),
                     grad = numbers<float>({kRows, columns}, 3);
    Builder b(1);
    const int a = b.input(x), t = b.input(label, true);
    const int logits = b.table(x.as_strided({kRows, 1, columns}, {columns, 0, 1}), true);
    const int lse = b.call("logsumexp", {a}, kF32, true);
    const int own = b.select(logits, t, columns, true);
    b.output(loss, b.call("sub.Tensor", {lse, own}, kF32, true));
    const int p = b.call("exp", {b.call("sub.Tensor", {a, lse}, kF32)}, kF32);
    const int here = b.call("eq.Tensor", {b.checked(t, columns, true), b.position()},
                            sdk::dtype_of<bool>, false, sdk::dtype_of<int64_t>);
    const int less = b.call("sub.Tensor", {p, b.number(1)}, kF32);
    b.output(grad, b.call("where.self", {here, less, p}, kF32));
    cuda::fault_of(any_context())->site = 0;
    b.run({kRows, columns});
    EXPECT_EQ(cuda::fault_of(any_context())->site, 0u);
    const std::vector<double> xs = x.values<double>(), labels = label.values<double>();
    std::vector<double> losses, grads;
    for (int64_t i = 0; i < kRows; ++i) {
      const double* const row = xs.data() + i * columns;
      const auto at = static_cast<int64_t>(labels[static_cast<size_t>(i)]);
      double sum = 0;
      for (int64_t j = 0; j < columns; ++j) sum += std::exp(row[j]);
      losses.push_back(std::log(sum) - row[at]);
      for (int64_t j = 0; j < columns; ++j) {
        grads.push_back(std::exp(row[j]) / sum - (j == at ? 1 : 0));
      }
    }
    expect_close(loss, losses, 1e-4);
    expect_close(grad, grads, 1e-4);
  }
}

// Rows of a table with a distance between elements, and elements of rows by an index for each.
TEST(EmulatedFused, RowsAndElementsThatIndicesSelect) {
  constexpr int64_t kRows = 4, kColumns = 40, kSize = 6;
  const TestTensor weight = numbers<sdk::BFloat16>({kColumns, kSize}, 1);  // a column is a row
  const TestTensor x = numbers<float>({kRows, kColumns}, 2),
                   out = numbers<float>({kRows, kColumns}, 3);
  const TestTensor index = indices(kRows, kSize, 5);
  std::vector<double> places;
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    places.push_back(static_cast<double>(i * 11 % kColumns));
  const TestTensor within = TestTensor::of<int64_t, double>({kRows, kColumns}, places);
  Builder b(1);
  const int t = b.input(index, true), w = b.input(within);
  const int rows = b.table(weight.as_strided({1, kColumns, kSize}, {0, kSize, 1}));
  const int elements = b.table(x.as_strided({kRows, 1, kColumns}, {kColumns, 0, 1}), true);
  b.output(out,
           b.call("add.Tensor",
                  {b.select(rows, t, kSize, false), b.select(elements, w, kColumns, false)}, kF32));
  b.run({kRows, kColumns});
  const std::vector<double> ws = weight.values<double>(), xs = x.values<double>();
  const std::vector<double> ts = index.values<double>();
  std::vector<double> want;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      const auto at = static_cast<int64_t>(ts[static_cast<size_t>(i)]);
      const auto place = static_cast<int64_t>(places[static_cast<size_t>(i * kColumns + j)]);
      want.push_back(ws[static_cast<size_t>(j * kSize + at)] +
                     xs[static_cast<size_t>(i * kColumns + place)]);
    }
  }
  expect_close(out, want, 1e-5);
}

TEST(EmulatedFused, AnIndexOutOfRangeIsAFault) {
  for (const int64_t wrong : {-1, 50}) {
    const TestTensor x = numbers<float>({3, 50}, 1), out = numbers<float>({3, 1}, 2);
    const TestTensor label = indices(3, 50, wrong);
    Builder b(1);
    const int a = b.input(x), t = b.input(label, true);
    const int logits = b.table(x.as_strided({3, 1, 50}, {50, 0, 1}), true);
    const int sum = b.call("sum.dim_IntList", {a}, kF32, true);
    b.output(out, b.call("sub.Tensor", {sum, b.select(logits, t, 50, true)}, kF32, true));
    cuda::Fault& fault = *cuda::fault_of(any_context());
    fault = {};
    b.run({3, 50});
    EXPECT_NE(fault.site, 0u);
    EXPECT_EQ(fault.index, wrong);
    EXPECT_EQ(fault.size, 50);
    EXPECT_EQ(fault.dim, 1u);
    fault = {};
  }
}

}  // namespace
}  // namespace mytorch::testing
