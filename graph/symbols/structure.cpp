#include "graph/symbols/structure.h"

#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "mytorch/generator.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {
namespace {

// Constants that the function makes in each call from values of the host are told by their bytes.
constexpr int64_t kMostBytes = 1 << 16;

bool same_outside(const Tensor& a, const Tensor& b) {
  if (a.is_same(b)) return true;
  if (a.dtype() != b.dtype() || !(a.sizes() == b.sizes()) || !(a.strides() == b.strides()) ||
      a.requires_grad() || b.requires_grad() || !a.device().is_cpu() || !b.device().is_cpu() ||
      a.nbytes() > kMostBytes || !a.is_contiguous()) {
    return false;
  }
  const void* const x = a.impl()->abi.dl.data;
  const void* const y = b.impl()->abi.dl.data;
  return a.nbytes() == 0 || std::memcmp(x, y, static_cast<size_t>(a.nbytes())) == 0;
}

bool same_constant(const Value& a, const Value& b) {
  if (a.variant().index() != b.variant().index()) return false;
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        const T& y = std::get<T>(b.variant());
        if constexpr (std::is_same_v<T, Scalar>) {
          if (x.is_int() != y.is_int() || x.is_float() != y.is_float()) return false;
          return x.is_int() || x.is_float() || x == y;
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>> ||
                             std::is_same_v<T, std::vector<double>>) {
          return x.size() == y.size();
        } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, ScalarType> ||
                             std::is_same_v<T, Device>) {
          return x == y;
        } else if constexpr (std::is_same_v<T, Generator>) {
          return x.shares_state(y);
        } else if constexpr (std::is_same_v<T, Handle>) {
          return x.object == y.object;
        } else {
          return std::is_same_v<T, std::monostate>;
        }
      },
      a.variant());
}

bool same_args(const std::vector<Arg>& a, const std::vector<Arg>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind != b[i].kind || a[i].values != b[i].values ||
        !same_constant(a[i].constant, b[i].constant)) {
      return false;
    }
  }
  return true;
}

bool same_grads(const std::vector<GradResult>& a, const std::vector<GradResult>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(a[i].leaf == b[i].leaf) || a[i].grad != b[i].grad) return false;
  }
  return true;
}

}  // namespace

std::string structural_difference(const Recorded& a, const Recorded& b) {
  const Graph& x = a.graph;
  const Graph& y = b.graph;
  for (size_t i = 0; i < x.nodes.size() && i < y.nodes.size(); ++i) {
    const GraphNode& m = x.nodes[i];
    const GraphNode& n = y.nodes[i];
    if (m.entry != n.entry || m.form != n.form) {
      return absl::StrCat("node ", i, " is ", m.name(), " at one size and ", n.name(),
                          " at another");
    }
    if (m.grad_mode != n.grad_mode || m.wanted != n.wanted || !same_args(m.args, n.args) ||
        !same_args(m.results, n.results)) {
      return absl::StrCat("node ", i, ", ", m.name(), ", has other operands at another size");
    }
  }
  if (x.nodes.size() != y.nodes.size()) {
    return absl::StrCat("it has ", x.nodes.size(), " nodes at one size and ", y.nodes.size(),
                        " at another");
  }
  bool same = x.buffers.size() == y.buffers.size() && x.values.size() == y.values.size() &&
              x.arguments == y.arguments && x.results == y.results &&
              same_grads(x.grads, y.grads) && same_grads(a.entry_grads, b.entry_grads);
  for (size_t i = 0; same && i < x.buffers.size(); ++i) {
    const GraphBuffer& m = x.buffers[i];
    const GraphBuffer& n = y.buffers[i];
    same = m.origin == n.origin && m.index == n.index && m.leaf == n.leaf && m.device == n.device;
  }
  for (size_t i = 0; same && i < x.values.size(); ++i) {
    const ValueInfo& m = x.values[i];
    const ValueInfo& n = y.values[i];
    same = m.buffer == n.buffer && m.dtype == n.dtype && m.sizes.size() == n.sizes.size();
  }
  if (!same) return "its values share memory differently at another size";
  if (a.outside.size() != b.outside.size()) return "it refers to other tensors at another size";
  for (size_t i = 0; i < a.outside.size(); ++i) {
    if (!same_outside(a.outside[i], b.outside[i])) {
      return absl::StrCat("outside(", i, "), of shape ", shape_str(a.outside[i].sizes()),
                          ", is another tensor at another size: make it with operators");
    }
  }
  return "";
}

void normalize_arguments(Recorded* recorded) {
  Graph& graph = recorded->graph;
  std::vector<int> arguments(graph.buffers.size());
  for (const ValueId id : graph.arguments) {
    ++arguments[static_cast<size_t>(graph.values[static_cast<size_t>(id)].buffer)];
  }
  for (const ValueId id : graph.arguments) {
    const ValueInfo of = graph.values[static_cast<size_t>(id)];
    const int64_t shift = of.offset * element_size(of.dtype);
    if (shift == 0 || arguments[static_cast<size_t>(of.buffer)] != 1) continue;
    bool divides = true;
    for (const ValueInfo& info : graph.values) {
      divides = divides && (info.buffer != of.buffer || shift % element_size(info.dtype) == 0);
    }
    if (!divides) continue;
    for (ValueInfo& info : graph.values) {
      if (info.buffer == of.buffer) info.offset -= shift / element_size(info.dtype);
    }
  }
}

}  // namespace mytorch::graph
