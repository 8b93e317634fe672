// Runs the tests, unless MYTORCH_CPU pins an instruction set that this processor or this build
// lacks: parameters of tests use the backend before the first test, where nothing catches its
// error.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "backends/cpu-openmp/simd/instruction_set.h"
#include "mytorch/backend/error.h"

int main(int argc, char** argv) {
  if (const char* pinned = std::getenv("MYTORCH_CPU"); pinned != nullptr) {
    try {
      mytorch::simd::pin_instruction_set(pinned);
    } catch (const mytorch::sdk::Error& error) {
      const bool skips = error.status() == MT_ERROR_UNSUPPORTED;
      std::printf("%s%s\n", skips ? "SKIPPED: " : "", error.what());
      return skips ? 77 : 1;  // 77: CTest takes the test for skipped
    }
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
