// Calls by name with values whose types are known only at run time.
#include <algorithm>

#include "mytorch/call.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/equal.h"
#include "mytorch/tensor.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::expect_error;
using testing::Values;
using testing::values;

Values result(std::vector<Value> results) {
  EXPECT_EQ(results.size(), 1u);
  return values(results.at(0).tensor());
}

TEST(ValueTest, ReportsItsType) {
  const Tensor x = tensor({1.0});
  const std::pair<Value, const char*> kinds[] = {{Value(), "None"},
                                                 {x, "Tensor"},
                                                 {std::vector<Tensor>{x}, "Tensor[]"},
                                                 {1, "int"},
                                                 {1.5, "float"},
                                                 {true, "bool"},
                                                 {std::vector<int64_t>{1}, "int[]"},
                                                 {std::vector<double>{1}, "float[]"},
                                                 {"text", "str"},
                                                 {kFloat32, "ScalarType"},
                                                 {kCPU, "Device"},
                                                 {Generator(1), "Generator"},
                                                 {Handle{"queue", nullptr}, "queue"}};
  for (const auto& [value, name] : kinds) EXPECT_EQ(value.type_name(), name);
  expect_error(ErrorCode::kType, {"float, not a Tensor"}, [] { Value(1.5).tensor(); });
  expect_error(ErrorCode::kType, {"Tensor, not a number"}, [&] { Value(x).scalar(); });
  expect_error(ErrorCode::kType, {"None, not Tensor[]"}, [] { Value().tensors(); });
}

TEST(CallTest, PositionalNamedAndDefaultArguments) {
  const Tensor x = tensor({1.0, 2});
  EXPECT_EQ(result(call("add", {x, x})), (Values{2, 4}));
  EXPECT_EQ(result(call("add", {x, 10})), (Values{11, 12}));
  EXPECT_EQ(result(call("add.Tensor", {x, x}, {{"alpha", 3}})), (Values{4, 8}));
  EXPECT_EQ(result(call("add", {}, {{"other", x}, {"self", x}})), (Values{2, 4}));
  EXPECT_EQ(result(call("sum", {x})), Values{3});
  EXPECT_EQ(result(call("sum", {x}, {{"dtype", kInt64}})), Values{3});
  EXPECT_EQ(result(call("clamp", {x, Value(), 1.5})), (Values{1, 1.5}));
  EXPECT_EQ(result(call("mse_loss", {x, x + 1}, {{"reduction", "sum"}})), Values{2});
  EXPECT_EQ(result(call("cat", {std::vector<Tensor>{x, x}})), (Values{1, 2, 1, 2}));
  EXPECT_EQ(result(call("zeros", {std::vector<int64_t>{2}}, {{"device", "cpu"}})), (Values{0, 0}));
  EXPECT_EQ(result(call("zeros", {3})), (Values{0, 0, 0}));  // a number converts to a list of one
}

TEST(CallTest, TriesTheOverloadsInOrder) {
  const Tensor x = tensor({3.0, 1, 2}).view({1, 3});
  EXPECT_EQ(call("max", {x}).size(), 1u);
  const std::vector<Value> two = call("max", {x, 1});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(values(two[0].tensor()), Values{3});
  EXPECT_EQ(values(two[1].tensor()), Values{0});
  EXPECT_EQ(result(call("max", {x, x * 2})), (Values{6, 2, 4}));
  EXPECT_EQ(call("to", {x, kInt64})[0].tensor().dtype(), kInt64);
  EXPECT_EQ(call("to", {x, kCPU})[0].tensor().device(), kCPU);
  EXPECT_EQ(call("split", {x, 2, 1})[0].tensors().size(), 2u);
}

TEST(CallTest, RunsInPlaceAndOutForms) {
  const Tensor x = tensor({1.0, 2});
  EXPECT_TRUE(call("add_", {x, 10})[0].tensor().is_same(x));
  EXPECT_EQ(values(x), (Values{11, 12}));
  call("mul_.Tensor", {x, 2});
  EXPECT_EQ(values(x), (Values{22, 24}));
  const Tensor out = tensor({0.0, 0});
  EXPECT_TRUE(call("add", {x, x}, {{"out", out}})[0].tensor().is_same(out));
  EXPECT_EQ(values(out), (Values{44, 48}));
  call("copy_", {x, out});  // an operator, not an in-place form
  EXPECT_EQ(values(x), (Values{44, 48}));
  EXPECT_FALSE(call("equal", {x, x * 0})[0].scalar().to_bool());
  EXPECT_EQ(call("item", {x.sum()})[0].scalar().to_double(), 92);
}

TEST(CallTest, TakesSeveralOutputsAsAListOrByName) {
  const Tensor x = tensor({3.0, 1, 2});
  const Tensor sorted = tensor({0.0, 0, 0});
  const Tensor order = tensor(std::vector<int64_t>{0, 0, 0});
  auto clear = [&] {
    sorted.zero_();
    order.zero_();
  };
  auto check = [&] {
    EXPECT_EQ(values(sorted), (Values{1, 2, 3}));
    EXPECT_EQ(values(order), (Values{1, 2, 0}));
    clear();
  };
  call("sort", {x}, {{"out", std::vector<Tensor>{sorted, order}}});
  check();
  call("sort", {x}, {{"values", sorted}, {"indices", order}});
  check();
  call("sort", {x}, {{"out1", order}, {"out0", sorted}, {"dim", 0}});
  check();
  expect_error(ErrorCode::kValue, {"[sort] has 2 results", "1 output is given"}, [&] {
    call("sort", {x}, {{"out", sorted}});
  });
  expect_error(ErrorCode::kValue, {"1 output is given"}, [&] {
    call("sort", {x}, {{"indices", order}});
  });
  expect_error(ErrorCode::kValue, {"3 outputs are given"}, [&] {
    call("sort", {x}, {{"out", std::vector<Tensor>{sorted, order, order}}});
  });
  expect_error(ErrorCode::kType, {"'out0' is given twice"}, [&] {
    call("sort", {x}, {{"values", sorted}, {"out0", sorted}});
  });
  EXPECT_EQ(values(sorted), (Values{0, 0, 0}));
}

TEST(CallTest, AliasesAreNamesOfTheirOperators) {
  const Tensor x = tensor({-2.0f, 0.5f});
  EXPECT_TRUE(equal(call("clip", {x, 0, 1}).front().tensor(), x.clamp(0, 1)));
  call("clip_", {x, 0, 1});
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 0.5}));
  EXPECT_TRUE(equal(x.absolute(), x.abs()));
  EXPECT_TRUE(equal(x.greater_equal(0.5), x.ge(0.5)));
}

TEST(CallTest, NamesUnknownOperators) {
  const Tensor x = tensor({1.0, 2});
  expect_error(ErrorCode::kValue, {"[call] there is no operator 'ad'", "mytorch ops"},
               [&] { call("ad", {x}); });
  expect_error(ErrorCode::kValue, {"no operator 'add.Foo'", "add.Tensor"}, [&] {
    call("add.Foo", {x, x});
  });
  expect_error(ErrorCode::kValue, {"no operator 'add.Foo'"}, [&] { call("add_.Foo", {x, x}); });
  expect_error(ErrorCode::kValue, {"no operator ''"}, [] { call("", {}); });
  expect_error(ErrorCode::kValue, {"no operator '_'"}, [] { call("_", {}); });
  expect_error(ErrorCode::kValue, {"[sum]", "no such form"}, [&] { call("sum_", {x}); });
  expect_error(ErrorCode::kValue, {"no such form"}, [&] {
    call("t", {x.view({1, 2})}, {{"out", x}});
  });
}

TEST(CallTest, ArgumentsThatMatchNoOverload) {
  const Tensor x = tensor({1.0, 2});
  expect_error(ErrorCode::kType,
               {"[mm] no overload takes these arguments:",
                "\n  mm(Tensor self, Tensor mat2) -> Tensor: 'mat2' is missing"},
               [&] { call("mm", {x}); });
  expect_error(ErrorCode::kType, {"it takes 2 arguments, not 3"}, [&] { call("mm", {x, x, x}); });
  expect_error(ErrorCode::kType, {"'mat2' takes Tensor, not int"}, [&] { call("mm", {x, 1}); });
  expect_error(ErrorCode::kType, {"'mat2' is given twice"}, [&] {
    call("mm", {x, x}, {{"mat2", x}});
  });
  expect_error(ErrorCode::kType, {"no argument 'other'"}, [&] {
    call("mm", {x, x}, {{"other", x}});
  });
  expect_error(ErrorCode::kType, {"'alpha' must be given by name"}, [&] {
    call("add", {x, x, 2});
  });
  expect_error(ErrorCode::kType, {"'self' takes Tensor, not None"}, [&] {
    call("mm", {Value(), x});
  });
  expect_error(ErrorCode::kType, {"'dim' takes int, not float"}, [&] { call("cumsum", {x, 0.5}); });
  expect_error(ErrorCode::kType, {"'out' takes Tensor, not int"}, [&] {
    call("add", {x, x}, {{"out", 1}});
  });
  expect_error(ErrorCode::kType, {"takes no 'out'"}, [&] { call("add_", {x, x}, {{"out", x}}); });
  expect_error(ErrorCode::kType, {"max.dim", "max.other", "max("}, [&] { call("max", {"text"}); });
  EXPECT_EQ(values(x), (Values{1, 2}));
}

TEST(CallTest, IsRecorded) {
  const Tensor x = tensor({1.0, 2}).requires_grad_();
  call("sum", {call("mul", {x, x})[0]})[0].tensor().backward();
  EXPECT_EQ(values(x.grad()), (Values{2, 4}));
}

TEST(CallTest, ErrorsNameTheOperatorThatWasCalledFirst) {
  expect_error(ErrorCode::kType, {"[l1_loss] mean: has no result in int64"}, [] {
    call("l1_loss", {tensor({1, 2}), tensor({3, 4})});
  });
}

TEST(CallTest, NamesEveryOperator) {
  const std::vector<std::string> names = operator_names();
  EXPECT_GT(names.size(), 150u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_TRUE(std::binary_search(names.begin(), names.end(), "add.Tensor"));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace mytorch
