// Reading fused programs (mytorch/abi_fused.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "mytorch/abi_fused.h"
#include "mytorch/backend/iterate.h"

namespace mytorch::sdk {
inline namespace v1 {

// Return a value and a call. The host may be newer, and its structs larger.
inline const mt_fused_value& fused_value(const mt_fused_program& program, int32_t at) {
  const auto* bytes = reinterpret_cast<const char*>(program.values);
  return *reinterpret_cast<const mt_fused_value*>(bytes +
                                                  static_cast<size_t>(at) * program.value_size);
}
inline const mt_fused_call& fused_call(const mt_fused_program& program, int32_t at) {
  const auto* bytes = reinterpret_cast<const char*>(program.calls);
  return *reinterpret_cast<const mt_fused_call*>(bytes +
                                                 static_cast<size_t>(at) * program.call_size);
}

// Makes an object the `self` of the kernel of a program, and has the host destroy it with the
// kernel. Hosts that cannot do so keep both.
template <class Self>
void give_kernel(const mt_fused_program& program, std::unique_ptr<Self> self,
                 mt_kernel_entry& kernel) {
  kernel.self = self.release();
  constexpr size_t kNeeded = offsetof(mt_fused_program, destroy) + sizeof(program.destroy);
  if (program.size < kNeeded || program.destroy == nullptr) return;
  *program.destroy = [](void* made) { delete static_cast<Self*>(made); };
}

// Returns whether a program is one of rows: it reduces them, or an index selects their elements.
inline bool has_rows(const mt_fused_program& program) {
  for (int32_t i = 0; i < program.num_calls; ++i) {
    const mt_program& called = *fused_call(program, i).program;
    if (called.fold != nullptr) return true;
    const std::string_view op = called.nodes[called.outputs[0].node].op;
    if (op == "bound" || op == "load") return true;
  }
  return false;
}

// Returns whether the elements of each row of an operand are contiguous.
inline bool has_contiguous_rows(const mt_fused_args& args, const mt_tensor* operand) {
  int64_t strides[kMaxDims];
  broadcast_strides(operand, std::span(args.shape, static_cast<size_t>(args.ndim)), strides);
  int64_t expected = 1;
  for (int d = args.ndim - 1; d >= args.ndim - args.inner; --d) {
    if (args.shape[d] != 1 && strides[d] != expected) return false;
    expected *= args.shape[d];
  }
  return true;
}

// A table of a call: an operand of which an index selects elements.
struct FusedTable {
  int64_t strides[kMaxDims];     // in the dimensions of the loop
  int64_t inner = 0;             // between the elements of a row
  int64_t size = 0, stride = 0;  // of the dimension that the index selects from
};
// Returns whether neighboring elements of a row have one distance in a table, and fills `table`.
inline bool read_table(const mt_fused_args& args, const mt_tensor* operand, FusedTable* table) {
  for (int d = 0; d < args.ndim; ++d) {
    table->strides[d] = operand->dl.shape[d] == 1 ? 0 : operand->dl.strides[d];
  }
  table->size = operand->dl.shape[args.ndim];
  table->stride = operand->dl.strides[args.ndim];
  int64_t count = 1;
  for (int d = args.ndim - 1; d >= args.ndim - args.inner; --d) {
    if (args.shape[d] == 1) continue;
    if (count == 1) table->inner = table->strides[d];
    if (table->strides[d] != table->inner * count) return false;
    count *= args.shape[d];
  }
  return true;
}

}  // namespace v1
}  // namespace mytorch::sdk
