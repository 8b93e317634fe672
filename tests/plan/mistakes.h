// What tests of mistakes share: the errors that they expect, and files.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>

#include "mytorch/error.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::plan {

inline void expect_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "no error with \"" << part << "\"";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// A file that is gone with the test.
struct File {
  testing::TempDirectory directory;
  std::string path = directory.file("measured.json");
  explicit File(const std::string& text) { std::ofstream(path) << text; }
};

}  // namespace mytorch::plan
