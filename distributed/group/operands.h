// Checks and signatures of operands, and the engine's calls on contiguous ones. The operators and
// the methods of Group share them.
#pragma once

#include <initializer_list>
#include <vector>

#include "distributed/group/state.h"

namespace mytorch::distributed {

// A rank alone has a group on one device, and takes operands of any.
void check_operand(const Tensor& tensor, const GroupState& state, const char* name, const char* op);
// Whether a tensor is on another device than the group of a rank alone. Its engine cannot reach
// that memory, and copy_alone does what the collective would.
bool is_elsewhere(const GroupState& state, std::initializer_list<Tensor> tensors);
// Copies `in` to `out`, which may be the same tensor, and multiplies it.
Work copy_alone(const Tensor& out, const Tensor& in, double scale = 1);
void check_rank(int64_t rank, const GroupState& state, const char* name, const char* op);
// Throws for reductions that the contract does not define for the type.
void check_reduction(const Tensor& tensor, const Reduction& reduction, const char* op);

Signature signature_for(const char* op, const Tensor& tensor);
Signature signature_for(const char* op, const Tensor& tensor, const Reduction& reduction);
// Of a call whose sizes may differ between ranks.
Signature uneven_signature(const char* op, const Tensor& tensor);
// Of a call that not all ranks make, so that they cannot compare it.
Signature of_some_ranks(Signature signature);

int start_broadcast(GroupState& state, const Tensor& out, const Tensor& self, int64_t src,
                    const mt_comm_call& call);
int start_all_reduce(GroupState& state, const Tensor& out, const Tensor& self,
                     const Reduction& reduction, const mt_comm_call& call);
int start_reduce(GroupState& state, const Tensor& out, const Tensor& self, int64_t dst,
                 const Reduction& reduction, const mt_comm_call& call);
int start_all_gather(GroupState& state, const Tensor& out, const Tensor& self,
                     const mt_comm_call& call);
int start_reduce_scatter(GroupState& state, const Tensor& out, const Tensor& self,
                         const Reduction& reduction, const mt_comm_call& call);
int start_all_to_all(GroupState& state, const Tensor& out, const Tensor& self,
                     const std::vector<int64_t>& out_counts,
                     const std::vector<int64_t>& out_offsets, const std::vector<int64_t>& counts,
                     const std::vector<int64_t>& offsets, const mt_comm_call& call);

// Returns `values` of all ranks, in their order.
std::vector<int64_t> gather_ints(const Group& group, const std::vector<int64_t>& values);

}  // namespace mytorch::distributed
