// Which calls a command is about: an operator with its arguments, or a suite of bench/suites.yaml.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bench/harness/cases.h"

namespace mytorch::tools {

struct CaseOptions {
  std::string op;
  std::string suite;
  std::vector<std::string> only;  // cases of the suite
  std::string shapes;
  std::vector<std::string> set;
  std::string form;
  std::vector<std::string> dtypes;
};

void add_case_options(CLI::App& app, CaseOptions& options);
// Throws Error(kValue) that begins with [`command`].
std::vector<bench::Case> select_cases(const std::vector<bench::OpRecord>& catalog,
                                      const std::string& share, const CaseOptions& options,
                                      const std::string& command);

}  // namespace mytorch::tools
