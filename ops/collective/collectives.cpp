// Operators over the ranks of a process group. They check and allocate; the group's engine does the
// work.
#include "ops/collective/collectives.h"

#include <utility>

#include "core/tensor/batched.h"
#include "core/types/dims.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/all_gather_into_tensor.h"
#include "mytorch/ops/all_gather_v.h"
#include "mytorch/ops/all_reduce.h"
#include "mytorch/ops/broadcast.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/gather_into_tensor.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/recv.h"
#include "mytorch/ops/reduce_scatter_tensor.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/scatter_tensor.h"
#include "mytorch/ops/send.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "ops/check.h"
#include "ops/gradients.h"

namespace mytorch {

const CollectiveTable* collective_table = nullptr;

namespace {

const CollectiveTable& collectives_of(const char* op) {
  if (collective_table == nullptr) {
    refuse(ErrorCode::kUnsupported, op,
           "process groups need libmytorch's distributed room: link it");
  }
  return *collective_table;
}

Tensor collective_operand(const Tensor& self, const char* op) {
  check_not_batched(self, op);
  return self.contiguous();
}

Tensor empty_of(const Tensor& self, IntList sizes) {
  return mytorch::empty(sizes, self.dtype(), self.device());
}

// Returns the given sizes of the parts of `rows` rows, or equal ones.
Dims part_sizes(OptionalIntList given, int64_t rows, int64_t ranks, const char* name,
                const char* op) {
  Dims sizes;
  if (!given.has_value()) {
    check_shape(rows % ranks == 0, op, "dimension 0 has size ", rows, ", which ", ranks,
                " ranks do not divide: pass ", name);
    sizes.assign(static_cast<size_t>(ranks), rows / ranks);
    return sizes;
  }
  check_shape(static_cast<int64_t>(given->size()) == ranks, op, name, " has ", given->size(),
              " elements for a group of ", ranks, " ranks: give one for each");
  for (const int64_t size : *given) {
    check_value(size >= 0, op, name, " has ", size, ": sizes are not negative");
    sizes.push_back(size);
  }
  return sizes;
}

int64_t total_rows(const Dims& sizes, const char* name, const char* op) {
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    check_value(!__builtin_add_overflow(sum, size, &sum), op, "the sum of ", name, " overflows");
  }
  return sum;
}

Dims with_first_dim(const Tensor& self, int64_t rows) {
  Dims sizes(self.sizes().begin(), self.sizes().end());
  if (sizes.empty()) {
    sizes.push_back(rows);
  } else {
    sizes[0] = rows;
  }
  return sizes;
}

// Returns the rows of all ranks' tensors, which have as many; a number is one row.
int64_t rows_of_all(const Tensor& self, int64_t ranks, const char* op) {
  int64_t rows = 0;
  check_value(!__builtin_mul_overflow(self.dim() == 0 ? 1 : self.sizes()[0], ranks, &rows), op,
              "the size of the result overflows");
  return rows;
}

void check_splits(const Tensor& self, const char* op) {
  check_shape(self.dim() > 0, op, "self has no dimensions: there is nothing to split");
}

void check_divides(const Tensor& self, int64_t ranks, const char* op) {
  check_splits(self, op);
  check_shape(self.sizes()[0] % ranks == 0, op, "dimension 0 of self, of shape ", self.sizes(),
              ", is not a multiple of the ", ranks, " ranks: pad it");
}

// Throws unless there is a size for each rank; returns their sum.
int64_t checked_rows(IntList sizes, int64_t ranks, const char* name, const char* op) {
  return total_rows(part_sizes(sizes, 0, ranks, name, op), name, op);
}

// Returns zeros of the shape, in the memory of one element, that depend on `x`: backward comes to
// `x` on every rank, where each must take part in the communication of further gradients.
Tensor zeros_after(const Tensor& x, IntList shape) { return x.sum().expand(shape); }

bool is_linear(std::string_view reduce_op) { return reduce_op == "sum" || reduce_op == "avg"; }

void check_linear(std::string_view reduce_op, const char* op) {
  check_value(is_linear(reduce_op), op, "\"", std::string(reduce_op).c_str(),
              "\" has no gradient: differentiate all_gather_into_tensor and a reduction instead");
}

}  // namespace

Tensor composite::all_reduce(const Tensor& self, Str reduce_op, const Handle& group, double scale) {
  const char* op = "all_reduce";
  const CollectiveTable& table = collectives_of(op);
  const Tensor input = collective_operand(self, op);
  Tensor out = empty_of(input, input.sizes());
  table.run(CollectiveKind::kAllReduce, op, group, out, input,
            {.reduce_op = reduce_op, .scale = scale});
  return out;
}

Tensor composite::reduce(const Tensor& self, int64_t dst, Str reduce_op, const Handle& group,
                         double scale) {
  const char* op = "reduce";
  const CollectiveTable& table = collectives_of(op);
  const bool receives = table.is_root(group, dst, "dst", op);
  const Tensor input = collective_operand(self, op);
  Tensor out = receives ? empty_of(input, input.sizes())
                        : mytorch::zeros(input.sizes(), input.dtype(), input.device());
  table.run(CollectiveKind::kReduce, op, group, out, input,
            {.root = dst, .reduce_op = reduce_op, .scale = scale});
  return out;
}

Tensor composite::broadcast(const Tensor& self, int64_t src, const Handle& group) {
  const char* op = "broadcast";
  const CollectiveTable& table = collectives_of(op);
  table.is_root(group, src, "src", op);
  const Tensor input = collective_operand(self, op);
  Tensor out = empty_of(input, input.sizes());
  table.run(CollectiveKind::kBroadcast, op, group, out, input, {.root = src});
  return out;
}

Tensor composite::all_gather_into_tensor(const Tensor& self, const Handle& group) {
  const char* op = "all_gather_into_tensor";
  const CollectiveTable& table = collectives_of(op);
  const Tensor input = collective_operand(self, op);
  const Dims sizes = with_first_dim(input, rows_of_all(input, table.size(group, op), op));
  Tensor out = empty_of(input, as_list(sizes));
  table.run(CollectiveKind::kAllGather, op, group, out, input, {});
  return out;
}

Tensor composite::reduce_scatter_tensor(const Tensor& self, Str reduce_op, const Handle& group,
                                        double scale) {
  const char* op = "reduce_scatter_tensor";
  const CollectiveTable& table = collectives_of(op);
  const int64_t ranks = table.size(group, op);
  check_divides(self, ranks, op);
  const Tensor input = collective_operand(self, op);
  const Dims sizes = with_first_dim(input, input.sizes()[0] / ranks);
  Tensor out = empty_of(input, as_list(sizes));
  table.run(CollectiveKind::kReduceScatter, op, group, out, input,
            {.reduce_op = reduce_op, .scale = scale});
  return out;
}

Tensor composite::all_to_all_single(const Tensor& self, OptionalIntList output_split_sizes,
                                    OptionalIntList input_split_sizes, const Handle& group) {
  const char* op = "all_to_all_single";
  const CollectiveTable& table = collectives_of(op);
  const int64_t ranks = table.size(group, op);
  check_splits(self, op);
  const int64_t rows = self.sizes()[0];
  const Dims sent = part_sizes(input_split_sizes, rows, ranks, "input_split_sizes", op);
  const int64_t sent_rows = total_rows(sent, "input_split_sizes", op);
  check_shape(sent_rows == rows, op, "the sum of input_split_sizes is ", sent_rows,
              ", but dimension 0 of self has size ", rows);
  const Dims received = part_sizes(output_split_sizes, rows, ranks, "output_split_sizes", op);
  const Tensor input = collective_operand(self, op);
  const Dims sizes = with_first_dim(input, total_rows(received, "output_split_sizes", op));
  Tensor out = empty_of(input, as_list(sizes));
  table.run(CollectiveKind::kAllToAll, op, group, out, input,
            {.out_sizes = as_list(received), .sizes = as_list(sent)});
  return out;
}

Tensor composite::gather_into_tensor(const Tensor& self, int64_t dst, const Handle& group) {
  const char* op = "gather_into_tensor";
  const CollectiveTable& table = collectives_of(op);
  const bool receives = table.is_root(group, dst, "dst", op);
  const Tensor input = collective_operand(self, op);
  const int64_t rows = receives ? rows_of_all(input, table.size(group, op), op) : 0;
  const Dims sizes = with_first_dim(input, rows);
  Tensor out = empty_of(input, as_list(sizes));
  table.run(CollectiveKind::kGather, op, group, out, input, {.root = dst});
  return out;
}

Tensor composite::scatter_tensor(const Tensor& self, int64_t src, const Handle& group) {
  const char* op = "scatter_tensor";
  const CollectiveTable& table = collectives_of(op);
  const int64_t ranks = table.size(group, op);
  check_divides(self, ranks, op);
  const bool sends = table.is_root(group, src, "src", op);
  check_not_batched(self, op);
  const Tensor input = sends ? self.contiguous() : self;  // which is not read elsewhere
  const Dims sizes = with_first_dim(input, input.sizes()[0] / ranks);
  Tensor out = empty_of(input, as_list(sizes));
  table.run(CollectiveKind::kScatter, op, group, out, input, {.root = src});
  return out;
}

Tensor composite::all_gather_v(const Tensor& self, IntList output_split_sizes,
                               const Handle& group) {
  const char* op = "all_gather_v";
  const CollectiveTable& table = collectives_of(op);
  check_splits(self, op);
  const int64_t rows =
      checked_rows(output_split_sizes, table.size(group, op), "output_split_sizes", op);
  const int64_t own = output_split_sizes[static_cast<size_t>(table.rank(group, op))];
  check_shape(self.sizes()[0] == own, op, "dimension 0 of self has size ", self.sizes()[0],
              ", but output_split_sizes of this rank is ", own);
  const Tensor input = collective_operand(self, op);
  const Dims sizes = with_first_dim(input, rows);
  Tensor out = empty_of(input, as_list(sizes));
  table.run(CollectiveKind::kAllGatherV, op, group, out, input, {.out_sizes = output_split_sizes});
  return out;
}

Tensor composite::reduce_scatter_v(const Tensor& self, IntList input_split_sizes, Str reduce_op,
                                   const Handle& group, double scale) {
  const char* op = "reduce_scatter_v";
  const CollectiveTable& table = collectives_of(op);
  check_splits(self, op);
  const int64_t rows =
      checked_rows(input_split_sizes, table.size(group, op), "input_split_sizes", op);
  check_shape(self.sizes()[0] == rows, op, "the sum of input_split_sizes is ", rows,
              ", but dimension 0 of self has size ", self.sizes()[0]);
  const Tensor input = collective_operand(self, op);
  const Dims sizes =
      with_first_dim(input, input_split_sizes[static_cast<size_t>(table.rank(group, op))]);
  Tensor out = empty_of(input, as_list(sizes));
  table.run(CollectiveKind::kReduceScatterV, op, group, out, input,
            {.reduce_op = reduce_op, .scale = scale, .sizes = input_split_sizes});
  return out;
}

Tensor composite::send(const Tensor& self, int64_t dst, const Handle& group) {
  const char* op = "send";
  const CollectiveTable& table = collectives_of(op);
  table.is_root(group, dst, "dst", op);
  table.message(group, op, collective_operand(self, op), dst, /*sends=*/true);
  return empty_of(self, IntList{0});
}

Tensor composite::recv(const Tensor& self, int64_t src, const Handle& group) {
  const char* op = "recv";
  const CollectiveTable& table = collectives_of(op);
  table.is_root(group, src, "src", op);
  check_not_batched(self, op);
  Tensor out = empty_of(self, self.sizes());
  table.message(group, op, out, src, /*sends=*/false);
  return out;
}

// ---- gradients ----

Tensor grads::all_reduce_backward(const Tensor& grad, std::string_view reduce_op,
                                  const Handle& group, double scale) {
  check_linear(reduce_op, "all_reduce");
  return mytorch::all_reduce(grad, Str(reduce_op), group, scale);
}

Tensor grads::reduce_backward(const Tensor& grad, int64_t dst, std::string_view reduce_op,
                              const Handle& group, double scale) {
  check_linear(reduce_op, "reduce");
  if (reduce_op == "avg")
    scale /= static_cast<double>(collectives_of("reduce").size(group, "reduce"));
  const Tensor given = mytorch::broadcast(grad, dst, group);
  return scale == 1 ? given : given * scale;
}

Tensor grads::all_gather_backward(const Tensor& grad, IntList shape, const Handle& group) {
  return mytorch::reduce_scatter_tensor(grad, "sum", group).reshape(shape);
}

Tensor grads::reduce_scatter_backward(const Tensor& grad, std::string_view reduce_op,
                                      const Handle& group, double scale) {
  const char* op = "reduce_scatter_tensor";
  check_linear(reduce_op, op);
  if (reduce_op == "avg") scale /= static_cast<double>(collectives_of(op).size(group, op));
  const Tensor all = mytorch::all_gather_into_tensor(grad, group);
  return scale == 1 ? all : all * scale;
}

Tensor grads::gather_backward(const Tensor& grad, IntList shape, int64_t dst, const Handle& group) {
  const char* op = "gather_into_tensor";
  const CollectiveTable& table = collectives_of(op);
  Dims sizes(shape.begin(), shape.end());
  if (sizes.empty()) sizes.push_back(1);
  sizes[0] *= table.size(group, op);
  const Tensor all =
      table.is_root(group, dst, "dst", op) ? grad : zeros_after(grad, as_list(sizes));
  return mytorch::scatter_tensor(all, dst, group).reshape(shape);
}

Tensor grads::scatter_backward(const Tensor& grad, IntList shape, int64_t src,
                               const Handle& group) {
  const Tensor all = mytorch::gather_into_tensor(grad, src, group);
  return collectives_of("scatter_tensor").is_root(group, src, "src", "scatter_tensor")
             ? all
             : zeros_after(all, shape);
}

Tensor grads::reduce_scatter_v_backward(const Tensor& grad, IntList sizes,
                                        std::string_view reduce_op, const Handle& group,
                                        double scale) {
  const char* op = "reduce_scatter_v";
  check_linear(reduce_op, op);
  if (reduce_op == "avg") scale /= static_cast<double>(collectives_of(op).size(group, op));
  const Tensor all = mytorch::all_gather_v(grad, sizes, group);
  return scale == 1 ? all : all * scale;
}

Tensor grads::send_backward(const Tensor& grad, IntList shape, int64_t dst, const Handle& group) {
  return mytorch::recv(zeros_after(grad, shape), dst, group);
}

Tensor grads::recv_backward(const Tensor& grad, IntList shape, int64_t src, const Handle& group) {
  return zeros_after(mytorch::send(grad, src, group), shape);
}

}  // namespace mytorch
