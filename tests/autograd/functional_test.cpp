// Jacobians, Hessians and products with them. Expected values come from PyTorch unless a formula
// gives them.
#include "mytorch/autograd/functional.h"

#include <cmath>
#include <functional>
#include <tuple>

#include "mytorch/autograd.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/argmax.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/sin.h"
#include "mytorch/ops/softmax.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/tanh.h"
#include "mytorch/ops/zeros.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::hessian;
using autograd::hvp;
using autograd::jacobian;
using autograd::jvp;
using autograd::vhp;
using autograd::vjp;

void expect_near(const Tensor& found, const Values& expected) {
  const Values got = values(found);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-10) << "element " << i;
}

Tensor shaped(std::initializer_list<double> list, IntList sizes) {
  return view(plain(list), sizes).detach();
}

class Functional : public ::testing::Test {
 protected:
  const Tensor x = shaped({0.1, -0.2, 0.3, 0.4, 0.5, -0.6}, {2, 3});
  const Tensor w = shaped({0.7, -0.8, 0.9, 1.0, -1.1, 1.2}, {3, 2});
  const Tensor vx = shaped({0.5, 2, 0.5, 0.5, 0.5, 0.5}, {2, 3});
  const Tensor vw = shaped({-0.25, -0.25, -0.25, -0.25, -0.25, -0.25}, {3, 2});

  static Tensor layer(const Tensor& x, const Tensor& w) { return tanh(matmul(x, w)); }
  static Tensor energy(const Tensor& x, const Tensor& w) {
    const Tensor p = softmax(matmul(x, w), 1);
    return sum(mul(p, p));
  }
};

TEST_F(Functional, JacobianOfTwoInputs) {
  const auto [jx, jw] = jacobian(layer, std::tuple(x, w));
  EXPECT_EQ(jx.sizes(), (IntList{2, 2, 2, 3}));
  EXPECT_EQ(jw.sizes(), (IntList{2, 2, 3, 2}));
  expect_near(select(select(jx, 0, 0), 0, 1),
              {-0.794901766371, 0.993627207964, 1.192352649556, 0, 0, 0});
  expect_near(select(select(jw, 0, 1), 0, 1),
              {0, 0.302785145885, 0, 0.378481432357, 0, -0.454177718828});
  EXPECT_FALSE(jx.requires_grad());
}

TEST_F(Functional, VectorJacobianProduct) {
  const auto [value, g] = vjp(layer, std::tuple(x, w), shaped({1, 2, 3, 4}, {2, 2}));
  expect_near(value, {-0.413644442187, 0.079829769111, 0.883170888915, -0.492987966675});
  expect_near(std::get<0>(g), {-1.009574739928, 2.73326286383, 1.47291719612, -1.96026188704,
                               3.62187624748, 2.907391453414});
  expect_near(std::get<1>(g), {0.346900844712, 1.409866025134, 0.16423411637, 1.116474846241,
                               -0.147347043117, -1.220534550534});
  EXPECT_FALSE(value.requires_grad());
}

TEST_F(Functional, JacobianVectorProduct) {
  const auto [value, tangent] = jvp(layer, std::tuple(x, w), std::tuple(vx, vw));
  expect_near(value, {-0.413644442187, 0.079829769111, 0.883170888915, -0.492987966675});
  expect_near(tangent, {1.284792326944, 2.136298497122, 0.03850160667, 0.473101790446});
}

TEST_F(Functional, HessianHasABlockForEachPairOfInputs) {
  const auto blocks = hessian(energy, std::tuple(x, w));
  const Tensor& xw = std::get<1>(std::get<0>(blocks));
  const Tensor& wx = std::get<0>(std::get<1>(blocks));
  EXPECT_EQ(xw.sizes(), (IntList{2, 3, 3, 2}));
  EXPECT_EQ(wx.sizes(), (IntList{3, 2, 2, 3}));
  expect_near(select(select(xw, 0, 0), 0, 0), {-0.090655090366, 0.090655090366, -0.056541021567,
                                               0.056541021567, 0.084811532351, -0.084811532351});
  expect_near(select(select(wx, 0, 0), 0, 0), {-0.090655090366, -0.001884700719, -0.043348116535,
                                               0.120638622343, 0.002974242171, 0.068407569927});
}

TEST_F(Functional, ProductsWithTheHessian) {
  const Values of_x = {-0.169623064702, 0.011308204313,  0.260088699209,
                       0.050190336631,  -0.003346022442, -0.076958516168};
  const Values of_w = {0.025239212332, -0.025239212332, -0.11587855401,
                       0.11587855401,  -0.030837420716, 0.030837420716};
  for (bool forward : {false, true}) {
    const auto [value, product] =
        forward ? hvp(energy, std::tuple(x, w), {vx, vw}) : vhp(energy, std::tuple(x, w), {vx, vw});
    EXPECT_EQ(value.dim(), 0);
    expect_near(std::get<0>(product), of_x);
    expect_near(std::get<1>(product), of_w);
  }
}

TEST_F(Functional, HessianOfOneInput) {
  const auto f = [](const Tensor& x) { return sum(mul(exp(x), sin(mul(x, x)))); };
  const Tensor h = hessian(f, select(x, 0, 0));
  EXPECT_EQ(h.sizes(), (IntList{3, 3}));
  expect_near(h, {2.662887047964, 0, 0, 0, 1.009193045025, 0, 0, 0, 4.379712764272});
}

TEST_F(Functional, StructuresOfInputsAndOutputs) {
  const Tensor a = plain({1, 2});
  const Tensor b = plain({3, 4});
  const auto list = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{mul(in[0], in[1]), sum(in[0])};
  };
  const auto blocks = jacobian(list, {a, b});
  ASSERT_EQ(blocks.size(), 2u);
  ASSERT_EQ(blocks[0].size(), 2u);
  EXPECT_EQ(values(blocks[0][0]), (Values{3, 0, 0, 4}));
  EXPECT_EQ(values(blocks[0][1]), (Values{1, 0, 0, 2}));
  EXPECT_EQ(values(blocks[1][0]), (Values{1, 1}));
  EXPECT_EQ(values(blocks[1][1]), (Values{0, 0}));
  // A function of two tensors takes a list, too.
  const auto row = jacobian([](const Tensor& x, const Tensor& y) { return mul(x, y); }, {a, b});
  EXPECT_EQ(values(row[1]), (Values{1, 0, 0, 2}));
  // Several outputs of one input.
  const auto [square, total] =
      jacobian([](const Tensor& x) { return std::tuple(mul(x, x), sum(x)); }, a);
  EXPECT_EQ(values(square), (Values{2, 0, 0, 4}));
  EXPECT_EQ(values(total), (Values{1, 1}));
  const auto [outputs, gradient] =
      vjp([](const Tensor& x) { return std::tuple(mul(x, x), sum(x)); }, a, {b, sum(plain({10}))});
  EXPECT_EQ(values(std::get<1>(outputs)), (Values{3}));
  EXPECT_EQ(values(gradient), (Values{16, 26}));
}

Tensor squares(const Tensor& x) { return mul(x, x); }

TEST_F(Functional, AnythingThatCanBeCalledIsAFunction) {
  struct Scale {
    int calls = 0;
    Tensor operator()(Tensor x) {
      ++calls;
      return mul(x, 2.0);
    }
  } scale;
  EXPECT_EQ(values(jacobian(scale, plain({1, 2}))), (Values{2, 0, 0, 2}));
  EXPECT_EQ(scale.calls, 1);
  EXPECT_EQ(values(jacobian(squares, plain({1, 2}))), (Values{2, 0, 0, 4}));
  EXPECT_EQ(values(jacobian(&squares, plain({1, 2}))), (Values{2, 0, 0, 4}));
  const std::function<Tensor(const Tensor&)> function = squares;
  EXPECT_EQ(values(jacobian(function, plain({1, 2}))), (Values{2, 0, 0, 4}));
}

TEST_F(Functional, ScalarsNeedNoVector) {
  const auto f = [](const Tensor& x) { return mul(mul(x, x), x); };
  const Tensor two = sum(plain({2}));
  EXPECT_EQ(values(vjp(f, two).second), (Values{12}));
  EXPECT_EQ(values(jvp(f, two).second), (Values{12}));
  EXPECT_EQ(values(vhp(f, two).second), (Values{12}));
  EXPECT_EQ(values(hvp(f, two).second), (Values{12}));
  EXPECT_EQ(jacobian(f, two).dim(), 0);
  EXPECT_EQ(hessian(f, two).dim(), 0);
}

TEST_F(Functional, GradsOfInputsAndCapturedTensorsDoNotChange) {
  const Tensor a = leaf({1, 2});
  const Tensor captured = leaf({5, 6});
  const Tensor j = jacobian([&](const Tensor& x) { return mul(mul(x, captured), a); }, a);
  // The captured `a` is a constant.
  EXPECT_EQ(values(j), (Values{5, 0, 0, 12}));
  EXPECT_FALSE(j.requires_grad());
  EXPECT_FALSE(a.grad().defined());
  EXPECT_FALSE(captured.grad().defined());
}

TEST_F(Functional, RunsInNoGradMode) {
  NoGradGuard no_grad;
  expect_near(hessian([](const Tensor& x) { return sum(mul(x, x)); }, plain({1, 2})), {2, 0, 0, 2});
  EXPECT_FALSE(grad_enabled());
}

TEST_F(Functional, CreateGraphDifferentiatesTheResults) {
  const auto cube = [](const Tensor& x) { return sum(mul(mul(x, x), x)); };
  const Tensor a = leaf({1, 2});
  const Tensor v = plain({1, 10});
  const Tensor product = vhp(cube, a, v, {.create_graph = true}).second;  // 6 x v
  EXPECT_EQ(values(autograd::grad({sum(product)}, {a})[0]), (Values{6, 60}));
  const Tensor also = hvp(cube, a, v, {.create_graph = true}).second;
  EXPECT_EQ(values(autograd::grad({sum(also)}, {a})[0]), (Values{6, 60}));
  const Tensor h = hessian(cube, a, {.create_graph = true});
  EXPECT_EQ(values(autograd::grad({sum(h)}, {a})[0]), (Values{6, 6}));
  const Tensor j = jacobian([](const Tensor& x) { return mul(x, x); }, a, {.create_graph = true});
  EXPECT_EQ(values(autograd::grad({sum(j)}, {a})[0]), (Values{2, 2}));
  const Tensor t =
      jvp([](const Tensor& x) { return mul(x, x); }, a, v, {.create_graph = true}).second;
  EXPECT_EQ(values(autograd::grad({sum(t)}, {a})[0]), (Values{2, 20}));
  EXPECT_FALSE(a.grad().defined());
}

TEST_F(Functional, GradientsOfTheResultsAgreeWithDifferences) {
  const auto through = [&](const std::vector<Tensor>& in) {
    const auto [value, product] =
        jvp(layer, std::tuple(in[0], in[1]), {vx, vw}, {.create_graph = true});
    return std::vector<Tensor>{value, product};
  };
  const auto check =
      autograd::gradcheck(through, {x.detach().requires_grad_(), w.detach().requires_grad_()});
  EXPECT_TRUE(check) << check.message;
}

TEST_F(Functional, IndependentOutputsHaveZerosUnlessStrict) {
  const Tensor a = plain({1, 2});
  const Tensor b = plain({3});
  const auto first = [](const Tensor& x, const Tensor&) { return mul(x, x); };
  const auto [ja, jb] = jacobian(first, std::tuple(a, b));
  EXPECT_EQ(jb.sizes(), (IntList{2, 1}));
  EXPECT_EQ(values(jb), (Values{0, 0}));
  EXPECT_ERROR(jacobian(first, std::tuple(a, b), {.strict = true}),
               "[jacobian] output 0 does not depend on input 1");
  EXPECT_EQ(values(std::get<1>(vjp(first, std::tuple(a, b), a).second)), (Values{0}));
  EXPECT_ERROR(vjp(first, std::tuple(a, b), a, {.strict = true}), "do not depend on input 1");
  // A constant, and a result whose type has no gradient.
  const auto constant = [](const Tensor& x) { return std::tuple(ones({2}), argmax(x)); };
  const auto [zero, of_integer] = jvp(constant, a, plain({1, 1})).second;
  EXPECT_EQ(values(zero), (Values{0, 0}));
  EXPECT_EQ(values(of_integer), (Values{0}));
  EXPECT_ERROR(jvp(constant, a, plain({1, 1}), {.strict = true}), "do not depend on output 0");
  // The gradient of a linear function is constant.
  const auto linear = [](const Tensor& x) { return sum(mul(x, 3.0)); };
  EXPECT_EQ(values(hessian(linear, a)), (Values{0, 0, 0, 0}));
  EXPECT_ERROR(hessian(linear, a, {.strict = true}),
               "[hessian] output 0 does not depend on input 0");
  EXPECT_ERROR(jacobian(linear, a, {.create_graph = true, .strict = true}), "is constant");
}

TEST_F(Functional, EmptyTensors) {
  const Tensor none = zeros({0}, kFloat64);
  const auto square = [](const Tensor& x) { return mul(x, x); };
  EXPECT_EQ(jacobian(square, none).sizes(), (IntList{0, 0}));
  EXPECT_EQ(hessian([](const Tensor& x) { return sum(mul(x, x)); }, none).sizes(), (IntList{0, 0}));
  EXPECT_EQ(jvp(square, none, none).second.sizes(), (IntList{0}));
}

TEST_F(Functional, RefusesWhatDoesNotFit) {
  const Tensor a = plain({1, 2});
  const auto square = [](const Tensor& x) { return mul(x, x); };
  EXPECT_ERROR(vjp(square, a), "[vjp] v can be omitted for a single element only");
  EXPECT_ERROR(jvp(square, a, plain({1})), "[jvp] v 0 has shape (1,), input 0 has shape (2,)");
  EXPECT_ERROR(vjp(square, a, ones({2}, kFloat32)), "v 0 is float32, output 0 is float64");
  EXPECT_ERROR(hessian(square, a),
               "[hessian] the function must return one element; it returned a "
               "tensor of shape (2,)");
  EXPECT_ERROR(jacobian(square, tensor({1, 2}, kInt64)), "input 0 is int64");
  EXPECT_ERROR(jacobian(square, Tensor()), "input 0 is undefined");
  EXPECT_ERROR(jacobian([](const Tensor&) { return Tensor(); }, a), "output 0 of the function is");
  const auto two = [](const Tensor& x, const Tensor& y) { return mul(x, y); };
  EXPECT_ERROR(jacobian(two, {a}), "1 inputs were given to a function of 2");
  EXPECT_ERROR(jvp(two, std::tuple(a, a), {a, Tensor()}), "v 1 is undefined");
}

}  // namespace
}  // namespace mytorch
