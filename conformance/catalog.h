// The records of ops.yaml and their samples, as code generation writes them to JSON.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "mytorch/dtype.h"

namespace mytorch::conformance {

using Json = nlohmann::json;

struct OpArg {
  std::string name;
  std::string type;  // as in the schema: "Tensor?", "int[2]"
  bool written = false;
  bool differentiable = false;  // takes part in gradient checks
  bool required = false;        // has no default

  bool is_tensor() const { return type.starts_with("Tensor") || type.starts_with("Operand"); }
  bool is_tensor_list() const {
    return type.starts_with("Tensor[") || type.starts_with("Tensor?[");
  }
};

struct OpRecord {
  std::string name;  // "add.Tensor"
  std::string schema;
  std::vector<std::string> aliases;       // of the function's name
  std::vector<std::string> declarations;  // in C++; empty for custom operators
  std::vector<std::string> methods;       // of Tensor
  std::string doc;
  std::string accepts;  // the types, in sentences
  std::string meaning;
  std::string family;  // its section of ops.yaml; "" for a custom operator
  std::string promote;
  std::string autocast;  // the policy: none, lower, float32 or widest
  std::string fold;      // of a reduction
  std::string gradient;  // none, derived, formulas or decompose
  std::string derived_gradient;
  std::vector<std::string> formulas;
  bool kernel_optional = false;
  bool has_kernel = false;
  bool derived = false;
  bool inplace = false;
  bool out = false;
  bool once_differentiable = false;
  std::vector<OpArg> args;
  std::vector<std::string> result_names;
  std::map<std::string, std::string> types;  // by tensor argument: same, bool, index or any
  std::set<std::string> nodes;               // operations in the body
  bool approximate = false;                  // one of them is a function that has no exact result
  std::map<std::string, double> tolerance;   // by dtype name
  bool backward_stable = false;              // a result of operands with rounding errors is right
  bool non_finite_spreads = false;           // non-finite operands may reach any result of a matrix
  Json cost;                                 // {flops, bytes}, as codegen/cost.py writes them
  std::vector<Json> samples;

  bool differentiable() const { return gradient != "none"; }
  bool writes() const;       // writes to an argument, as copy_ does
  bool random() const;       // takes a generator
  bool unspecified() const;  // does not define the values of its result, as `empty`
  const OpArg* arg(const std::string& arg_name) const;
  std::string inplace_name() const;  // "add_.Tensor"
};

// Reads ops.json and samples.json in a folder. Throws Error(kIo).
std::vector<OpRecord> load_catalog(const std::string& folder);

// Returns the folder of these files: MYTORCH_SHARE if set, else share/mytorch next to the running
// program's bin or lib directory, else generated/share in a build tree. Throws Error(kIo) that
// lists the folders it searched.
std::string share_folder();

}  // namespace mytorch::conformance
