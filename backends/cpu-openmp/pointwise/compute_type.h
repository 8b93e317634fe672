// The compute type of a dtype, and numbers of it.
#pragma once

#include "backends/cpu-openmp/pointwise/inner_loop.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {

inline constexpr mt_dtype kComputeDtype[kComputeTypes] = {
    sdk::dtype_of<float>, sdk::dtype_of<double>, sdk::dtype_of<int32_t>, sdk::dtype_of<int64_t>};

inline ComputeType compute_type_of(mt_dtype compute) {
  if (sdk::is_floating(compute)) return compute.bits == 64 ? kFloat64 : kFloat32;
  return compute.bits == 64 ? kInt64 : kInt32;
}

// Returns whether a computation in this dtype is staged in a wider type.
inline bool is_narrow(mt_dtype compute) { return compute.bits < 32; }

// Returns a "scalar" argument as the program reads it: converted to `compute`, then widened to the
// compute type. A number of a float16 computation keeps the precision of float32.
inline Number number_of(const void* args, const ScalarField& scalar, mt_dtype compute) {
  mt_node node{};
  node.field = scalar.field;
  node.offset = scalar.offset;
  Number number{};
  switch (compute_type_of(compute)) {
    case kFloat32:
      number.f32 = static_cast<float>(sdk::scalar_at<double>(args, node));
      break;
    case kFloat64:
      number.f64 = sdk::scalar_at<double>(args, node);
      break;
    case kInt32:
      number.i32 = sdk::visit_dtype(compute, [&](auto tag) -> int32_t {
        using T = typename decltype(tag)::type;
        const int64_t value = sdk::scalar_at<int64_t>(args, node);
        if constexpr (sdk::is_float_type<T>) {
          return 0;
        } else if constexpr (std::is_same_v<T, bool>) {
          return static_cast<int32_t>(value);  // bools compute as numbers
        } else {
          return static_cast<int32_t>(sdk::convert<T>(value));
        }
      });
      break;
    case kInt64:
      number.i64 = sdk::scalar_at<int64_t>(args, node);
      break;
  }
  return number;
}

}  // namespace mytorch::cpu
