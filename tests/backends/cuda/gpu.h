// A fixture for tests that need a GPU. Skips them if there is none.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace mytorch::testing {

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "there is no GPU here";
    }
  }
};

}  // namespace mytorch::testing
