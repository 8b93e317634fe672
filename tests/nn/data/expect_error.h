// Expectations about mytorch::Error.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "mytorch/error.h"

namespace mytorch::testing {

// Expects `call` to throw an Error with this code and a message that contains all of `parts`.
template <class F>
void expect_error(ErrorCode code, std::initializer_list<std::string> parts, F call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "no '" << part << "' in: " << error.what();
    }
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

}  // namespace mytorch::testing
