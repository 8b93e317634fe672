// Custom operations.
#include "mytorch/autograd/function.h"

#include <unordered_map>

#include "mytorch/autograd.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/sum.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::Function;
using autograd::FunctionContext;
using Tensors = std::vector<Tensor>;

struct ScaledSquare : Function<ScaledSquare> {
  static constexpr const char* kName = "ScaledSquare";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, double scale) {
    EXPECT_FALSE(grad_enabled());
    ctx->save_for_backward({x});
    ctx->saved_data["scale"] = scale;
    return mul(mul(x, x), scale);
  }
  static Tensors backward(FunctionContext* ctx, const Tensors& grads) {
    const double scale = std::any_cast<double>(ctx->saved_data["scale"]);
    return {mul(mul(grads[0], ctx->saved_tensors()[0]), 2 * scale), Tensor()};
  }
};

TEST(Function, ForwardAndBackward) {
  const Tensor x = leaf({1, 2});
  const Tensor y = ScaledSquare::apply(x, 3.0);
  EXPECT_EQ(values(y), (Values{3, 12}));
  EXPECT_EQ(y.grad_fn(), "ScaledSquare");
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{6, 12}));
  EXPECT_ERROR(sum(y).backward(), "second time");
  EXPECT_FALSE(ScaledSquare::apply(plain({1}), 3.0).requires_grad());
}

TEST(Function, IsTwiceDifferentiable) {
  const auto f = [](const Tensors& in) { return Tensors{ScaledSquare::apply(in[0], 0.5)}; };
  EXPECT_EQ(autograd::gradcheck(f, {leaf({1, -2})}).message, "");
  EXPECT_EQ(autograd::gradgradcheck(f, {leaf({1, -2})}).message, "");
}

TEST(Function, OverwrittenSavedTensor) {
  const Tensor x = leaf({1, 2});
  const Tensor h = mul(x, 1.0);
  const Tensor y = ScaledSquare::apply(h, 1.0);
  add_(h, 1.0);
  EXPECT_ERROR(sum(y).backward(), "[ScaledSquare]");
}

// Two results, one of which may get no gradient, and a list among the arguments.
struct SumAndProduct : Function<SumAndProduct> {
  static inline bool materialize = true;
  static inline std::vector<bool> defined, needed;
  static Tensors forward(FunctionContext* ctx, const Tensors& list, const Tensor& other) {
    ctx->set_materialize_grads(materialize);
    needed.clear();
    for (size_t i = 0; i < 3; ++i) needed.push_back(ctx->needs_input_grad(i));
    ctx->save_for_backward({list[0], list[1]});
    return {add(add(list[0], list[1]), other), mul(list[0], list[1])};
  }
  static Tensors backward(FunctionContext* ctx, const Tensors& grads) {
    defined = {grads[0].defined(), grads[1].defined()};
    const Tensors saved = ctx->saved_tensors();
    Tensor a, b, c;
    if (grads[0].defined()) a = b = c = grads[0];
    if (grads[1].defined()) {
      const Tensor from_a = mul(grads[1], saved[1]);
      const Tensor from_b = mul(grads[1], saved[0]);
      a = a.defined() ? add(a, from_a) : from_a;
      b = b.defined() ? add(b, from_b) : from_b;
    }
    return {a, b, c};
  }
};

TEST(Function, ListsAndSeveralResults) {
  const Tensor a = leaf({2});
  const Tensor b = leaf({3});
  const Tensor c = plain({4});
  const Tensors y = SumAndProduct::apply(Tensors{a, b}, c);
  EXPECT_EQ(SumAndProduct::needed, (std::vector<bool>{true, true, false}));
  y[1].backward({}, true);
  EXPECT_EQ(SumAndProduct::defined, (std::vector<bool>{true, true}));
  EXPECT_EQ(values(a.grad()), (Values{3}));
  add(y[0], y[1]).backward();
  EXPECT_EQ(values(b.grad()), (Values{2 + 3}));
}

TEST(Function, UndefinedGradientsIfRequested) {
  SumAndProduct::materialize = false;
  const Tensor a = leaf({2});
  SumAndProduct::apply(Tensors{a, plain({3})}, plain({4}))[1].backward();
  SumAndProduct::materialize = true;
  EXPECT_EQ(SumAndProduct::defined, (std::vector<bool>{false, true}));
  EXPECT_EQ(values(a.grad()), (Values{3}));
}

struct DoubleInPlace : Function<DoubleInPlace> {
  static constexpr const char* kName = "DoubleInPlace";
  static Tensor forward(FunctionContext* ctx, const Tensor& x) {
    mul_(x, 2.0);
    ctx->mark_dirty({x});
    return x;
  }
  static Tensors backward(FunctionContext*, const Tensors& grads) { return {mul(grads[0], 2.0)}; }
};

TEST(Function, DirtyInputsTakeTheGradientOfTheFunction) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, 1.0);
  const Tensor z = DoubleInPlace::apply(y);
  EXPECT_TRUE(z.is_same(y));
  EXPECT_EQ(y.grad_fn(), "DoubleInPlace");
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{2, 2}));
  x.set_grad({});
  const Tensor w = mul(x, 1.0);
  DoubleInPlace::apply(select(w, 0, 1));
  sum(w).backward();
  EXPECT_EQ(values(x.grad()), (Values{1, 2}));
  EXPECT_ERROR(DoubleInPlace::apply(x), "leaf");
}

struct PassThrough : Function<PassThrough> {
  static Tensor forward(FunctionContext*, const Tensor& x) { return x; }
  static Tensors backward(FunctionContext*, const Tensors& grads) { return {mul(grads[0], -1.0)}; }
};

TEST(Function, ReturnedArgumentIsANewTensor) {
  const Tensor x = leaf({1, 2});
  const Tensor y = PassThrough::apply(x);
  EXPECT_FALSE(y.is_same(x));
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{-1, -1}));
}

struct NonDifferentiable : Function<NonDifferentiable> {
  static Tensors forward(FunctionContext* ctx, const Tensor& x) {
    const Tensor mask = mul(x, 0.0);
    ctx->mark_non_differentiable({mask});
    return {mul(x, 3.0), mask};
  }
  static Tensors backward(FunctionContext*, const Tensors& grads) { return {mul(grads[0], 3.0)}; }
};

TEST(Function, MarkNonDifferentiable) {
  const Tensor x = leaf({1});
  const Tensors y = NonDifferentiable::apply(x);
  EXPECT_TRUE(y[0].requires_grad());
  EXPECT_FALSE(y[1].requires_grad());
  y[0].backward();
  EXPECT_EQ(values(x.grad()), (Values{3}));
}

struct Once : Function<Once> {
  static constexpr const char* kName = "Once";
  static Tensor forward(FunctionContext* ctx, const Tensor& x) {
    ctx->mark_once_differentiable();
    ctx->save_for_backward({x});
    return mul(x, x);
  }
  static Tensors backward(FunctionContext* ctx, const Tensors& grads) {
    EXPECT_FALSE(grad_enabled());
    return {mul(mul(grads[0], ctx->saved_tensors()[0]), 2.0)};
  }
};

TEST(Function, OnceDifferentiableRefusesASecondGradient) {
  const Tensor x = leaf({3});
  const Tensor g = autograd::grad({Once::apply(x)}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(values(g), (Values{6}));
  EXPECT_ERROR(g.backward(), "once_differentiable");
}

struct ExpFromResult : Function<ExpFromResult> {
  static Tensor forward(FunctionContext* ctx, const Tensor& x) {
    const Tensor y = exp(x);
    ctx->save_for_backward({y});
    return y;
  }
  static Tensors backward(FunctionContext* ctx, const Tensors& grads) {
    return {mul(grads[0], ctx->saved_tensors()[0])};
  }
};

TEST(Function, SavedResultIsDifferentiableWithoutACycle) {
  const auto f = [](const Tensors& in) { return Tensors{ExpFromResult::apply(in[0])}; };
  EXPECT_EQ(autograd::gradgradcheck(f, {leaf({0.5})}).message, "");
  const Tensor x = leaf({1});
  { const Tensor y = ExpFromResult::apply(x); }
  EXPECT_EQ(x.impl()->refs.load(), 1u);
}

struct WrongCount : Function<WrongCount> {
  static constexpr const char* kName = "WrongCount";
  static Tensor forward(FunctionContext*, const Tensor& x, const Tensor& y) { return add(x, y); }
  static Tensors backward(FunctionContext*, const Tensors& grads) { return {grads[0]}; }
};

TEST(Function, WrongNumberOfGradients) {
  EXPECT_ERROR(WrongCount::apply(leaf({1}), leaf({2})).backward(), "1 gradients for 2 arguments");
}

// ---- backward inside backward ----

struct Reentrant : Function<Reentrant> {
  static Tensor forward(FunctionContext* ctx, const Tensor& x, int64_t levels) {
    ctx->save_for_backward({x});
    ctx->saved_data["levels"] = levels;
    return mul(x, x);
  }
  static Tensors backward(FunctionContext* ctx, const Tensors& grads) {
    EnableGradGuard enable;
    const auto levels = std::any_cast<int64_t>(ctx->saved_data["levels"]);
    const Tensor x = ctx->saved_tensors()[0].detach().requires_grad_();
    const Tensor y = levels > 0 ? Reentrant::apply(x, levels - 1) : mul(x, x);
    y.backward(grads[0].detach());
    return {x.grad(), Tensor()};
  }
};

TEST(Reentrant, BackwardMayCallBackward) {
  const Tensor x = leaf({3});
  mul(Reentrant::apply(mul(x, 2.0), 0), 5.0).backward();
  EXPECT_EQ(values(x.grad()), (Values{2 * 6 * 5 * 2}));
}

TEST(Reentrant, AThousandNestedCallsFitTheStack) {
  const Tensor x = leaf({3});
  Reentrant::apply(x, 1000).backward();
  EXPECT_EQ(values(x.grad()), (Values{6}));
}

TEST(Reentrant, ThroughTheSameLeaf) {
  const Tensor x = leaf({3});
  const Tensor y = mul(x, 2.0);
  y.register_hook([&](const Tensor&) {
    EnableGradGuard enable;
    mul(x, 100.0).backward();
    return Tensor();
  });
  y.backward();
  EXPECT_EQ(values(x.grad()), (Values{102}));
}

TEST(Reentrant, ThroughTheSameGraph) {
  const Tensor x = leaf({3});
  const Tensor h = mul(x, 2.0);
  const Tensor y = mul(h, h);
  bool first = true;
  y.register_hook([&](const Tensor&) {
    if (std::exchange(first, false)) {
      EXPECT_EQ(values(autograd::grad({y}, {x}, {}, {.retain_graph = true})[0]), (Values{24}));
    }
    return Tensor();
  });
  y.backward();
  EXPECT_EQ(values(x.grad()), (Values{24}));
}

// As it is written for libtorch.
struct MulConstant : autograd::Function<MulConstant> {
  static Tensor forward(autograd::AutogradContext* ctx, Tensor x, double constant, bool twice) {
    ctx->save_for_backward({x});
    ctx->saved_data["constant"] = constant;
    ctx->saved_data["twice"] = twice;
    ctx->saved_data["shape"] = x.sizes().vec();
    return mul(x, constant);
  }
  static autograd::tensor_list backward(autograd::AutogradContext* ctx,
                                        autograd::tensor_list grads) {
    EXPECT_EQ(values(ctx->get_saved_variables()[0]), (Values{1, 2}));
    EXPECT_EQ(ctx->saved_data["shape"].toIntVector(), (std::vector<int64_t>{2}));
    const int64_t times = 1 + ctx->saved_data["twice"].toInt();
    return {mul(grads[0], times * ctx->saved_data["constant"].toDouble()), Tensor(), Tensor()};
  }
};

TEST(Function, LibtorchsNames) {
  const Tensor x = leaf({1, 2});
  sum(MulConstant::apply(x, 5.5, true)).backward();
  EXPECT_EQ(values(x.grad()), (Values{11, 11}));
}

TEST(Function, SavedDataConvertsNumbersAndRefusesTheRest) {
  std::unordered_map<std::string, autograd::SavedValue> data;
  data["n"] = 3;
  data["text"] = "abc";
  data["tensor"] = plain({1});
  const autograd::SavedValue copy = data["n"];
  EXPECT_EQ(copy.toDouble(), 3.0);
  EXPECT_TRUE(copy.toBool());
  EXPECT_EQ(data["text"].toString(), "abc");
  EXPECT_EQ(values(data["tensor"].toTensor()), (Values{1}));
  EXPECT_ERROR(data["text"].toInt(), "the value is not a number");
  EXPECT_ERROR(data["none"].toTensor(), "the value is missing, not a Tensor");
}

struct OnceWithReason : Function<OnceWithReason> {
  static constexpr const char* kName = "OnceWithReason";
  static Tensor forward(FunctionContext* ctx, const Tensor& x) {
    ctx->mark_once_differentiable("the reason");
    return x * 2;
  }
  static Tensors backward(FunctionContext*, const Tensors& grads) { return {grads[0] * 2}; }
};

TEST(Function, OnceDifferentiableGivesItsReason) {
  const Tensor x = leaf({3});
  const Tensor weight = leaf({1});
  const Tensor g =
      autograd::grad({OnceWithReason::apply(x)}, {x}, {weight}, {.create_graph = true})[0];
  EXPECT_ERROR(g.backward(), "[OnceWithReason] the reason");
  EXPECT_EQ(error_of([&] { g.backward(); }).find("NotDifferentiable"), std::string::npos);
}

}  // namespace
}  // namespace mytorch
