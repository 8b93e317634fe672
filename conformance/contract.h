// What a backend promises beside its kernels (abi/include/mytorch/abi.h): its tables, and the
// functions of a device that it brings.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mytorch::conformance {

struct ContractTest {
  std::string name;
  std::string promise;                               // in words
  std::function<void(const std::string& path)> run;  // throws Broken, or Skipped
};

// All of them; each is to run in a process of its own, which has loaded nothing.
const std::vector<ContractTest>& contract_tests();

struct ContractResult {
  std::string name;
  std::string promise;
  std::string what;     // "" where it is kept
  std::string skipped;  // why it was not asked, else ""
  bool passed() const { return what.empty(); }
};

// Runs those of these names, or all, in children; one that takes longer than `seconds` fails.
// Throws Error(kValue) for an unknown name.
std::vector<ContractResult> check_contract(const std::string& path,
                                           const std::vector<std::string>& only, double seconds);

}  // namespace mytorch::conformance
