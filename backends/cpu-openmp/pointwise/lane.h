// Which lane type a dtype is computed in, and numbers in it.
#pragma once

#include "backends/cpu-openmp/pointwise/span.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {

inline constexpr mt_dtype kLaneDtype[kLanes] = {sdk::dtype_of<float>, sdk::dtype_of<double>,
                                                sdk::dtype_of<int32_t>, sdk::dtype_of<int64_t>};

inline Lane lane_of(mt_dtype compute) {
  if (sdk::is_floating(compute)) return compute.bits == 64 ? kFloat64 : kFloat32;
  return compute.bits == 64 ? kInt64 : kInt32;
}

// Whether the computation in this type is staged in a wider one.
inline bool is_narrow(mt_dtype compute) { return compute.bits < 32; }

// A "scalar" argument as the program sees it: in the computation type, then widened to its lane. A
// float16's number keeps the precision of float32.
inline Number number_of(const void* args, const ScalarSlot& slot, mt_dtype compute) {
  mt_node node{};
  node.field = slot.field;
  node.offset = slot.offset;
  Number number{};
  switch (lane_of(compute)) {
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
