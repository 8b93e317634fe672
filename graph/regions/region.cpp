#include "graph/regions/region.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dispatcher/table/fields.h"
#include "graph/ir/uses.h"

namespace mytorch::graph {
namespace {

// The description of an argument of a node; null for the leading outputs of the out= form.
const ArgInfo* info_of(const GraphNode& node, size_t at) {
  const size_t leading = node.form == kOut ? static_cast<size_t>(node.outs()) : 0;
  return at < leading ? nullptr : &node.op().args[at - leading];
}

bool fits_argument(const GraphNode& node, size_t at) {
  const Arg& arg = node.args[at];
  if (arg.kind != Arg::kConstant) return true;
  const ArgInfo* info = info_of(node, at);
  if (info != nullptr && info->type == ArgType::kHandle && !arg.constant.is_none()) return false;
  const Value::Variant& value = arg.constant.variant();
  if (const auto* number = std::get_if<Scalar>(&value)) return !number->is_complex();
  if (const auto* type = std::get_if<ScalarType>(&value)) return !is_complex(*type);
  if (const auto* tensor = std::get_if<Tensor>(&value)) return !tensor->defined();
  return !std::holds_alternative<Handle>(value) &&
         !std::holds_alternative<std::vector<Tensor>>(value);
}

mt_scalar number_of(const Scalar& number, const ArgInfo* info) {
  mt_scalar found{};
  if (number.is_float() || (info != nullptr && info->type == ArgType::kFloat)) {
    found.kind = MT_SCALAR_FLOAT;
    found.v.d = number.to_double();
  } else {
    const bool is_bool = number.is_bool() || (info != nullptr && info->type == ArgType::kBool);
    found.kind = is_bool ? MT_SCALAR_BOOL : MT_SCALAR_INT;
    found.v.i = number.to_int();
  }
  return found;
}

mt_device device_abi(const Device& device) { return {device.type, device.index}; }

}  // namespace

bool fits_region(const Flow& flow, int32_t index) {
  const GraphNode& node = flow.graph.nodes[index];
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (!fits_argument(node, i)) return false;
  }
  bool fits = true;
  const auto look = [&](ValueId id) { fits = fits && !is_complex(flow.graph.values[id].dtype); };
  node.for_each_operand(look);
  node.for_each_result(look);
  // Who reads the memory outside of the region relies on all of it.
  node.for_each_result([&](ValueId id) {
    const MemoryFlow& memory = flow.memories[flow.memory(id)];
    if (memory.maker != index || memory.whole != id) return;
    const ValueInfo& info = flow.graph.values[id];
    fits = fits && info.offset == 0 && bytes_of(info) >= memory.bytes;
  });
  return fits;
}

GraphRegion::GraphRegion(const Flow& flow, const std::vector<int32_t>& nodes,
                         const std::vector<const void*>& constants, CompileMode mode)
    : flow_(flow), members_(nodes) {
  for (const int32_t index : nodes) add_node(flow.graph.nodes[index]);
  classify(constants);
  constexpr size_t kNamed = 6;
  name_ = "region";
  for (size_t i = 0; i < std::min(nodes.size(), kNamed); ++i) {
    absl::StrAppend(&name_, "_", flow.graph.nodes[nodes[i]].op().base);
  }
  if (nodes.size() > kNamed) absl::StrAppend(&name_, "_and_", nodes.size() - kNamed, "_more");
  abi_.size = sizeof(mt_region);
  abi_.name = name_.c_str();
  abi_.flags = mode == CompileMode::kExact ? uint32_t{MT_REGION_EXACT} : 0;
  abi_.device = device_abi(flow.graph.buffer_of(ids_[0]).device);
  abi_.num_nodes = static_cast<int32_t>(nodes_.size());
  abi_.num_values = static_cast<int32_t>(values_.size());
  abi_.num_memories = static_cast<int32_t>(bytes_.size());
  abi_.num_inputs = static_cast<int32_t>(inputs_.size());
  abi_.num_outputs = static_cast<int32_t>(outputs_.size());
  abi_.num_random = static_cast<int32_t>(generators_.size());
  abi_.node_size = sizeof(mt_region_node);
  abi_.value_size = sizeof(mt_region_value);
  abi_.arg_size = sizeof(mt_region_arg);
  abi_.nodes = nodes_.data();
  abi_.values = values_.data();
  abi_.memory_bytes = bytes_.data();
  abi_.inputs = inputs_.data();
  abi_.outputs = outputs_.data();
}

std::string GraphRegion::operators() const {
  std::string text;
  for (const int32_t index : members_) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", flow_.graph.nodes[index].name());
  }
  return text;
}

bool GraphRegion::has_constants() const {
  return std::any_of(values_.begin(), values_.end(),
                     [](const mt_region_value& value) { return value.kind == MT_REGION_CONSTANT; });
}

int32_t GraphRegion::value(ValueId id) {
  if (id == kNoValue) return -1;
  const auto [at, added] = numbers_.try_emplace(id, static_cast<int32_t>(values_.size()));
  if (!added) return at->second;
  const auto [memory, is_new] =
      memories_.try_emplace(flow_.memory(id), static_cast<int32_t>(bytes_.size()));
  if (is_new) bytes_.push_back(flow_.memories[flow_.memory(id)].bytes);
  const ValueInfo& info = flow_.graph.values[id];
  mt_region_value found{};
  found.kind = MT_REGION_INSIDE;
  found.index = -1;
  found.memory = memory->second;
  found.dtype = mytorch::to_abi(info.dtype);
  found.ndim = static_cast<int32_t>(info.sizes.size());
  found.shape = info.sizes.data();  // of the graph, which outlives the region
  found.strides = info.strides.data();
  found.offset = info.offset;
  values_.push_back(found);
  ids_.push_back(id);
  made_.push_back(false);
  return at->second;
}

void GraphRegion::add_node(const GraphNode& node) {
  mt_region_node found{};
  found.op = node.op().name;
  found.hash = node.op().hash;
  found.form = node.form == kInplace ? int32_t{MT_REGION_INPLACE}
               : node.form == kOut   ? int32_t{MT_REGION_OUT}
                                     : int32_t{MT_REGION_FUNCTION};
  std::vector<mt_region_arg>& args = args_.emplace_back();
  for (size_t i = 0; i < node.args.size(); ++i) args.push_back(argument(node, i));
  std::vector<int32_t>& results = number_lists_.emplace_back();
  for (const Arg& result : node.results) {
    for (const ValueId id : result.values) {
      const bool known = id == kNoValue || numbers_.contains(id);
      results.push_back(value(id));
      if (!known) made_.back() = true;
    }
    if (result.values.empty()) results.push_back(-1);
  }
  found.num_args = static_cast<int32_t>(args.size());
  found.args = args.data();
  found.num_results = static_cast<int32_t>(results.size());
  found.results = results.data();
  nodes_.push_back(found);
}

mt_region_arg GraphRegion::argument(const GraphNode& node, size_t at) {
  const Arg& arg = node.args[at];
  const ArgInfo* info = info_of(node, at);
  mt_region_arg found{};
  found.name = info != nullptr ? info->name : node.op().outputs[at].name;
  if (arg.kind != Arg::kConstant) {
    std::vector<int32_t>& list = number_lists_.emplace_back();
    for (const ValueId id : arg.values) list.push_back(value(id));
    found.kind = MT_REGION_ARG_VALUES;
    found.count = static_cast<int32_t>(list.size());
    found.list = arg.kind == Arg::kTensors ? 1 : 0;
    found.written = node.writes(at) ? 1 : 0;
    found.v.values = list.data();
    return found;
  }
  const Value::Variant& constant = arg.constant.variant();
  if (const auto* number = std::get_if<Scalar>(&constant)) {
    found.kind = MT_REGION_ARG_NUMBER;
    found.v.number = number_of(*number, info);
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&constant)) {
    found.kind = MT_REGION_ARG_INTS;
    found.count = static_cast<int32_t>(ints->size());
    found.v.ints = ints->data();
  } else if (const auto* floats = std::get_if<std::vector<double>>(&constant)) {
    found.kind = MT_REGION_ARG_FLOATS;
    found.count = static_cast<int32_t>(floats->size());
    found.v.floats = floats->data();
  } else if (const auto* text = std::get_if<std::string>(&constant)) {
    found.kind = MT_REGION_ARG_STRING;
    found.v.string = text->c_str();
  } else if (const auto* dtype = std::get_if<ScalarType>(&constant)) {
    found.kind = MT_REGION_ARG_DTYPE;
    found.v.dtype = mytorch::to_abi(*dtype);
  } else if (const auto* device = std::get_if<Device>(&constant)) {
    found.kind = MT_REGION_ARG_DEVICE;
    found.v.device = device_abi(*device);
  } else if (info != nullptr && info->type == ArgType::kGenerator) {
    const auto* generator = std::get_if<Generator>(&constant);
    found.kind = MT_REGION_ARG_RANDOM;
    found.v.random = static_cast<int32_t>(generators_.size());
    generators_.push_back(generator != nullptr ? *generator : default_generator());
  }
  return found;
}

// Returns whether the graph reads a memory outside of the region.
bool GraphRegion::is_used_outside(const MemoryFlow& memory) const {
  return memory.escapes ||
         !std::includes(members_.begin(), members_.end(), memory.users.begin(), memory.users.end());
}

// Says where each value comes from and goes to.
void GraphRegion::classify(const std::vector<const void*>& constants) {
  std::vector<bool> written(bytes_.size());
  for (const mt_region_node& node : nodes_) {
    for (int32_t i = 0; i < node.num_args; ++i) {
      if (node.args[i].written == 0) continue;
      for (int32_t k = 0; k < node.args[i].count; ++k) {
        const int32_t id = node.args[i].v.values[k];
        if (id >= 0) written[values_[id].memory] = true;
      }
    }
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    mt_region_value& found = values_[i];
    const ValueId id = ids_[i];
    const MemoryFlow& memory = flow_.memories[flow_.memory(id)];
    const bool made_here = std::binary_search(members_.begin(), members_.end(), memory.maker);
    if (made_here) {
      if (memory.whole != id || !is_used_outside(memory)) continue;
      found.kind = MT_REGION_OUTPUT;
      found.index = static_cast<int32_t>(outputs_.size());
      outputs_.push_back(static_cast<int32_t>(i));
      output_ids_.push_back(id);
      continue;
    }
    if (made_[i]) continue;  // a view
    const void* data = constants[flow_.graph.values[id].buffer];
    if (data != nullptr) {
      const ValueInfo& info = flow_.graph.values[id];
      found.kind = MT_REGION_CONSTANT;
      found.data = static_cast<const char*>(data) + info.offset * element_size(info.dtype);
      continue;
    }
    found.kind = MT_REGION_INPUT;
    found.flags = written[found.memory] ? uint32_t{MT_REGION_WRITTEN} : 0;
    found.index = static_cast<int32_t>(inputs_.size());
    inputs_.push_back(static_cast<int32_t>(i));
    input_ids_.push_back(id);
  }
}

}  // namespace mytorch::graph
