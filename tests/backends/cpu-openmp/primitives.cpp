#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/backends/cpu-openmp/cpu_backend.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {

template std::vector<double> TestTensor::values<double>() const;
template std::vector<float> TestTensor::values<float>() const;
template std::vector<int64_t> TestTensor::values<int64_t>() const;

TestTensor tensor_of(mt_dtype dtype, Shape shape, const std::vector<double>& values) {
  return sdk::visit_dtype(dtype, [&](auto tag) {
    return TestTensor::of<typename decltype(tag)::type, double>(std::move(shape), values);
  });
}

std::vector<double> small_values(int64_t n, mt_dtype dtype, int seed) {
  std::vector<double> values(static_cast<size_t>(n));
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 12345u;
  for (double& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<double>(state >> 24) / 8 - 16;
    if (!sdk::is_floating(dtype)) value = static_cast<double>(static_cast<int>(value));
    if (dtype.code == MT_UINT || dtype.code == MT_BOOL) value = value < 0 ? -value : value;
    if (dtype.code == MT_BOOL) value = static_cast<int>(value) % 2;
  }
  return values;
}

std::vector<mt_dtype> dtypes_where(bool (*wanted)(mt_dtype)) {
  std::vector<mt_dtype> result;
  for (const mt_dtype dtype : kAllDtypes) {
    if (wanted(dtype)) result.push_back(dtype);
  }
  return result;
}

void Random::fill(const TestTensor& tensor, bool special) {
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

TestTensor Random::laid_out(mt_dtype dtype, const Shape& shape, int64_t layout) {
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

const mt_kernel_entry& cpu_kernel(void (*family)(cpu::KernelEntries&), std::string_view op) {
  cpu::KernelEntries* const list = new cpu::KernelEntries;  // the result refers to it
  family(*list);
  for (const mt_kernel_entry& kernel : *list) {
    if (kernel.op == op) return kernel;
  }
  ADD_FAILURE() << "no kernel for " << op;
  std::abort();
}

void expect_near(const TestTensor& actual, const TestTensor& expected, double ulps, double scale,
                 const std::string& what) {
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

}  // namespace mytorch::testing
