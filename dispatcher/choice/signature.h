// What kind of call this is, as far as measurements tell calls apart: the types, layouts and sizes
// of its operands (sizes in steps of a quarter octave), its integers, and how many threads there
// are.
#pragma once

#include <bit>
#include <string>
#include <vector>

#include "dispatcher/table/op.h"

namespace mytorch {

// Where an op's argument struct has what its signature is made of.
struct SignaturePlan {
  explicit SignaturePlan(const OpInfo& op);

  std::vector<uint32_t> tensors;
  std::vector<uint32_t> lists;      // of tensors
  std::vector<uint32_t> integers;   // int64_t: ints and bools
  std::vector<uint32_t> int_lists;  // mt_int_list
  // Elements of the first tensor below which nobody looks anything up: such a call takes less than
  // 100 times what that would cost.
  int64_t threshold;
};

// Equal for sizes that are measured as one.
inline uint64_t size_bucket(int64_t size) {
  const auto n = static_cast<uint64_t>(size);
  if (n < 4) return n;
  const int e = 63 - std::countl_zero(n);
  return static_cast<uint64_t>(e) << 2 | (n >> (e - 2) & 3);
}

// Whether the call is large enough to be looked up.
bool is_worth_looking(const SignaturePlan& plan, const void* args);
uint64_t signature(const SignaturePlan& plan, const mt_ctx& ctx, const void* args);

// Types, shapes and threads, for people: "float32[64,784] float32[784,32] threads=2".
std::string describe_call(const OpInfo& op, const mt_ctx& ctx, const void* args);

}  // namespace mytorch
