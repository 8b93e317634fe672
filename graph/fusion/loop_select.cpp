// Loops that read or write elements of rows by an index: gather, scatter of an element, slices.
#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "graph/fusion/loop_builder.h"

namespace mytorch::graph {
namespace {

mt_scalar whole(int64_t number) {
  mt_scalar scalar{};
  scalar.kind = MT_SCALAR_INT;
  scalar.v.i = number;
  return scalar;
}

// An index that is in range: its scalars are the size of the dimension, and its number.
const mt_program* bound_program(const OpInfo& op) {
  static std::mutex mutex;
  static auto* const made = new std::map<const OpInfo*, MadeProgram>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [at, added] = made->try_emplace(&op);
  MadeProgram& bound = at->second;
  if (added) {
    bound.add("input", MT_TYPE_INDEX);
    bound.add("scalar", MT_TYPE_INDEX);
    bound.add("scalar", MT_TYPE_INDEX).offset = 1;
    bound.add("bound", MT_TYPE_INDEX);
    std::copy_n(std::to_array<int32_t>({0, 1, 2}).begin(), 3, bound.nodes.back().a);
    bound.finish(op.base);
  }
  return &bound.program;
}

// Appends the check of an index for a dimension, and returns the checked one.
int bounded(const OpInfo& op, int index, int64_t size, int64_t dim, LoopBuilder& b) {
  if (index < 0 || size == 0) return -1;
  const mt_dtype type = b.operand(index).dtype;
  if (type.code != MT_INT || type.bits < 32) return -1;
  // One for each row, if the index is.
  const int checked = b.add({LoopOperand::kTemporary, nullptr, kIndexType, b.operand(index).shape,
                             b.operand(index).strides});
  const LoopCall made{op.base, bound_program(op),         kIndexType,
                      {index}, {whole(size), whole(dim)}, {checked}};
  b.set_selects();
  return b.call(made) ? checked : -1;
}

// out[..., i, ...] = table[..., index, ...]. `strides` are those of the table over the loop, 0
// along the dimension.
bool body_of_load(const OpInfo& op, const mt_tensor* from, int64_t dim, Dims strides, int index,
                  const mt_tensor* out, LoopBuilder& b) {
  const int64_t size = from->dl.shape[dim];
  const int checked = bounded(op, index, size, dim, b);
  const int table = b.add({LoopOperand::kTable, from, from->dl.dtype, b.elements(),
                           std::move(strides), size, from->dl.strides[dim]});
  const int to = b.tensor(out, b.elements());
  return to >= 0 && b.call({op.base, load_program(), from->dl.dtype, {table, checked}, {}, {to}});
}

// The sum of a row in which all but the selected element are replaced by zeros.
bool body_of_computed(const mt_tensor* self, int index, int table, int to, LoopBuilder& b) {
  const size_t begin = b.num_calls();
  const Dims over(self->dl.shape, self->dl.shape + self->dl.ndim);
  const mt_dtype dtype = self->dl.dtype;
  const int elements = b.tensor(self, over);
  const int here = b.temporary(kTruthType, over), left = b.temporary(dtype, over);
  if (!b.call_record("eq.Tensor", kIndexType, {index, b.position()}, here) ||
      !b.call_record("where.self", dtype, {here, elements, b.number(kIndexType, 0)}, left) ||
      !b.call_record("sum.dim_IntList", dtype, {left}, to)) {
    return false;
  }
  b.move_to_computed(begin, table, elements);
  return true;
}

bool body_of_gather(const OpInfo& op, const void* args, LoopBuilder& b) {
  const mt_tensor* self = tensor_of(op, args, "self");
  const mt_tensor* out = output_of(op, args);
  const int last = self->dl.ndim - 1;
  const int64_t dim = int_of(op, args, "dim");
  if (last < 0 || out->dl.ndim != self->dl.ndim || (dim != -1 && dim != last)) return false;
  const bool of_rows = out->dl.shape[last] == 1;
  if (!b.begin(out, of_rows ? 0 : 1)) return false;
  Dims strides(self->dl.strides, self->dl.strides + last);
  strides.push_back(0);
  const int index = b.tensor(tensor_of(op, args, "index"), b.elements());
  if (!body_of_load(op, self, last, std::move(strides), index, out, b)) return false;
  if (!of_rows || !is_float_type(self->dl.dtype) ||
      !std::equal(self->dl.shape, self->dl.shape + last, out->dl.shape)) {
    return true;
  }
  const LoopCall load = b.last_call();
  return body_of_computed(self, load.inputs[1], load.inputs[0], load.results[0], b);
}

// Slices of a dimension with others behind it, which are the rows.
bool body_of_slices(const OpInfo& op, const void* args, const mt_tensor* self, int64_t dim,
                    const mt_tensor* index, LoopBuilder& b) {
  const mt_tensor* out = output_of(op, args);
  const int ndim = self->dl.ndim, outer = out->dl.ndim - ndim + 1;  // dims of the index
  if (dim < 0) dim += ndim;
  if (dim >= ndim - 1 || index->dl.ndim > outer || outer < 1) return false;
  if (!b.begin(out, static_cast<int>(ndim - 1 - dim))) return false;
  Dims over(b.elements().size(), 0), strides(b.elements().size(), 0);
  for (int d = 0; d < ndim; ++d) {
    if (d != dim) strides[static_cast<size_t>(d < dim ? d : d + outer - 1)] = self->dl.strides[d];
  }
  for (int d = 0; d < index->dl.ndim; ++d) {
    over[static_cast<size_t>(dim + d)] = index->dl.strides[d];
  }
  const int which =
      index->storage == nullptr
          ? -1
          : b.add({LoopOperand::kTensor, index, index->dl.dtype, b.elements(), std::move(over)});
  return body_of_load(op, self, dim, std::move(strides), which, out, b);
}

// out = self but for one element of each row, which an index selects.
bool body_of_scatter(const OpInfo& op, const void* args, bool adds, LoopBuilder& b) {
  const mt_tensor* self = tensor_of(op, args, "self");
  const mt_tensor* index = tensor_of(op, args, "index");
  const mt_tensor* src = tensor_of(op, args, "src");
  const mt_tensor* out = output_of(op, args);
  const int last = self->dl.ndim - 1;
  const int64_t dim = int_of(op, args, "dim");
  if (last < 0 || (dim != -1 && dim != last) || index->dl.ndim != self->dl.ndim ||
      src->dl.ndim != self->dl.ndim || index->dl.shape[last] != 1 ||
      !std::equal(self->dl.shape, self->dl.shape + last, index->dl.shape) ||
      src->storage == nullptr || index->storage == nullptr || !is_float_type(self->dl.dtype) ||
      !b.begin(out, 1)) {
    return false;
  }
  const auto of_rows = [&](const mt_tensor* tensor) { return b.tensor_of_rows(tensor); };
  const int checked = bounded(op, of_rows(index), self->dl.shape[last], last, b);
  const int from = b.tensor(self, b.elements());
  int value = of_rows(src);
  const int to = b.tensor(out, b.elements()), here = b.temporary(kTruthType, b.elements());
  if (checked < 0 || from < 0 || value < 0 || to < 0) return false;
  if (!b.call_record("eq.Tensor", kIndexType, {checked, b.position()}, here)) return false;
  const mt_dtype dtype = self->dl.dtype;
  if (adds) {
    const int sum = b.temporary(dtype, b.elements());
    if (!b.call_record("add.Tensor", dtype, {from, value}, sum)) return false;
    value = sum;
  }
  return b.call_record("where.self", dtype, {here, value, from}, to);
}

}  // namespace

const mt_program* load_program() {
  static const MadeProgram* const made = [] {
    auto* load = new MadeProgram;
    load->add("input", MT_TYPE_COMPUTE);
    load->add("input", MT_TYPE_INDEX).offset = 1;
    mt_node& node = load->add("load", MT_TYPE_COMPUTE);
    node.a[0] = 0;
    node.a[1] = 1;
    load->finish("load");
    return load;
  }();
  return &made->program;
}

bool select_body(const OpInfo& op, const void* args, LoopBuilder& b) {
  if (is_named(op.name, "gather")) return body_of_gather(op, args, b);
  if (is_named(op.name, "scatter.src")) return body_of_scatter(op, args, false, b);
  if (is_named(op.name, "scatter_add")) return body_of_scatter(op, args, true, b);
  if (is_named(op.name, "index_select")) {
    return body_of_slices(op, args, tensor_of(op, args, "self"), int_of(op, args, "dim"),
                          tensor_of(op, args, "index"), b);
  }
  if (is_named(op.name, "embedding")) {
    return body_of_slices(op, args, tensor_of(op, args, "weight"), 0,
                          tensor_of(op, args, "indices"), b);
  }
  return false;
}

}  // namespace mytorch::graph
