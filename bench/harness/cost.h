// The work of a call: the operations of its record (`cost.flops`) or of its program, and the bytes
// of its operands and results.
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

// The properties of one argument or result that a cost formula can use.
struct Fact {
  bool present = true;
  std::vector<int64_t> shape;  // of a tensor
  int64_t nbytes = 0;          // of a tensor
  double number = 0;           // of a number or bool
  std::vector<int64_t> list;   // of int[], or one entry for each tensor of a list
};
using Facts = std::map<std::string, Fact>;

Fact fact_of(const Value& value);
// Return facts by the names in the record. `nbytes` of a tensor list is the total.
Facts facts_of(const conformance::OpRecord& op, const std::vector<Value>& args,
               const std::vector<Value>& results);
Facts facts_of(const OpInfo& op, const void* args);

// Evaluates a formula that codegen/cost.py wrote. Throws Error(kValue) for an unknown name or
// operation.
double evaluate(const nlohmann::json& tree, const Facts& facts);

// Returns the floating-point operations of one kernel call: the record's cost if it has one; for a
// pointwise program, its nodes times the elements of the result; for a reduction, its nodes and the
// fold times the elements of the operand; else 0, which means unknown.
double kernel_flops(const conformance::OpRecord& record, const OpInfo& op, const void* args);

// The same for a call whose arguments and results are boxed.
double call_flops(const conformance::OpRecord& record, const OpInfo& op,
                  const std::vector<Value>& args, const std::vector<Value>& results);

// The bytes that a call must move: every operand and every result once, or the record's
// `cost.bytes`, half of it read. Memory that operands share counts once. An argument that a call
// only writes counts as written; the first argument of an in-place form counts as read and written.
struct Bytes {
  double read = 0;
  double written = 0;
  double total() const { return read + written; }
};
Bytes call_bytes(const conformance::OpRecord& op, const std::vector<Value>& args,
                 const std::vector<Value>& results, bool inplace);

}  // namespace mytorch::bench
