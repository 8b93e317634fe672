// What the collective operators ask of the room `distributed`, which is above this one.
#pragma once

#include <cstdint>
#include <string_view>

#include "mytorch/handle.h"
#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch {

enum class CollectiveKind {
  kBroadcast,
  kReduce,
  kAllReduce,
  kGather,
  kScatter,
  kAllGather,
  kAllGatherV,
  kReduceScatter,
  kReduceScatterV,
  kAllToAll,
};

// What some kinds have.
struct CollectiveArguments {
  int64_t root = -1;  // kReduce writes `out` on this rank alone
  std::string_view reduce_op = {};
  double scale = 1;
  IntList out_sizes = {}, sizes = {};  // numbers of rows, one for each rank
};

// `op` is the operator's name, for messages. A group without an object is that of all ranks.
struct CollectiveTable {
  // Throw Error(kType) if the handle is not a process group.
  int64_t (*size)(const Handle& group, const char* op);
  int64_t (*rank)(const Handle& group, const char* op);
  // Whether this rank is `root`. Also throws Error(kValue) if no rank of the group is.
  bool (*is_root)(const Handle& group, int64_t root, const char* name, const char* op);
  // Operands are contiguous tensors of the group's device type that the operators have allocated or
  // checked. Also throws for reductions that do not exist, or have no meaning for the type.
  void (*run)(CollectiveKind kind, const char* op, const Handle& group, const Tensor& out,
              const Tensor& self, const CollectiveArguments& arguments);
  // Sends or receives the tensor, to or from `peer`.
  void (*message)(const Handle& group, const char* op, const Tensor& tensor, int64_t peer,
                  bool sends);
};

// Set once, while the room `distributed` is initialized.
extern const CollectiveTable* collective_table;

}  // namespace mytorch
