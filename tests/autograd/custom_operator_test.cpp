// Operators registered at run time: by a program, and by a backend through the C contract.
#include <algorithm>
#include <cmath>

#include "dispatcher/choice/choice.h"
#include "dispatcher/custom/schema.h"
#include "dispatcher/table/fields.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/backends.h"
#include "mytorch/operator.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/sigmoid.h"
#include "mytorch/ops/sum.h"
#include "tests/autograd/util.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

Tensor first(const std::vector<Value>& values) { return values.at(0).tensor(); }

// ---- schemas

TEST(CustomSchemaTest, ReadsEveryKindOfArgument) {
  const Schema s = parse_schema(
      "lib::op.two(Tensor x, Tensor? w, Tensor[] more, Operand y, int[] dims=[1, 2], *, float "
      "eps=1e-5,"
      " bool on=True, str mode=\"none\", ScalarType? dtype=None, int? k=None) -> (Tensor a, Tensor "
      "b)");
  EXPECT_EQ(s.name, "lib::op.two");
  EXPECT_EQ(s.base, "lib::op");
  ASSERT_EQ(s.args.size(), 10);
  EXPECT_TRUE(s.args[1].optional);
  EXPECT_EQ(s.args[2].type, ArgType::kTensorList);
  EXPECT_STREQ(s.args[4].default_text, "[1, 2]");
  EXPECT_FALSE(s.args[4].kw_only);
  EXPECT_TRUE(s.args[5].kw_only);
  ASSERT_EQ(s.outputs.size(), 2);
  EXPECT_STREQ(s.outputs[1].name, "b");
  EXPECT_EQ(s.num_inputs, 4);
  // The offsets follow C's layout rules.
  struct Expected {
    mt_args_header header;
    const mt_tensor* x;
    const mt_tensor* w;
    mt_tensor_list more;
    const mt_tensor* y;
    mt_int_list dims;
    double eps;
    int64_t on;
    const char* mode;
    mt_dtype dtype;
    mt_optional_int k;
    const mt_tensor* a;
    const mt_tensor* b;
  };
  EXPECT_EQ(s.args[2].offset, offsetof(Expected, more));
  EXPECT_EQ(s.args[9].offset, offsetof(Expected, k));
  EXPECT_EQ(s.outputs[1].offset, offsetof(Expected, b));
  EXPECT_EQ(s.args_size, sizeof(Expected));
}

// Changing a default keeps kernels valid; changing a name or a type does not.
TEST(CustomSchemaTest, HashCoversNamesAndTypes) {
  const uint64_t hash = parse_schema("a::f(Tensor x, *, float e=1) -> Tensor").hash;
  EXPECT_EQ(parse_schema("a::f(Tensor x, *, float e=2) -> Tensor").hash, hash);
  for (const char* other :
       {"a::f(Tensor x, *, int e=1) -> Tensor", "a::f(Tensor y, *, float e=1) -> Tensor",
        "a::f(Tensor x, float e=1) -> Tensor",
        "a::f(Tensor x, *, float e=1) -> (Tensor, Tensor)"}) {
    EXPECT_NE(parse_schema(other).hash, hash) << other;
  }
}

TEST(CustomSchemaTest, ErrorsNameTheUnparsedPart) {
  const std::pair<const char*, const char*> wrong[] = {
      {"f(Tensor x) -> Tensor", "its name must be library::name"},
      {"a::f Tensor x -> Tensor", "is not of the form"},
      {"a::f(Tensor x)", "is not of the form"},
      {"a::f(Tensor x) -> ", "it has no result"},
      {"a::f(Tensor x) -> int", "results are Tensors"},
      {"a::f(Tensr x) -> Tensor", "there is no type 'Tensr'; there are"},
      {"a::f(Tensor x, int x) -> Tensor", "two arguments 'x'"},
      {"a::f(Tensor(a!) x) -> Tensor", "only operators of ops.yaml"},
      {"a::f(Tensor 1x) -> Tensor", "'1x' is no name"},
      {"a::f(x) -> Tensor", "not of the form Type name"},
      {"a::f(Tensor x, int n=) -> Tensor", "the default '' of argument 'n'"},
      {"a::f(Tensor x, int n=9223372036854775808) -> Tensor", "does not fit its type"},
      {"a::f(Tensor x, float y=large) -> Tensor", "the default 'large' of argument 'y'"},
      {"a::f(Tensor x, int[] dims=) -> Tensor", "the default '' of argument 'dims'"},
      {"a::f(Tensor x, int[] dims=[x]) -> Tensor", "the default '[x]' of argument 'dims'"},
      {"a::f(Tensor x, int[] dims=[1) -> Tensor", "the default '[1' of argument 'dims'"},
  };
  for (const auto& [schema, why] : wrong) {
    expect_error(ErrorCode::kValue, {schema, why}, [s = schema] { parse_schema(s); });
  }
}

// ---- defined by a program

TEST(CustomOperatorTest, DecomposesWithItsGradient) {
  register_operator({.schema = "test::swish(Tensor x, *, float beta=1) -> Tensor",
                     .doc = "x * sigmoid(beta * x)",
                     .gradient = "decompose",
                     .body = [](const std::vector<Value>& args) -> std::vector<Value> {
                       const Tensor& x = args[0].tensor();
                       return {x * sigmoid(x * args[1].scalar())};
                     }});
  const Tensor x = leaf({-1, 0.5, 2});
  const Tensor y = first(call("test::swish", {x}, {{"beta", 2.0}}));
  EXPECT_DOUBLE_EQ(values(y)[2], 2 / (1 + std::exp(-4.0)));
  const auto f = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{first(call("test::swish", {in[0]}))};
  };
  EXPECT_TRUE(autograd::gradcheck(f, {x}));
  EXPECT_TRUE(autograd::gradgradcheck(f, {x}));
  expect_error(ErrorCode::kType, {"test::swish", "'x' takes Tensor"},
               [] { call("test::swish", {1.0}); });
  expect_error(ErrorCode::kValue, {"test::swish", "has no such form"},
               [&] { call("test::swish_", {x}); });
}

// A body that autograd cannot differentiate, and an operator for its gradient.
std::vector<Value> cube_in_c(const std::vector<Value>& args) {
  const Tensor x = args[0].tensor().contiguous();
  Tensor y = ones(x.sizes(), kFloat64);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double v = x.const_data<double>()[i];
    y.data<double>()[i] = args[1].scalar().to_double() * v * v * v;
  }
  return {y};
}

TEST(CustomOperatorTest, GradientIsAnotherOperator) {
  register_operator(
      {.schema = "test::cube_backward(Tensor grad, Tensor x, *, float scale=1) -> Tensor",
       .doc = "3 scale x^2 grad",
       .gradient = "decompose",
       .body = [](const std::vector<Value>& args) -> std::vector<Value> {
         const Tensor& x = args[1].tensor();
         return {args[0].tensor() * x * x * Scalar(3 * args[2].scalar().to_double())};
       }});
  register_operator({.schema = "test::cube(Tensor x, *, float scale=1) -> Tensor",
                     .doc = "scale x^3",
                     .gradient = "test::cube_backward",
                     .body = cube_in_c});
  const Tensor x = leaf({-1, 0.5, 2});
  const auto f = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{first(call("test::cube", {in[0]}, {{"scale", 2.0}}))};
  };
  EXPECT_EQ(f({x})[0].grad_fn(), "test::cube");
  EXPECT_TRUE(autograd::gradcheck(f, {x}));
  EXPECT_TRUE(autograd::gradgradcheck(f, {x}));
  // Saved tensors must not be modified.
  const Tensor a = leaf({1, 2});
  const Tensor b = a * 1.0;
  const Tensor y = f({b})[0];
  b.mul_(2.0);
  EXPECT_THROW(y.sum().backward(), Error);
  // Nothing is recorded if no gradient is required.
  EXPECT_FALSE(f({tensor({1, 2}, kFloat64)})[0].requires_grad());
}

TEST(CustomOperatorTest, SeveralResultsAndArguments) {
  // Returns (x * y, x + y); the second gradient is that of the sum.
  register_operator(
      {.schema = "test::both_backward(Tensor grad0, Tensor grad1, Tensor x, Tensor y, Tensor "
                 "result0) -> (Tensor, Tensor)",
       .doc = "",
       .gradient = "none",
       .body = [](const std::vector<Value>& a) -> std::vector<Value> {
         EXPECT_EQ(values(a[4].tensor()), values(a[2].tensor() * a[3].tensor()));
         return {a[0].tensor() * a[3].tensor() + a[1].tensor(),
                 a[0].tensor() * a[2].tensor() + a[1].tensor()};
       }});
  register_operator(
      {.schema = "test::both(Tensor x, int n, Tensor y) -> (Tensor product, Tensor sum)",
       .doc = "",
       .gradient = "test::both_backward",
       .body = [](const std::vector<Value>& a) -> std::vector<Value> {
         return {a[0].tensor() * a[2].tensor(), a[0].tensor() + a[2].tensor()};
       }});
  const Tensor x = leaf({2, 3});
  const Tensor y = leaf({5, 7});
  const auto out = call("test::both", {x, 1, y});
  (out[0].tensor().sum() + (out[1].tensor() * 10.0).sum()).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{15, 17}));
  EXPECT_EQ(values(y.grad()), (std::vector<double>{12, 13}));
  // An unused result has a zero gradient.
  const Tensor z = leaf({1});
  call("test::both", {z, 1, z})[1].tensor().sum().backward();
  EXPECT_EQ(values(z.grad()), (std::vector<double>{2}));
}

TEST(CustomOperatorTest, WithGradientNoneResultsHaveNoHistory) {
  register_operator({.schema = "test::round_up(Tensor x) -> Tensor",
                     .doc = "",
                     .gradient = "none",
                     .body = [](const std::vector<Value>& a) -> std::vector<Value> {
                       return {a[0].tensor() * 2.0};
                     }});
  EXPECT_FALSE(first(call("test::round_up", {leaf({1})})).requires_grad());
}

TEST(CustomOperatorTest, RejectsSpecsWithoutAGradient) {
  const auto body = [](const std::vector<Value>& a) { return a; };
  const auto refused = [&](OperatorSpec spec, const char* why) {
    expect_error(ErrorCode::kValue, {"[register_operator]", why},
                 [&] { register_operator(std::move(spec)); });
  };
  refused({"test::undecided(Tensor x) -> Tensor", "", "", body}, "its gradient has to be decided");
  refused({"test::empty(Tensor x) -> Tensor", "", "none"}, "neither a body nor");
  refused({"test::nothing(Tensor x) -> Tensor", "", "decompose", nullptr,
           [](const std::vector<Value>&) { return std::vector<ResultSpec>(1); }},
          "there is nothing to decompose into");
  refused({"test::missing(Tensor x) -> Tensor", "", "test::no_such", body},
          "there is no operator 'test::no_such'");
  refused({"test::wants(Tensor x) -> Tensor", "", "mul.Tensor", body}, "wants 'self'");
  register_operator({"test::once(Tensor x) -> Tensor", "", "none", body});
  refused({"test::once(Tensor x) -> Tensor", "", "none", body}, "there is an operator test::once");
  // A body that violates its schema.
  register_operator({"test::liar(Tensor x) -> (Tensor, Tensor)", "", "none", body});
  expect_error(ErrorCode::kInternal,
               {"[test::liar] its body returned 1 results, its schema declares 2"},
               [] { call("test::liar", {ones({2})}); });
}

// ---- defined by a backend

struct ScaleArgs {  // test::scale_by(Tensor x, *, float by=2) -> Tensor
  mt_args_header header;
  const mt_tensor* x;
  double by;
  const mt_tensor* out;
};

int infer_scale(void*, const void* given, mt_result* results) {
  const auto& args = *static_cast<const ScaleArgs*>(given);
  if (args.x->dl.ndim == 0) return MT_ERROR_SHAPE;
  results[0].ndim = args.x->dl.ndim;
  results[0].dtype = args.x->dl.dtype;
  std::copy_n(args.x->dl.shape, args.x->dl.ndim, results[0].shape);
  return MT_OK;
}

// Takes contiguous operands only.
int run_scale(void*, mt_ctx*, const void* given) {
  const auto& args = *static_cast<const ScaleArgs*>(given);
  EXPECT_NE(args.x->flags & MT_TENSOR_CONTIGUOUS, 0u);
  int64_t n = 1;
  for (int i = 0; i < args.x->dl.ndim; ++i) n *= args.x->dl.shape[i];
  for (int64_t i = 0; i < n; ++i) {
    static_cast<double*>(args.out->dl.data)[i] = args.by * static_cast<double*>(args.x->dl.data)[i];
  }
  return MT_OK;
}

struct ScaleBackwardArgs {  // test::scale_by_backward(Tensor grad, float by) -> Tensor
  mt_args_header header;
  const mt_tensor* grad;
  double by;
  const mt_tensor* out;
};
static_assert(sizeof(ScaleBackwardArgs) == sizeof(ScaleArgs));

int scale_init(const mt_host*, mt_backend* backend) {
  static mt_operator operators[2] = {};
  operators[0] = {sizeof(mt_operator), "test::scale_by_backward(Tensor grad, float by) -> Tensor",
                  "grad * by",         "none",
                  infer_scale,         nullptr};
  operators[1] = {sizeof(mt_operator),
                  "test::scale_by(Tensor x, *, float by=2) -> Tensor",
                  "x * by",
                  "test::scale_by_backward",
                  infer_scale,
                  nullptr};
  static mt_kernel_entry kernels[2] = {};
  for (int i = 0; i < 2; ++i) {
    kernels[i].size = sizeof(mt_kernel_entry);
    kernels[i].op = i == 0 ? "test::scale_by_backward" : "test::scale_by";
    kernels[i].name = "loop";
    kernels[i].run = run_scale;
  }
  backend->name = "scaler";
  backend->version = "1";
  backend->device_type = "cpu";
  backend->operators = operators;
  backend->num_operators = 2;
  backend->kernels = kernels;
  backend->num_kernels = 2;
  return MT_OK;
}

TEST(CustomOperatorTest, BackendsDefineOperators) {
  register_backend(scale_init);
  const Tensor x = leaf({1, 2, 3, 4});
  const auto f = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{first(call("test::scale_by", {in[0].view({2, 2}).t()}))};
  };
  EXPECT_EQ(values(f({x})[0]), (std::vector<double>{2, 6, 4, 8}));
  EXPECT_TRUE(autograd::gradcheck(f, {x}));
  EXPECT_EQ(values(first(call("test::scale_by", {x.detach()}, {{"by", 0.5}})))[3], 2);
  // Calls that infer rejects.
  expect_error(ErrorCode::kShape, {"[test::scale_by]", "its infer failed"},
               [] { call("test::scale_by", {tensor({1}, kFloat64).view({})}); });
  const auto names = operator_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "test::scale_by"), names.end());
  // Calls that no kernel takes.
  const RestrictKernels only(Kernels::kPreferred);
  expect_error(ErrorCode::kUnsupported, {"[test::scale_by] no kernel", "scaler/loop"},
               [&] { call("test::scale_by", {x}); });
}

}  // namespace
}  // namespace mytorch
