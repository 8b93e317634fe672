// Sequences, and positions of triangles.
#include "core/runtime/deferred_memory.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/linspace.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/pow.h"
#include "ops/check.h"

namespace mytorch::composite {
namespace {

// Returns the positions of the elements of a (row, col) matrix that `part`, tril or triu, keeps.
template <class Part>
Tensor indices_of(int64_t row, int64_t col, std::optional<ScalarType> dtype,
                  std::optional<Device> device, const char* op, const Part& part) {
  check_value(row >= 0 && col >= 0, op, "row ", row, " or column ", col, " is negative");
  const Device where = device.value_or(default_device());
  const Tensor kept = part(mytorch::ones({row, col}, kBool, where)).nonzero();
  return kept.transpose(0, 1).contiguous().to(dtype.value_or(kInt64));
}

}  // namespace

Tensor tril_indices(int64_t row, int64_t col, int64_t offset, std::optional<ScalarType> dtype,
                    std::optional<Device> device) {
  return indices_of(row, col, dtype, device, "tril_indices",
                    [&](const Tensor& x) { return x.tril(offset); });
}

Tensor triu_indices(int64_t row, int64_t col, int64_t offset, std::optional<ScalarType> dtype,
                    std::optional<Device> device) {
  return indices_of(row, col, dtype, device, "triu_indices",
                    [&](const Tensor& x) { return x.triu(offset); });
}

Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base,
                std::optional<ScalarType> dtype, std::optional<Device> device) {
  const ScalarType type = dtype.value_or(kFloat32);
  const Tensor exponents = mytorch::linspace(start, end, steps, kFloat64, device);
  return mytorch::pow(base, exponents).to(type);
}

}  // namespace mytorch::composite
