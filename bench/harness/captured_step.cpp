#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "bench/harness/cost.h"
#include "bench/harness/graph_cost.h"
#include "core/types/errors.h"

namespace mytorch::bench {
namespace {

using graph::BufferOrigin;
using graph::GraphBuffer;
using graph::GraphNode;
using graph::kNoValue;
using graph::ValueId;
using graph::ValueInfo;

double numel_of(const ValueInfo& info) {
  double n = 1;
  for (const int64_t size : as_list(info.sizes)) n *= static_cast<double>(size);
  return n;
}
double bytes_of(const ValueInfo& info) {
  return numel_of(info) * static_cast<double>(element_size(info.dtype));
}

// The argument of an operator by that name, or nullptr.
const graph::Arg* arg_of(const GraphNode& node, std::string_view name) {
  const size_t leading = node.form == kOut ? static_cast<size_t>(node.outs()) : 0;
  for (int i = 0; i < node.op().num_args; ++i) {
    const size_t at = leading + static_cast<size_t>(i);
    if (at < node.args.size() && node.op().args[i].name == name) return &node.args[at];
  }
  return nullptr;
}

// What a node reads and writes, by buffer.
struct Access {
  bool reads = false, writes = false;
};
using Accesses = std::map<int32_t, Access>;

Accesses accesses_of(const graph::Graph& graph, const GraphNode& node) {
  Accesses found;
  const auto buffer = [&](ValueId id) -> Access& {
    return found[graph.values[static_cast<size_t>(id)].buffer];
  };
  // A view only names memory; what uses it reads.
  if (node.op().meaning == Meaning::kView) return found;
  node.for_each_operand([&](ValueId id) { buffer(id).reads = true; });
  node.for_each_written([&](ValueId id) { buffer(id).writes = true; });
  node.for_each_result([&](ValueId id) { buffer(id).writes = true; });
  return found;
}

class Capture {
 public:
  explicit Capture(const graph::Graph& graph) : graph_(graph), costs_(graph) {
    for (const GraphNode& node : graph.nodes) accesses_.push_back(accesses_of(graph, node));
  }

  plan::Captured step() {
    find_gradients();
    add_kernels();
    add_parameters();
    add_outside();
    captured_.activations = most_activations();
    return std::move(captured_);
  }

 private:
  size_t count() const { return graph_.nodes.size(); }

  // The node that completes each gradient, and the first one of the update.
  void find_gradients() {
    for (const graph::GradResult& grad : graph_.grads) {
      if (grad.grad == kNoValue || grad.leaf.origin != BufferOrigin::kOutside) continue;
      const int32_t buffer = graph_.values[static_cast<size_t>(grad.grad)].buffer;
      size_t last = 0;
      bool written = false;
      for (size_t i = 0; i < count(); ++i) {
        const auto access = accesses_[i].find(buffer);
        if (access == accesses_[i].end()) continue;
        if (access->second.writes) {
          last = i;
          written = true;
        } else if (written) {
          break;
        }
      }
      if (!written) continue;  // as it was before the step
      gradients_.push_back({grad, last});
      gradient_buffers_.push_back(buffer);
      update_ = std::max(update_, last + 1);
    }
    if (gradients_.empty()) {
      fail(ErrorCode::kValue,
           "[plan] the graph computes no gradient of a tensor from outside: capture a step with "
           "its backward");
    }
  }

  void add_kernels() {
    for (size_t i = 0; i < count(); ++i) {
      if (i == update_) captured_.update = static_cast<int>(captured_.kernels.size());
      const GraphNode& node = graph_.nodes[i];
      kernel_of_.push_back(static_cast<int>(captured_.kernels.size()));
      const NodeCost cost = costs_.of(node);
      if (cost.bytes == 0 && cost.flops == 0) continue;
      captured_.kernels.push_back(kernel(node, cost));
    }
    if (update_ == count()) captured_.update = static_cast<int>(captured_.kernels.size());
  }

  plan::Kernel kernel(const GraphNode& node, const NodeCost& cost) const {
    const std::string& name = node.op().name;
    if (!cost.recorded) return {.name = name, .bytes = cost.bytes};
    std::vector<double> numels;
    double element = 8;
    const auto add = [&](ValueId id) {
      const ValueInfo& info = graph_.values[static_cast<size_t>(id)];
      numels.push_back(numel_of(info));
      if (is_floating_point(info.dtype)) {
        element = std::min(element, static_cast<double>(element_size(info.dtype)));
      }
    };
    node.for_each_operand(add);
    node.for_each_result(add);
    const graph::Arg* query = arg_of(node, "query");
    if (name.starts_with("attention") && query != nullptr && query->kind == graph::Arg::kTensor) {
      return attention(node, cost, query->values[0]);
    }
    // The operands and the result; others, such as a bias, are smaller.
    std::sort(numels.begin(), numels.end(), std::greater<>());
    numels.resize(std::min<size_t>(numels.size(), 3));
    return plan::product_of(name, cost.flops, cost.bytes, element, numels);
  }

  plan::Kernel attention(const GraphNode& node, const NodeCost& cost, ValueId query) const {
    const ValueInfo& info = graph_.values[static_cast<size_t>(query)];
    const IntList sizes = as_list(info.sizes);
    plan::Kernel kernel{plan::Kernel::kAttention, node.op().name, cost.flops, cost.bytes};
    kernel.backward = kernel.name.find("backward") != std::string::npos;
    kernel.width = static_cast<double>(sizes[sizes.size() - 1]);
    kernel.length = static_cast<double>(sizes[sizes.size() - 2]);
    const graph::Arg* right = arg_of(node, "right");
    if (right != nullptr && right->kind == graph::Arg::kConstant &&
        fact_of(right->constant).number == 0) {
      kernel.flops /= 2;  // a causal mask
    }
    return kernel;
  }

  void add_parameters() {
    for (const auto& [grad, last] : gradients_) {
      plan::CapturedParameter parameter;
      parameter.gradient_bytes = bytes_of(graph_.values[static_cast<size_t>(grad.grad)]);
      parameter.gradient = kernel_of_[last];
      const int32_t buffer = outside_buffer(grad.leaf.index);
      outside_parameters_.push_back(buffer);
      parameter.bytes = static_cast<double>(graph_.buffers[static_cast<size_t>(buffer)].bytes);
      for (size_t i = 0; i < update_; ++i) {
        const auto access = accesses_[i].find(buffer);
        if (access == accesses_[i].end() || !access->second.reads) continue;
        if (kernel_of_[i] < captured_.update) parameter.uses.push_back(kernel_of_[i]);
      }
      captured_.parameters.push_back(std::move(parameter));
    }
  }

  int32_t outside_buffer(int32_t index) const {
    for (size_t i = 0; i < graph_.buffers.size(); ++i) {
      const GraphBuffer& buffer = graph_.buffers[i];
      if (buffer.origin == BufferOrigin::kOutside && buffer.index == index) {
        return static_cast<int32_t>(i);
      }
    }
    fail(ErrorCode::kValue, "[plan] the graph has a gradient of outside tensor ", index,
         ", which it does not have");
  }

  // Tensors from outside that are no parameters: written before the update, or by it.
  void add_outside() {
    for (size_t b = 0; b < graph_.buffers.size(); ++b) {
      const auto number = static_cast<int32_t>(b);
      const GraphBuffer& buffer = graph_.buffers[b];
      const auto bytes = static_cast<double>(buffer.bytes);
      if (buffer.origin == BufferOrigin::kArgument) captured_.inputs += bytes;
      if (buffer.origin != BufferOrigin::kOutside ||
          std::find(outside_parameters_.begin(), outside_parameters_.end(), number) !=
              outside_parameters_.end()) {
        continue;
      }
      for (size_t i = 0; i < count(); ++i) {
        const auto access = accesses_[i].find(number);
        if (access == accesses_[i].end() || !access->second.writes) continue;
        if (i < update_) {
          captured_.buffers.push_back(bytes);
        } else {
          captured_.state += bytes;
        }
        break;
      }
    }
  }

  // Results live from the node that makes them to the last one that uses their memory.
  double most_activations() const {
    std::map<int32_t, std::pair<size_t, size_t>> lives;
    for (size_t i = 0; i < count(); ++i) {
      const auto use = [&](ValueId id) {
        const int32_t buffer = graph_.values[static_cast<size_t>(id)].buffer;
        lives.try_emplace(buffer, i, i).first->second.second = i;
      };
      graph_.nodes[i].for_each_operand(use);
      graph_.nodes[i].for_each_result(use);
    }
    for (const ValueId id : graph_.results) {
      const auto life = lives.find(graph_.values[static_cast<size_t>(id)].buffer);
      if (life != lives.end()) life->second.second = count();
    }
    std::vector<double> change(count() + 2, 0);
    for (const auto& [number, life] : lives) {
      const GraphBuffer& buffer = graph_.buffers[static_cast<size_t>(number)];
      if (buffer.origin != BufferOrigin::kInside ||
          std::find(gradient_buffers_.begin(), gradient_buffers_.end(), number) !=
              gradient_buffers_.end()) {
        continue;
      }
      change[life.first] += static_cast<double>(buffer.bytes);
      change[life.second + 1] -= static_cast<double>(buffer.bytes);
    }
    double live = 0, most = 0;
    for (const double each : change) most = std::max(most, live += each);
    return most;
  }

  const graph::Graph& graph_;
  GraphCosts costs_;
  std::vector<Accesses> accesses_;  // of each node
  struct Found {
    graph::GradResult grad;
    size_t last;  // node
  };
  std::vector<Found> gradients_;
  std::vector<int32_t> gradient_buffers_, outside_parameters_;
  size_t update_ = 0;           // node
  std::vector<int> kernel_of_;  // of each node; of a view, the next one
  plan::Captured captured_;
};

}  // namespace

plan::Captured captured_step(const graph::Graph& graph) { return Capture(graph).step(); }

}  // namespace mytorch::bench
