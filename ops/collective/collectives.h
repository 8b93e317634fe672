// What the collective operators ask of the room `distributed`, which is above this one.
#pragma once

#include <cstdint>
#include <string_view>

#include "mytorch/handle.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Operands are contiguous tensors of the group's device type that the operators have allocated or
// checked; `op` is the operator's name, for messages. A group without an object is that of all
// ranks.
struct CollectiveTable {
  // Throw Error(kType) if the handle is not a process group.
  int64_t (*size)(const Handle& group, const char* op);
  int64_t (*rank)(const Handle& group, const char* op);
  void (*all_reduce)(const Handle& group, const Tensor& out, const Tensor& self,
                     std::string_view reduce_op, double scale);
  // `out` is written on rank `dst` alone.
  void (*reduce)(const Handle& group, const Tensor& out, const Tensor& self, int64_t dst,
                 std::string_view reduce_op, double scale);
  void (*broadcast)(const Handle& group, const Tensor& out, const Tensor& self, int64_t src);
  void (*all_gather)(const Handle& group, const Tensor& out, const Tensor& self);
  void (*reduce_scatter)(const Handle& group, const Tensor& out, const Tensor& self,
                         std::string_view reduce_op, double scale);
  // The sizes are numbers of rows, one for each rank.
  void (*all_to_all)(const Handle& group, const Tensor& out, const Tensor& self, IntList out_sizes,
                     IntList sizes);
};

// Set once, while the room `distributed` is initialized.
extern const CollectiveTable* collective_table;

}  // namespace mytorch
