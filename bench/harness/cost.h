// How much work a call is: the operations that its record says (`cost.flops`), or that follow from
// its program, and the bytes of its operands and results.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "mytorch/call.h"

namespace mytorch {
struct OpInfo;
}

namespace mytorch::bench {

// What a cost may ask about one argument or result.
struct Fact {
  bool present = true;
  std::vector<int64_t> shape;  // of a tensor
  int64_t nbytes = 0;          // of a tensor
  double number = 0;           // of a number or bool
  std::vector<int64_t> list;   // of int[], or one entry for each tensor of a list
};
using Facts = std::map<std::string, Fact>;

Fact fact_of(const Value& value);
// By the names in the record; a tensor list's `nbytes` is that of all.
Facts facts_of(const conformance::OpRecord& op, const std::vector<Value>& args,
               const std::vector<Value>& results);
// Of an argument struct, for the op's own kernel.
Facts facts_of(const OpInfo& op, const void* args);

// Evaluates what codegen/cost.py wrote. Throws Error(kValue) for a name that the facts lack, or an
// operation that it does not know.
double evaluate(const nlohmann::json& tree, const Facts& facts);

// Floating-point operations of one kernel call: the record's cost; of a pointwise program its nodes
// for each element of the result, of a reduction those and the fold for each element of the
// operand; else 0, which means unknown.
double kernel_flops(const conformance::OpRecord& record, const OpInfo& op, const void* args);

// Bytes that a call has to move: every operand and every result once, or what the record's
// `cost.bytes` says, half of it read. Memory that operands share counts once. An argument that a
// call only writes counts as written; that of an in-place form is both.
struct Bytes {
  double read = 0;
  double written = 0;
  double total() const { return read + written; }
};
Bytes call_bytes(const conformance::OpRecord& op, const std::vector<Value>& args,
                 const std::vector<Value>& results, bool inplace);

}  // namespace mytorch::bench
