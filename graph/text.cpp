#include <charconv>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/types/errors.h"
#include "graph/ir.h"

namespace mytorch::graph {
namespace {

std::string name_of(ValueId id) { return id == kNoValue ? "none" : absl::StrCat("%", id); }

// The shortest text that reads back as the same number.
std::string number(double x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), x).ptr;
  std::string found(text, end);
  if (found.find_first_not_of("-0123456789") == std::string::npos) found += ".";
  return found;
}

std::string scalar_text(const Scalar& x) {
  if (x.is_complex()) {
    const mt_scalar abi = x.abi();
    return absl::StrCat("(", number(abi.v.z[0]), ", ", number(abi.v.z[1]), ")");
  }
  if (x.is_float()) return number(x.to_double());
  if (x.is_bool()) return x.to_bool() ? "true" : "false";
  return absl::StrCat(x.to_int());
}

struct ConstantText {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(const Tensor&) const { return "tensor"; }
  std::string operator()(const std::vector<Tensor>&) const { return "tensors"; }
  std::string operator()(const Scalar& x) const { return scalar_text(x); }
  std::string operator()(const std::vector<int64_t>& x) const {
    return absl::StrCat("[", absl::StrJoin(x, ", "), "]");
  }
  std::string operator()(const std::vector<double>& x) const {
    const auto one = [](std::string* out, double each) { *out += number(each); };
    return absl::StrCat("[", absl::StrJoin(x, ", ", one), "]");
  }
  std::string operator()(const std::string& x) const {
    return absl::StrCat("\"", absl::CEscape(x), "\"");
  }
  std::string operator()(ScalarType x) const { return dtype_name(x); }
  std::string operator()(const Device& x) const { return x.str(); }
  std::string operator()(const Generator&) const { return "generator"; }
  std::string operator()(const Handle& x) const { return absl::StrCat("handle ", x.type); }
};

bool contiguous(const ValueInfo& info) {
  return is_contiguous(as_list(info.sizes), as_list(info.strides));
}

// "float32[64, 784]", with strides if they are not contiguous, and what the value is a view of.
std::string type_of(const Graph& graph, ValueId id) {
  const ValueInfo& info = graph.values[id];
  std::string text = absl::StrCat(dtype_name(info.dtype), "[", absl::StrJoin(info.sizes, ", "));
  if (!contiguous(info)) absl::StrAppend(&text, "; ", absl::StrJoin(info.strides, ", "));
  text += "]";
  const Device& device = graph.buffers[info.buffer].device;
  if (!device.is_cpu()) absl::StrAppend(&text, " ", device.str());
  for (ValueId other = 0; other < id; ++other) {
    if (graph.values[other].buffer != info.buffer) continue;
    absl::StrAppend(&text, " in %", other);
    break;
  }
  if (info.offset != 0) absl::StrAppend(&text, " + ", info.offset);
  return text;
}

std::string arg_text(const Arg& arg) {
  switch (arg.kind) {
    case Arg::kConstant:
      return std::visit(ConstantText(), arg.constant.variant());
    case Arg::kTensor:
      return name_of(arg.values[0]);
    default:
      return absl::StrCat("[",
                          absl::StrJoin(arg.values, ", ",
                                        [](std::string* out, ValueId id) { *out += name_of(id); }),
                          "]");
  }
}

std::string leaf_text(const Leaf& leaf) {
  return absl::StrCat(leaf.origin == Origin::kArgument ? "argument " : "outside ", leaf.index);
}

}  // namespace

std::string to_text(const Graph& graph, const Node& node) {
  std::string text;
  std::vector<std::string> results;
  for (const Arg& result : node.results) {
    const auto one = [&](std::string* out, ValueId id) {
      *out += name_of(id);
      if (id != kNoValue) absl::StrAppend(out, ": ", type_of(graph, id));
    };
    const std::string joined = absl::StrJoin(result.values, ", ", one);
    results.push_back(result.kind == Arg::kTensors ? absl::StrCat("[", joined, "]") : joined);
  }
  if (!results.empty()) text = absl::StrCat(absl::StrJoin(results, ", "), " = ");
  absl::StrAppend(&text, node.name(), "(",
                  absl::StrJoin(node.args, ", ",
                                [](std::string* out, const Arg& arg) { *out += arg_text(arg); }),
                  ")");
  return text;
}

std::string to_text(const Graph& graph) {
  const auto declared = [&](std::string* out, ValueId id) {
    absl::StrAppend(out, name_of(id), ": ", type_of(graph, id));
  };
  std::string text =
      absl::StrCat("graph(", absl::StrJoin(graph.arguments, ", ", declared), ") {\n");
  // The first value of each buffer from outside.
  std::vector<bool> seen(graph.buffers.size());
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const int32_t at = graph.values[id].buffer;
    const Buffer& buffer = graph.buffers[at];
    if (seen[at] || buffer.origin == Origin::kArgument || buffer.origin == Origin::kInside)
      continue;
    seen[at] = true;
    text += "  ";
    declared(&text, static_cast<ValueId>(id));
    absl::StrAppend(&text, " = ",
                    buffer.origin == Origin::kGrad
                        ? absl::StrCat("grad(", leaf_text(buffer.leaf), ")")
                        : absl::StrCat("outside(", buffer.index, ")"),
                    "\n");
  }
  for (const Node& node : graph.nodes) absl::StrAppend(&text, "  ", to_text(graph, node), "\n");
  for (const GradResult& grad : graph.grads) {
    absl::StrAppend(&text, "  grad(", leaf_text(grad.leaf), ") = ", name_of(grad.grad), "\n");
  }
  absl::StrAppend(
      &text, "  return ",
      absl::StrJoin(graph.results, ", ", [](std::string* out, ValueId id) { *out += name_of(id); }),
      "\n}\n");
  return text;
}

}  // namespace mytorch::graph
