#include "distributed/group/operands.h"

#include <algorithm>
#include <cstring>

#include "core/tensor/batched.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/to.h"

namespace mytorch::distributed {
namespace {

mt_reduction abi_of(const Reduction& reduction) {
  mt_reduction abi{};
  abi.size = sizeof(abi);
  abi.op = static_cast<int32_t>(reduction.op);
  abi.scale = reduction.scale;
  return abi;
}

mt_dtype abi_dtype(const Tensor& tensor) { return tensor.impl()->abi.dl.dtype; }
void* memory_of(const Tensor& tensor) { return tensor.impl()->abi.dl.data; }

template <class F>
F function_of(F function, const GroupState& state, const char* op) {
  if (function == nullptr) {
    fail(ErrorCode::kUnsupported, "[", op, "] the engine ", state.engine->name, " has no ", op,
         ": choose another one");
  }
  return function;
}

}  // namespace

ReduceOp reduce_op_from_name(std::string_view name, const char* op) {
  if (name == "sum") return ReduceOp::kSum;
  if (name == "product") return ReduceOp::kProduct;
  if (name == "min") return ReduceOp::kMin;
  if (name == "max") return ReduceOp::kMax;
  if (name == "avg") return ReduceOp::kAverage;
  fail(ErrorCode::kValue, "[", op, "] there is no reduction \"", name,
       "\": they are \"sum\", \"product\", \"min\", \"max\" and \"avg\"");
}

void check_operand(const Tensor& tensor, const GroupState& state, const char* name,
                   const char* op) {
  if (!tensor.defined()) fail(ErrorCode::kValue, "[", op, "] ", name, " is undefined");
  check_not_batched(tensor, op);
  if (state.size > 1 && tensor.device() != state.device) {
    fail(ErrorCode::kDevice, "[", op, "] ", name, " is on ", tensor.device().str(),
         ", and the group ", state.name, " on ", state.device.str(),
         ": move the tensor, or initialize a group for its device");
  }
}

bool is_elsewhere(const GroupState& state, std::initializer_list<Tensor> tensors) {
  return state.size == 1 && std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
           return tensor.device() != state.device;
         });
}

Work copy_alone(const Tensor& out, const Tensor& in, double scale) {
  const NoGradGuard no_grad;
  const Tensor to = out.detach();
  if (!out.is_same(in)) to.copy_(in.detach().reshape(out.sizes()));
  if (scale != 1) to.mul_(scale);
  return Work();
}

void check_rank(int64_t rank, const GroupState& state, const char* name, const char* op) {
  if (rank < 0 || rank >= state.size) {
    fail(ErrorCode::kValue, "[", op, "] ", name, " is ", rank,
         ": it must be a rank of the group, 0 to ", state.size - 1);
  }
}

void check_reduction(const Tensor& tensor, const Reduction& reduction, const char* op) {
  if (!tensor.defined()) fail(ErrorCode::kValue, "[", op, "] the tensor is undefined");
  const ScalarType dtype = tensor.dtype();
  const bool numbers = is_floating_point(dtype) || is_complex(dtype);
  const auto refuse = [&](const char* why) {
    fail(ErrorCode::kType, "[", op, "] ", dtype_name(dtype), " elements have no ", why);
  };
  if (is_complex(dtype) && (reduction.op == ReduceOp::kMin || reduction.op == ReduceOp::kMax)) {
    refuse("order: reduce their real or absolute values");
  }
  if (dtype == kBool && reduction.op == ReduceOp::kAverage) {
    refuse("average: convert them to floats");
  }
  if (reduction.scale == 1) return;
  if (!numbers) refuse("scale: convert them to floats");
  if (reduction.op != ReduceOp::kSum && reduction.op != ReduceOp::kAverage) {
    fail(ErrorCode::kValue, "[", op, "] scale is ", reduction.scale,
         ": it belongs to sums and averages, leave it at 1");
  }
}

Signature signature_for(const char* op, const Tensor& tensor) {
  Signature signature = signature_of(op);
  signature.dtype = static_cast<int32_t>(tensor.dtype());
  signature.ndim = static_cast<int32_t>(tensor.dim());
  signature.numel = tensor.numel();
  for (int64_t dim = 0; dim < std::min<int64_t>(tensor.dim(), Signature::kDims); ++dim) {
    signature.sizes[dim] = tensor.size(dim);
  }
  return signature;
}

Signature signature_for(const char* op, const Tensor& tensor, const Reduction& reduction) {
  Signature signature = signature_for(op, tensor);
  signature.reduction = static_cast<int32_t>(reduction.op);
  signature.scale = reduction.scale;
  return signature;
}

Signature uneven_signature(const char* op, const Tensor& tensor) {
  Signature signature = signature_of(op);
  signature.dtype = static_cast<int32_t>(tensor.dtype());
  return signature;
}

Signature of_some_ranks(Signature signature) {
  signature.ndim = Signature::kNotCompared;
  return signature;
}

int start_broadcast(GroupState& state, const Tensor& out, const Tensor& self, int64_t src,
                    const mt_comm_call& call) {
  const mt_comm& comm = state.engine->comm;
  return function_of(comm.broadcast, state, "broadcast")(
      comm.self, state.group, memory_of(self), memory_of(out), self.numel(), abi_dtype(self),
      static_cast<int32_t>(src), &call);
}

int start_all_reduce(GroupState& state, const Tensor& out, const Tensor& self,
                     const Reduction& reduction, const mt_comm_call& call) {
  const mt_comm& comm = state.engine->comm;
  const mt_reduction abi = abi_of(reduction);
  return function_of(comm.all_reduce, state, "all_reduce")(comm.self, state.group, memory_of(self),
                                                           memory_of(out), self.numel(),
                                                           abi_dtype(self), &abi, &call);
}

int start_reduce(GroupState& state, const Tensor& out, const Tensor& self, int64_t dst,
                 const Reduction& reduction, const mt_comm_call& call) {
  const mt_comm& comm = state.engine->comm;
  const mt_reduction abi = abi_of(reduction);
  return function_of(comm.reduce, state, "reduce")(
      comm.self, state.group, memory_of(self), state.rank == dst ? memory_of(out) : nullptr,
      self.numel(), abi_dtype(self), &abi, static_cast<int32_t>(dst), &call);
}

int start_all_gather(GroupState& state, const Tensor& out, const Tensor& self,
                     const mt_comm_call& call) {
  const mt_comm& comm = state.engine->comm;
  return function_of(comm.all_gather, state, "all_gather")(comm.self, state.group, memory_of(self),
                                                           memory_of(out), self.numel(),
                                                           abi_dtype(self), &call);
}

int start_reduce_scatter(GroupState& state, const Tensor& out, const Tensor& self,
                         const Reduction& reduction, const mt_comm_call& call) {
  const mt_comm& comm = state.engine->comm;
  const mt_reduction abi = abi_of(reduction);
  return function_of(comm.reduce_scatter, state, "reduce_scatter")(
      comm.self, state.group, memory_of(self), memory_of(out), out.numel(), abi_dtype(self), &abi,
      &call);
}

int start_all_to_all(GroupState& state, const Tensor& out, const Tensor& self,
                     const std::vector<int64_t>& out_counts,
                     const std::vector<int64_t>& out_offsets, const std::vector<int64_t>& counts,
                     const std::vector<int64_t>& offsets, const mt_comm_call& call) {
  const mt_comm& comm = state.engine->comm;
  return function_of(comm.all_to_all_v, state, "all_to_all")(
      comm.self, state.group, memory_of(self), counts.data(), offsets.data(), memory_of(out),
      out_counts.data(), out_offsets.data(), abi_dtype(self), &call);
}

std::vector<int64_t> gather_ints(const Group& group, const std::vector<int64_t>& values) {
  const auto n = static_cast<int64_t>(values.size());
  const Tensor mine = mytorch::empty({n}, kInt64);
  std::copy(values.begin(), values.end(), mine.data<int64_t>());
  const Tensor sent = mine.to(group.device());
  const Tensor all = mytorch::empty({n * group.size()}, kInt64, group.device());
  group.all_gather(all, sent);
  return all.to_vector<int64_t>();
}

}  // namespace mytorch::distributed
