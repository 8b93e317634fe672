// Collectives, each described once for the method of Group and the operator: its checks, what ranks
// compare, and the engine's call on contiguous memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "distributed/group/state.h"
#include "ops/collective/collectives.h"

namespace mytorch::distributed {

// A rank alone has a group on one device, and takes operands of any.
void check_operand(const Tensor& tensor, const GroupState& state, const char* name, const char* op);
// Whether a tensor is on another device than the group of a rank alone. Its engine cannot reach
// that memory, and copy_alone does what the collective would.
bool is_elsewhere(const GroupState& state, std::initializer_list<Tensor> tensors);
// Copies `in` to `out`, which may be the same tensor, and multiplies it.
Work copy_alone(const Tensor& out, const Tensor& in, double scale = 1);
void check_rank(int64_t rank, const GroupState& state, const char* name, const char* op);
// Throws Error(kUnsupported) unless the engine has its function `op`.
void need(bool has, const GroupState& state, const char* op);

// Sends and receives at the same time (Group::exchange).
Work run_messages(const std::shared_ptr<GroupState>& shared,
                  const std::vector<Group::Message>& messages, bool async);

Signature signature_for(const char* op, const Tensor& tensor);

// Returns the number of elements in rows of a tensor, all but the first dimension.
int64_t row_of(const Tensor& tensor, const char* name, const char* op);
// Counts and offsets in elements of parts, one for each rank.
struct Parts {
  std::vector<int64_t> counts, offsets;
};
// Returns parts of so many rows of `row` elements.
Parts parts_of(IntList rows, int64_t row);

struct Collective {
  CollectiveKind kind;
  const char* op;  // the name in messages and records
  // What some kinds have.
  int64_t root = -1;
  Reduction reduction = {};
  Parts out_parts = {}, in_parts = {};

  bool reduces() const;
  bool is_root(const GroupState& state) const { return state.rank == root; }
  bool writes(const GroupState& state) const;  // this rank's `out`
  // Throws for a root that is no rank, and for reductions that the contract does not define for
  // the type of the tensor.
  void check(const Tensor& tensor, const GroupState& state) const;
  // What ranks must agree on.
  Call call(const Tensor& out, const Tensor& in) const;
  // Returns the call of the engine, which does not keep the memory of the operands. On ranks whose
  // `out` is not written or whose `in` is not read, they may be any tensors.
  Start start(const GroupState& state, const Tensor& out, const Tensor& in) const;
};

}  // namespace mytorch::distributed
