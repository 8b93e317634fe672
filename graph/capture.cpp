#include "graph/capture.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "core/runtime/cpu_block.h"
#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"

namespace mytorch::graph {

struct Capture::State {
  Recorded recorded;
  // By the id of the storage. Ids are never reused.
  absl::flat_hash_map<uint64_t, int32_t> buffers;
  std::vector<std::vector<ValueId>> values_of;  // a buffer
  std::vector<const TensorImpl*> arguments;
  // The leaves whose grads were read or replaced.
  struct TouchedLeaf {
    Tensor tensor;
    Leaf leaf;
    bool read = false;  // before it was replaced
    bool written = false;
    ValueId entry = kNoValue;
  };
  absl::flat_hash_map<const TensorImpl*, size_t> leaf_index;
  std::vector<TouchedLeaf> leaves;

  Graph& graph() { return recorded.graph; }

  int32_t add_buffer(const TensorImpl& impl, Origin origin, int32_t index) {
    const auto id = static_cast<int32_t>(graph().buffers.size());
    graph().buffers.push_back({origin, index, {}, impl.device(), impl.storage->bytes});
    values_of.emplace_back();
    buffers.emplace(impl.storage->abi.id, id);
    return id;
  }

  int32_t add_outside(const Tensor& tensor) {
    for (size_t i = 0; i < recorded.outside.size(); ++i) {
      if (recorded.outside[i].is_same(tensor)) return static_cast<int32_t>(i);
    }
    recorded.outside.push_back(tensor);
    return static_cast<int32_t>(recorded.outside.size() - 1);
  }

  int32_t find_buffer(const TensorImpl& impl) {
    const auto found = buffers.find(impl.storage->abi.id);
    return found == buffers.end() ? -1 : found->second;
  }

  ValueId value(int32_t buffer, const TensorImpl& impl) {
    for (const ValueId id : values_of[buffer]) {
      const ValueInfo& known = graph().values[id];
      if (known.dtype == impl.dtype && as_list(known.sizes) == impl.sizes() &&
          as_list(known.strides) == impl.strides() && known.offset == impl.offset()) {
        return id;
      }
    }
    const auto id = static_cast<ValueId>(graph().values.size());
    graph().values.push_back(
        {buffer, impl.dtype, to_dims(impl.sizes()), to_dims(impl.strides()), impl.offset()});
    values_of[buffer].push_back(id);
    return id;
  }

  // Returns the value of an operand. A storage that no node made comes from outside.
  ValueId operand(const Tensor& tensor) {
    const TensorImpl& impl = *tensor.impl();
    int32_t buffer = find_buffer(impl);
    if (buffer < 0) buffer = add_buffer(impl, Origin::kOutside, add_outside(owner_of(tensor)));
    return value(buffer, impl);
  }

  // Returns the tensor to keep for the memory of another: the leaf itself, whose data may be
  // replaced, but nothing with history.
  static Tensor owner_of(const Tensor& tensor) {
    const Tensor root = tensor.is_view() ? Tensor::share(tensor.impl()->base) : tensor;
    return root.is_leaf() ? root : root.detach();
  }

  ValueId result(const Tensor& tensor) {
    if (!tensor.defined()) return kNoValue;
    const TensorImpl& impl = *tensor.impl();
    int32_t buffer = find_buffer(impl);
    if (buffer < 0) buffer = add_buffer(impl, Origin::kInside, -1);
    return value(buffer, impl);
  }

  // Storages that the function makes on this thread have ids between these.
  const uint64_t begin = new_storage_id();
  uint64_t end = 0;
  absl::flat_hash_set<uint64_t> leaving;  // storages
  // By buffer: whether it was first seen as memory that a node replaces as a whole.
  std::vector<bool> replaced_first;

  // Notes which of the buffers from `known` on the node replaces without reading them.
  void note_replaced(const Node& node, size_t known) {
    replaced_first.resize(graph().buffers.size());
    for (size_t i = 0; i < node.args.size(); ++i) {
      if (!node.overwrites(i)) continue;
      for (const ValueId id : node.args[i].values) {
        const auto buffer = static_cast<size_t>(graph().values[id].buffer);
        if (buffer >= known) replaced_first[buffer] = true;
      }
    }
  }

  // Notes which storages leave the function, as results or as grads.
  void note_leaving(const std::vector<Tensor>& results) {
    end = new_storage_id();
    for (const Tensor& result : results) {
      if (result.defined()) leaving.insert(result.impl()->storage->abi.id);
    }
    for (const TouchedLeaf& touched : leaves) {
      const Tensor grad = touched.tensor.grad();
      if (grad.defined()) leaving.insert(grad.impl()->storage->abi.id);
    }
  }

  // Returns whether the function made a tensor that seems to come from outside: nobody refers to it
  // any more, except as a result or a grad.
  bool is_made_inside(const Tensor& tensor) const {
    const uint64_t id = tensor.impl()->storage->abi.id;
    return is_gone(*tensor.impl()) || (is_between(id, begin, end) && leaving.contains(id));
  }

  // Memory that the function allocated without an operator and filled is no tensor from outside.
  void adopt_allocated() {
    replaced_first.resize(graph().buffers.size());
    std::vector<Tensor> kept;
    for (size_t b = 0; b < graph().buffers.size(); ++b) {
      Buffer& buffer = graph().buffers[b];
      if (buffer.origin != Origin::kOutside) continue;
      Tensor& tensor = recorded.outside[buffer.index];
      if (replaced_first[b] && is_made_inside(tensor)) {
        buffer = {Origin::kInside, -1, {}, buffer.device, buffer.bytes};
        continue;
      }
      buffer.index = static_cast<int32_t>(kept.size());
      kept.push_back(tensor);
    }
    recorded.outside = std::move(kept);
  }

  // Returns whether this thread made a storage after that with the id `begin` and before that with
  // the id `end`. False if in doubt: a thread takes ids from blocks of its own.
  static bool is_between(uint64_t id, uint64_t begin, uint64_t end) {
    const auto block = [](uint64_t of) { return of / kStorageIdBlock; };
    return (block(id) == block(begin) && id > begin && (block(end) != block(begin) || id < end)) ||
           (block(id) == block(end) && id < end && block(end) != block(begin));
  }
  static uint64_t new_storage_id() {
    const Tensor marker = Tensor::adopt(new_tensor(nullptr, 0, kUInt8, Device(), 0));
    return marker.impl()->storage->abi.id;
  }

  // Returns whether only this recording refers to a tensor of which it holds `held` references.
  static bool is_gone(const TensorImpl& impl, uint32_t held = 1) {
    return impl.refs.load() <= held && impl.storage->refs.load() <= 1;
  }

  // Throws if a node writes, or the function returns, a tensor that the function made from values
  // of the host: each call would need a new one.
  void refuse_written_constants() const {
    std::vector<bool> written(graph_written());
    for (size_t b = 0; b < written.size(); ++b) {
      const Buffer& buffer = recorded.graph.buffers[b];
      if (buffer.origin != Origin::kOutside) continue;
      const Tensor& tensor = recorded.outside[buffer.index];
      const bool leaves_it = leaving.contains(tensor.impl()->storage->abi.id);
      if ((!written[b] && !leaves_it) || !is_made_inside(tensor)) continue;
      fail(ErrorCode::kUnsupported, "[compile] the function ", written[b] ? "writes" : "returns",
           " a tensor of shape ", shape_str(tensor.sizes()),
           " that it makes from values of the host: ", written[b] ? "write" : "return",
           " a clone() of it, which each call makes anew");
    }
  }
  std::vector<bool> graph_written() const {
    const Graph& graph = recorded.graph;
    std::vector<bool> written(graph.buffers.size());
    for (const Node& node : graph.nodes) {
      node.for_each_written([&](ValueId id) { written[graph.values[id].buffer] = true; });
    }
    return written;
  }

  TouchedLeaf& touched(const Tensor& tensor) {
    const auto [at, added] = leaf_index.try_emplace(tensor.impl(), leaves.size());
    if (added) leaves.push_back({tensor, {}, false, false, kNoValue});
    return leaves[at->second];
  }
  // Returns whether only this recording refers to a leaf: the function made it.
  static bool is_gone(const TouchedLeaf& leaf) { return leaf.tensor.impl()->refs.load() == 1; }

  // Notes the grads that the function reads and leaves behind.
  void finish_grads() {
    for (TouchedLeaf& touched : leaves) {
      if (is_gone(touched)) continue;
      const auto argument = std::find(arguments.begin(), arguments.end(), touched.tensor.impl());
      touched.leaf =
          argument != arguments.end()
              ? Leaf{Origin::kArgument, static_cast<int32_t>(argument - arguments.begin())}
              : Leaf{Origin::kOutside, add_outside(touched.tensor)};
      if (touched.read) recorded.entry_grads.push_back({touched.leaf, touched.entry});
      if (touched.entry != kNoValue) {
        Buffer& buffer = graph().buffers[graph().values[touched.entry].buffer];
        if (buffer.origin == Origin::kGrad) buffer.leaf = touched.leaf;
      }
      if (!touched.written) continue;
      const Tensor grad = touched.tensor.grad();
      GradResult found{touched.leaf, kNoValue};
      if (grad.defined()) {
        found.grad = operand(grad);
        const Buffer& buffer = graph().buffer_of(found.grad);
        // Accumulated in place.
        if (buffer.origin == Origin::kGrad && buffer.leaf == found.leaf) continue;
      }
      graph().grads.push_back(found);
    }
  }
};

namespace {

thread_local Capture::State* active = nullptr;

void host_access(const Tensor& tensor, const char* op) {
  if (active == nullptr) return;
  const int32_t buffer = active->find_buffer(*tensor.impl());
  if (buffer < 0) return;
  const Origin origin = active->graph().buffers[buffer].origin;
  if (origin == Origin::kOutside || origin == Origin::kGrad) return;
  fail(ErrorCode::kUnsupported, "[compile] ", op, "() accesses the memory of ",
       origin == Origin::kArgument ? "an argument" : "a computed tensor",
       " on the host, but a graph runs without the host: compute with operators, such as where(), "
       "or return the tensor and read it outside of the compiled function");
}

void grad_read(const Tensor& leaf, const Tensor& grad) {
  if (active == nullptr) return;
  Capture::State::TouchedLeaf& touched = active->touched(leaf);
  if (touched.read || touched.written) return;
  touched.read = true;
  if (!grad.defined()) return;
  int32_t buffer = active->find_buffer(*grad.impl());
  if (buffer < 0) buffer = active->add_buffer(*grad.impl(), Origin::kGrad, -1);
  touched.entry = active->value(buffer, *grad.impl());
}

void grad_written(const Tensor& leaf) {
  if (active != nullptr) active->touched(leaf).written = true;
}

constexpr CaptureTable kTable = {host_access, grad_read, grad_written};

[[maybe_unused]] const bool installed = [] {
  capture_table = &kTable;
  install_wrappers();
  return true;
}();

}  // namespace

bool is_recording() { return active != nullptr; }

Capture::Capture(const std::vector<Tensor>& arguments)
    : state_(std::make_unique<State>()), wanted_(thread_state.wanted) {
  if (active != nullptr) {
    fail(ErrorCode::kUnsupported,
         "[compile] a compiled function is recorded already: call the function itself inside it");
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const TensorImpl& impl = *arguments[i].impl();
    check_not_batched(arguments[i], "compile");
    state_->arguments.push_back(&impl);
    int32_t buffer = state_->find_buffer(impl);
    if (buffer < 0) {
      buffer = state_->add_buffer(impl, Origin::kArgument, static_cast<int32_t>(i));
    }
    state_->graph().arguments.push_back(state_->value(buffer, impl));
  }
  active = state_.get();
  thread_state.wanted |= kLayerCapture;
}

Capture::~Capture() {
  if (active != state_.get()) return;
  active = nullptr;
  thread_state.wanted = wanted_;
}

Recorded Capture::finish(const std::vector<Tensor>& results) {
  active = nullptr;
  thread_state.wanted = wanted_;
  for (const Tensor& result : results) {
    if (result.defined() && result.requires_grad() && !result.is_leaf()) {
      fail(
          ErrorCode::kUnsupported,
          "[compile] a result has history, which a graph does not keep: call backward() inside the "
          "compiled function, return result.detach(), or call the function under NoGradGuard");
    }
    state_->graph().results.push_back(result.defined() ? state_->operand(result) : kNoValue);
  }
  state_->note_leaving(results);
  state_->adopt_allocated();
  state_->refuse_written_constants();
  state_->finish_grads();
  return std::move(state_->recorded);
}

// ---- one call ----

Call::Call(const OpEntry& entry, Form form)
    : state_(*active), known_(state_.graph().buffers.size()) {
  node_.entry = &entry;
  node_.form = form;
  node_.grad_mode = grad_enabled();
  if (entry.info->dynamic) {
    fail(ErrorCode::kUnsupported, "[compile] the shape of the result of ", entry.info->base,
         "() depends on values, and the shapes of a graph are fixed: call it outside of the "
         "compiled "
         "function, or use an operator whose result has a fixed shape, such as where(mask, x, 0)");
  }
}

void Call::tensor(const Tensor& tensor) {
  if (!tensor.defined()) {
    node_.args.push_back({});
    return;
  }
  check_not_batched(tensor, "compile");
  node_.args.push_back(Arg::tensor(state_.operand(tensor)));
}

void Call::tensors(const Tensor* begin, size_t size) {
  Arg arg{Arg::kTensors, {}, {}};
  for (size_t i = 0; i < size; ++i) {
    arg.values.push_back(begin[i].defined() ? state_.operand(begin[i]) : kNoValue);
  }
  node_.args.push_back(std::move(arg));
}

void Call::constant(Value value) {
  Arg arg;
  // The generator of this call, which a GeneratorGuard may have chosen.
  const size_t at = node_.args.size() - (node_.form == kOut ? node_.outs() : 0);
  if (value.is_none() && at < static_cast<size_t>(node_.op().num_args) &&
      node_.op().args[at].type == ArgType::kGenerator) {
    value = Value(default_generator());
  }
  arg.constant = std::move(value);
  node_.args.push_back(std::move(arg));
}

void Call::result(const Tensor& tensor) {
  node_.results.push_back(Arg::tensor(state_.result(tensor)));
}

void Call::results(const std::vector<Tensor>& tensors) {
  Arg arg{Arg::kTensors, {}, {}};
  for (const Tensor& tensor : tensors) arg.values.push_back(state_.result(tensor));
  node_.results.push_back(std::move(arg));
}

void Call::scalar_result(const OpInfo& op) {
  fail(ErrorCode::kUnsupported, "[compile] ", op.base,
       "() gives the host a value, but a graph runs without the host: compute with tensors, or "
       "call it outside of the compiled function");
}

void Call::finish() {
  if (wanted_ != nullptr) {
    node_.wanted = 0;
    for (size_t i = 0; i < node_.results.size(); ++i) node_.wanted |= uint32_t{wanted_[i]} << i;
  }
  state_.note_replaced(node_, known_);
  state_.graph().nodes.push_back(std::move(node_));
}

}  // namespace mytorch::graph
