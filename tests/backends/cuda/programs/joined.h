// Joins many generated kernels into one text: starting NVRTC takes longer than compiling most
// kernels.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "backends/cuda/programs/compiler.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {

class Joined {
 public:
  explicit Joined(std::string text) : text_(std::move(text)) {}

  void add(const std::string& kernel) {
    const std::string number = std::to_string(count_++);
    text_ += "\n#undef kernel\n#define kernel kernel_" + number + "\nnamespace n" + number +
             " {\n" + kernel + "}\n";
  }
  int count() const { return count_; }

  void compile() const {
    ASSERT_GT(count_, 0);
    try {
      EXPECT_GT(cuda::compile(text_, 90).size(), 1000u);
    } catch (const sdk::Error& error) {
      FAIL() << error.what();
    }
  }

 private:
  std::string text_;
  int count_ = 0;
};

}  // namespace mytorch::cuda
