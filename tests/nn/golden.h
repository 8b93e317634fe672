// Comparisons with PyTorch 2.x: of the sums of an output and of the gradients of the inputs,
// weighted by waves, for parameters and inputs that are waves.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/nn/module.h"
#include "mytorch/ops/sum.h"
#include "tests/nn/values.h"

namespace mytorch::nn {

using mytorch::testing::filled;
using mytorch::testing::values;
using Shape = std::vector<int64_t>;

inline Tensor wave(const Shape& sizes, double phase) {
  int64_t numel = 1;
  for (int64_t size : sizes) numel *= size;
  std::vector<double> numbers;
  for (int64_t i = 0; i < numel; ++i) {
    const double at = static_cast<double>(i);
    numbers.push_back(std::sin(0.7 * at + phase + 0.3 * std::sin(1.9 * at)));
  }
  return filled(sizes, numbers, kFloat64);
}

// Returns a copy in float64 whose parameters are waves.
template <class M>
M filled_module(const M& module) {
  M copy = clone(module);
  copy.to(kFloat64);
  NoGradGuard no_grad;
  double phase = 1;
  for (const Tensor& parameter : copy.parameters()) {
    parameter.copy_(wave(parameter.sizes().vec(), phase++));
  }
  return copy;
}

struct Expected {
  Shape shape;
  double output;
  double gradient;
};

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

inline void expect_golden(const char* name, const Function& function,
                          const std::vector<Shape>& shapes, const Expected& expected) {
  SCOPED_TRACE(name);
  std::vector<Tensor> inputs;
  for (const Shape& shape : shapes) {
    inputs.push_back(wave(shape, static_cast<double>(inputs.size())).requires_grad_());
  }
  const Tensor output = function(inputs);
  ASSERT_EQ(output.sizes().vec(), expected.shape);
  const Tensor sum = (output * wave(expected.shape, 2.5)).sum();
  EXPECT_NEAR(sum.item<double>(), expected.output, 1e-6 * (1 + std::abs(expected.output)));
  sum.backward();
  double gradient = 0, phase = 3.5;
  for (const Tensor& input : inputs) {
    gradient += (input.grad() * wave(input.sizes().vec(), phase++)).sum().item<double>();
  }
  EXPECT_NEAR(gradient, expected.gradient, 1e-6 * (1 + std::abs(expected.gradient)));
}

// Also expects a copy, a clone and a module with the same state to compute the same.
template <class M>
void expect_module(const char* name, const M& made, const Shape& shape, const Expected& expected) {
  M module = filled_module(made);
  expect_golden(
      name, [&](const std::vector<Tensor>& x) { return module(x[0]); }, {shape}, expected);
  SCOPED_TRACE(name);
  module.eval();
  const Tensor x = wave(shape, 0);
  const std::vector<double> output = values(module(x));
  M copy = module;
  EXPECT_EQ(values(copy(x)), output);
  M moved = std::move(copy);
  EXPECT_EQ(values(moved(x)), output);
  M loaded = clone(made);
  loaded.to(kFloat64);
  loaded.eval();
  loaded.load_state_dict(module.state_dict());
  EXPECT_EQ(values(loaded(x)), output);
  EXPECT_NE(module.describe().find('('), std::string::npos);
}

}  // namespace mytorch::nn
