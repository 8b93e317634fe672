#include "mytorch/distributed/functional.h"

#include "core/types/errors.h"
#include "distributed/group/collective.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/gather_into_tensor.h"
#include "mytorch/ops/recv.h"
#include "mytorch/ops/scatter_tensor.h"
#include "mytorch/ops/send.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::distributed {
namespace {

const Group& or_world(const Group& group, Group* all) {
  return group.defined() ? group : *all = world();
}

// Returns what stands for a tensor that this rank does not have: zeros in the memory of one
// element, which require a gradient, so that backward comes to the operator.
Tensor absent(IntList sizes, ScalarType dtype, const Group& group) {
  const NoGradGuard no_grad;
  const Tensor zeros = mytorch::zeros({}, dtype, group.device()).expand(sizes);
  return is_floating_point(dtype) || is_complex(dtype) ? zeros.requires_grad_() : zeros;
}

}  // namespace

Tensor gather(const Tensor& tensor, int dst, const Group& group) {
  return mytorch::gather_into_tensor(tensor, dst, group);
}

Tensor scatter(const Tensor& all, int src, const Group& group) {
  return mytorch::scatter_tensor(all, src, group);
}

Tensor scatter(IntList sizes, ScalarType dtype, int src, const Group& group) {
  Group all;
  const Group& used = or_world(group, &all);
  if (used.rank() == src) {
    fail(ErrorCode::kValue, "[scatter] rank ", src, " is the source: pass the tensor");
  }
  return mytorch::scatter_tensor(absent(sizes, dtype, used), src, used);
}

Tensor send(const Tensor& tensor, int to, const Group& group) {
  return mytorch::send(tensor, to, group);
}

Tensor recv(IntList sizes, ScalarType dtype, int from, const Group& group) {
  Group all;
  const Group& used = or_world(group, &all);
  return mytorch::recv(absent(sizes, dtype, used), from, used);
}

}  // namespace mytorch::distributed
