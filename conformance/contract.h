// Tests of a backend's promises other than its kernels (abi/include/mytorch/abi.h): its tables, and
// the functions of its device.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mytorch::conformance {

struct ContractTest {
  std::string name;
  std::string promise;                               // the tested rule, in words
  std::function<void(const std::string& path)> run;  // throws Broken, or Skipped
};

// Returns all tests. Each runs in a separate process that has not loaded a backend.
const std::vector<ContractTest>& contract_tests();

struct ContractResult {
  std::string name;
  std::string promise;
  std::string what;     // the violation, or ""
  std::string skipped;  // the reason for not running the test, or ""
  bool passed() const { return what.empty(); }
};

// Runs the named tests, or all if `only` is empty, each in a child process. A test that takes
// longer than `seconds` fails. Throws Error(kValue) for an unknown name.
std::vector<ContractResult> check_contract(const std::string& path,
                                           const std::vector<std::string>& only, double seconds);

}  // namespace mytorch::conformance
