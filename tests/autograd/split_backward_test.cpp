// Backward in two parts: the gradients of inputs, and later those of parameters.
#include "mytorch/autograd/split_backward.h"

#include <functional>

#include "mytorch/autograd.h"
#include "mytorch/autograd/checkpoint.h"
#include "mytorch/autograd/function.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/layer_norm.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/tanh.h"
#include "mytorch/ops/unbind.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::Function;
using autograd::FunctionContext;
using autograd::SplitBackward;
using Tensors = std::vector<Tensor>;

Tensor weights(IntList sizes, double scale) {
  return mul(add(counting(sizes), -3.0), scale).detach().requires_grad_();
}

// Multiplies by a weight, and computes both gradients together, or only those that are asked for.
template <bool kTogether>
struct Scale : Function<Scale<kTogether>> {
  static constexpr const char* kName = "Scale";
  static inline int calls = 0, products = 0;
  static Tensor forward(FunctionContext* ctx, const Tensor& x, const Tensor& w) {
    ctx->save_for_backward({x, w});
    return mul(x, w);
  }
  static Tensors backward(FunctionContext* ctx, const Tensors& grads) {
    ++calls;
    const Tensors saved = ctx->saved_tensors();
    Tensors result(2);
    for (size_t i = 0; i < 2; ++i) {
      if (!kTogether && !ctx->needs_input_grad(i)) continue;
      ++products;
      const Tensor product = mul(grads[0], saved[1 - i]);
      result[i] = product.dim() > saved[i].dim() ? sum(product, 0) : product;
    }
    return result;
  }
};

struct SplitCase {
  const char* name;
  // Of an input (2, 3) and weights (3, 3), (3) and (3, 3).
  std::function<Tensor(const Tensor& x, const Tensors& w)> function;
};
const SplitCase kSplitCases[] = {
    {"a chain",
     [](const Tensor& x, const Tensors& w) { return linear(tanh(linear(x, w[0], w[1])), w[2]); }},
    {"a residual", [](const Tensor& x, const Tensors& w) { return x + linear(tanh(x), w[0]); }},
    {"a norm", [](const Tensor& x,
                  const Tensors& w) { return linear(layer_norm(x, {3}, w[1], w[1]), w[0]); }},
    // A weight that is used twice, once of them where the input does not go.
    {"a shared weight",
     [](const Tensor& x, const Tensors& w) {
       return linear(linear(x, w[0]), exp(mul(w[0], 0.1)), sum(w[2], 0));
     }},
    {"a branch without the input",
     [](const Tensor& x, const Tensors& w) {
       return cat({linear(x, w[0]), linear(tanh(w[2]), w[0])});
     }},
    {"no input", [](const Tensor&, const Tensors& w) { return linear(w[0], w[2], w[1]); }},
    {"no weight", [](const Tensor& x, const Tensors&) { return tanh(x); }},
    {"the input itself", [](const Tensor& x, const Tensors&) { return x; }},
    {"several results",
     [](const Tensor& x, const Tensors& w) {
       const Tensors rows = unbind(linear(x, w[0]));
       return add(mul(rows[0], w[1]), exp(rows[1]));
     }},
    {"a write in place",
     [](const Tensor& x, const Tensors& w) {
       const Tensor y = linear(x, w[0]);
       y.select(0, 1).mul_(w[1]);
       return y;
     }},
    {"a function of all at once",
     [](const Tensor& x, const Tensors& w) {
       return Scale<true>::apply(Scale<true>::apply(x, w[1]), w[1]);
     }},
    {"a function of some",
     [](const Tensor& x, const Tensors& w) {
       return linear(Scale<false>::apply(linear(x, w[0]), w[1]), w[2]);
     }},
    {"a checkpoint",
     [](const Tensor& x, const Tensors& w) {
       return autograd::checkpoint(
           [w](const Tensors& in) { return Tensors{linear(tanh(linear(in[0], w[0])), w[2])}; },
           {x})[0];
     }},
};

TEST(SplitBackward, GivesTheGradientsOfBackward) {
  for (const SplitCase& one : kSplitCases) {
    SCOPED_TRACE(one.name);
    const auto make = [] {
      return Tensors{weights({3, 3}, 0.1), weights({3}, 0.3), weights({3, 3}, -0.2)};
    };
    const Tensor x = weights({2, 3}, 0.7), x_whole = weights({2, 3}, 0.7);
    const Tensors w = make(), whole = make();
    const Tensor expected = one.function(x_whole, whole);
    const Tensor weighting = mul(add(counting(expected.sizes()), 1.0), 0.5).detach();
    autograd::backward({expected}, {weighting});

    SplitBackward split({one.function(x, w)}, {x}, {weighting});
    EXPECT_FALSE(x.grad().defined());
    const Tensor& found = split.input_gradients().at(0);
    ASSERT_EQ(found.defined(), x_whole.grad().defined());
    if (found.defined()) {
      EXPECT_EQ(values(found), values(x_whole.grad()));
    }
    for (const Tensor& p : w) EXPECT_FALSE(p.grad().defined());
    split.accumulate();
    for (int pass = 0; pass < 2; ++pass) {  // a second call does nothing
      for (size_t i = 0; i < w.size(); ++i) {
        ASSERT_EQ(w[i].grad().defined(), whole[i].grad().defined()) << i;
        if (w[i].grad().defined()) {
          EXPECT_EQ(values(w[i].grad()), values(whole[i].grad())) << i;
        }
      }
      split.accumulate();
    }
    EXPECT_FALSE(x.grad().defined());
  }
}

TEST(SplitBackward, ComputesNothingTwice) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  Scale<true>::calls = Scale<false>::calls = Scale<false>::products = 0;
  SplitBackward split({sum(Scale<false>::apply(Scale<true>::apply(x, w), w))}, {x});
  EXPECT_EQ(Scale<true>::calls, 1);
  EXPECT_EQ(Scale<false>::products, 1);
  split.accumulate();
  EXPECT_EQ(Scale<true>::calls, 1);
  EXPECT_EQ(Scale<false>::calls, 2);
  EXPECT_EQ(Scale<false>::products, 2);
  EXPECT_EQ(values(w.grad()), (Values{2 * 1 * 3, 2 * 2 * 4}));
}

TEST(SplitBackward, RunsHooksOnce) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor y = mul(x, w);
  int of_x = 0, of_w = 0, of_y = 0, accumulated = 0;
  const auto count = [](int* calls, double factor) {
    return [calls, factor](const Tensor& g) {
      ++*calls;
      return mul(g, factor);
    };
  };
  x.register_hook(count(&of_x, 2));
  w.register_hook(count(&of_w, 3));
  y.register_hook(count(&of_y, 10));
  y.retain_grad();
  autograd::register_post_accumulate_hook(w, [&](const Tensor&) { ++accumulated; });
  SplitBackward split({sum(y)}, {x});
  EXPECT_EQ(values(split.input_gradients()[0]), (Values{60, 80}));
  EXPECT_EQ(of_x * 100 + of_w * 10 + of_y, 101);
  split.accumulate();
  EXPECT_EQ(of_x * 100 + of_w * 10 + of_y, 111);
  EXPECT_EQ(accumulated, 1);
  EXPECT_EQ(values(w.grad()), (Values{30, 60}));
  EXPECT_EQ(values(y.grad()), (Values{10, 10}));
}

// Splits that wait share the parameters, and what comes in between uses them too.
TEST(SplitBackward, OfSeveralGraphsAtATime) {
  const Tensor w = leaf({2, 3});
  std::vector<SplitBackward> waiting;
  for (const double scale : {1.0, 10.0, 100.0}) {
    const Tensor x = leaf({scale, scale});
    waiting.emplace_back(TensorList({sum(mul(x, w))}), TensorList({x}));
    EXPECT_EQ(values(waiting.back().input_gradients()[0]), (Values{2, 3}));
  }
  sum(mul(w, 1000.0)).backward();
  waiting[1].accumulate();
  EXPECT_EQ(values(w.grad()), (Values{1010, 1010}));
  waiting[0].accumulate();
  waiting[2].accumulate();
  EXPECT_EQ(values(w.grad()), (Values{1111, 1111}));
}

// What only the first part reads is freed with it, the rest with the second one.
TEST(SplitBackward, FreesWhatItHasRead) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  std::weak_ptr<int> first, second;
  const auto kept = [](std::weak_ptr<int>* alive, const std::function<Tensor()>& function) {
    auto token = std::make_shared<int>(0);
    *alive = token;
    const autograd::SavedTensorHooks hooks(
        [token](const Tensor& saved) {
          return std::make_shared<std::pair<Tensor, std::shared_ptr<int>>>(saved.detach(), token);
        },
        [](const autograd::SavedTensorHooks::Packed& packed) {
          return static_cast<const std::pair<Tensor, std::shared_ptr<int>>*>(packed.get())->first;
        });
    return function();
  };
  const Tensor y = kept(&second, [&] { return mul(x, w); });
  SplitBackward split({sum(kept(&first, [&] { return exp(y); }))}, {x});
  EXPECT_TRUE(first.expired());
  EXPECT_FALSE(second.expired());
  split.accumulate();
  EXPECT_TRUE(second.expired());
}

TEST(SplitBackward, RefusesWhatItCannotSplit) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, 2.0), z = sum(y);
  EXPECT_ERROR(SplitBackward({z}, {y}), "input 0 was made by MulBackward: give leaves");
  EXPECT_ERROR(SplitBackward({z}, {plain({1})}), "input 0 does not require grad");
  EXPECT_ERROR(SplitBackward({plain({1})}, {x}), "output 0 does not require grad");
  EXPECT_ERROR(SplitBackward({y}, {x}), "for a single element only");
  SplitBackward().accumulate();
}

}  // namespace
}  // namespace mytorch
