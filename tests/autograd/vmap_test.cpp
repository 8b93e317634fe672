#include "mytorch/autograd/vmap.h"

#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include "mytorch/autograd.h"
#include "mytorch/autograd/functional.h"
#include "mytorch/call.h"
#include "mytorch/generator.h"
#include "mytorch/mytorch.h"
#include "mytorch/operator.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::vmap;

void expect_near(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes().vec(), b.sizes().vec());
  const Values x = values(a), y = values(b);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-5 * (1 + std::abs(y[i]))) << i;
}

template <class F>
Tensor loop(F f, const Tensor& xs) {
  std::vector<Tensor> each;
  for (int64_t i = 0; i < xs.size(0); ++i) each.push_back(f(xs[i]));
  return stack(each);
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor drawn(IntList sizes, uint64_t seed) { return randn(sizes, kFloat32, {}, Generator(seed)); }

// ---- shapes and dimensions ----

TEST(Vmap, TheFunctionSeesTheShapeOfOneExample) {
  const Tensor y = vmap([](const Tensor& x) {
    EXPECT_EQ(x.sizes().vec(), (std::vector<int64_t>{3, 4}));
    EXPECT_EQ(x.dim(), 2);
    EXPECT_EQ(x.size(-1), 4);
    EXPECT_EQ(x.numel(), 12);
    return x.reshape({x.size(1), x.size(0)}).sum(0);
  })(drawn({5, 3, 4}, 1));
  EXPECT_EQ(y.sizes().vec(), (std::vector<int64_t>{5, 3}));
}

TEST(Vmap, DimensionsMayBeAnywhere) {
  const Tensor a = drawn({3, 5}, 1), b = drawn({5, 4}, 2);
  const auto f = [](const Tensor& x, const Tensor& y) { return outer(x, y); };
  const Tensor z = vmap(f, {1, 0}, 2)(a, b);
  ASSERT_EQ(z.sizes().vec(), (std::vector<int64_t>{3, 4, 5}));
  for (int64_t i = 0; i < 5; ++i) {
    expect_near(z.select(2, i), outer(a.select(1, i), b.select(0, i)));
  }
  expect_near(vmap(f, {-1, -2}, -1)(a, b), z);
}

TEST(Vmap, InputsMayBeShared) {
  const Tensor w = drawn({4, 3}, 1), xs = drawn({5, 3}, 2);
  const Tensor y =
      vmap([](const Tensor& w, const Tensor& x) { return mv(w, x); }, {std::nullopt, 0})(w, xs);
  expect_near(y, matmul(xs, w.t()));
}

TEST(Vmap, ReturnsTheStructureOfTheFunction) {
  const Tensor xs = drawn({5, 3}, 1);
  const auto [s, p] =
      vmap([](const Tensor& x) { return std::tuple(x.sum(), x * 2); }, 0, {0, 1})(xs);
  expect_near(s, xs.sum(1));
  expect_near(p, xs.t() * 2);
  const std::vector<Tensor> parts = vmap([](const std::vector<Tensor>& all) {
    return std::vector<Tensor>{all[0] + all[1]};
  })(std::vector<Tensor>{xs, xs});
  expect_near(parts.at(0), xs * 2);
}

TEST(Vmap, AnOutputWithoutTheBatchIsRepeated) {
  const Tensor y = vmap([](const Tensor&) { return ones({2}); })(drawn({5, 3}, 1));
  EXPECT_EQ(y.sizes().vec(), (std::vector<int64_t>{5, 2}));
}

TEST(Vmap, ChunksGiveTheSame) {
  const Tensor xs = drawn({7, 3}, 1);
  const auto f = [](const Tensor& x) { return softmax(x, 0); };
  for (const int64_t size : {1, 2, 3, 7, 100}) {
    expect_near(vmap(f, 0, 1, {.chunk_size = size})(xs), softmax(xs, 1).t());
  }
}

// ---- nesting ----

TEST(Vmap, Nests) {
  const Tensor a = drawn({4, 3}, 1), b = drawn({5, 3}, 2);
  const Tensor all =
      vmap([&](const Tensor& x) { return vmap([&](const Tensor& y) { return dot(x, y); })(b); })(a);
  expect_near(all, matmul(a, b.t()));
  const Tensor cube = drawn({2, 3, 4}, 3);
  const auto rows = [](const Tensor& m) {
    return vmap([](const Tensor& r) { return r / r.abs().sum(); })(m);
  };
  expect_near(vmap(rows)(cube), cube / cube.abs().sum(2, true));
}

TEST(Vmap, NestedLevelsHoldDifferentDimensions) {
  const Tensor x = drawn({2, 3, 4}, 1), y = drawn({3, 5}, 2);
  // Level 1 over x's dimension 0; level 2 over its next and over y.
  const Tensor z = vmap([&](const Tensor& x1) {
    return vmap([&](const Tensor& x2, const Tensor& y2) { return x2.sum() * y2 + x1.sum(); })(x1,
                                                                                              y);
  })(x);
  const Tensor expected = x.sum(2).unsqueeze(2) * y + x.sum({1, 2}).reshape({2, 1, 1});
  expect_near(z, expected);
}

// ---- promotion ----

TEST(Vmap, ScalarsPromoteAsScalars) {
  const Tensor x = ones({3, 2}), s = ones({3}, kFloat64);
  EXPECT_EQ(vmap([](const Tensor& a, const Tensor& b) { return a + b; })(x, s).dtype(), kFloat32);
  const Tensor t = scalar_tensor(1, kFloat64);
  EXPECT_EQ(vmap([&](const Tensor& a) { return a + t; })(ones({3})).dtype(), kFloat64);
}

// ---- gradients ----

TEST(VmapGradients, FlowThroughAVmappedFunction) {
  const Tensor w = drawn({4, 3}, 1).requires_grad_(), xs = drawn({5, 3}, 2).requires_grad_();
  const Tensor y = vmap([&](const Tensor& x) { return tanh(mv(w, x)); })(xs);
  const Tensor expected = tanh(matmul(xs, w.t()));
  expect_near(y.detach(), expected.detach());
  const Tensor v = drawn({5, 4}, 3);
  const std::vector<Tensor> found = autograd::grad({y}, {w, xs}, {v});
  const std::vector<Tensor> wanted = autograd::grad({expected}, {w, xs}, {v});
  expect_near(found[0], wanted[0]);
  expect_near(found[1], wanted[1]);
}

TEST(VmapGradients, OfEachExample) {
  const Tensor w = drawn({4, 3}, 1), xs = drawn({5, 3}, 2);
  const auto gradient = [&](const Tensor& w, const Tensor& x) {
    return autograd::vjp([&](const Tensor& w) { return tanh(mv(w, x)).sum(); }, w).second;
  };
  const Tensor found = vmap(gradient, {std::nullopt, 0})(w, xs);
  expect_near(found, loop([&](const Tensor& x) { return gradient(w, x); }, xs));
  // The same with a captured weight, and with the imperative form.
  expect_near(vmap([&](const Tensor& x) { return gradient(w, x); })(xs), found);
  const Tensor imperative = vmap(
      [](const Tensor& w, const Tensor& x) {
        const Tensor own = w.detach().requires_grad_();
        return autograd::grad({tanh(mv(own, x)).sum()}, {own})[0];
      },
      {std::nullopt, 0})(w, xs);
  expect_near(imperative, found);
}

TEST(VmapGradients, OfEachExampleOfAnMlp) {
  const Tensor w1 = drawn({8, 6}, 1), b1 = drawn({8}, 2), w2 = drawn({3, 8}, 3), b2 = drawn({3}, 4);
  const Tensor xs = drawn({5, 6}, 5), ts = randint(3, {5}, {}, {}, Generator(6));
  const auto gradients = [&](const Tensor& x, const Tensor& t) {
    const auto loss = [&](const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2) {
      const Tensor hidden = layer_norm(relu(linear(x, w1, b1)), {8});
      return cross_entropy(linear(hidden, w2, b2), t);
    };
    return autograd::vjp(loss, std::tuple(w1, b1, w2, b2)).second;
  };
  const auto [d1, d2, d3, d4] = vmap(gradients)(xs, ts);
  for (int64_t i = 0; i < 5; ++i) {
    const auto [e1, e2, e3, e4] = gradients(xs[i], ts[i]);
    expect_near(d1[i], e1);
    expect_near(d2[i], e2);
    expect_near(d3[i], e3);
    expect_near(d4[i], e4);
  }
}

TEST(VmapGradients, OfEachExampleOfACnn) {
  const Tensor w1 = drawn({4, 2, 3, 3}, 1), b1 = drawn({4}, 2), g = drawn({4}, 3);
  const Tensor w2 = drawn({3, 16}, 4);
  const Tensor xs = drawn({5, 1, 2, 6, 6}, 5), ts = randint(3, {5, 1}, {}, {}, Generator(6));
  const auto gradients = [&](const Tensor& x, const Tensor& t) {
    const auto loss = [&](const Tensor& w1, const Tensor& b1, const Tensor& g, const Tensor& w2) {
      const Tensor features = relu(group_norm(conv2d(x, w1, b1), 2, g));
      return cross_entropy(linear(max_pool2d(features, 2).flatten(1), w2), t);
    };
    return autograd::vjp(loss, std::tuple(w1, b1, g, w2)).second;
  };
  const auto [d1, d2, d3, d4] = vmap(gradients)(xs, ts);
  for (int64_t i = 0; i < 5; ++i) {
    const auto [e1, e2, e3, e4] = gradients(xs[i], ts[i]);
    expect_near(d1[i], e1);
    expect_near(d2[i], e2);
    expect_near(d3[i], e3);
    expect_near(d4[i], e4);
  }
}

TEST(VmapGradients, OfEachExampleAreDifferentiable) {
  const Tensor w = drawn({3}, 1).requires_grad_(), xs = drawn({5, 3}, 2);
  const auto norms = [&](auto map) {
    return map([&](const Tensor& x) {
      const Tensor d = autograd::vjp([&](const Tensor& w) { return tanh(dot(w, x)); }, w, {},
                                     {.create_graph = true})
                           .second;
      return (d * d).sum();
    });
  };
  const Tensor found = norms([&](auto f) { return vmap(f)(xs); }).sum();
  const Tensor expected = norms([&](auto f) { return loop(f, xs); }).sum();
  expect_near(found.detach(), expected.detach());
  expect_near(autograd::grad({found}, {w})[0], autograd::grad({expected}, {w})[0]);
}

TEST(VmapGradients, HigherDerivativesWorkInside) {
  const Tensor xs = drawn({4, 3}, 1);
  const auto f = [](const Tensor& x) { return (x * x * x).sum() + x[0] * x[1]; };
  expect_near(vmap([&](const Tensor& x) { return autograd::hessian(f, x); })(xs),
              loop([&](const Tensor& x) { return autograd::hessian(f, x); }, xs));
  const Tensor v = drawn({3}, 2);
  const auto product = [&](const Tensor& x) {
    return autograd::jvp([](const Tensor& x) { return tanh(x) * x; }, x, v).second;
  };
  expect_near(vmap(product)(xs), loop(product, xs));
}

TEST(VmapGradients, DetachStopsThemAtEveryLevel) {
  const Tensor xs = drawn({4, 3}, 1).requires_grad_();
  const Tensor y = vmap([](const Tensor& x) { return (x.detach() * x).sum(); })(xs);
  expect_near(autograd::grad({y.sum()}, {xs})[0], xs.detach());
}

TEST(VmapGradients, ViewsAndWritesInsideKeepTheHistory) {
  const Tensor xs = drawn({4, 3}, 1).requires_grad_();
  const auto f = [](const Tensor& x) {
    const Tensor y = x * 2;
    y[0].mul_(3);
    y.slice(0, 1, 3).add_(x[0]);
    return (y * y).sum();
  };
  expect_near(autograd::grad({vmap(f)(xs).sum()}, {xs})[0],
              autograd::grad({loop(f, xs).sum()}, {xs})[0]);
  const auto gradient = [&](const Tensor& x) { return autograd::vjp(f, x).second; };
  expect_near(vmap(gradient)(xs.detach()), loop(gradient, xs.detach()));
}

TEST(VmapGradients, AJacobianMayBeVectorized) {
  const Tensor w = drawn({4, 3}, 1), x = drawn({3}, 2);
  const auto f = [&](const Tensor& x) { return std::tuple(tanh(mv(w, x)), x.sum()); };
  const auto [a, b] = autograd::jacobian(f, x);
  const auto [c, d] = autograd::jacobian(f, x, {.vectorize = true});
  expect_near(c, a);
  expect_near(d, b);
  const auto g = [](const Tensor& x) { return (x * x * x).prod(); };
  expect_near(autograd::hessian(g, x, {.vectorize = true}), autograd::hessian(g, x));
}

// ---- writes ----

TEST(Vmap, WritesIntoBatchedTensors) {
  const Tensor xs = drawn({5, 3}, 1);
  const Tensor y = vmap([](const Tensor& x) {
    Tensor out = zeros_like(x);
    out[0] = x[2];
    out.slice(0, 1, 3).add_(x.slice(0, 0, 2));
    return out;
  })(xs);
  expect_near(y, stack({xs.select(1, 2), xs.select(1, 0), xs.select(1, 1)}, 1));
  const Tensor copy = xs.clone();
  vmap([](const Tensor& x) { return x.mul_(2); })(copy);
  expect_near(copy, xs * 2);
}

TEST(Vmap, RefusesToWriteBatchedValuesIntoASharedTensor) {
  const Tensor shared = zeros({3}), xs = drawn({5, 3}, 1);
  EXPECT_ERROR(vmap([&](const Tensor& x) { return shared.add_(x); })(xs), "zeros_like(x)");
  EXPECT_ERROR(vmap([&](const Tensor& x) { return shared.copy_(x); })(xs),
               "[copy_] writes batched");
  EXPECT_EQ(values(shared), (Values{0, 0, 0}));
}

// ---- random numbers ----

TEST(VmapRandomness, IsAnErrorUnlessChosen) {
  EXPECT_ERROR(vmap([](const Tensor& x) { return x + rand({3}); })(ones({5, 3})),
               ".randomness = \"different\"");
  EXPECT_ERROR(vmap([](const Tensor& x) { return dropout(x, 0.5, true); })(ones({5, 3})),
               "random numbers inside vmap");
  expect_near(vmap([](const Tensor& x) { return dropout(x, 0.5, false); })(ones({5, 3})),
              ones({5, 3}));
  EXPECT_ERROR(vmap([](const Tensor& x) { return x; }, 0, 0, {.randomness = "some"})(ones({5, 3})),
               "\"error\", \"different\" or \"same\"");
}

TEST(VmapRandomness, DrawsDifferentNumbersOrTheSame) {
  const Tensor xs = ones({4, 64});
  const auto rows_differ = [](const Tensor& y) {
    return (y.slice(0, 1, 4) != y.slice(0, 0, 3)).any({1}).all().item<bool>();
  };
  const auto draw = [&](auto f) {
    EXPECT_TRUE(rows_differ(vmap(f, 0, 0, {.randomness = "different"})(xs)));
    const Tensor same = vmap(f, 0, 0, {.randomness = "same"})(xs);
    expect_near(same, same.slice(0, 0, 1).expand(same.sizes()));
    EXPECT_GT(same[0].to(kFloat32).std().item<float>(), 0.1f);
  };
  draw([](const Tensor&) { return rand({64}); });
  draw([](const Tensor&) { return randn({64}); });
  draw([](const Tensor&) { return randint(100, {64}); });
  draw([](const Tensor&) { return randperm(64); });
  draw([](const Tensor& x) { return rand_like(x); });
  draw([](const Tensor& x) { return bernoulli(x * 0.5); });
  draw([](const Tensor& x) { return dropout(x, 0.5, true); });
  draw([](const Tensor& x) { return empty_like(x).uniform_(0, 1); });
  draw([](const Tensor& x) { return multinomial(x, 32); });
}

// ---- errors ----

TEST(VmapErrors, SayWhatToWrite) {
  const Tensor xs = drawn({5, 3}, 1);
  EXPECT_ERROR(vmap([](const Tensor& x) { return x.sum().item<float>() > 0 ? x : -x; })(xs),
               "where(condition, a, b)");
  EXPECT_ERROR(vmap([](const Tensor& x) { return tensor(x.to_vector<float>()); })(xs),
               "[to_vector] vmap computes all examples at once");
  EXPECT_ERROR(vmap([](const Tensor& x) { return masked_select(x, x > 0); })(xs),
               "where(mask, x, 0)");
  EXPECT_ERROR(vmap([](const Tensor& x) { return x; }, {0, 0})(xs),
               "in_dims has 2 dimensions for 1 tensors");
  EXPECT_ERROR(vmap([](const Tensor& x) { return x; }, 2)(xs), "dim 2 is out of range");
  EXPECT_ERROR(vmap([](const Tensor& x) { return x; }, {std::nullopt})(xs),
               "no input has a batch dimension");
  EXPECT_ERROR(vmap([](const Tensor& a, const Tensor& b) { return a + b; })(xs, ones({4, 3})),
               "has 5 examples and input 1, of shape (4, 3), has 4");
  EXPECT_ERROR(vmap([](const Tensor& x) { return x; })(scalar_tensor(1)), "is 0-dim");
  EXPECT_ERROR(vmap([](const Tensor& x) { return x.requires_grad_().sum().backward(), x; })(xs),
               "use grad or vjp");
}

TEST(VmapErrors, ATensorMustNotLeaveItsVmap) {
  Tensor kept;
  vmap([&](const Tensor& x) { return kept = x; })(drawn({5, 3}, 1));
  EXPECT_ERROR(kept + 1, "used outside of the vmap that made it");
  EXPECT_ERROR(kept.item(), "item");
}

TEST(VmapErrors, NameTheDimensionsOfTheExample) {
  EXPECT_ERROR(vmap([](const Tensor& x) {
                 return matmul(x, ones({4, 2}));
               })(ones({5, 2, 3})),
               "(2, 3)");
  EXPECT_ERROR(vmap([](const Tensor& x) { return x.sum(2); })(ones({5, 2, 3})), "dim 2");
}

// ---- operators registered at run time ----

TEST(Vmap, RunsCustomOperatorsForEachExample) {
  register_operator({.schema = "vmap_test::scaled(Tensor x, float factor) -> Tensor",
                     .doc = "x * factor / sum(x)",
                     .gradient = "decompose",
                     .body = [](const std::vector<Value>& args) -> std::vector<Value> {
                       const Tensor& x = args[0].tensor();
                       return {x * args[1].scalar() / x.sum()};
                     }});
  const Tensor xs = drawn({5, 3}, 1);
  const auto f = [](const Tensor& x) { return call("vmap_test::scaled", {x, 2.0})[0].tensor(); };
  expect_near(vmap(f)(xs), xs * 2 / xs.sum(1, true));
}

// ---- no examples ----

TEST(Vmap, ABatchMayHaveNoExamples) {
  const Tensor w = full({4, 3}, kNaN, kFloat32);
  const Tensor table = drawn({5, 3}, 1), kernels = drawn({2, 3, 2, 2}, 2);
  const std::vector<std::tuple<const char*, std::vector<int64_t>, std::function<Tensor(Tensor)>>>
      functions = {
          {"sum", {3}, [](const Tensor& x) { return x.sin().sum(); }},
          {"max", {3}, [](const Tensor& x) { return x.max(); }},
          {"prod", {3, 2}, [](const Tensor& x) { return x.prod(); }},
          {"argmax", {3, 2}, [](const Tensor& x) { return x.argmax(); }},
          {"number",
           {},
           [](const Tensor& x) {
             return (x * 2).reshape({1, 1}).max();
           }},
          {"view",
           {3, 4},
           [](const Tensor& x) {
             return x.view({2, -1}).sum(1);
           }},
          {"expand",
           {3, 1},
           [](const Tensor& x) {
             return x.expand({-1, 4}) * 1;
           }},
          {"cat",
           {3},
           [](const Tensor& x) {
             return cat({x, ones({2}), zeros({0})});
           }},
          {"stack",
           {3},
           [](const Tensor& x) {
             return stack({x, ones({3})}, 1);
           }},
          {"mv", {3}, [&](const Tensor& x) { return mv(w, x); }},
          {"outer",
           {3},
           [](const Tensor& x) {
             return matmul(outer(x, x), ones({3, 2}));
           }},
          {"sort", {3}, [](const Tensor& x) { return std::get<0>(sort(x)); }},
          {"softmax", {3, 2}, [](const Tensor& x) { return softmax(x, 0); }},
          {"norm", {3, 2}, [](const Tensor& x) { return layer_norm(x, {2}, ones({2})); }},
          {"embedding", {3}, [&](const Tensor& x) { return embedding(table, x.to(kInt64)); }},
          {"conv", {1, 3, 5, 5}, [&](const Tensor& x) { return conv2d(x, kernels); }},
          {"own kernels",
           {2, 3, 2, 2},
           [](const Tensor& x) {
             return conv2d(ones({1, 3, 4, 4}), x);
           }},
          {"pool",
           {2, 3, 4, 4},
           [](const Tensor& x) {
             return max_pool2d(x, {2, 2});
           }},
          {"attention",
           {1, 2, 5, 4},
           [](const Tensor& x) { return scaled_dot_product_attention(x, x, x); }},
          {"write", {3}, [](const Tensor& x) { return zeros_like(x).copy_(x).add_(1); }},
          {"shared",
           {3},
           [](const Tensor&) {
             return ones({2, 2});
           }},
          {"gradient",
           {3},
           [](const Tensor& x) {
             return autograd::vjp([](const Tensor& y) { return y.pow(3).sum(); }, x).second;
           }},
      };
  for (const auto& [name, sizes, f] : functions) {
    std::vector<int64_t> none = {0}, one = {1};
    none.insert(none.end(), sizes.begin(), sizes.end());
    one.insert(one.end(), sizes.begin(), sizes.end());
    const Tensor y = vmap(f)(zeros(none)), expected = vmap(f)(full(one, 4.0));
    std::vector<int64_t> shape = expected.sizes().vec();
    shape[0] = 0;
    EXPECT_EQ(y.sizes().vec(), shape) << name;
    EXPECT_EQ(y.dtype(), expected.dtype()) << name;
  }
}

TEST(Vmap, NoExamplesGiveGradientsOfZeros) {
  const auto zeros_by = [](const std::function<Tensor(Tensor, Tensor)>& f, Tensor w, Tensor xs) {
    w.requires_grad_();
    xs.requires_grad_();
    const Tensor y = vmap(f, {std::nullopt, 0})(w, xs);
    y.sum().backward();
    EXPECT_TRUE(equal(w.grad(), zeros_like(w))) << w.grad();
    EXPECT_EQ(xs.grad().sizes().vec(), xs.sizes().vec());
  };
  zeros_by([](const Tensor& w, const Tensor& x) { return w * log(x); }, full({3}, kNaN),
           zeros({0, 3}));
  // Its rule folds the batch.
  zeros_by([](const Tensor& w, const Tensor& x) { return conv2d(x, w); }, full({2, 3, 2, 2}, kNaN),
           zeros({0, 1, 3, 5, 5}));
}

TEST(Vmap, RandomNumbersForNoExamples) {
  for (const char* randomness : {"different", "same"}) {
    const auto sizes_of = [&](const auto& f) {
      return vmap(f, 0, 0, {.randomness = randomness})(zeros({0, 4})).sizes().vec();
    };
    const std::vector<int64_t> expected = {0, 4};
    EXPECT_EQ(sizes_of([](const Tensor& x) { return x + rand({4}); }), expected);
    EXPECT_EQ(sizes_of([](const Tensor& x) { return x + rand_like(x); }), expected);
    EXPECT_EQ(sizes_of([](const Tensor& x) { return x + randperm(4); }), expected);
    EXPECT_EQ(sizes_of([](const Tensor& x) { return dropout(x, 0.5, true); }), expected);
    EXPECT_EQ(sizes_of([](const Tensor& x) { return zeros_like(x).uniform_(); }), expected);
    EXPECT_EQ(sizes_of([](const Tensor& x) { return bernoulli(x.sigmoid()); }), expected);
    EXPECT_EQ(sizes_of([](const Tensor& x) { return multinomial(x, 4, true); }), expected);
  }
  EXPECT_ERROR(vmap([](const Tensor& x) { return x + rand({4}); })(zeros({0, 4})),
               "random numbers inside vmap");
}

TEST(Vmap, NoExamplesHaveNoShapeThatDependsOnValues) {
  EXPECT_ERROR(vmap([](const Tensor& x) { return one_hot(x.to(kInt64)); })(zeros({0, 4})),
               "depends on the values");
  EXPECT_ERROR(vmap([](const Tensor& x) { return nonzero(x); })(zeros({0, 4})),
               "depends on the values");
}

}  // namespace
}  // namespace mytorch
