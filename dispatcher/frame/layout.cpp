#include "dispatcher/frame/layout.h"

#include <algorithm>

#include "core/types/checked.h"
#include "dispatcher/frame/kernel_call.h"

namespace mytorch {
namespace {

// Calls visit(dim) from the fastest dimension to the slowest, until it returns false.
template <class F>
bool all_from_fastest(int64_t ndim, F&& visit) {
  if (!visit(1)) return false;
  for (int64_t d = ndim - 1; d >= 2; --d) {
    if (!visit(d)) return false;
  }
  return visit(0);
}

}  // namespace

bool is_channels_last(IntList sizes, IntList strides) {
  const int64_t ndim = static_cast<int64_t>(sizes.size());
  if ((ndim != 4 && ndim != 5) || strides[1] == 0) return false;
  int64_t least = 0;
  return all_from_fastest(ndim, [&](int64_t d) {
    if (sizes[d] == 0 || strides[d] < least) return false;
    // If all sizes but the first are 1, the strides of both layouts are the same.
    if (d == 0 && least == strides[1]) return false;
    least = wrapping_mul(strides[d], std::max<int64_t>(sizes[d], 1));
    return true;
  });
}

Tensor make_output(const TensorSpec& spec, bool channels_last) {
  const int64_t ndim = static_cast<int64_t>(spec.sizes.size());
  if (!channels_last || (ndim != 4 && ndim != 5)) return make_output(spec);
  TensorSpec result = spec;
  result.strides.resize(ndim);
  int64_t step = 1;
  all_from_fastest(ndim, [&](int64_t d) {
    result.strides[d] = step;
    step = wrapping_mul(step, std::max<int64_t>(result.sizes[d], 1));
    return true;
  });
  return make_output(result);
}

}  // namespace mytorch
