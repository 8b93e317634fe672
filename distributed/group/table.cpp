// The collective operators' way to the groups (ops/collective/collectives.h).
#include "core/types/errors.h"
#include "distributed/group/collective.h"
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
bool is_root(const Handle& group, int64_t root, const char* name, const char* op) {
  const std::shared_ptr<GroupState> state = group_of(group, op);
  check_rank(root, *state, name, op);
  return state->rank == root;
}

void run(CollectiveKind kind, const char* op, const Handle& group, const Tensor& out,
         const Tensor& self, const CollectiveArguments& arguments) {
  const std::shared_ptr<GroupState> state = group_of(group, op);
  Collective collective{kind, op, arguments.root};
  if (collective.reduces()) {
    collective.reduction = {reduce_op_from_name(arguments.reduce_op, op), arguments.scale};
  }
  if (!arguments.out_sizes.empty() || !arguments.sizes.empty()) {
    const int64_t row = row_of(self, "self", op);
    collective.out_parts = parts_of(arguments.out_sizes, row);
    collective.in_parts = parts_of(arguments.sizes, row);
  }
  collective.check(self, *state);
  check_operand(self, *state, "self", op);
  if (is_elsewhere(*state, {self})) {
    const LayerMask below(~0u);
    copy_alone(out, self, collective.reduction.scale);
    return;
  }
  run_call(state, collective.call(out, self), collective.start(*state, out, self), {out, self},
           nullptr, false);
}

void message(const Handle& group, const char* op, const Tensor& tensor, int64_t peer, bool sends) {
  const std::shared_ptr<GroupState> state = group_of(group, op);
  const LayerMask below(~0u);
  run_messages(state, {{tensor, static_cast<int>(peer), sends}}, false);
}

constexpr CollectiveTable kTable = {size_of, rank_of, is_root, run, message};
[[maybe_unused]] const bool installed = (collective_table = &kTable, true);

}  // namespace
}  // namespace mytorch::distributed
