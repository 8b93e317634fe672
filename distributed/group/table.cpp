// The collective operators' way to the groups (ops/collectives.h).
#include "core/types/errors.h"
#include "distributed/group/operands.h"
#include "distributed/group/state.h"
#include "mytorch/thread_state.h"
#include "ops/collective/collectives.h"

namespace mytorch::distributed {
namespace {

std::shared_ptr<GroupState> group_of(const Handle& handle, const char* op) {
  if (handle.object == nullptr) return world().state();
  if (handle.type != "Group") {
    fail(ErrorCode::kType, "[", op, "] group is a ", handle.type, ": pass a distributed::Group");
  }
  return std::static_pointer_cast<GroupState>(handle.object);
}

int64_t size_of(const Handle& group, const char* op) { return group_of(group, op)->size; }
int64_t rank_of(const Handle& group, const char* op) { return group_of(group, op)->rank; }

Reduction reduction_of(const Tensor& self, std::string_view name, double scale, const char* op) {
  const Reduction reduction{reduce_op_from_name(name, op), scale};
  check_reduction(self, reduction, op);
  return reduction;
}

void run_operator(const std::shared_ptr<GroupState>& state, const char* op,
                  const Signature& signature, const Tensor& out, const Tensor& self,
                  const Start& start, double scale = 1) {
  if (state->size == 1 && self.device() != state->device) {
    // A rank alone has a group on the CPU, and may work on any device: every collective copies.
    const LayerMask below(~0u);
    out.copy_(self.reshape(out.sizes()));
    if (scale != 1) out.mul_(scale);
    return;
  }
  check_operand(self, *state, "self", op);
  run_call(state, signature, start, {out, self}, nullptr, false);
}

void all_reduce(const Handle& group, const Tensor& out, const Tensor& self,
                std::string_view reduce_op, double scale) {
  const char* op = "all_reduce";
  const auto state = group_of(group, op);
  const Reduction reduction = reduction_of(self, reduce_op, scale, op);
  run_operator(
      state, op, signature_for(op, self, reduction), out, self,
      [&](const mt_comm_call& call) {
        return start_all_reduce(*state, out, self, reduction, call);
      },
      scale);
}

void reduce(const Handle& group, const Tensor& out, const Tensor& self, int64_t dst,
            std::string_view reduce_op, double scale) {
  const char* op = "reduce";
  const auto state = group_of(group, op);
  const Reduction reduction = reduction_of(self, reduce_op, scale, op);
  Signature signature = signature_for(op, self, reduction);
  signature.root = static_cast<int32_t>(dst);
  run_operator(
      state, op, signature, out, self,
      [&](const mt_comm_call& call) {
        return start_reduce(*state, out, self, dst, reduction, call);
      },
      scale);
}

void broadcast(const Handle& group, const Tensor& out, const Tensor& self, int64_t src) {
  const char* op = "broadcast";
  const auto state = group_of(group, op);
  Signature signature = signature_for(op, self);
  signature.root = static_cast<int32_t>(src);
  run_operator(state, op, signature, out, self, [&](const mt_comm_call& call) {
    return start_broadcast(*state, out, self, src, call);
  });
}

void all_gather(const Handle& group, const Tensor& out, const Tensor& self) {
  const char* op = "all_gather_into_tensor";
  const auto state = group_of(group, op);
  run_operator(state, op, signature_for(op, self), out, self,
               [&](const mt_comm_call& call) { return start_all_gather(*state, out, self, call); });
}

void reduce_scatter(const Handle& group, const Tensor& out, const Tensor& self,
                    std::string_view reduce_op, double scale) {
  const char* op = "reduce_scatter_tensor";
  const auto state = group_of(group, op);
  const Reduction reduction = reduction_of(self, reduce_op, scale, op);
  run_operator(
      state, op, signature_for(op, self, reduction), out, self,
      [&](const mt_comm_call& call) {
        return start_reduce_scatter(*state, out, self, reduction, call);
      },
      scale);
}

void all_to_all(const Handle& group, const Tensor& out, const Tensor& self, IntList out_sizes,
                IntList sizes) {
  const char* op = "all_to_all_single";
  const auto state = group_of(group, op);
  int64_t row = 1;
  for (int64_t dim = 1; dim < self.dim(); ++dim) row *= self.size(dim);
  const auto parts = [&](IntList rows, std::vector<int64_t>* counts,
                         std::vector<int64_t>* offsets) {
    int64_t total = 0;
    for (const int64_t n : rows) {
      counts->push_back(n * row);
      offsets->push_back(total);
      total += n * row;
    }
  };
  std::vector<int64_t> out_counts, out_offsets, counts, offsets;
  parts(out_sizes, &out_counts, &out_offsets);
  parts(sizes, &counts, &offsets);
  run_operator(state, op, uneven_signature(op, self), out, self, [&](const mt_comm_call& call) {
    return start_all_to_all(*state, out, self, out_counts, out_offsets, counts, offsets, call);
  });
}

constexpr CollectiveTable kTable = {size_of,   rank_of,    all_reduce,     reduce,
                                    broadcast, all_gather, reduce_scatter, all_to_all};
[[maybe_unused]] const bool installed = (collective_table = &kTable, true);

}  // namespace
}  // namespace mytorch::distributed
