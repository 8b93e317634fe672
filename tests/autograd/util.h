// Helpers of the autograd tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mytorch/error.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view.h"
#include "mytorch/tensor.h"

namespace mytorch {

inline std::vector<double> values(const Tensor& t) {
  NoGradGuard no_grad;
  const Tensor host = mytorch::clone(mytorch::reshape(mytorch::to(t, kFloat64).to(kCPU), -1));
  const double* data = host.const_data<double>();
  return {data, data + host.numel()};
}
using Values = std::vector<double>;

inline Tensor plain(const std::vector<double>& list) { return tensor(list, kFloat64); }
inline Tensor leaf(const std::vector<double>& list) { return plain(list).requires_grad_(); }
// Returns 0, 1, 2, ... in the given shape.
inline Tensor counting(IntList sizes) {
  return mytorch::clone(mytorch::view(mytorch::arange(count(sizes), kFloat64), sizes));
}

// Returns the message of the Error that `f` throws, or "" if it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
#define EXPECT_ERROR(statement, part)                                               \
  do {                                                                              \
    const std::string message_ = ::mytorch::error_of([&] { statement; });           \
    EXPECT_NE(message_.find(part), std::string::npos)                               \
        << "expected an error with \"" << part << "\", got \"" << message_ << "\""; \
  } while (false)

}  // namespace mytorch
