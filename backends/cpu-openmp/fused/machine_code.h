// Machine code for expressions of float32, made at run time: one loop that holds all values in
// registers, where steps over tiles would store each of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu-openmp/pointwise/inner_loop.h"

namespace mytorch::cpu {

// An operation on the results of earlier ones, which are vectors of float32, or masks.
struct Operation {
  enum Code : uint8_t {
    // Leaves: an operand of float32, of a 16-bit float, or of bools; a number; a number that is
    // given
    // to the loop.
    kInput,
    kBfloat16,
    kFloat16,
    kBools,
    kNumber,
    kParameter,
    kAdd,
    kSub,
    kMul,
    kDiv,
    kMulAdd,     // a * b + c, rounded once
    kMulSub,     // a * b - c
    kNegMulAdd,  // c - a * b
    kMaximum,
    kMinimum,
    kNeg,
    kAbs,
    kSign,
    kSqrt,
    kRsqrt,
    kFloor,
    kCeil,
    kTrunc,
    kRound,
    kWhere,     // of a mask
    kFromMask,  // 1 or 0
    // The results of these are masks.
    kEq,
    kNe,
    kLt,
    kLe,
    kGt,
    kGe,
    kIsnan,
    kAnd,
    kOr,
    kXor,
    kNot,
  };
  Code code;
  int32_t a = -1, b = -1, c = -1;  // operations
  int32_t input = -1;              // the operand of a leaf
  float number = 0;
  int32_t parameter = -1;  // the place of a given number in those that Scalars::self points to
};
constexpr bool is_mask(Operation::Code code) {
  return code >= Operation::kEq || code == Operation::kBools;
}

struct Expression {
  std::vector<Operation> operations;
  std::vector<int32_t> results;  // operations; masks are stored as bools
};

// Whether this build and this processor make machine code.
bool makes_machine_code();
// Returns a loop that computes an expression, or null if it needs more memory than there is.
// `Scalars::self` of a call points to the floats of its parameters. The loop exists as long as
// somebody refers to it; equal expressions share one.
std::shared_ptr<const InnerLoop> machine_code(const Expression& expression);
// Returns how many loops exist.
size_t num_loops();

}  // namespace mytorch::cpu
