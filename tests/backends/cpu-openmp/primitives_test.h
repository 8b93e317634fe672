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

inline std::vector<mt_dtype> dtypes_where(bool (*wanted)(mt_dtype)) {
  std::vector<mt_dtype> result;
  for (const mt_dtype dtype : kAllDtypes) {
    if (wanted(dtype)) result.push_back(dtype);
  }
  return result;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t below(int64_t n) {
    return n <= 0 ? 0 : static_cast<int64_t>(engine_() % static_cast<uint64_t>(n));
  }
  double number() { return std::uniform_real_distribution<double>(-2, 2)(engine_); }

  // Values that the dtype represents: small integers for integers, uniform numbers for floats.
  void fill(const TestTensor& tensor, bool special = false) {
    const sdk::TensorView v = tensor.view();
    sdk::visit_dtype(v.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for_each_element(v, [&](int64_t offset) {
        double value = sdk::is_floating(v.dtype()) ? number() : static_cast<double>(below(7)) - 2;
        if (special && sdk::is_floating(v.dtype())) {
          const int64_t which = below(12);
          if (which == 0) value = std::numeric_limits<double>::quiet_NaN();
          if (which == 1) value = std::numeric_limits<double>::infinity();
          if (which == 2) value = -std::numeric_limits<double>::infinity();
          if (which == 3) value = -0.0;
          if (which == 4) value = 0.0;
        }
        v.data<T>()[offset] = sdk::convert<T>(value);
      });
    });
  }

  template <class F>
  static void for_each_element(const sdk::TensorView& v, F&& f) {
    for (int64_t i = 0; i < v.numel(); ++i) {
      int64_t rest = i;
      int64_t offset = 0;
      for (int d = v.ndim() - 1; d >= 0; --d) {
        offset += rest % v.size(d) * v.stride(d);
        rest /= v.size(d);
      }
      f(offset);
    }
  }

  // Returns a tensor in one of several layouts: contiguous, dimensions reversed, with gaps,
  // backwards.
  TestTensor tensor(mt_dtype dtype, const Shape& shape) { return laid_out(dtype, shape, below(4)); }
  TestTensor laid_out(mt_dtype dtype, const Shape& shape, int64_t layout) {
    if (layout == 0 || shape.empty()) return TestTensor::empty(dtype, shape);
    if (layout == 1) {
      return TestTensor::empty(dtype, Shape(shape.rbegin(), shape.rend())).reversed();
    }
    Shape larger = shape;
    for (int64_t& size : larger) size = 2 * size + 1;
    const TestTensor whole = TestTensor::empty(dtype, larger);
    Shape strides(whole.view().strides().begin(), whole.view().strides().end());
    int64_t offset = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      strides[d] *= 2;
      if (layout == 3 && shape[d] > 0) {
        offset += (shape[d] - 1) * strides[d];
        strides[d] = -strides[d];
      }
    }
    return whole.as_strided(shape, strides, offset);
  }
  TestTensor filled(mt_dtype dtype, const Shape& shape, bool special = false) {
    const TestTensor result = tensor(dtype, shape);
    fill(result, special);
    return result;
  }

 private:
  std::mt19937_64 engine_;
};

inline const mt_kernel_entry& cpu_kernel(void (*family)(cpu::KernelEntries&), std::string_view op) {
  cpu::KernelEntries* const list = new cpu::KernelEntries;  // the result refers to it
  family(*list);
  for (const mt_kernel_entry& kernel : *list) {
    if (kernel.op == op) return kernel;
  }
  ADD_FAILURE() << "no kernel for " << op;
  std::abort();
}

template <class Args>
int run_cpu(void (*family)(cpu::KernelEntries&), std::string_view op, Args& args,
            TestContext& context) {
  args.header.size = sizeof(Args);
  const mt_kernel_entry& kernel = cpu_kernel(family, op);
  return kernel.run(kernel.self, context.get(), &args);
}

// Expects equal values, or values within `ulps` units in the last place of the dtype, at the
// magnitude of `scale` and the value.
inline void expect_near(const TestTensor& actual, const TestTensor& expected, double ulps,
                        double scale, const std::string& what) {
  const mt_dtype dtype = actual.dtype();
  const auto a = actual.values<double>();
  const auto b = expected.values<double>();
  ASSERT_EQ(a.size(), b.size()) << what;
  const double eps = sdk::same_dtype(dtype, sdk::dtype_of<float>)           ? 0x1p-23
                     : sdk::same_dtype(dtype, sdk::dtype_of<double>)        ? 0x1p-52
                     : sdk::same_dtype(dtype, sdk::dtype_of<sdk::Half>)     ? 0x1p-10
                     : sdk::same_dtype(dtype, sdk::dtype_of<sdk::BFloat16>) ? 0x1p-7
                                                                            : 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    // 16-bit results are computed in float32 and rounded once, whatever the number of terms.
    const double tolerance = dtype.bits == 16 && eps != 0
                                 ? eps * std::max(std::abs(b[i]), 0x1p-14) + ulps * scale * 0x1p-23
                                 : ulps * eps * std::max(scale, std::abs(b[i]));
    if (std::abs(a[i] - b[i]) <= tolerance) continue;
    FAIL() << what << " " << sdk::dtype_name(dtype) << " of shape "
           << sdk::shape_text(actual.view().shape()) << ", element " << i << ": " << a[i]
           << ", expected " << b[i];
  }
}

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
