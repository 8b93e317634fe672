#include "conformance/contract.h"

#include <algorithm>

#include "conformance/isolate.h"
#include "conformance/plugin.h"
#include "mytorch/error.h"

namespace mytorch::conformance {

const std::vector<ContractTest>& contract_tests() {
  static const std::vector<ContractTest>* const all = [] {
    auto* tests = new std::vector<ContractTest>;
    add_library_tests(*tests);
    add_memory_tests(*tests);
    add_stream_tests(*tests);
    add_region_tests(*tests);
    return tests;
  }();
  return *all;
}

std::vector<ContractResult> check_contract(const std::string& path,
                                           const std::vector<std::string>& only, double seconds) {
  for (const std::string& name : only) {
    std::string known;
    for (const ContractTest& test : contract_tests()) known += " " + test.name;
    if ((known + " ").find(" " + name + " ") == std::string::npos) {
      throw Error(ErrorCode::kValue,
                  "[check] unknown contract test '" + name + "'; the tests are" + known);
    }
  }
  std::vector<ContractResult> results;
  for (const ContractTest& test : contract_tests()) {
    if (!only.empty() && std::find(only.begin(), only.end(), test.name) == only.end()) continue;
    ContractResult result{test.name, test.promise, "", ""};
    bool told = false;
    const auto work = [&](const Tell& tell) {
      try {
        test.run(path);
        tell("kept");
      } catch (const Skipped& skipped) {
        tell("skipped " + skipped.why);
      } catch (const std::exception& error) {
        std::string text = error.what();
        for (char& c : text) c = c == '\n' ? ' ' : c;
        tell("broken " + text);
      }
    };
    const Ended ended = run_in_child(
        work,
        [&](const std::string& line) {
          told = true;
          if (line.starts_with("broken ")) result.what = line.substr(7);
          if (line.starts_with("skipped ")) result.skipped = line.substr(8);
        },
        seconds);
    if (result.what.empty() && (!ended.well || !told)) result.what = "the process " + ended.how;
    results.push_back(result);
  }
  return results;
}

}  // namespace mytorch::conformance
