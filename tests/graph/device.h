// Operands of the tests of compiled functions, and the device on which these run:
// MYTORCH_TEST_DEVICE, or the CPU.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "mytorch/device.h"
#include "mytorch/generator.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/to.h"
#include "mytorch/tensor.h"

namespace mytorch {

inline Device test_device() {
  const char* name = std::getenv("MYTORCH_TEST_DEVICE");
  return Device(name != nullptr ? name : "cpu");
}

// Returns normally distributed numbers that depend on the seed, on that device.
inline Tensor drawn(IntList sizes, uint64_t seed, ScalarType dtype = kFloat32) {
  return randn(sizes, kFloat32, {}, Generator(seed)).to(dtype).to(test_device());
}
// The same on the CPU.
inline Tensor drawn_on_cpu(IntList sizes, uint64_t seed) {
  return randn(sizes, kFloat32, {}, Generator(seed));
}

// Returns the values of images (n, channels, height, width) with the channels last in memory.
inline Tensor channels_last(const Tensor& x) {
  return x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
}

}  // namespace mytorch
