// Compares the kernels of cpu-openmp with those of the reference, on random operands of any dtype
// and strides.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "tests/backends/cpu-openmp/cpu_backend.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {

std::vector<mt_dtype> dtypes_where(bool (*wanted)(mt_dtype));

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t below(int64_t n) {
    return n <= 0 ? 0 : static_cast<int64_t>(engine_() % static_cast<uint64_t>(n));
  }
  double number() { return std::uniform_real_distribution<double>(-2, 2)(engine_); }

  // Values that the dtype represents: small integers for integers, uniform numbers for floats.
  void fill(const TestTensor& tensor, bool special = false);

  template <class F>
  static void for_each_element(const sdk::TensorView& v, F&& f) {
    for (int64_t i = 0; i < v.numel(); ++i) f(offset_of(v, i));
  }

  // Returns a tensor in one of several layouts: contiguous, dimensions reversed, with gaps,
  // backwards.
  TestTensor tensor(mt_dtype dtype, const Shape& shape) { return laid_out(dtype, shape, below(4)); }
  TestTensor laid_out(mt_dtype dtype, const Shape& shape, int64_t layout);
  TestTensor filled(mt_dtype dtype, const Shape& shape, bool special = false) {
    const TestTensor result = tensor(dtype, shape);
    fill(result, special);
    return result;
  }

 private:
  std::mt19937_64 engine_;
};

const mt_kernel_entry& cpu_kernel(void (*family)(cpu::KernelEntries&), std::string_view op);

template <class Args>
int run_cpu(void (*family)(cpu::KernelEntries&), std::string_view op, Args& args,
            TestContext& context) {
  args.header.size = sizeof(Args);
  const mt_kernel_entry& kernel = cpu_kernel(family, op);
  return kernel.run(kernel.self, context.get(), &args);
}

// Expects equal values, or values within `ulps` units in the last place of the dtype, at the
// magnitude of `scale` and the value.
void expect_near(const TestTensor& actual, const TestTensor& expected, double ulps, double scale,
                 const std::string& what);

using Family = void (*)(cpu::KernelEntries&);

// Runs an operator, whose output is the given field of its arguments, on the reference and on the
// family's kernel. Expects equal values, or values within `ulps`, as expect_near().
template <class Args>
void expect_same(Family family, std::string_view op, Args& args, const mt_tensor* Args::*field,
                 mt_dtype dtype, const Shape& shape, Random& random, double ulps = 0,
                 double scale = 1) {
  const TestTensor expected = TestTensor::empty(dtype, shape);
  const TestTensor actual = random.tensor(dtype, shape);
  args.*field = expected;
  ASSERT_EQ(run_op(op, args, dtype), "");
  args.*field = actual;
  TestContext context(3);
  ASSERT_EQ(run_cpu(family, op, args, context), MT_OK) << context.error;
  expect_near(actual, expected, ulps, scale, std::string(op));
}

}  // namespace mytorch::testing
