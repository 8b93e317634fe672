#include "backends/reference/interpreter.h"

#include <cstddef>
#include <string_view>

#include "backends/reference/exact.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

// Returns "remainder" for "remainder.Tensor", for errors.
std::string base_name(std::string_view op) { return std::string(op.substr(0, op.find('.'))); }

}  // namespace

int64_t wrap(int64_t value, mt_dtype dtype) {
  if (sdk::is_bool(dtype)) return value;
  return sdk::visit_dtype(dtype, [&](auto tag) -> int64_t {
    return sdk::convert<int64_t>(sdk::convert<typename decltype(tag)::type>(value));
  });
}

Interpreter::Interpreter(const mt_program& program, mt_dtype compute)
    : op_(base_name(program.name)),
      compute_(compute),
      floating_(sdk::is_floating(compute)),
      outputs_(program.outputs, program.outputs + program.num_outputs) {
  for (int32_t i = 0; i < program.num_nodes; ++i) {
    Node node{program.nodes[i], Kind::kOp, nullptr};
    const std::string_view name = node.node.op;
    if (name == "input") {
      node.kind = Kind::kInput;
    } else if (name == "scalar") {
      node.kind = Kind::kScalar;
    } else if (name == "const") {
      node.kind = Kind::kConst;
    } else if (name == "cast") {
      node.kind = Kind::kCast;
    } else if (name == "count") {
      node.kind = Kind::kCount;
    } else if (name == "state") {
      node.kind = Kind::kState;
    } else {
      // Operations on bools or indices are integer operations for any compute type.
      node.op = find_node_op(name, is_real(node.node.a[0]));
      if (node.op == nullptr) throw sdk::Declined{};
    }
    nodes_.push_back(node);
  }
}

bool Interpreter::is_real(int32_t node) const {
  return floating_ && nodes_[static_cast<size_t>(node)].node.type == MT_TYPE_COMPUTE;
}

std::vector<mt_program_output> Interpreter::requested(const void* args) const {
  std::vector<mt_program_output> result;
  for (const mt_program_output& output : outputs_) {
    if (sdk::tensor_at(args, output.offset) != nullptr) result.push_back(output);
  }
  return result;
}

Plan Interpreter::plan(const std::vector<mt_program_output>& outputs) const {
  std::vector<int32_t> roots;
  for (const mt_program_output& output : outputs) roots.push_back(output.node);
  return plan(roots);
}

Plan Interpreter::plan(const std::vector<int32_t>& roots) const {
  std::vector<bool> needed(nodes_.size(), false);
  for (const int32_t root : roots) needed[static_cast<size_t>(root)] = true;
  for (size_t i = nodes_.size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const int32_t operand : nodes_[i].node.a) {
      if (operand >= 0) needed[static_cast<size_t>(operand)] = true;
    }
  }
  Plan plan;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (needed[i]) plan.push_back(static_cast<int32_t>(i));
  }
  return plan;
}

std::vector<int32_t> Interpreter::inputs(const Plan& plan) const {
  std::vector<int32_t> inputs;
  for (const int32_t i : plan) {
    if (nodes_[static_cast<size_t>(i)].kind == Kind::kInput) inputs.push_back(i);
  }
  return inputs;
}

Interpreter::Load Interpreter::load(int32_t node, const mt_tensor* operand) const {
  const int32_t type = nodes_[static_cast<size_t>(node)].node.type;
  const mt_dtype dtype = operand->dl.dtype;
  // Numbers keep the precision of float32 beside 16-bit floats.
  const bool number = operand->storage == nullptr;
  const bool narrow = sdk::is_floating(compute_) && compute_.bits == 16;
  return sdk::visit_dtype(dtype, [&](auto from_tag) -> Load {
    using From = typename decltype(from_tag)::type;
    if (type == MT_TYPE_BOOL) {
      return [](const void* p) { return whole(sdk::convert<bool>(*static_cast<const From*>(p))); };
    }
    if (type == MT_TYPE_INDEX) {
      return
          [](const void* p) { return whole(sdk::convert<int64_t>(*static_cast<const From*>(p))); };
    }
    const mt_dtype compute = number && narrow ? sdk::dtype_of<float> : compute_;
    return sdk::visit_dtype(compute, [&](auto compute_tag) -> Load {
      using Compute = typename decltype(compute_tag)::type;
      return [](const void* p) {
        const Compute value = sdk::convert<Compute>(*static_cast<const From*>(p));
        if constexpr (sdk::is_float_type<Compute>) {
          return real(sdk::convert<double>(value));
        } else {
          return whole(sdk::convert<int64_t>(value));
        }
      };
    });
  });
}

Interpreter::Store Interpreter::store(int32_t node, mt_dtype dtype) const {
  return sdk::visit_dtype(dtype, [&](auto tag) -> Store {
    using To = typename decltype(tag)::type;
    if (is_real(node)) {
      return [](Value value, void* p) { *static_cast<To*>(p) = rounded<To>(value.f); };
    }
    return [](Value value, void* p) { *static_cast<To*>(p) = rounded<To>(value.i); };
  });
}

void Interpreter::set_constants(const Plan& plan, const void* args,
                                std::vector<Value>& values) const {
  for (const int32_t i : plan) {
    const Node& node = nodes_[static_cast<size_t>(i)];
    if (node.kind != Kind::kScalar && node.kind != Kind::kConst) continue;
    const bool scalar = node.kind == Kind::kScalar;
    Value& value = values[static_cast<size_t>(i)];
    if (!is_real(i)) {
      const int64_t number = scalar ? sdk::scalar_at<int64_t>(args, node.node)
                                    : sdk::convert<int64_t>(node.node.value);
      value = whole(node.node.type == MT_TYPE_COMPUTE ? wrap(number, compute_) : number);
    } else {
      // In the compute type, as in kernels: 0.1 compared with a float is the float 0.1.
      const double number = scalar ? sdk::scalar_at<double>(args, node.node) : node.node.value;
      value = real(sdk::is_dtype<double>(compute_) ? number : static_cast<float>(number));
    }
  }
}

Value Interpreter::cast(const Node& node, Value value) const {
  const bool from_real = is_real(node.node.a[0]);
  switch (node.node.type) {
    case MT_TYPE_BOOL:
      return whole(from_real ? value.f != 0 : value.i != 0);
    case MT_TYPE_INDEX:
      return from_real ? whole(sdk::convert<int64_t>(value.f)) : value;
    default:
      break;
  }
  if (!floating_) return whole(wrap(value.i, compute_));
  return from_real ? value : real(static_cast<double>(value.i));
}

void Interpreter::run(const Plan& plan, std::vector<Value>& values, const Value* states,
                      int64_t count) const {
  const auto operand = [&](int32_t i) { return i < 0 ? whole(0) : values[static_cast<size_t>(i)]; };
  for (const int32_t i : plan) {
    const Node& node = nodes_[static_cast<size_t>(i)];
    Value& value = values[static_cast<size_t>(i)];
    switch (node.kind) {
      case Kind::kInput:
      case Kind::kScalar:
      case Kind::kConst:
        break;
      case Kind::kCast:
        value = cast(node, operand(node.node.a[0]));
        break;
      case Kind::kCount:
        value = is_real(i) ? real(static_cast<double>(count)) : whole(count);
        break;
      case Kind::kState:
        value = states[node.node.component];
        break;
      case Kind::kOp:
        value = node.op->run({operand(node.node.a[0]), operand(node.node.a[1]),
                              operand(node.node.a[2]), compute_, op_});
        if (!floating_ && node.node.type == MT_TYPE_COMPUTE) value = whole(wrap(value.i, compute_));
        break;
    }
  }
}

}  // namespace mytorch::reference
