#include "graph/ir/copies.h"

#include <algorithm>
#include <string_view>

namespace mytorch::graph {
namespace {

// The bits of a number besides its sign, and those of its exponent.
struct Format {
  int digits = 0;
  int exponent = 0;
};

Format format_of(ScalarType type) {
  switch (type) {
    case kBool:
      return {1, 0};
    case kUInt8:
      return {8, 0};
    case kInt8:
      return {7, 0};
    case kInt16:
      return {15, 0};
    case kInt32:
      return {31, 0};
    case kInt64:
      return {63, 0};
    case kFloat16:
      return {11, 5};
    case kBFloat16:
      return {8, 8};
    case kFloat32:
      return {24, 8};
    case kFloat64:
      return {53, 11};
    default:
      return {};
  }
}

}  // namespace

std::optional<BufferCopy> copy_of(const Graph& graph, const GraphUses& uses, int32_t index) {
  const GraphNode& node = graph.nodes[static_cast<size_t>(index)];
  if (node.form != kFunction || std::string_view(node.op().base) != "copy_" ||
      node.args[0].kind != Arg::kTensor || node.args[1].kind != Arg::kTensor) {
    return std::nullopt;
  }
  const BufferCopy copy{index, node.args[1].values[0], node.args[0].values[0]};
  const ValueInfo& from = graph.values[static_cast<size_t>(copy.from)];
  const ValueInfo& to = graph.values[static_cast<size_t>(copy.to)];
  const BufferUses& memory = uses.of(copy.to);
  const bool fresh =
      graph.buffer_of(copy.to).origin == BufferOrigin::kInside && memory.producer < 0 &&
      memory.written.size() == 1 && graph.buffer_of(copy.to).bytes == bytes_of(to) &&
      to.offset == 0 &&
      std::all_of(memory.read.begin(), memory.read.end(), [&](int32_t at) { return at >= index; });
  if (!fresh || from.sizes != to.sizes || from.buffer == to.buffer ||
      graph.buffer_of(copy.from).device != graph.buffer_of(copy.to).device) {
    return std::nullopt;
  }
  return copy;
}

bool is_widening(ScalarType from, ScalarType to) {
  const Format a = format_of(from), b = format_of(to);
  if (a.digits == 0 || b.digits == 0 || to == kBool) return false;
  if (a.exponent > 0) return b.digits >= a.digits && b.exponent >= a.exponent;
  // Integers: float16 and bfloat16 hold those of their digits.
  const bool is_signed = from != kUInt8 && from != kBool;
  return b.digits >= a.digits && (to != kUInt8 || !is_signed);
}

}  // namespace mytorch::graph
