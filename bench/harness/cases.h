// The cases to measure: an operator with its arguments, or a program of bench/harness/programs.h.
// Cases come from the suites, from the command line, or from an operator's record.
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
  std::string name;                  // identifies the case in results
  const OpRecord* record = nullptr;  // null for a program
  std::string program;
  Form form = Form::kFunction;
  Json args = Json::object();  // as in samples (conformance/samples/README.md)
  std::string dtype = "float32";
  Device device = {};  // of the tensors
};

// Returns the cases of one suite of `folder`/suites.json, or of all but `gpu` if `suite` is empty.
// Throws Error(kValue) that lists the suites if `suite` is unknown.
std::vector<Case> suite_cases(const std::vector<OpRecord>& catalog, const std::string& folder,
                              const std::string& suite);

// Finds the operator with a full name, or with a base name that is unique among the records. A
// trailing "_" selects the in-place form. Throws Error(kValue).
struct Named {
  const OpRecord* record;
  Form form;
};
Named find_record(const std::vector<OpRecord>& catalog, const std::string& name);

// Parses `shapes`: one description for each tensor argument of the record, in order:
//
//   4096x1024        its sizes; 8 or 8x for one dimension, [] for none, - for an absent tensor
//   2x3+2x5          a list of tensors
//   4096x1024:WORD   with any of a dtype, a layout (of conformance/arguments.h), low=N, high=N,
//                    raised=N (on the diagonals), of=ARG (a view of another argument's memory)
//
// Skips tensor arguments that `given` contains. Throws Error(kValue) that quotes the invalid part.
// shapes_text() is the inverse.
Json parse_shapes(const OpRecord& record, const std::string& shapes, const Json& given);
std::string shapes_text(const OpRecord& record, const Json& args);

// Completes the given arguments. Without tensors it takes the operator's cases of the suites or, if
// there are none, default shapes by the record's kind, which may be several cases. Other required
// arguments come from the record's first sample.
std::vector<Case> cases_of(const OpRecord& record, Form form, const Json& given,
                           const std::vector<Case>& of_suites, const std::string& dtype);

// Returns the command line that measures only this case.
std::string reproducer(const Case& c, int threads, const std::string& backend);

}  // namespace mytorch::bench
