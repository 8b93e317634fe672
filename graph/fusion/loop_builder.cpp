#include "graph/fusion/loop_builder.h"

#include <algorithm>

namespace mytorch::graph {
namespace {

// Reads a number that is an operand. Returns false if a double does not hold it.
bool number_of(const mt_tensor* tensor, double* value) {
  const void* data = tensor->dl.data;
  const mt_dtype dtype = tensor->dl.dtype;
  if (dtype.code == MT_BOOL) {
    *value = *static_cast<const bool*>(data) ? 1 : 0;
  } else if (dtype.code == MT_INT && dtype.bits == 64) {
    constexpr int64_t kExact = int64_t{1} << 53;
    const int64_t whole = *static_cast<const int64_t*>(data);
    if (whole > kExact || whole < -kExact) return false;
    *value = static_cast<double>(whole);
  } else if (dtype.code == MT_FLOAT && dtype.bits == 64) {
    *value = *static_cast<const double*>(data);
  } else {
    return false;
  }
  return true;
}

}  // namespace

const mt_tensor* tensor_of(const OpInfo& op, const void* args, std::string_view name) {
  for (int i = 0; i < op.num_args; ++i) {
    if (name == op.args[i].name) return field<const mt_tensor*>(args, op.args[i].offset);
  }
  return nullptr;
}
int64_t int_of(const OpInfo& op, const void* args, std::string_view name) {
  for (int i = 0; i < op.num_args; ++i) {
    if (name == op.args[i].name) return field<int64_t>(args, op.args[i].offset);
  }
  return 0;
}

mt_node& MadeProgram::add(const char* op, int32_t type) {
  mt_node& node = nodes.emplace_back();
  node.op = op;
  node.type = type;
  std::fill_n(node.a, 3, -1);
  return node;
}

void MadeProgram::finish(const char* name) {
  output.node = static_cast<int32_t>(nodes.size()) - 1;
  program.size = sizeof(mt_program);
  program.name = name;
  program.nodes = nodes.data();
  program.num_nodes = static_cast<int32_t>(nodes.size());
  program.outputs = &output;
  program.num_outputs = 1;
  program.step = -1;
}

bool LoopBuilder::begin(const mt_tensor* shaped, int inner) {
  body_.shape = Dims(shaped->dl.shape, shaped->dl.shape + shaped->dl.ndim);
  body_.inner = inner;
  return std::find(body_.shape.begin(), body_.shape.end(), 0) == body_.shape.end();
}

int LoopBuilder::tensor(const mt_tensor* tensor, const Dims& over) {
  if (tensor == nullptr || tensor->dl.dtype.code == MT_COMPLEX) return -1;
  if (tensor->storage == nullptr) {
    double found = 0;
    return number_of(tensor, &found) ? number(tensor->dl.dtype, found) : -1;
  }
  Dims strides(over.size(), 0);
  const auto ndim = static_cast<size_t>(tensor->dl.ndim);
  if (ndim > over.size()) return -1;
  for (size_t d = 0; d < ndim; ++d) {
    if (tensor->dl.shape[d] != 1) strides[over.size() - ndim + d] = tensor->dl.strides[d];
  }
  return add({LoopOperand::kTensor, tensor, tensor->dl.dtype, over, strides});
}

int LoopBuilder::number(mt_dtype dtype, double value) {
  LoopOperand& made = body_.operands.emplace_back();
  made.kind = LoopOperand::kNumber;
  made.dtype = dtype;
  made.number = value;
  return static_cast<int>(body_.operands.size()) - 1;
}

void LoopBuilder::note_compared(const std::vector<int>& inputs) {
  const auto operand = [&](int at) -> LoopOperand& {
    return body_.operands[static_cast<size_t>(at)];
  };
  const bool numbers = std::any_of(inputs.begin(), inputs.end(), [&](int at) {
    return at >= 0 && operand(at).kind == LoopOperand::kNumber;
  });
  for (const int at : inputs) {
    if (at >= 0 && numbers) operand(at).compared = true;
  }
}

int LoopBuilder::position() {
  LoopOperand& made = body_.operands.emplace_back();
  made.kind = LoopOperand::kPosition;
  made.dtype = kIndexType;
  return static_cast<int>(body_.operands.size()) - 1;
}

void LoopBuilder::move_to_computed(size_t begin, int table, int elements) {
  const auto from = body_.calls.begin() + static_cast<std::ptrdiff_t>(begin);
  body_.computed.assign(from, body_.calls.end());
  body_.calls.erase(from, body_.calls.end());
  body_.table = table;
  body_.elements = elements;
}

int LoopBuilder::tensor_of_rows(const mt_tensor* tensor) {
  if (tensor == nullptr || tensor->storage == nullptr) return -1;
  const Dims over = rows();
  if (static_cast<size_t>(tensor->dl.ndim) < over.size()) return -1;
  return add({LoopOperand::kTensor, tensor, tensor->dl.dtype, over,
              Dims(tensor->dl.strides, tensor->dl.strides + over.size())});
}

int LoopBuilder::add(LoopOperand operand) {
  body_.operands.push_back(std::move(operand));
  return static_cast<int>(body_.operands.size()) - 1;
}

bool LoopBuilder::call(LoopCall call) {
  const auto missing = [](int at) { return at < 0; };
  if (std::any_of(call.inputs.begin(), call.inputs.end(), missing)) return false;
  body_.calls.push_back(std::move(call));
  return true;
}

bool LoopBuilder::call_record(const char* name, mt_dtype compute, std::vector<int> inputs,
                              int result) {
  const OpEntry* entry = find_op(name);
  if (entry == nullptr) return false;
  const OpInfo& op = *entry->info;
  for (int32_t v = 0; v < op.num_programs; ++v) {
    const mt_program& program = *op.programs[v];
    LoopCall made{op.base, &program, compute, {}, {}, {result}};
    bool numbers = program.num_outputs != 1;
    for (int32_t k = 0; k < program.num_nodes; ++k) {
      const mt_node& node = program.nodes[k];
      numbers = numbers || is_named(node.op, "scalar");
      if (!is_named(node.op, "input")) continue;
      int at = 0;
      while (op.args[at].offset != node.offset) ++at;
      made.inputs.push_back(inputs[static_cast<size_t>(at)]);
    }
    if (!numbers) return call(std::move(made));
  }
  return false;
}

}  // namespace mytorch::graph
