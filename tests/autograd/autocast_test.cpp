#include "mytorch/autocast.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/autograd/checkpoint.h"
#include "mytorch/autograd/function.h"
#include "mytorch/call.h"
#include "mytorch/operator.h"
#include "mytorch/ops.h"
#include "tests/autograd/autocast_types.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::Function;
using testing::kAutocastTypes;

AutocastOptions cpu(ScalarType dtype = kBFloat16) { return {.device = kCPU, .dtype = dtype}; }

Tensor matrix(ScalarType dtype = kFloat32) { return rand({4, 4}, dtype); }
Tensor weight() { return rand({4, 4}).requires_grad_(); }

// ---- types of results, compared with PyTorch ----

const std::map<std::string, ScalarType> kTypes = {{"float32", kFloat32},
                                                  {"bfloat16", kBFloat16},
                                                  {"float64", kFloat64},
                                                  {"int64", kInt64},
                                                  {"bool", kBool}};

// Reads the operands of a line of kAutocastTypes.
class Operands {
 public:
  Operands(std::string text, ScalarType first, ScalarType others)
      : text_(std::move(text)), next_(first), others_(others) {}

  std::vector<Value> read() {
    std::vector<Value> values;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ') {
        ++at_;
      } else if (c == '"') {
        const size_t end = text_.find('"', at_ + 1);
        values.emplace_back(text_.substr(at_ + 1, end - at_ - 1));
        at_ = end + 1;
      } else if (c == '[' && text_[at_ + 1] == '(') {
        std::vector<Tensor> list;
        do {
          ++at_;  // a bracket or a comma
          list.push_back(floats());
        } while (text_[at_] != ']');
        ++at_;
        values.emplace_back(list);
      } else if (c == '[') {
        values.emplace_back(numbers(']'));
      } else if (c == '(') {
        values.emplace_back(floats());
      } else if (c == 'i' || c == 'b') {
        ++at_;
        values.emplace_back(zeros(numbers(')'), c == 'i' ? kInt64 : kBool));
      } else {
        values.emplace_back(static_cast<int64_t>(c - '0'));
        ++at_;
      }
    }
    return values;
  }

 private:
  Tensor floats() { return full(numbers(')'), 0.5, std::exchange(next_, others_)); }
  // Reads "(2,4)" or "[2]", up to the bracket `end`.
  std::vector<int64_t> numbers(char end) {
    const size_t close = text_.find(end, at_);
    std::istringstream list(text_.substr(at_ + 1, close - at_ - 1));
    std::vector<int64_t> found;
    for (std::string each; std::getline(list, each, ',');) found.push_back(std::stoll(each));
    at_ = close + 1;
    return found;
  }

  std::string text_;
  size_t at_ = 0;
  ScalarType next_;
  ScalarType others_;
};

TEST(Autocast, ResultsHaveTheTypesOfPyTorch) {
  const std::pair<ScalarType, ScalarType> operands[] = {
      {kFloat32, kFloat32}, {kBFloat16, kBFloat16}, {kFloat64, kFloat64}, {kBFloat16, kFloat32}};
  std::istringstream lines(kAutocastTypes);
  int compared = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const size_t arrow = line.find(" -> ");
    const std::string name = line.substr(0, line.find(' '));
    const std::string text = line.substr(name.size(), arrow - name.size());
    std::istringstream types(line.substr(arrow + 4));
    const AutocastGuard autocast(cpu());
    for (const auto& [first, others] : operands) {
      std::string expected;
      types >> expected;
      if (expected == "-") continue;
      const std::vector<Value> args = Operands(text, first, others).read();
      EXPECT_EQ(call(name, args)[0].tensor().dtype(), kTypes.at(expected))
          << line << ": operands of " << dtype_name(first) << " and " << dtype_name(others);
      ++compared;
    }
  }
  EXPECT_GT(compared, 250);
}

TEST(Autocast, ComputesAsAfterCastsByHand) {
  const Tensor a = matrix(), b = matrix();
  const AutocastGuard autocast(cpu());
  const Tensor product = matmul(a, b);
  const Tensor row = softmax(product, 1);
  const AutocastGuard off(AutocastOptions{.device = kCPU, .enabled = false});
  const Tensor expected = matmul(a.to(kBFloat16), b.to(kBFloat16));
  EXPECT_TRUE(equal(product, expected));
  EXPECT_TRUE(equal(row, softmax(expected.to(kFloat32), 1)));
}

TEST(Autocast, AGivenTypeOfTheResultIsKept) {
  const AutocastGuard autocast(cpu());
  const Tensor x = matrix(kBFloat16);
  EXPECT_EQ(sum(x, IntList(1), false, kBFloat16).dtype(), kBFloat16);
  EXPECT_EQ(softmax(x, 1, kFloat64).dtype(), kFloat64);
}

TEST(Autocast, NeverCastsFormsThatWrite) {
  const AutocastGuard autocast(cpu());
  const Tensor x = matrix(kBFloat16), out = empty({4, 4}, kBFloat16);
  EXPECT_EQ(x.exp_().dtype(), kBFloat16);
  exp_out(out, x);
  softmax_out(out, x, 1);
  matmul_out(out, x, x);
  const Tensor wide = empty({4, 4});
  matmul_out(wide, wide.zero_(), wide);  // computed in float32
  mm_out(wide, matrix(), matrix());
  conv1d(zeros({1, 1, 4}), zeros({1, 1, 1}));
}

// ---- guards ----

TEST(Autocast, GuardsNestAndDisable) {
  const Tensor x = matrix();
  EXPECT_FALSE(autocast::is_autocast_enabled(kCPU));
  {
    const AutocastGuard outer(cpu());
    EXPECT_TRUE(autocast::is_autocast_enabled(kCPU));
    EXPECT_EQ(mm(x, x).dtype(), kBFloat16);
    {
      const AutocastGuard inner(kCPU, kFloat16);
      EXPECT_EQ(mm(x, x).dtype(), kFloat16);
      const AutocastGuard off(kCPU, std::nullopt, false);
      EXPECT_EQ(mm(x, x).dtype(), kFloat32);
    }
    EXPECT_EQ(mm(x, x).dtype(), kBFloat16);
  }
  EXPECT_FALSE(autocast::is_autocast_enabled(kCPU));
  EXPECT_EQ(mm(x, x).dtype(), kFloat32);
}

TEST(Autocast, AnExceptionEndsAGuard) {
  try {
    const AutocastGuard autocast(cpu());
    mm(matrix(), rand({3, 3}));
    FAIL();
  } catch (const Error&) {
  }
  EXPECT_FALSE(autocast::is_autocast_enabled(kCPU));
}

TEST(Autocast, LowersToTheTypeThatWasSet) {
  EXPECT_EQ(autocast::get_autocast_dtype(kCPU), kBFloat16);
  const ScalarType saved = autocast::get_autocast_dtype(kCPU);
  autocast::set_autocast_dtype(kCPU, kFloat16);
  {
    const AutocastGuard autocast(kCPU);
    EXPECT_EQ(mm(matrix(), matrix()).dtype(), kFloat16);
  }
  autocast::set_autocast_dtype(kCPU, saved);
}

TEST(Autocast, RefusesOtherTypes) {
  EXPECT_ERROR(AutocastGuard(kCPU, kFloat32), "[AutocastGuard] the type is float32");
  EXPECT_ERROR(autocast::set_autocast_dtype(kCPU, kFloat64), "pass kBFloat16 or kFloat16");
  EXPECT_FALSE(autocast::is_autocast_enabled(kCPU));
}

TEST(Autocast, BelongsToTheThread) {
  const AutocastGuard autocast(cpu());
  ScalarType other{};
  std::thread([&] { other = mm(matrix(), matrix()).dtype(); }).join();
  EXPECT_EQ(other, kFloat32);
}

// ---- gradients ----

TEST(Autocast, GradientsHaveTheTypesOfTheLeaves) {
  const Tensor w = weight(), x = matrix();
  Tensor loss;
  {
    const AutocastGuard autocast(cpu());
    loss = mse_loss(matmul(x, w).relu(), matrix());
    EXPECT_EQ(loss.dtype(), kFloat32);
    loss.backward();  // inside: gradients run without autocast
  }
  EXPECT_EQ(w.grad().dtype(), kFloat32);
}

TEST(Autocast, BackwardIsTheSameInsideAndOutside) {
  const Tensor w = weight(), x = matrix();
  const auto gradient = [&](bool inside) {
    const Tensor leaf = w.detach().clone().requires_grad_();
    Tensor loss;
    {
      const AutocastGuard autocast(cpu());
      loss = exp(matmul(x, leaf)).mean();
      if (inside) loss.backward();
    }
    if (!inside) loss.backward();
    return leaf.grad();
  };
  EXPECT_TRUE(equal(gradient(true), gradient(false)));
}

TEST(Autocast, AHookMayUseAGuard) {
  const Tensor w = weight();
  ScalarType plain{}, guarded{};
  w.register_hook([&](const Tensor& grad) {
    plain = mm(grad, grad).dtype();
    const AutocastGuard autocast(cpu());
    guarded = mm(grad, grad).dtype();
    return grad;
  });
  const AutocastGuard autocast(cpu());
  mm(w, w).sum().backward();
  EXPECT_EQ(plain, kFloat32);
  EXPECT_EQ(guarded, kBFloat16);
}

TEST(Autocast, CheckpointsComputeAgainInTheTypesOfTheForward) {
  const Tensor w = weight(), x = matrix();
  std::vector<ScalarType> types;
  const auto f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = matmul(in[0], in[1]);
    types.push_back(y.dtype());
    return {y.relu().sum()};
  };
  Tensor loss;
  {
    const AutocastGuard autocast(cpu());
    loss = autograd::checkpoint(f, {x, w})[0];
  }
  loss.backward();
  EXPECT_EQ(types, (std::vector{kBFloat16, kBFloat16}));
  const Tensor again = w.detach().clone().requires_grad_();
  {
    const AutocastGuard autocast(cpu());
    f({x, again})[0].backward();
  }
  EXPECT_TRUE(equal(w.grad(), again.grad()));
}

struct Product : Function<Product> {
  inline static ScalarType forward_type, backward_type;
  static Tensor forward(autograd::AutogradContext* ctx, const Tensor& a, const Tensor& b) {
    ctx->save_for_backward({a, b});
    const Tensor y = mm(a, b);
    forward_type = y.dtype();
    return y;
  }
  static autograd::tensor_list backward(autograd::AutogradContext* ctx,
                                        autograd::tensor_list grads) {
    const std::vector<Tensor> saved = ctx->saved_tensors();
    const Tensor da = mm(grads[0], saved[1].t());
    backward_type = da.dtype();
    return {da.to(saved[0].dtype()), mm(saved[0].t(), grads[0]).to(saved[1].dtype())};
  }
};

TEST(Autocast, AFunctionRunsBackwardInTheStateOfItsForward) {
  const Tensor w = weight();
  Tensor y;
  {
    const AutocastGuard autocast(cpu());
    y = Product::apply(w, w);
  }
  y.sum().backward();
  EXPECT_EQ(Product::forward_type, kBFloat16);
  EXPECT_EQ(Product::backward_type, kBFloat16);
  Product::apply(w, w).sum().backward();
  EXPECT_EQ(Product::backward_type, kFloat32);
}

TEST(Autocast, CompositesAreTheSameWithAndWithoutGradients) {
  const Tensor x = matrix(kBFloat16), w = weight();
  const AutocastGuard autocast(cpu());
  for (const char* name : {"triu", "flip"}) {
    const std::vector<Value> args =
        name[0] == 't' ? std::vector<Value>{x} : std::vector<Value>{x, std::vector<int64_t>{0}};
    EXPECT_EQ(call(name, args)[0].tensor().dtype(), kBFloat16) << name;
  }
}

// ---- operators registered at run time ----

TEST(Autocast, CastsOperatorsRegisteredAtRunTime) {
  const auto add_operator = [](const char* name, const char* policy, const char* gradient) {
    register_operator(
        {.schema = std::string("autocast::") + name + "(Tensor x, Tensor[] others) -> Tensor",
         .doc = "x plus others[0].",
         .gradient = gradient,
         .body = [](const std::vector<Value>& args) -> std::vector<Value> {
           return {args[0].tensor() + args[1].tensors()[0]};
         },
         .autocast = policy});
  };
  add_operator("lowered", "lower", "decompose");
  add_operator("float32", "float32", "none");
  add_operator("widest", "widest", "decompose");
  EXPECT_ERROR(add_operator("wrong", "low", "none"), "autocast policy is 'low'");
  const auto type = [](const char* name, ScalarType a, ScalarType b) {
    return call(std::string("autocast::") + name, {matrix(a), std::vector<Tensor>{matrix(b)}})[0]
        .tensor()
        .dtype();
  };
  EXPECT_EQ(type("lowered", kFloat32, kFloat32), kFloat32);
  const AutocastGuard autocast(cpu());
  EXPECT_EQ(type("lowered", kFloat32, kFloat32), kBFloat16);
  EXPECT_EQ(type("lowered", kFloat64, kFloat64), kFloat64);
  EXPECT_EQ(type("float32", kBFloat16, kBFloat16), kFloat32);
  EXPECT_EQ(type("widest", kBFloat16, kFloat32), kFloat32);
  EXPECT_EQ(type("widest", kBFloat16, kBFloat16), kBFloat16);
}

// ---- kept casts ----

TEST(AutocastCache, KeepsCastsOfLeavesUntilTheyChange) {
  const Tensor w = weight(), x = matrix(kBFloat16);
  const AutocastGuard autocast(cpu());
  const Tensor before = mm(x, w);
  EXPECT_TRUE(equal(mm(x, w), before));
  {
    const NoGradGuard no_grad;
    EXPECT_FALSE(mm(x, w).requires_grad());
    w.mul_(2);
  }
  const Tensor after = mm(x, w);
  EXPECT_TRUE(equal(after, before * 2));
  EXPECT_TRUE(after.requires_grad());
}

TEST(AutocastCache, OneCastServesAllUses) {
  const Tensor w = weight(), x = matrix(kBFloat16);
  const auto casts = [&](bool cache) {
    const AutocastGuard autocast(
        AutocastOptions{.device = kCPU, .dtype = kBFloat16, .cache_enabled = cache});
    const Tensor a = mm(x, w), b = mm(x, w);
    return std::pair(autograd::edge_of(a.impl()).node->edges()[1].node,
                     autograd::edge_of(b.impl()).node->edges()[1].node);
  };
  const auto [a, b] = casts(true);
  EXPECT_EQ(a, b);
  const auto [c, d] = casts(false);
  EXPECT_NE(c, d);
}

TEST(AutocastCache, GradientsOfSharedCastsAddUp) {
  const Tensor w = weight(), x = matrix(kBFloat16);
  const auto run = [&](bool cache) {
    const Tensor leaf = w.detach().clone().requires_grad_();
    const AutocastGuard autocast(
        AutocastOptions{.device = kCPU, .dtype = kBFloat16, .cache_enabled = cache});
    for (int step = 0; step < 2; ++step) mm(x, leaf).sum().backward();
    return leaf.grad();
  };
  EXPECT_TRUE(equal(run(true), run(false)));
}

TEST(AutocastCache, LeavesOverOneStorageAreApart) {
  const Tensor w = weight(), x = matrix(kBFloat16);
  const AutocastGuard autocast(cpu());
  const Tensor other = w.detach().requires_grad_();
  mm(x, w).sum().backward();
  EXPECT_FALSE(other.grad().defined());
  mm(x, other).sum().backward();
  EXPECT_TRUE(equal(other.grad(), w.grad()));
}

TEST(AutocastCache, InferenceModeAndGradientsDoNotShareCasts) {
  const Tensor w = weight(), x = matrix(kBFloat16);
  const AutocastGuard autocast(cpu());
  {
    const InferenceMode inference;
    mm(x, w);
  }
  {
    const NoGradGuard no_grad;
    mm(x, w);
  }
  mm(x, w).sum().backward();
  EXPECT_TRUE(w.grad().defined());
}

TEST(AutocastCache, EndsWithTheOutermostGuard) {
  const Tensor w = weight(), x = matrix(kBFloat16);
  const uint32_t before = w.impl()->refs.load();
  {
    const AutocastGuard outer(cpu());
    {
      const AutocastGuard inner(cpu());
      mm(x, w);
    }
    EXPECT_GT(w.impl()->refs.load(), before);
  }
  EXPECT_EQ(w.impl()->refs.load(), before);
}

}  // namespace
}  // namespace mytorch
