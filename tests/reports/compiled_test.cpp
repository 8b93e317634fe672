// Compiled functions that other frameworks were reported to run wrongly. Each test names the
// report; the function that is not compiled gives the expected values.
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

// pytorch/pytorch#183986: writes to elements of an expanded tensor were made in place, where all
// rows share one memory.
TEST(ReportedCompiled, IndexedWritesToExpandedTensors) {
  const Tensor index = tensor({0, 0, 1}), source = ones({3, 8}, kFloat64);
  const auto check = [&](const auto& f) {
    auto compiled = compile(f);
    for (int i = 0; i < 3; ++i) {
      const Tensor x = full({1, 8}, i, kFloat64);
      EXPECT_EQ(values(compiled(x)), values(f(x)));
    }
  };
  check([&](const Tensor& x) { return index_add(x.expand({4, -1}), 0, index, source); });
  check([&](const Tensor& x) {
    return index_copy(x.expand({4, -1}), 0, tensor({2, 0, 1}), source);
  });
  check([&](const Tensor& x) { return index_fill(x.expand({4, -1}), 0, index, 7); });
  check([&](const Tensor& x) { return index_put(x.expand({4, -1}), {index}, source, true); });
  check([&](const Tensor& x) {
    return index_put(x.expand({4, -1}), {tensor({2, 3, 1})}, source, false);
  });
  check([&](const Tensor& x) {
    return masked_fill(x.expand({4, -1}), tensor({{1}, {0}, {0}, {1}}, kBool), -1);
  });
}

// pytorch/pytorch#152425: writes to a part of an expanded tensor, which change all of it or are
// refused.
TEST(ReportedCompiled, WritesToExpandedTensorsAreAsWithoutCompiling) {
  const auto f = [](const Tensor& x) {
    Tensor a = x.expand({2});
    a.narrow(0, 1, 1).fill_(3);
    return a * 1;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = full({1}, i, kFloat64), y = full({1}, i, kFloat64);
    Values expected, found;
    const std::string plain_error = error_of([&] { expected = values(f(x)); });
    const std::string compiled_error = error_of([&] { found = values(compiled(y)); });
    EXPECT_EQ(plain_error.empty(), compiled_error.empty()) << plain_error << compiled_error;
    EXPECT_EQ(expected, found);
    EXPECT_EQ(values(x), values(y));
  }
}

// pytorch/pytorch#139789: arguments that share memory after a call with ones that do not.
TEST(ReportedCompiled, ArgumentsThatBeginToShareMemory) {
  const auto f = [](Tensor x, const Tensor& y) {
    x.mul_(2);
    return x + y;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) {
    Tensor x = ones({4}, kFloat64), y = ones({4}, kFloat64);
    EXPECT_EQ(values(compiled(x, y)), Values({3, 3, 3, 3}));
    // x is {2, 2, 2, 2}, and y begins with its last two elements.
    const Tensor base = ones({8}, kFloat64);
    EXPECT_EQ(values(compiled(base.narrow(0, 0, 4), base.narrow(0, 2, 4))), Values({4, 4, 3, 3}));
  }
}

// pytorch/pytorch#198101: a value computed before its operand is written was computed after it.
TEST(ReportedCompiled, ReadsStayBeforeWrites) {
  const auto f = [](Tensor x) {
    Tensor y = x * 2;
    y.sub_(-4);
    x.narrow(1, 2, 3).fill_(2);
    return y;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = arange(-12, 12, 1, kFloat64).view({4, 6}).clone(), y = x.clone();
    EXPECT_EQ(values(compiled(x)), values(f(y)));
    EXPECT_EQ(values(x), values(y));
  }
}

// pytorch/pytorch#97083: a view that is made before its base is written.
TEST(ReportedCompiled, ViewsSeeLaterWrites) {
  const auto f = [](Tensor a) {
    a = a.narrow(0, 0, 1);
    const Tensor b = a.squeeze();
    a.select(0, 0).fill_(0);
    const Tensor c = b + 1;
    a.select(0, 0).fill_(2);
    return b * 10 + c;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(compiled(ones({2}, kFloat64))), Values({21}));
}

// pytorch/pytorch#153389: operators that write several arguments, given views of one tensor.
TEST(ReportedCompiled, SeveralViewsAreWritten) {
  const auto f = [](Tensor x, Tensor out) {
    Tensor x1 = x.select(0, 0), x2 = x.select(0, 1);
    x1.add_(1);
    x2.add_(2);
    out.copy_(x1 + x2 + 2);
    return out * 1;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = full({2, 3}, i, kFloat64), out = zeros({3}, kFloat64);
    EXPECT_EQ(values(compiled(x, out)), Values({2.0 * i + 5, 2.0 * i + 5, 2.0 * i + 5}));
    EXPECT_EQ(values(x), Values({i + 1.0, i + 1.0, i + 1.0, i + 2.0, i + 2.0, i + 2.0}));
    EXPECT_EQ(values(out), Values({2.0 * i + 5, 2.0 * i + 5, 2.0 * i + 5}));
  }
}

}  // namespace
}  // namespace mytorch
