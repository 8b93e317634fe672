#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/types/errors.h"
#include "graph/ir/ir.h"

namespace mytorch::graph {
namespace {

std::string name_of(ValueId id) { return id == kNoValue ? "none" : absl::StrCat("%", id); }

// The shortest text that reads back as the same number.
std::string number(double x) {
  if (std::isnan(x)) return "nan";
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
  std::string operator()(const Handle& x) const {
    return x.object == nullptr ? "none" : absl::StrCat("handle ", x.type);
  }
};

// Returns whether the strides follow from the sizes.
bool has_usual_strides(const ValueInfo& info) {
  Dims strides(info.sizes.size());
  contiguous_strides(info.sizes.data(), static_cast<int>(info.sizes.size()), strides.data());
  return strides == info.strides;
}

// The text of a number, which may be a function of sizes.
template <class T, class Text>
std::string symbolic(const SymbolTexts* symbols, const T* key, const Text& text) {
  if (symbols != nullptr) {
    if (const auto found = symbols->find(key); found != symbols->end()) return found->second;
  }
  return text();
}

template <class T, class Text>
std::string symbolic_list(const SymbolTexts* symbols, const T& list, const Text& text) {
  std::vector<std::string> items;
  for (const auto& each : list) {
    items.push_back(symbolic(symbols, &each, [&] { return text(each); }));
  }
  return absl::StrJoin(items, ", ");
}

std::string symbolic_dims(const SymbolTexts* symbols, const Dims& dims) {
  return symbolic_list(symbols, dims, [](int64_t each) { return absl::StrCat(each); });
}

std::string constant_text(const Arg& arg, const SymbolTexts* symbols) {
  const Value::Variant& held = arg.constant.variant();
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&held)) {
    const auto text = [](int64_t each) { return absl::StrCat(each); };
    return absl::StrCat("[", symbolic_list(symbols, *integers, text), "]");
  }
  if (const auto* reals = std::get_if<std::vector<double>>(&held)) {
    return absl::StrCat("[", symbolic_list(symbols, *reals, number), "]");
  }
  return symbolic(symbols, &arg, [&] { return std::visit(ConstantText(), held); });
}

std::string arg_text(const Arg& arg, const SymbolTexts* symbols) {
  switch (arg.kind) {
    case Arg::kConstant:
      return constant_text(arg, symbols);
    case Arg::kTensor:
      return name_of(arg.values[0]);
    default:
      return absl::StrCat("[",
                          absl::StrJoin(arg.values, ", ",
                                        [](std::string* out, ValueId id) { *out += name_of(id); }),
                          "]");
  }
}

std::string call_text(const GraphNode& node, const SymbolTexts* symbols) {
  const auto one = [=](std::string* out, const Arg& arg) { *out += arg_text(arg, symbols); };
  return absl::StrCat(node.name(), "(", absl::StrJoin(node.args, ", ", one), ")");
}

std::string leaf_text(const Leaf& leaf) {
  return absl::StrCat(leaf.origin == BufferOrigin::kArgument ? "argument " : "outside ",
                      leaf.index);
}

class GraphPrinter {
 public:
  explicit GraphPrinter(const Graph& graph, const SymbolTexts* symbols = nullptr)
      : graph_(graph),
        symbols_(symbols),
        declared_(graph.values.size()),
        first_(graph.buffers.size(), kNoValue) {}

  std::string graph();
  std::string node(const GraphNode& node);

  // Names the first value of each buffer, as if all had been declared in order.
  void know_all() {
    for (size_t id = 0; id < graph_.values.size(); ++id) know(static_cast<ValueId>(id));
  }

 private:
  bool known(int32_t buffer) const { return first_[buffer] != kNoValue; }
  void know(ValueId id) {
    declared_[id] = true;
    ValueId& first = first_[graph_.values[id].buffer];
    if (first == kNoValue) first = id;
  }
  std::string declare(ValueId id);
  std::string types_of_results(const GraphNode& node);
  void outside(std::string* text);
  // Declares an operand that is another header of some memory, or memory that no operator made.
  void header(ValueId id, std::string* text);

  const Graph& graph_;
  const SymbolTexts* const symbols_;
  std::vector<bool> declared_;  // by value
  std::vector<ValueId> first_;  // declared of each buffer
};

// "%3: float32[64, 784]", with strides if they are not contiguous, and what the value is a view of.
std::string GraphPrinter::declare(ValueId id) {
  know(id);
  const ValueInfo& info = graph_.values[id];
  std::string text = absl::StrCat(name_of(id), ": ", dtype_name(info.dtype), "[",
                                  symbolic_dims(symbols_, info.sizes));
  if (!has_usual_strides(info)) {
    absl::StrAppend(&text, "; ", symbolic_dims(symbols_, info.strides));
  }
  text += "]";
  const Device& device = graph_.buffers[info.buffer].device;
  if (!device.is_cpu()) absl::StrAppend(&text, " ", device.str());
  if (first_[info.buffer] != id) absl::StrAppend(&text, " in %", first_[info.buffer]);
  if (info.offset != 0) {
    absl::StrAppend(&text, " + ",
                    symbolic(symbols_, &info.offset, [&] { return absl::StrCat(info.offset); }));
  }
  return text;
}

// Reads the mask of a derived gradient from its results: those that are computed.
uint32_t mask_of_results(const GraphNode& node) {
  uint32_t mask = 0;
  for (size_t i = 0; i < node.results.size(); ++i) {
    const Arg& result = node.results[i];
    const bool computed = !result.values.empty() && result.values[0] != kNoValue;
    mask |= uint32_t{computed} << i;
  }
  return mask;
}

uint32_t all_results(const GraphNode& node) { return (1u << node.results.size()) - 1; }

std::string GraphPrinter::node(const GraphNode& node) {
  std::string text;
  std::vector<std::string> results;
  for (const Arg& result : node.results) {
    const auto one = [&](std::string* out, ValueId id) {
      *out += id == kNoValue ? "none" : declare(id);
    };
    const std::string joined = absl::StrJoin(result.values, ", ", one);
    results.push_back(result.kind == Arg::kTensors ? absl::StrCat("[", joined, "]") : joined);
  }
  if (!results.empty()) text = absl::StrCat(absl::StrJoin(results, ", "), " = ");
  text += call_text(node, symbols_);
  if (node.op().derived && (node.wanted & all_results(node)) != mask_of_results(node)) {
    std::vector<size_t> wanted;
    for (size_t i = 0; i < node.results.size(); ++i) {
      if ((node.wanted >> i & 1) != 0) wanted.push_back(i);
    }
    absl::StrAppend(&text, " wanted [", absl::StrJoin(wanted, ", "), "]");
  }
  return text;
}

// The first value of each buffer from outside.
void GraphPrinter::outside(std::string* text) {
  for (size_t id = 0; id < graph_.values.size(); ++id) {
    const int32_t at = graph_.values[id].buffer;
    const GraphBuffer& buffer = graph_.buffers[at];
    if (known(at) || buffer.origin == BufferOrigin::kArgument ||
        buffer.origin == BufferOrigin::kInside)
      continue;
    absl::StrAppend(text, "  ", declare(static_cast<ValueId>(id)), " = ",
                    buffer.origin == BufferOrigin::kGrad
                        ? absl::StrCat("grad(", leaf_text(buffer.leaf), ")")
                        : absl::StrCat("outside(", buffer.index, ")"),
                    "\n");
  }
}

void GraphPrinter::header(ValueId id, std::string* text) {
  if (id == kNoValue || declared_[id]) return;
  const int32_t at = graph_.values[id].buffer;
  const bool memory = !known(at);
  absl::StrAppend(text, "  ", declare(id));
  if (memory)
    absl::StrAppend(text, " = memory(",
                    symbolic(symbols_, &graph_.buffers[at],
                             [&] { return absl::StrCat(graph_.buffers[at].bytes); }),
                    ")");
  *text += "\n";
}

std::string GraphPrinter::graph() {
  const auto declared = [&](std::string* out, ValueId id) { *out += declare(id); };
  std::string text =
      absl::StrCat("graph(", absl::StrJoin(graph_.arguments, ", ", declared), ") {\n");
  outside(&text);
  bool grad_mode = true;
  for (const GraphNode& each : graph_.nodes) {
    each.for_each_operand([&](ValueId id) { header(id, &text); });
    if (each.grad_mode != grad_mode) {
      grad_mode = each.grad_mode;
      absl::StrAppend(&text, "  grad_mode(", grad_mode ? "true" : "false", ")\n");
    }
    absl::StrAppend(&text, "  ", node(each), "\n");
  }
  for (const GradResult& grad : graph_.grads) header(grad.grad, &text);
  for (const ValueId id : graph_.results) header(id, &text);
  for (const GradResult& grad : graph_.grads) {
    absl::StrAppend(&text, "  grad(", leaf_text(grad.leaf), ") = ", name_of(grad.grad), "\n");
  }
  const auto name = [](std::string* out, ValueId id) { *out += name_of(id); };
  absl::StrAppend(&text, "  return", graph_.results.empty() ? "" : " ",
                  absl::StrJoin(graph_.results, ", ", name), "\n}\n");
  return text;
}

}  // namespace

std::string call_text(const GraphNode& node) { return call_text(node, nullptr); }

std::string to_text(const Graph& graph, const GraphNode& node) {
  GraphPrinter printer(graph);
  printer.know_all();
  return printer.node(node);
}

std::string to_text(const Graph& graph, const SymbolTexts* symbols) {
  return GraphPrinter(graph, symbols).graph();
}

}  // namespace mytorch::graph
