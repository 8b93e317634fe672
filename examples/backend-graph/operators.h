// The pointwise operators that the compiler knows, as loops over a few hundred elements.
#pragma once

#include <cmath>
#include <cstdint>

#include "mytorch/abi_ops.h"
#include "mytorch/backend/region.h"

namespace loops {

namespace sdk = mytorch::sdk;

// out[i] = f(a[i], b[i], number). Operators of one operand ignore b.
using Body = void (*)(float* out, const float* a, const float* b, float number, int64_t n);

struct Operator {
  Body body = nullptr;           // null: not a pointwise operator that is known
  bool binary = false;           // whether it has an argument `other`
  const char* number = nullptr;  // the argument that is the number, or null
};

// The loop of a function of (a, b, number).
template <class F>
Body loop_of(F) {
  return [](float* out, const float* a, const float* b, float number, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = F{}(a[i], b[i], number);
  };
}

inline Operator operator_of(const sdk::RegionNode& node) {
  if (node.calls<mt_args_add_Tensor>())
    return {loop_of([](float a, float b, float alpha) { return a + alpha * b; }), true, "alpha"};
  if (node.calls<mt_args_sub_Tensor>())
    return {loop_of([](float a, float b, float alpha) { return a - alpha * b; }), true, "alpha"};
  if (node.calls<mt_args_mul_Tensor>())
    return {loop_of([](float a, float b, float) { return a * b; }), true};
  if (node.calls<mt_args_div_Tensor>())
    return {loop_of([](float a, float b, float) { return a / b; }), true};
  if (node.calls<mt_args_relu>())  // NaN stays
    return {loop_of([](float a, float, float) { return a < 0 ? 0 : a; })};
  if (node.calls<mt_args_neg>()) return {loop_of([](float a, float, float) { return -a; })};
  if (node.calls<mt_args_exp>())
    return {loop_of([](float a, float, float) { return std::exp(a); })};
  if (node.calls<mt_args_tanh>())
    return {loop_of([](float a, float, float) { return std::tanh(a); })};
  if (node.calls<mt_args_sigmoid>())
    return {loop_of([](float a, float, float) { return 1 / (1 + std::exp(-a)); })};
  return {};
}

}  // namespace loops
