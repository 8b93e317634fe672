// What is tested: the records of ops.yaml and their samples, as codegen wrote them.
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
  std::string doc;
  std::string meaning;
  std::string promote;
  std::string fold;      // of reductions
  std::string gradient;  // in words: none, derived, formulas, decompose
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
  std::map<std::string, std::string> types;  // of tensor arguments: same, bool, index, any
  std::set<std::string> nodes;               // of the body
  std::map<std::string, double> tolerance;   // by dtype name
  Json cost;                                 // {flops, bytes}, as codegen/cost.py writes them
  std::vector<Json> samples;

  bool differentiable() const { return gradient != "none"; }
  bool writes() const;       // an argument is written, as by copy_
  bool random() const;       // takes a generator
  bool unspecified() const;  // leaves its result's values open, as `empty`
  const OpArg* arg(const std::string& arg_name) const;
};

// Reads ops.json and samples.json of a folder; throws Error(kIo).
std::vector<OpRecord> load_catalog(const std::string& folder);

// The folder of these files: MYTORCH_SHARE, or share/mytorch beside the bin or lib directory of the
// running program, or generated/share in a build tree. Throws Error(kIo) that lists what was tried.
std::string share_folder();

}  // namespace mytorch::conformance
