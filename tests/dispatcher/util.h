// Helpers of the dispatcher's tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/table/fields.h"
#include "mytorch/tensor.h"
#include "tests/dispatcher/fake_device.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::testing {

using Values = std::vector<double>;

// A device that has memory but no kernels.
inline FakeDevice& bare() {
  static FakeDevice& device =
      FakeDevice::create({"bare", 1, [](const std::string&) { return false; },
                          [](const mt_program&) { return false; }});
  return device;
}

// A device with all kernels of the reference backend.
inline FakeDevice& full() {
  static FakeDevice& device = FakeDevice::create({"full", 2, nullptr, nullptr});
  return device;
}

// Returns how many calls of an operator took a slow path.
inline SlowPaths slow_paths_of(const std::string& op) {
  for (const SlowPaths& paths : slow_paths()) {
    if (paths.op == op) return paths;
  }
  return {op, 0, 0, 0};
}

// Returns the elements of a contiguous float32 operand.
inline float* floats(const mt_tensor* t) { return static_cast<float*>(t->dl.data); }
inline int64_t numel(const mt_tensor* t) {
  return count({t->dl.shape, static_cast<size_t>(t->dl.ndim)});
}

// The flags of a kernel that takes operands of any kind.
constexpr uint32_t kTakesAll =
    MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;

// A kernel function for a binary operator on contiguous float32 operands: fills the output.
inline int fill_out(const mt_tensor* out, float value) {
  std::fill_n(floats(out), numel(out), value);
  return MT_OK;
}

}  // namespace mytorch::testing
