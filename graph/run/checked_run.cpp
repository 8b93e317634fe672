#include "graph/run/checked_run.h"

#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "graph/formats/parse.h"
#include "graph/steps/interpret.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {
namespace {

class CheckedRun {
 public:
  CheckedRun(const Recorded& recorded, const std::vector<Tensor>& arguments,
             const std::function<void(const Tensor&)>& computed)
      : recorded_(recorded),
        graph_(recorded.graph),
        arguments_(arguments),
        computed_(computed),
        env_(graph_.values.size()),
        memories_(graph_.buffers.size()) {}

  std::vector<Tensor> run();

 private:
  // The memory of a buffer: a tensor that holds its storage, and where the buffer begins there.
  struct CheckedMemory {
    Tensor holder;
    int64_t begin = 0;  // in bytes
  };

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    const std::string name = node_ < graph_.nodes.size() ? graph_.nodes[node_].name() : "the end";
    fail(ErrorCode::kValue, "[graph] node ", node_, ", ", name, ": ", parts...);
  }

  void adopt(int32_t buffer, const Tensor& holder, int64_t begin) {
    const auto [at, added] = buffer_of_.try_emplace(holder.impl()->storage, buffer);
    if (!added && at->second != buffer) {
      refuse("the graph states that two values have memory of their own, but they share it");
    }
    memories_[buffer] = {holder, begin};
  }

  void adopt_sources();
  Tensor tensor_of(ValueId id);
  void take_result(ValueId id, const Tensor& tensor);
  void run_node(const GraphNode& node);

  const Recorded& recorded_;
  const Graph& graph_;
  const std::vector<Tensor>& arguments_;
  const std::function<void(const Tensor&)>& computed_;
  std::vector<Tensor> env_;  // by value
  std::vector<CheckedMemory> memories_;
  absl::flat_hash_map<const Storage*, int32_t> buffer_of_;
  size_t node_ = 0;
};

void CheckedRun::adopt_sources() {
  for (size_t b = 0; b < graph_.buffers.size(); ++b) {
    const GraphBuffer& buffer = graph_.buffers[b];
    const auto id = static_cast<int32_t>(b);
    if (buffer.origin == BufferOrigin::kArgument) {
      const ValueInfo& info = graph_.values[graph_.arguments[buffer.index]];
      const Tensor& tensor = arguments_[buffer.index];
      adopt(id, tensor, (tensor.impl()->offset() - info.offset) * element_size(info.dtype));
    } else if (buffer.origin == BufferOrigin::kOutside) {
      adopt(id, recorded_.outside[buffer.index], 0);
    } else if (buffer.origin == BufferOrigin::kGrad) {
      const Tensor grad = recorded_.leaf(buffer.leaf, arguments_).grad();
      if (!grad.defined()) refuse("a tensor has no grad, which the graph reads");
      adopt(id, grad, 0);
    }
  }
}

Tensor CheckedRun::tensor_of(ValueId id) {
  if (env_[id].defined()) return env_[id];
  const ValueInfo& info = graph_.values[id];
  CheckedMemory& memory = memories_[info.buffer];
  if (!memory.holder.defined()) {
    const GraphBuffer& buffer = graph_.buffers[info.buffer];
    const auto bytes = static_cast<int64_t>(buffer.bytes);
    const Tensor made = Tensor::adopt(
        new_tensor(&bytes, 1, kUInt8, buffer.device, checked_device_slot(buffer.device)));
    made.zero_();
    adopt(info.buffer, made, 0);
  }
  Storage* const storage = memory.holder.impl()->storage;
  const Span span = span_of(info);
  const int64_t size = element_size(info.dtype);
  const auto bytes = static_cast<int64_t>(storage->bytes);
  const bool fits = memory.begin % size == 0 && span.begin * size + memory.begin >= 0 &&
                    span.end * size + memory.begin <= bytes;
  if (!fits && span.begin != span.end) refuse("%", id, " leaves its memory of ", bytes, " bytes");
  detail::retain(storage);
  env_[id] = Tensor::adopt(new_tensor_over(storage, as_list(info.sizes), as_list(info.strides),
                                           info.dtype, info.offset + memory.begin / size));
  return env_[id];
}

std::string described(ScalarType dtype, IntList sizes, IntList strides, int64_t offset) {
  return absl::StrCat(dtype_name(dtype), " of shape ", shape_str(sizes), ", strides ",
                      shape_str(strides), " and offset ", offset);
}

void CheckedRun::take_result(ValueId id, const Tensor& tensor) {
  if (!tensor.defined()) refuse("gives no value for %", id);
  const TensorImpl& impl = *tensor.impl();
  const ValueInfo& info = graph_.values[id];
  CheckedMemory& memory = memories_[info.buffer];
  const bool is_new = !memory.holder.defined();
  if (is_new) {
    if (graph_.buffers[info.buffer].device != impl.device()) {
      refuse("gives a value on ", impl.device().str(), " for %", id);
    }
    adopt(info.buffer, tensor, 0);
  } else if (memory.holder.impl()->storage != impl.storage) {
    refuse("gives new memory for %", id, ", which the graph states to share other memory");
  }
  const int64_t offset = info.offset + memory.begin / element_size(info.dtype);
  if (impl.dtype != info.dtype || impl.sizes() != as_list(info.sizes) ||
      impl.strides() != as_list(info.strides) || impl.offset() != offset) {
    refuse("gives ", described(impl.dtype, impl.sizes(), impl.strides(), impl.offset()), " for %",
           id, ", where the graph states ",
           described(info.dtype, as_list(info.sizes), as_list(info.strides), offset));
  }
  if (is_new && computed_) computed_(tensor);
  env_[id] = tensor;
}

void CheckedRun::run_node(const GraphNode& node) {
  const std::vector<Value> results = interpret(node, [this](ValueId id) { return tensor_of(id); });
  for (size_t r = 0; r < results.size(); ++r) {
    const std::vector<Tensor> tensors = tensors_of(results[r]);
    const std::vector<ValueId>& values = node.results[r].values;
    if (tensors.size() != values.size()) {
      refuse("gives ", tensors.size(), " tensors, where the graph states ", values.size());
    }
    for (size_t k = 0; k < values.size(); ++k) {
      if (values[k] != kNoValue) take_result(values[k], tensors[k]);
    }
  }
  if (computed_) node.for_each_written([this](ValueId id) { computed_(tensor_of(id)); });
}

std::vector<Tensor> CheckedRun::run() {
  adopt_sources();
  for (node_ = 0; node_ < graph_.nodes.size(); ++node_) run_node(graph_.nodes[node_]);
  const auto output_of = [this](ValueId id) { return id == kNoValue ? Tensor() : tensor_of(id); };
  std::vector<Tensor> results, grads;
  for (const ValueId id : graph_.results) results.push_back(output_of(id));
  for (const GradResult& grad : graph_.grads) grads.push_back(output_of(grad.grad));
  for (size_t i = 0; i < grads.size(); ++i) {
    recorded_.leaf(graph_.grads[i].leaf, arguments_).set_grad(grads[i]);
  }
  return results;
}

}  // namespace

std::vector<Tensor> run_checked(const Recorded& recorded, const std::vector<Tensor>& arguments,
                                const std::function<void(const Tensor&)>& computed) {
  return CheckedRun(recorded, arguments, computed).run();
}

}  // namespace mytorch::graph
