// New tensors: empty, filled, ranges.
#include "ops/creation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/runtime/deferred_memory.h"
#include "core/runtime/device_registry.h"
#include "core/types/holds.h"
#include "core/types/strides.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/empty_strided.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/where.h"
#include "mytorch/thread_state.h"

namespace mytorch {
namespace {

int slot_of(Device device) { return device.is_cpu() ? kCpuSlot : checked_device_slot(device); }

// Returns the type of a range without a given dtype.
ScalarType type_of_numbers(std::initializer_list<Scalar> numbers) {
  for (const Scalar& number : numbers) {
    if (number.is_float()) return kFloat32;
  }
  return kInt64;
}

// Returns the number of values start + i * step before `end`, or -1 if it exceeds int64.
int64_t count_integers(int64_t start, int64_t end, int64_t step) {
  const Wide n = (Wide{end} - start + step - (step > 0 ? 1 : -1)) / step;
  return n > std::numeric_limits<int64_t>::max() ? -1 : static_cast<int64_t>(n);
}

int64_t count_reals(double start, double end, double step) {
  const double n = std::ceil((end - start) / step);
  return n >= 9.2e18 ? -1 : static_cast<int64_t>(n);
}

template <class T>
void check_range(T start, T end, T step) {
  check_value(step != 0, "arange", "step is 0: give another");
  check_value(step > 0 ? end >= start : end <= start, "arange", "a step of ", step,
              " never leads from ", start, " to ", end, ": change its sign, or swap the ends");
}

// Throws Error(kValue) unless a type of integers has the first and the last value of a range.
void check_values(ScalarType type, const Scalar& first, const Scalar& last, const char* op) {
  for (const Scalar& value : {first, last}) {
    check_value(holds(type, value), op, number_text(value), " is not a value of ", dtype_name(type),
                ": give one that is, or choose another dtype");
  }
}

}  // namespace

Dims packed_like(IntList sizes, IntList strides) {
  // A broadcast dimension leaves the order open.
  return packed_strides(sizes, [&](int64_t a, int64_t b) {
    if (strides[a] == 0 || strides[b] == 0) return 0;
    if (strides[a] != strides[b]) return strides[a] > strides[b] ? 1 : -1;
    return sizes[a] > sizes[b] ? 1 : 0;
  });
}

Tensor new_like(const Tensor& self, ScalarType dtype, Device device) {
  const IntList sizes = self.sizes();
  if (self.is_contiguous()) {
    return Tensor::adopt(
        new_tensor(sizes.data(), static_cast<int>(sizes.size()), dtype, device, slot_of(device)));
  }
  const Dims packed = packed_like(sizes, self.strides());
  return Tensor::adopt(new_tensor_strided(sizes, as_list(packed), dtype, device));
}

TensorSpec spec_like(const Tensor& self) {
  TensorSpec spec = like(self);
  if (!self.is_contiguous()) spec.strides = packed_like(self.sizes(), self.strides());
  return spec;
}

Tensor scalar_tensor(const Scalar& value, std::optional<ScalarType> dtype, Device device) {
  return full(IntList(), value, dtype.value_or(kFloat32), device);
}

Tensor empty_for_values(IntList sizes, ScalarType dtype) {
  const LayerMask unrecorded(kLayerCapture);
  return mytorch::empty(sizes, dtype, kCPU);
}

namespace shape {

TensorSpec arange(const Scalar& start, const Scalar& end, const Scalar& step,
                  std::optional<ScalarType> dtype, std::optional<Device> device) {
  const ScalarType type = dtype.value_or(type_of_numbers({start, end, step}));
  check_type(type != kBool, "arange", "there are no ranges of bools");
  for (const Scalar& number : {start, end, step}) {
    check_value(std::isfinite(number.to_double()), "arange",
                "start, end and step must be finite, not ", number.to_double());
  }
  int64_t n = 0;
  if (is_integral(type)) {  // as in ATen, fractions are dropped first
    check_range(start.to_int(), end.to_int(), step.to_int());
    n = count_integers(start.to_int(), end.to_int(), step.to_int());
    if (n > 0) {
      const Wide last = Wide{start.to_int()} + Wide{n - 1} * step.to_int();
      check_values(type, start.to_int(), static_cast<int64_t>(last), "arange");
    }
  } else {
    check_range(start.to_double(), end.to_double(), step.to_double());
    n = count_reals(start.to_double(), end.to_double(), step.to_double());
  }
  check_shape(n >= 0, "arange", "the range has more values than any memory");
  return {{n}, type, device.value_or(default_device()), {}};
}

}  // namespace shape

namespace composite {

Tensor empty(IntList size, std::optional<ScalarType> dtype, std::optional<Device> device) {
  const Device place = device.value_or(default_device());
  return Tensor::adopt(new_tensor(size.data(), static_cast<int>(size.size()),
                                  dtype.value_or(kFloat32), place, slot_of(place)));
}

Tensor empty_strided(IntList size, IntList stride, std::optional<ScalarType> dtype,
                     std::optional<Device> device) {
  check_shape(size.size() == stride.size(), "empty_strided", "size ", size, " and stride ", stride,
              " differ in length");
  const Dims packed = packed_like(size, stride);
  for (size_t i = 0; i < size.size(); ++i) {
    check_shape(count(size) == 0 || size[i] <= 1 || packed[i] == stride[i], "empty_strided",
                "strides ", stride, " of size ", size,
                " leave gaps or overlap: make a packed tensor and view it");
  }
  return Tensor::adopt(new_tensor_strided(size, stride, dtype.value_or(kFloat32),
                                          device.value_or(default_device())));
}

Tensor empty_permuted(IntList size, IntList physical_layout, std::optional<ScalarType> dtype,
                      std::optional<Device> device) {
  const char* op = "empty_permuted";
  const int64_t ndim = static_cast<int64_t>(size.size());
  check_shape(physical_layout.size() == size.size(), op, "size ", size, " and physical_layout ",
              physical_layout, " differ in length");
  Dims strides(ndim, -1);
  Wide stride = 1;
  for (int64_t i = ndim; i-- > 0;) {
    const int64_t dim = physical_layout[i];
    check_shape(dim >= 0 && dim < ndim && strides[dim] < 0, op, "physical_layout ", physical_layout,
                " is no permutation of the dimensions 0 to ", ndim - 1);
    check_shape(size[dim] >= 0, op, "size ", size, " has a negative element");
    strides[dim] = checked(stride, op, "the number of elements");
    stride *= std::max<int64_t>(size[dim], 1);
    checked(stride, op, "the number of elements");
  }
  return mytorch::empty_strided(size, as_list(strides), dtype, device);
}

Tensor empty_like(const Tensor& self, std::optional<ScalarType> dtype,
                  std::optional<Device> device) {
  return new_like(self, dtype.value_or(self.dtype()), device.value_or(self.device()));
}

Tensor full(IntList size, const Scalar& fill_value, std::optional<ScalarType> dtype,
            std::optional<Device> device) {
  return fill_(mytorch::empty(size, dtype.value_or(fill_value.type()), device), fill_value);
}

Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps,
                std::optional<ScalarType> dtype, std::optional<Device> device) {
  const ScalarType type = dtype.value_or(kFloat32);
  check_type(type != kBool, "linspace", "there are no ranges of bools");
  check_value(steps >= 0, "linspace", steps, " steps: give at least 0");
  if (steps <= 1) return mytorch::full({steps}, start, type, device);
  check_values(type, start, end, "linspace");
  const double first = start.to_double();
  const double last = end.to_double();
  const double step = (last - first) / static_cast<double>(steps - 1);
  // float32 holds every index up to 2^24.
  const bool wide = type == kFloat64 || is_integral(type) || steps > (int64_t{1} << 24);
  const Tensor i = mytorch::arange(0, steps, 1, wide ? kFloat64 : kFloat32, device);
  // From the nearer end, so that both ends are exact.
  const Tensor low = i * step + first;
  const Tensor high = (i - static_cast<double>(steps - 1)) * step + last;
  return to(where(i < steps / 2, low, high), type);
}

Tensor eye_m(int64_t n, int64_t m, std::optional<ScalarType> dtype, std::optional<Device> device) {
  check_shape(n >= 0 && m >= 0, "eye", n, " rows and ", m, " columns: give at least 0 of each");
  const Tensor row = mytorch::reshape(mytorch::arange(n, kInt64, device), {n, 1});
  return to(row.eq(mytorch::arange(m, kInt64, device)), dtype.value_or(kFloat32));
}

}  // namespace composite
}  // namespace mytorch
