// Operators on the gradients of all parameters: their norm, and clipping by it.
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/to.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

void check_all_floating(TensorList tensors, const char* name, const char* op) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    check_type(tensors[i].is_floating_point(), op, name, "[", i, "] is ", tensors[i].dtype(),
               ": gradients are floats");
  }
}

// The type of norms: float64 if a tensor is, else float32, in which squares of 16-bit floats do not
// overflow.
ScalarType norm_type_of(TensorList tensors) {
  for (const Tensor& each : tensors) {
    if (each.dtype() == kFloat64) return kFloat64;
  }
  return kFloat32;
}

}  // namespace

namespace shape {

TensorSpec get_total_norm(TensorList tensors, double /*norm_type*/) {
  const char* op = "get_total_norm";
  check_value(tensors.size() != 0, op, "the list is empty: give at least one tensor");
  check_all_floating(tensors, "tensors", op);
  return like(tensors[0], {}, norm_type_of(tensors));
}

void clip_grads_with_norm_(TensorList self, const Tensor& total_norm, double max_norm) {
  const char* op = "clip_grads_with_norm_";
  check_all_floating(self, "self", op);
  check_shape(total_norm.dim() == 0, op, "total_norm has shape ", total_norm.sizes(),
              ": it must be 0-dim");
  check_value(max_norm >= 0, op, "max_norm is ", max_norm, ": give 0 or more");
}

}  // namespace shape

namespace composite {

Tensor get_total_norm(TensorList tensors, double norm_type) {
  const ScalarType type = norm_type_of(tensors);
  const Device device = tensors[0].device();
  std::vector<Tensor> norms;
  norms.reserve(tensors.size());
  for (const Tensor& each : tensors) {
    if (each.numel() == 0) continue;
    norms.push_back(mytorch::to(
        mytorch::linalg_vector_norm(each, norm_type, OptionalIntList(), false, type), device));
  }
  if (norms.empty()) {  // the sum of no elements, which keeps the history
    return mytorch::linalg_vector_norm(tensors[0], 1, OptionalIntList(), false, type);
  }
  if (norms.size() == 1) return norms[0];
  return mytorch::linalg_vector_norm(mytorch::stack(norms), norm_type);
}

// PyTorch adds 1e-6 so that a norm of 0 does not cause a division by 0.
void clip_grads_with_norm_(TensorList self, const Tensor& total_norm, double max_norm) {
  if (total_norm.device().is_cpu()) {
    const double factor = max_norm / (total_norm.item<double>() + 1e-6);
    if (factor >= 1) return;
    for (const Tensor& each : self) each.mul_(factor);
    return;
  }
  const Tensor norm = mytorch::to(total_norm, kFloat64);  // as on the CPU
  const Tensor factor = mytorch::clamp(max_norm / (norm + 1e-6), {}, 1.0);
  for (const Tensor& each : self) each.mul_(mytorch::to(factor, each.device()));
}

}  // namespace composite
}  // namespace mytorch
