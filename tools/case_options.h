// Options that select the calls for a command: an operator with arguments, or a suite of
// bench/suites.yaml.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bench/harness/cases.h"

namespace mytorch::tools {

struct CaseOptions {
  std::string op;
  std::string suite;
  std::vector<std::string> only;  // names of cases of the suite
  std::string shapes;
  std::vector<std::string> set;
  std::string form;
  std::vector<std::string> dtypes;
};

void add_case_options(CLI::App& app, CaseOptions& options);
// Returns the selected cases. Throws Error(kValue), whose message begins with [`command`].
std::vector<bench::Case> select_cases(const std::vector<bench::OpRecord>& catalog,
                                      const std::string& share, const CaseOptions& options,
                                      const std::string& command);

}  // namespace mytorch::tools
