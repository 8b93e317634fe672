// What is measured: an operator with its arguments, or a program of bench/harness/programs.h. Cases
// come from the suites, from the command line, or from an operator's record.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "mytorch/device.h"
#include "mytorch/dtype.h"

namespace mytorch::bench {

using conformance::Json;
using conformance::OpRecord;

enum class Form { kFunction, kOut, kInplace };

struct Case {
  std::string suite;
  std::string name;                  // what results are compared by
  const OpRecord* record = nullptr;  // null for a program
  std::string program;
  Form form = Form::kFunction;
  Json args = Json::object();  // as in samples (conformance/samples/README.md)
  std::string dtype = "float32";
  Device device = {};  // where its tensors are
};

// The cases of one suite of `folder`/suites.json, or of all. Throws Error(kValue) for an unknown
// suite, with those there are.
std::vector<Case> suite_cases(const std::vector<OpRecord>& catalog, const std::string& folder,
                              const std::string& suite);

// The operator that a name on the command line means: a full name, or a base name that only one
// record has; with a trailing "_" its in-place form. Throws Error(kValue).
struct Named {
  const OpRecord* record;
  Form form;
};
Named find_record(const std::vector<OpRecord>& catalog, const std::string& name);

// The tensors of `shapes`, one for each tensor argument of the record in order:
//
//   4096x1024        its sizes; 8 or 8x for one dimension, [] for none, - for an absent tensor
//   2x3+2x5          a list of tensors
//   4096x1024:WORD   with any of a dtype, a layout (transposed, sliced, broadcast, channels_last),
//                    low=N, high=N, of=ARG (a view of another argument's memory)
//
// Tensor arguments that `given` already has are passed over. Throws Error(kValue) that shows the
// part it does not understand.
Json parse_shapes(const OpRecord& record, const std::string& shapes, const Json& given);
std::string shapes_text(const OpRecord& record, const Json& args);

// Adds what is missing: default shapes by the record's kind where there are no tensors, required
// arguments that are no tensors from the record's first sample. Without shapes there may be several
// cases: those that suites have for the operator come first.
std::vector<Case> cases_of(const OpRecord& record, Form form, const Json& given,
                           const std::vector<Case>& of_suites, const std::string& dtype);

// The command line that measures the case alone.
std::string reproducer(const Case& c, int threads, const std::string& backend);

}  // namespace mytorch::bench
