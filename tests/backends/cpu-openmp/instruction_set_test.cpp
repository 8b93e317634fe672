// The instruction set is the best one, or the one that MYTORCH_CPU pins. tests/CMakeLists.txt runs
// all of the backend's tests with each one pinned.
#include "backends/cpu-openmp/simd/instruction_set.h"

#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "mytorch/backend/error.h"
#include "tests/backends/cpu-openmp/cpu_backend.h"

namespace mytorch::testing {
namespace {

std::string description() { return cpu().describe(cpu().self); }

TEST(InstructionSet, TheDescriptionNamesIt) {
  EXPECT_EQ(description().find(std::string("vector code for ") + simd::instruction_set()), 0u)
      << description();
}

TEST(InstructionSet, TheEnvironmentPinsIt) {
  const char* pinned = std::getenv("MYTORCH_CPU");
  if (pinned == nullptr) {
    EXPECT_EQ(description().find("pinned"), std::string::npos) << description();
    return;
  }
  const std::map<std::string, std::set<std::string>> names = {
      {"avx3", {"AVX3"}}, {"avx2", {"AVX2"}}, {"plain", {"SCALAR", "EMU128"}}};
  EXPECT_TRUE(names.at(pinned).contains(simd::instruction_set())) << simd::instruction_set();
  EXPECT_NE(description().find("pinned by MYTORCH_CPU"), std::string::npos) << description();
}

TEST(InstructionSet, AnUnknownNameIsRefused) {
  EXPECT_THROW(simd::pin_instruction_set("avx9"), sdk::Error);
  EXPECT_THROW(simd::pin_instruction_set(""), sdk::Error);
}

}  // namespace
}  // namespace mytorch::testing
