#include "dispatcher/frame/reduce.h"

#include <cstring>

#include "core/types/errors.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/frame/promotion.h"

namespace mytorch {
namespace {

// Returns whether the fold of a variant is undefined for zero elements.
bool needs_elements(const OpInfo& op, uint16_t variant) {
  const char* fold = op.programs[variant]->fold;
  for (const char* name : {"max", "min", "argmax", "argmin"}) {
    if (std::strcmp(fold, name) == 0) return true;
  }
  return false;
}

}  // namespace

ReduceSpec reduce_spec(const OpInfo& op, uint16_t variant, const Tensor& self,
                       const ReduceDims& dims, std::optional<ScalarType> dtype) {
  required(self, op, "self");
  const TensorImpl& impl = *self.impl();
  const int64_t ndim = impl.abi.dl.ndim;
  ReduceSpec spec;
  spec.compute = dtype.value_or(impl.dtype);
  if (is_complex(impl.dtype) && !is_complex(spec.compute)) {
    fail(ErrorCode::kType, "[", op.base, "] dtype=", dtype_name(spec.compute),
         " would drop the imaginary parts of ", dtype_name(impl.dtype), ": take real(x) first");
  }
  if (op.accepts != nullptr && (op.accepts[0] >> static_cast<int>(spec.compute) & 1) == 0) {
    if (is_complex(spec.compute)) refuse_complex(op, op.args[0].name, spec.compute);
    fail(ErrorCode::kType, "[", op.base, "] has no result in ", dtype_name(spec.compute),
         ": convert with to(), or give a floating dtype where it has that argument");
  }
  switch (op.promote) {
    case Promote::kWiden:
      if (!dtype.has_value() && is_integral(spec.compute, true)) spec.compute = kInt64;
      break;
    case Promote::kFloat:
      if (is_integral(spec.compute, true)) spec.compute = kFloat32;
      break;
    default:
      break;
  }
  spec.result = op.promote == Promote::kCompare ? kBool : spec.compute;

  // An empty list means all dimensions, as in ATen.
  uint64_t reduced = 0;
  const bool all = !dims.dims.has_value() || dims.dims->empty();
  if (ndim > 64) fail(ErrorCode::kShape, "[", op.base, "] more than 64 dimensions");
  if (all) {
    reduced = ~uint64_t{0};
  } else {
    for (int64_t dim : *dims.dims) {
      const uint64_t bit = uint64_t{1} << wrap_dim(dim, ndim, op.base);
      if ((reduced & bit) != 0) {
        fail(ErrorCode::kShape, "[", op.base, "] dim ", dim, " occurs twice in ",
             shape_str(*dims.dims));
      }
      reduced |= bit;
    }
  }
  int64_t count = 1;
  bool empty_result = false;
  for (int64_t i = 0; i < ndim; ++i) {
    const int64_t size = impl.abi.dl.shape[i];
    if ((reduced >> i & 1) != 0) {
      count *= size;
      if (dims.keepdim) spec.sizes.push_back(1);
    } else {
      empty_result |= size == 0;
      spec.sizes.push_back(size);
    }
  }
  if (count == 0 && !empty_result && needs_elements(op, variant)) {
    fail(ErrorCode::kShape, "[", op.base, "] a tensor of shape ", shape_str(impl.sizes()),
         " has no elements to reduce, and ", op.base, " of nothing is not defined");
  }
  return spec;
}

void reduce_outputs(const OpInfo& op, const Tensor& self, const ReduceDims& dims,
                    std::optional<ScalarType> dtype, mt_args_header* header, TensorImpl** outputs) {
  const ReduceSpec spec = reduce_spec(op, header->variant, self, dims, dtype);
  header->compute = to_abi(spec.compute);
  for (int i = 0; i < op.num_outputs; ++i) {
    outputs[i] = new_tensor(spec.sizes.data(), static_cast<int>(spec.sizes.size()),
                            spec.type_of(op.outputs[i]), self.device(), self.impl()->device_slot);
  }
}

}  // namespace mytorch
