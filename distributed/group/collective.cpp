#include "distributed/group/collective.h"

#include <algorithm>
#include <iterator>

#include "core/tensor/batched.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/reshape.h"

namespace mytorch::distributed {
namespace {

struct Traits {
  const char* function;  // of the engine
  const char* root;      // the name of the argument, if there is one
  bool reduces;
};
// By CollectiveKind.
constexpr Traits kTraits[] = {
    {"broadcast", "src", false},         {"reduce", "dst", true},
    {"all_reduce", nullptr, true},       {"gather", "dst", false},
    {"scatter", "src", false},           {"all_gather", nullptr, false},
    {"all_gather_v", nullptr, false},    {"reduce_scatter", nullptr, true},
    {"reduce_scatter_v", nullptr, true}, {"all_to_all", nullptr, false},
};
static_assert(std::size(kTraits) == static_cast<size_t>(CollectiveKind::kAllToAll) + 1);
const Traits& traits_of(CollectiveKind kind) { return kTraits[static_cast<size_t>(kind)]; }

// What an engine gets for an argument that its call holds.
const mt_reduction* passed(const mt_reduction& reduction) { return &reduction; }
const int64_t* passed(const std::vector<int64_t>& numbers) { return numbers.data(); }
template <class T>
T passed(T value) {
  return value;
}

// Throws for reductions that the contract does not define for the type.
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

void need(bool has, const GroupState& state, const char* op) {
  if (has) return;
  fail(ErrorCode::kUnsupported, "[", op, "] the engine ", state.engine->name, " has no ", op,
       ": choose another one");
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

int64_t row_of(const Tensor& tensor, const char* name, const char* op) {
  if (tensor.dim() == 0) {
    fail(ErrorCode::kShape, "[", op, "] ", name, " has no dimensions: rows need one");
  }
  int64_t row = 1;
  for (int64_t dim = 1; dim < tensor.dim(); ++dim) row *= tensor.size(dim);
  return row;
}

Parts parts_of(IntList rows, int64_t row) {
  Parts parts;
  int64_t total = 0;
  for (const int64_t n : rows) {
    parts.counts.push_back(n * row);
    parts.offsets.push_back(total);
    total += n * row;
  }
  return parts;
}

bool Collective::reduces() const { return traits_of(kind).reduces; }

bool Collective::writes(const GroupState& state) const {
  const bool at_root = kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather;
  return !at_root || is_root(state);
}

void Collective::check(const Tensor& tensor, const GroupState& state) const {
  const Traits& traits = traits_of(kind);
  if (traits.root != nullptr) check_rank(root, state, traits.root, op);
  if (traits.reduces) check_reduction(tensor, reduction, op);
}

Call Collective::call(const Tensor& out, const Tensor& in) const {
  // Of the operand that has the same sizes on all ranks.
  const bool of_out = kind == CollectiveKind::kScatter || kind == CollectiveKind::kAllGatherV;
  Signature signature = signature_of(op);
  if (kind == CollectiveKind::kAllToAll) {  // neither has
    signature.dtype = static_cast<int32_t>(in.dtype());
  } else {
    signature = signature_for(op, of_out ? out : in);
  }
  if (traits_of(kind).root != nullptr) signature.root = static_cast<int32_t>(root);
  if (reduces()) {
    signature.reduction = static_cast<int32_t>(reduction.op);
    signature.scale = reduction.scale;
  }
  switch (kind) {
    case CollectiveKind::kAllGatherV:
      return {.signature = signature, .parts = out_parts.counts};
    case CollectiveKind::kReduceScatterV:
      return {.signature = signature, .parts = in_parts.counts};
    case CollectiveKind::kAllToAll:
      return {.signature = signature, .sent = in_parts.counts, .expected = out_parts.counts};
    default:
      return {.signature = signature};
  }
}

Start Collective::start(const GroupState& state, const Tensor& out, const Tensor& in) const {
  const mt_comm& comm = state.engine->comm;
  const auto bind = [&](auto function, auto... arguments) -> Start {
    need(function != nullptr, state, traits_of(kind).function);
    return [=, self = comm.self, group = state.group](const mt_comm_call& call) {
      return function(self, group, passed(arguments)..., &call);
    };
  };
  const bool reads = kind != CollectiveKind::kScatter || is_root(state);
  const void* from = reads ? in.raw_data() : nullptr;
  void* to = writes(state) ? out.impl()->abi.dl.data : nullptr;
  const mt_dtype dtype = in.impl()->abi.dl.dtype;
  const auto rank = static_cast<int32_t>(root);
  const mt_reduction abi = {sizeof(abi), static_cast<int32_t>(reduction.op), 0, reduction.scale};
  switch (kind) {
    case CollectiveKind::kBroadcast:
      return bind(comm.broadcast, from, to, in.numel(), dtype, rank);
    case CollectiveKind::kReduce:
      return bind(comm.reduce, from, to, in.numel(), dtype, abi, rank);
    case CollectiveKind::kAllReduce:
      return bind(comm.all_reduce, from, to, in.numel(), dtype, abi);
    case CollectiveKind::kGather:
      return bind(comm.gather, from, to, in.numel(), dtype, rank);
    case CollectiveKind::kScatter:
      return bind(comm.scatter, from, to, out.numel(), dtype, rank);
    case CollectiveKind::kAllGather:
      return bind(comm.all_gather, from, to, in.numel(), dtype);
    case CollectiveKind::kAllGatherV:
      return bind(comm.all_gather_v, from, to, out_parts.counts, out_parts.offsets, dtype);
    case CollectiveKind::kReduceScatter:
      return bind(comm.reduce_scatter, from, to, out.numel(), dtype, abi);
    case CollectiveKind::kReduceScatterV:
      return bind(comm.reduce_scatter_v, from, to, in_parts.counts, dtype, abi);
    case CollectiveKind::kAllToAll:
      return bind(comm.all_to_all_v, from, in_parts.counts, in_parts.offsets, to, out_parts.counts,
                  out_parts.offsets, dtype);
  }
  return {};
}

}  // namespace mytorch::distributed
