#include "graph/fusion/loop_body.h"

#include <algorithm>

#include "graph/fusion/loop_builder.h"
#include "graph/steps/plan_parts.h"

namespace mytorch::graph {
namespace {

mt_scalar scalar_of(const void* args, const mt_node& node) {
  mt_scalar scalar{};
  switch (node.field) {
    case MT_FIELD_FLOAT:
      scalar.kind = MT_SCALAR_FLOAT;
      scalar.v.d = field<double>(args, node.offset);
      break;
    case MT_FIELD_INT:
      scalar.kind = MT_SCALAR_INT;
      scalar.v.i = field<int64_t>(args, node.offset);
      break;
    default:
      scalar = field<mt_scalar>(args, node.offset);
  }
  return scalar;
}
// The program of copy_: self = src.
const mt_program* copy_program(const OpInfo& op) {
  static const MadeProgram* const made = [&] {
    auto* copy = new MadeProgram;
    mt_node& source = copy->add("input", MT_TYPE_COMPUTE);
    for (int i = 0; i < op.num_args; ++i) {
      if (is_named(op.args[i].name, "src")) source.offset = op.args[i].offset;
      if (is_named(op.args[i].name, "self")) copy->output.offset = op.args[i].offset;
    }
    copy->finish(op.name);
    return copy;
  }();
  return &made->program;
}

const mt_program* fill_program() {
  static const MadeProgram* const made = [] {
    auto* fill = new MadeProgram;
    fill->add("input", MT_TYPE_COMPUTE);
    fill->finish("fill_");
    return fill;
  }();
  return &made->program;
}

// Finds the type in which a copy can be computed: one that holds both the source and the target.
bool compute_of_copy(mt_dtype from, mt_dtype to, mt_dtype* compute) {
  if (is_same_type(from, to) ||
      (is_float_type(to) && (!is_float_type(from) || from.bits < to.bits))) {
    *compute = to;
  } else if (!is_float_type(to)) {
    return false;
  } else {
    // float16 and bfloat16 meet in float32.
    *compute = from.bits > to.bits ? from : mt_dtype{MT_FLOAT, 32, 1};
  }
  return true;
}

// Returns the number of last dimensions that a reduction reduces; 0 if it reduces others.
int reduced_last(const mt_program& program, const void* args, const mt_tensor& input) {
  const int ndim = input.dl.ndim;
  if (ndim == 0) return 0;  // a dimension may still be named, as if there were one
  std::vector<bool> reduced(static_cast<size_t>(ndim), program.dim_field == MT_DIM_ALL);
  const auto reduce = [&](int64_t dim) {
    reduced[static_cast<size_t>(dim < 0 ? dim + ndim : dim)] = true;
  };
  if (program.dim_field == MT_DIM_LIST) {
    const auto& dims = field<mt_int_list>(args, program.dim_offset);
    if (dims.data == nullptr || dims.size == 0) return 0;
    for (int64_t i = 0; i < dims.size; ++i) reduce(dims.data[i]);
  } else if (program.dim_field == MT_DIM_INT) {
    reduce(field<int64_t>(args, program.dim_offset));
  } else {
    return 0;
  }
  int inner = 0;
  while (inner < ndim && reduced[static_cast<size_t>(ndim - 1 - inner)]) ++inner;
  for (int d = 0; d < ndim - inner; ++d) {
    if (reduced[static_cast<size_t>(d)]) return 0;
  }
  return inner;
}

bool body_of_copy(const OpInfo& op, const void* args, LoopBuilder& b) {
  const mt_program* program = copy_program(op);
  const auto* src = field<const mt_tensor*>(args, program->nodes[0].offset);
  const auto* self = field<const mt_tensor*>(args, program->outputs[0].offset);
  if (src == nullptr || self == nullptr || src->storage == nullptr) return false;
  mt_dtype compute;
  if (src->dl.dtype.code == MT_COMPLEX || self->dl.dtype.code == MT_COMPLEX ||
      !compute_of_copy(src->dl.dtype, self->dl.dtype, &compute) || !b.begin(self, 0)) {
    return false;
  }
  const int from = b.tensor(src, b.elements()), to = b.tensor(self, b.elements());
  return b.call({op.base, program, compute, {from}, {}, {to}});
}

// A copy of a number, or of the element of a tensor.
bool body_of_fill(const OpInfo& op, const void* args, LoopBuilder& b) {
  const mt_tensor* value = tensor_of(op, args, "value");
  const mt_tensor* self = tensor_of(op, args, "self");
  if (self->dl.dtype.code == MT_COMPLEX || value->dl.dtype.code == MT_COMPLEX) return false;
  const mt_dtype to = self->dl.dtype;
  mt_dtype compute = to;
  const bool number = value->storage == nullptr && is_float_type(to);
  if (!number && !compute_of_copy(value->dl.dtype, to, &compute)) return false;
  if (!b.begin(self, 0)) return false;
  const int from = b.tensor(value, b.elements());
  return b.call({op.base, fill_program(), compute, {from}, {}, {b.tensor(self, b.elements())}});
}

bool body_of_program(const OpInfo& op, const void* args, LoopBuilder& b) {
  const mt_dtype compute = header(args).compute;
  if (compute.code == MT_COMPLEX ||
      header(args).variant >= static_cast<uint32_t>(op.num_programs)) {
    return false;
  }
  const mt_program& program = program_of(op, args);
  const bool reduces = program.fold != nullptr;
  const mt_tensor* shaped = nullptr;
  for (int32_t i = 0; i < program.num_outputs && shaped == nullptr && !reduces; ++i) {
    shaped = field<const mt_tensor*>(args, program.outputs[i].offset);
  }
  for (int32_t i = 0; i < program.num_nodes && reduces; ++i) {
    const mt_node& node = program.nodes[i];
    // The element that a fold finds is told by its index in memory.
    if (node.type == MT_TYPE_INDEX && !is_named(node.op, "count")) return false;
    if (!is_named(node.op, "input")) continue;
    if (shaped != nullptr) return false;
    shaped = field<const mt_tensor*>(args, node.offset);
    if (shaped == nullptr || shaped->storage == nullptr) return false;
  }
  if (shaped == nullptr) return false;
  const int inner = reduces ? reduced_last(program, args, *shaped) : 0;
  if ((reduces && inner == 0) || !b.begin(shaped, inner)) return false;
  LoopCall call{op.base, &program, compute, {}, {}, {}};
  for (int32_t i = 0; i < program.num_nodes; ++i) {
    const mt_node& node = program.nodes[i];
    if (is_named(node.op, "input")) {
      call.inputs.push_back(b.tensor(field<const mt_tensor*>(args, node.offset), b.elements()));
    } else if (is_named(node.op, "scalar")) {
      call.scalars.push_back(scalar_of(args, node));
      const int32_t kind = call.scalars.back().kind;
      if (kind == MT_SCALAR_NONE || kind == MT_SCALAR_COMPLEX) return false;
    }
  }
  if (op.promote == Promote::kCompare && compute.bits == 16 && is_float_type(compute)) {
    b.note_compared(call.inputs);
  }
  for (int32_t i = 0; i < program.num_outputs; ++i) {
    const auto* output = field<const mt_tensor*>(args, program.outputs[i].offset);
    call.results.push_back(output == nullptr ? -1
                           : reduces         ? b.tensor_of_rows(output)
                                             : b.tensor(output, b.elements()));
    if (output != nullptr && call.results.back() < 0) return false;
  }
  return b.call(std::move(call));
}

}  // namespace

bool LoopBody::of(const PlanStep& step, LoopBody* body) {
  const OpInfo& op = *step.entry->info;
  const void* args = step.args.get();
  if (!step.random.empty()) return false;
  LoopBuilder builder(body);
  if (is_named(op.name, "copy_")) return body_of_copy(op, args, builder);
  if (is_named(op.name, "fill_")) return body_of_fill(op, args, builder);
  if (op.meaning == Meaning::kPointwise || op.meaning == Meaning::kReduce) {
    return body_of_program(op, args, builder);
  }
  if (op.num_outputs != 1 || op.outputs[0].offset == kNoField || output_of(op, args) == nullptr ||
      output_of(op, args)->dl.dtype.code == MT_COMPLEX) {
    return false;
  }
  LoopBody found;
  LoopBuilder other(&found);
  const bool is_loop = select_body(op, args, other) || softmax_body(op, args, other);
  if (is_loop) *body = std::move(found);
  return is_loop;
}

}  // namespace mytorch::graph
