#include "operators.h"

#include <cmath>

#include "mytorch/abi_ops/add.h"
#include "mytorch/abi_ops/div.h"
#include "mytorch/abi_ops/exp.h"
#include "mytorch/abi_ops/mul.h"
#include "mytorch/abi_ops/neg.h"
#include "mytorch/abi_ops/relu.h"
#include "mytorch/abi_ops/sigmoid.h"
#include "mytorch/abi_ops/sub.h"
#include "mytorch/abi_ops/tanh.h"

namespace loops {
namespace {

// The loop of a function of (a, b, number).
template <auto f>
void body(float* out, const float* a, const float* b, float number, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i], number);
}

float add(float a, float b, float alpha) { return a + alpha * b; }
float sub(float a, float b, float alpha) { return a - alpha * b; }
float mul(float a, float b, float) { return a * b; }
float div(float a, float b, float) { return a / b; }
float relu(float a, float, float) { return a < 0 ? 0 : a; }  // NaN stays
float neg(float a, float, float) { return -a; }
float exp(float a, float, float) { return std::exp(a); }
float tanh(float a, float, float) { return std::tanh(a); }
float sigmoid(float a, float, float) { return 1 / (1 + std::exp(-a)); }

}  // namespace

Operator operator_of(const sdk::RegionNode& node) {
  if (node.calls<mt_args_add_Tensor>()) return {body<add>, true, "alpha"};
  if (node.calls<mt_args_sub_Tensor>()) return {body<sub>, true, "alpha"};
  if (node.calls<mt_args_mul_Tensor>()) return {body<mul>, true};
  if (node.calls<mt_args_div_Tensor>()) return {body<div>, true};
  if (node.calls<mt_args_relu>()) return {body<relu>};
  if (node.calls<mt_args_neg>()) return {body<neg>};
  if (node.calls<mt_args_exp>()) return {body<exp>};
  if (node.calls<mt_args_tanh>()) return {body<tanh>};
  if (node.calls<mt_args_sigmoid>()) return {body<sigmoid>};
  return {};
}

}  // namespace loops
