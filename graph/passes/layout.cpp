// Lets the convolutions of inference on a CPU work on channels-last tensors.
//
// The operators of the graph are recorded again, with channels-last operands of convolutions: what
// follows has the strides that it gets from its operands, as in the function itself. Views, and the
// results, get the strides that they had.
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/observe.h"
#include "graph/ir/uses.h"
#include "graph/passes/passes.h"
#include "graph/steps/interpret.h"
#include "graph/steps/plan_parts.h"
#include "mytorch/check.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops.h"
#include "mytorch/tensor_impl.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {
namespace {

// Whose convolutions are faster for channels-last tensors: those of oneDNN by 1.15 to 1.4 in
// ResNet-18, whereas those of cpu-openmp are slower.
constexpr std::string_view kGains = "cpu-onednn";
// The part of the elements of these that may be copied for the sake of their layout, or that other
// convolutions may have.
constexpr double kMostOthers = 0.25;
// The part of the multiplications that may belong to convolutions which run elsewhere on row-major
// tensors, because they are faster there: those that cpu-openmp computes by tiles.
constexpr double kMostTiles = 2.0 / 3;

// Whether convolutions of channels-last tensors are faster on this processor. With AVX2, ResNet-18
// takes 1.25 of its time with them.
bool gains_here() {
  const char* text = std::getenv("MYTORCH_COMPILE_LAYOUT");
  if (text != nullptr && std::string_view(text) == "always") return true;
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

// As graphs are recorded: below autocast and autograd.
constexpr uint32_t kBelow = ~uint32_t{kLayerCapture};

enum ConvolutionArg : size_t { kInput = 0, kWeight = 1, kTransposed = 6, kGroups = 8 };

bool is_convolution(const GraphNode& node) {
  return std::string_view(node.op().base) == "convolution";
}

// Whether a convolution may have channels-last operands.
bool takes_layout(const Graph& graph, const GraphNode& node) {
  const auto is = [&](size_t arg, int64_t value) {
    const auto* number = std::get_if<Scalar>(&node.args[arg].constant.variant());
    return number != nullptr && number->equals(static_cast<double>(value));
  };
  const ValueInfo& input = graph.values[static_cast<size_t>(node.args[kInput].values[0])];
  return input.sizes.size() == 4 && input.dtype == kFloat32 && is(kTransposed, 0) && is(kGroups, 1);
}

// Whether a graph is one of inference, on the CPU, whose convolutions take them.
bool is_suitable(const Graph& graph) {
  if (!graph.grads.empty()) return false;
  for (const GraphBuffer& buffer : graph.buffers) {
    if (!buffer.device.is_cpu() || buffer.origin == BufferOrigin::kGrad) return false;
  }
  std::vector<bool> seen(graph.buffers.size());
  for (const ValueId id : graph.arguments) {
    const auto buffer = static_cast<size_t>(graph.values[static_cast<size_t>(id)].buffer);
    if (seen[buffer] || graph.values[static_cast<size_t>(id)].offset != 0) return false;
    seen[buffer] = true;
  }
  bool any = false;
  for (const GraphNode& node : graph.nodes) {
    if (!is_pure(node) || node.op().dynamic) return false;
    if (!is_convolution(node)) continue;
    if (!takes_layout(graph, node)) return false;
    any = true;
  }
  return any;
}

class Relaid {
 public:
  explicit Relaid(const Recorded& from)
      : from_(from), graph_(from.graph), env_(from.graph.values.size()) {}

  // Returns the graph with other strides, or nothing if too much would be copied.
  std::optional<Recorded> run() {
    const LayerMask masked(kBelow);
    const NoGradGuard no_grad;
    std::vector<Tensor> arguments;
    for (const ValueId id : graph_.arguments) {
      const ValueInfo& info = value(id);
      Tensor& tensor = env_[static_cast<size_t>(id)];
      tensor = empty_strided(as_list(info.sizes), as_list(info.strides), TensorOptions(info.dtype));
      tensor.zero_();
      arguments.push_back(tensor);
    }
    OperatorCapture capture(arguments);
    for (const GraphNode& node : graph_.nodes) record(node);
    std::vector<Tensor> results;
    for (const ValueId id : graph_.results) {
      results.push_back(id == kNoValue ? Tensor() : as_before(id));
    }
    Recorded found = capture.finish(results);
    if (copied_ + others_ > kMostOthers * convolved_ || tiles_ > kMostTiles * products_) {
      return std::nullopt;
    }
    return found;
  }

 private:
  const ValueInfo& value(ValueId id) const { return graph_.values[static_cast<size_t>(id)]; }

  const Tensor& tensor_of(ValueId id) {
    Tensor& found = env_[static_cast<size_t>(id)];
    if (found.defined()) return found;
    const GraphBuffer& buffer = graph_.buffer_of(id);
    if (buffer.origin != BufferOrigin::kOutside) {
      fail(ErrorCode::kUnsupported, "a value is made by no operator");
    }
    const Tensor& outside = from_.outside[static_cast<size_t>(buffer.index)];
    const ValueInfo& info = value(id);
    if (outside.dtype() != info.dtype || !(outside.sizes() == as_list(info.sizes)) ||
        !(outside.strides() == as_list(info.strides))) {
      fail(ErrorCode::kUnsupported, "a tensor from outside is used by another header");
    }
    return found = outside;
  }

  // Returns a value with the strides that it had.
  Tensor as_before(ValueId id) {
    const Tensor& now = tensor_of(id);
    const ValueInfo& info = value(id);
    bool same = true;
    for (size_t d = 0; d < info.sizes.size(); ++d) {
      const auto dim = static_cast<int64_t>(d);
      same = same && (info.sizes[d] == 1 || now.stride(dim) == info.strides[d]);
    }
    if (same || now.numel() == 0) return now;
    Tensor copy =
        empty_strided(as_list(info.sizes), as_list(info.strides), TensorOptions(info.dtype));
    copy.copy_(now);
    copied_ += static_cast<double>(now.numel());
    return copy;
  }

  Tensor channels_last(ValueId id, bool input) {
    const Tensor& now = tensor_of(id);
    const Tensor moved = now.permute({0, 2, 3, 1});
    if (moved.is_contiguous()) return now;
    // Weights are converted once.
    if (input) copied_ += static_cast<double>(now.numel());
    return moved.contiguous().permute({0, 3, 1, 2});
  }

  // Runs a node, and returns whether the backend that gains ran its last kernel.
  template <class F>
  static bool runs_there(F&& run) {
    bool gains = false;
    const Observe observe([](const KernelCall&) {},
                          [&](const KernelCall&, const KernelRan& ran) {
                            if (ran.status == MT_OK) gains = ran.kernel->backend->name == kGains;
                          });
    run();
    return gains;
  }

  // Counts the multiplications of a convolution, and those that another backend would do for
  // operands as they were, which a run shows.
  void count_products(const GraphNode& node) {
    const ValueId in = node.args[kInput].values[0];
    const Tensor& weight = tensor_of(node.args[kWeight].values[0]);
    const double products = static_cast<double>(tensor_of(node.results[0].values[0]).numel()) *
                            static_cast<double>(weight.numel()) /
                            static_cast<double>(weight.size(0));
    products_ += products;
    const ValueInfo& info = value(in);
    const UnrecordedTensors unrecorded;
    const Tensor input =
        empty_strided(as_list(info.sizes), as_list(info.strides), TensorOptions(info.dtype));
    input.zero_();
    const bool gains = runs_there(
        [&] { interpret(node, [&](ValueId id) { return id == in ? input : tensor_of(id); }); });
    if (!gains) tiles_ += products;
  }

  void record(const GraphNode& node) {
    const bool view = is_view(graph_, node), convolution = is_convolution(node);
    std::vector<std::pair<ValueId, Tensor>> operands;
    node.for_each_operand([&](ValueId id) {
      Tensor tensor = view ? as_before(id) : tensor_of(id);
      if (convolution && id == node.args[kInput].values[0]) tensor = channels_last(id, true);
      if (convolution && id == node.args[kWeight].values[0]) tensor = channels_last(id, false);
      operands.emplace_back(id, std::move(tensor));
    });
    const auto operand = [&](ValueId id) {
      for (const auto& [known, tensor] : operands) {
        if (known == id) return tensor;
      }
      return Tensor();
    };
    std::vector<Value> results;
    const bool gains = runs_there([&] { results = interpret(node, operand, kBelow); });
    for (size_t r = 0; r < results.size(); ++r) {
      const std::vector<Tensor> tensors = tensors_of(results[r]);
      for (size_t k = 0; k < node.results[r].values.size(); ++k) {
        const ValueId id = node.results[r].values[k];
        if (id != kNoValue) env_[static_cast<size_t>(id)] = tensors[k];
      }
    }
    if (!convolution) return;
    count_products(node);
    (gains ? convolved_ : others_) +=
        static_cast<double>(tensor_of(node.args[kInput].values[0]).numel()) +
        static_cast<double>(tensor_of(node.results[0].values[0]).numel());
  }

  const Recorded& from_;
  const Graph& graph_;
  std::vector<Tensor> env_;                         // by value
  double copied_ = 0, convolved_ = 0, others_ = 0;  // elements
  double products_ = 0, tiles_ = 0;                 // multiplications
};

}  // namespace

void change_layout(Recorded* recorded, const PassOptions& options, Fired* fired) {
  // Other kernels add in another order.
  if (options.mode == CompileMode::kExact || !gains_here() || !is_suitable(recorded->graph)) return;
  try {
    std::optional<Recorded> found = Relaid(*recorded).run();
    if (!found.has_value()) return;
    recorded->graph = std::move(found->graph);
    recorded->outside = std::move(found->outside);
    ++(*fired)["layout"];
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    if (dumps("layout")) detail::tell(absl::StrCat("[compile] layout stays: ", error.what()));
  }
}

}  // namespace mytorch::graph
