#include "graph/capture/capture.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "core/runtime/capture.h"
#include "core/runtime/cpu_block.h"
#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "graph/capture/splitting.h"
#include "graph/ir/uses.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"

namespace mytorch::graph {

// Returns the elements of a tensor on the CPU, in order.
Tensor elements_of(const Tensor& tensor) {
  const LayerMask masked(~0u);
  const Tensor host = tensor.detach().to(kCPU).contiguous();
  return host.impl()->storage == tensor.impl()->storage ? host.clone() : host;
}

struct Capture::State {
  Recorded recorded;
  bool is_middle = false;           // of a function that has breaks
  std::vector<Trace::Note> notes;   // of each node
  std::vector<uint64_t> storages;   // of each buffer
  std::vector<uint8_t> alignments;  // of each buffer
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
    storages.push_back(impl.storage->abi.id);
    alignments.push_back(
        static_cast<uint8_t>(reinterpret_cast<uintptr_t>(impl.storage->data) % kTraceAlignment));
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
    if (buffer < 0) {
      // Without a reference, which would change what autograd does with the tensor.
      if (!is_middle) refuse_history(tensor);
      const int32_t index = is_middle ? -1 : add_outside(owner_of(tensor));
      buffer = add_buffer(impl, Origin::kOutside, index);
    }
    if (!is_middle && tensor.is_view() && !made.contains(&impl) &&
        graph().buffers[buffer].origin == Origin::kOutside) {
      made.insert(&impl);
      recorded.views.push_back(tensor);
    }
    return value(buffer, impl);
  }

  // Returns the tensor to keep for the memory of another: the leaf itself, whose data may be
  // replaced, but nothing with history.
  static Tensor owner_of(const Tensor& tensor) {
    const Tensor root = tensor.is_view() ? Tensor::share(tensor.impl()->base) : tensor;
    return root.is_leaf() ? root : root.detach();
  }

  // Its gradient would be that of the first call.
  static void refuse_history(const Tensor& tensor) {
    if (!grad_enabled() || !tensor.requires_grad() || tensor.is_leaf()) return;
    const Tensor root = tensor.is_view() ? Tensor::share(tensor.impl()->base) : tensor;
    if (root.is_leaf()) return;
    fail(ErrorCode::kUnsupported, "[compile] the function uses a tensor of shape ",
         shape_str(tensor.sizes()),
         " that is no argument and was computed from others that require gradients, which differ "
         "from call to call: give it as an argument, or detach() it");
  }

  ValueId result(const Tensor& tensor) {
    if (!tensor.defined()) return kNoValue;
    const TensorImpl& impl = *tensor.impl();
    made.insert(&impl);
    int32_t buffer = find_buffer(impl);
    if (buffer < 0) buffer = add_buffer(impl, Origin::kInside, -1);
    return value(buffer, impl);
  }

  // The results of nodes, and views that are noted. Who was there before the recording is no
  // result.
  absl::flat_hash_set<const TensorImpl*> made;

  void note_host_read(const Tensor& tensor) {
    for (const Recorded::HostRead& read : recorded.host_reads) {
      if (read.tensor.is_same(tensor)) return;
    }
    recorded.host_reads.push_back({tensor, elements_of(tensor)});
  }

  // Storages that the function makes on this thread have ids between these.
  const uint64_t begin = new_storage_id();
  uint64_t end = 0;
  absl::flat_hash_set<uint64_t> leaving;  // storages
  // By buffer: whether a node has used its elements, and whether the first that did replaced them.
  std::vector<bool> used;
  std::vector<bool> replaced_first;

  // Notes which unused buffers the node replaces without reading them. Views use no elements.
  void note_replaced(const Node& node) {
    if (is_middle) return;
    used.resize(graph().buffers.size());
    replaced_first.resize(graph().buffers.size());
    if (node.op().meaning == Meaning::kView) return;
    const auto buffer_of = [this](ValueId id) {
      return static_cast<size_t>(graph().values[id].buffer);
    };
    std::vector<size_t> first;
    for (size_t i = 0; i < node.args.size(); ++i) {
      for (const ValueId id : node.args[i].values) {
        if (id == kNoValue || used[buffer_of(id)]) continue;
        if (node.overwrites(i)) replaced_first[buffer_of(id)] = true;
        first.push_back(buffer_of(id));
      }
    }
    for (const size_t buffer : first) used[buffer] = true;
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

  // Forgets what nobody outside of the function refers to.
  void drop_inner() {
    std::erase_if(recorded.views, [](const Tensor& view) { return view.impl()->refs.load() <= 1; });
    std::erase_if(recorded.host_reads, [this](const Recorded::HostRead& read) {
      const auto same = [&](const Tensor& tensor) { return tensor.is_same(read.tensor); };
      const bool twice = std::any_of(recorded.outside.begin(), recorded.outside.end(), same);
      return is_gone(*read.tensor.impl(), twice ? 2 : 1);
    });
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
thread_local Splitting* splits = nullptr;

void host_access(const Tensor& tensor, const char* op) {
  if (splits != nullptr) splits->host_access(tensor, op);
  if (active == nullptr || active->is_middle) return;
  const int32_t buffer = active->find_buffer(*tensor.impl());
  const Origin origin = buffer < 0 ? Origin::kOutside : active->graph().buffers[buffer].origin;
  if (origin == Origin::kGrad) return;
  const bool written = buffer >= 0 && active->graph_written()[static_cast<size_t>(buffer)];
  if (origin == Origin::kOutside && !written) return active->note_host_read(tensor);
  fail(ErrorCode::kUnsupported, "[compile] ", op, "() accesses the memory of ",
       origin == Origin::kArgument  ? "an argument"
       : origin == Origin::kOutside ? "a tensor that the function has written"
                                    : "a computed tensor",
       " on the host, but a graph runs without the host: compute with operators, such as where(), "
       "or return the tensor and read it outside of the compiled function");
}

void grad_read(const Tensor& leaf, const Tensor& grad) {
  if (active == nullptr || active->is_middle) return;
  Capture::State::TouchedLeaf& touched = active->touched(leaf);
  if (touched.read || touched.written) return;
  touched.read = true;
  if (!grad.defined()) return;
  int32_t buffer = active->find_buffer(*grad.impl());
  if (buffer < 0) buffer = active->add_buffer(*grad.impl(), Origin::kGrad, -1);
  touched.entry = active->value(buffer, *grad.impl());
}

void grad_written(const Tensor& leaf) {
  if (active != nullptr && !active->is_middle) active->touched(leaf).written = true;
}

bool keeps(const Tensor& tensor) {
  if (active == nullptr || active->is_middle) return false;
  const int32_t at = active->find_buffer(*tensor.impl());
  if (at < 0 || static_cast<size_t>(at) >= active->replaced_first.size()) return false;
  const Buffer& buffer = active->graph().buffers[at];
  return buffer.origin == Origin::kOutside && active->replaced_first[static_cast<size_t>(at)] &&
         active->recorded.outside[buffer.index].is_same(tensor);
}

bool keeps_memory(const Tensor& tensor) { return splits != nullptr && splits->holds(tensor); }

void uncaptured() {
  if (splits != nullptr) splits->uncaptured();
}

constexpr CaptureTable kTable = {host_access, grad_read, grad_written, keeps, keeps_memory};

[[maybe_unused]] const bool installed = [] {
  capture_table = &kTable;
  before_uncaptured = uncaptured;
  install_wrappers();
  return true;
}();

}  // namespace

bool is_recording() { return active != nullptr; }
Splitting* splitting() { return splits; }
void set_splitting(Splitting* now) { splits = now; }

Capture::Capture(const std::vector<Tensor>& arguments)
    : state_(std::make_unique<State>()), wanted_(thread_state.wanted) {
  if (active != nullptr) {
    fail(ErrorCode::kUnsupported,
         "[compile] a compiled function is recorded already: call the function itself inside it");
  }
  for (const Tensor& argument : arguments) add_argument(argument);
  activate();
}

Capture::Capture() : state_(std::make_unique<State>()), wanted_(thread_state.wanted) {
  state_->is_middle = true;
  activate();
}

void Capture::activate() {
  active = state_.get();
  thread_state.wanted |= kLayerCapture;
}

void Capture::add_argument(const Tensor& argument) {
  const TensorImpl& impl = *argument.impl();
  check_not_batched(argument, "compile");
  int32_t buffer = state_->find_buffer(impl);
  if (buffer < 0) {
    buffer =
        state_->add_buffer(impl, Origin::kArgument, static_cast<int32_t>(state_->arguments.size()));
  }
  state_->arguments.push_back(&impl);
  state_->graph().arguments.push_back(state_->value(buffer, impl));
}

size_t Capture::size() const { return state_->graph().nodes.size(); }

Capture::~Capture() {
  if (active != state_.get()) return;
  active = nullptr;
  thread_state.wanted = wanted_;
}

Recorded Capture::finish(const std::vector<Tensor>& results) {
  active = nullptr;
  thread_state.wanted = wanted_;
  for (const Tensor& result : results) {
    state_->graph().results.push_back(result.defined() ? state_->operand(result) : kNoValue);
  }
  state_->drop_inner();
  state_->note_leaving(results);
  state_->adopt_allocated();
  state_->refuse_written_constants();
  state_->finish_grads();
  return std::move(state_->recorded);
}

Trace Capture::cut() {
  active = nullptr;
  thread_state.wanted = wanted_;
  Trace trace{std::move(state_->graph()), std::move(state_->notes), std::move(state_->storages),
              std::move(state_->alignments)};
  return slice(trace, 0, trace.size());
}

bool Capture::ends_before_access(const Tensor& tensor, const char* op) const {
  const int32_t found = state_->find_buffer(*tensor.impl());
  if (found < 0) return false;
  const Origin origin = state_->graph().buffers[found].origin;
  if (origin == Origin::kInside) return true;
  // So far, the graph could be all of the function, of which the host is no part.
  if (!state_->is_middle) {
    return origin == Origin::kArgument || state_->graph_written()[static_cast<size_t>(found)];
  }
  // Whoever has a pointer may write.
  return std::string_view(op) == "data" || state_->graph_written()[static_cast<size_t>(found)];
}

// ---- one call ----

Call::Call(const OpEntry& entry, Form form)
    : state_(*active), generator_(default_generator()), call_(generator_.call()) {
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
  operands_.push_back(tensor.impl());
  if (!tensor.defined()) {
    node_.args.push_back({});
    return;
  }
  check_not_batched(tensor, "compile");
  node_.args.push_back(Arg::tensor(state_.operand(tensor)));
}

void Call::tensors(const Tensor* begin, size_t size) {
  operands_.push_back(nullptr);
  Arg arg{Arg::kTensors, {}, {}};
  for (size_t i = 0; i < size; ++i) {
    arg.values.push_back(begin[i].defined() ? state_.operand(begin[i]) : kNoValue);
  }
  node_.args.push_back(std::move(arg));
}

void Call::constant(Value value) {
  operands_.push_back(nullptr);
  Arg arg;
  // The generator of this call, which a GeneratorGuard may have chosen.
  const size_t at = node_.args.size() - (node_.form == kOut ? node_.outs() : 0);
  if (value.is_none() && at < static_cast<size_t>(node_.op().num_args) &&
      node_.op().args[at].type == ArgType::kGenerator) {
    value = Value(default_generator());
  }
  if (const auto* generator = std::get_if<Generator>(&value.variant())) {
    generator_ = *generator;
    call_ = generator_.call();
  }
  arg.constant = std::move(value);
  node_.args.push_back(std::move(arg));
}

void Call::result(const Tensor& tensor) {
  if (buffers_ < 0) buffers_ = static_cast<int32_t>(state_.graph().buffers.size());
  result_ = tensor.impl();
  node_.results.push_back(Arg::tensor(state_.result(tensor)));
}

void Call::results(const std::vector<Tensor>& tensors) {
  if (buffers_ < 0) buffers_ = static_cast<int32_t>(state_.graph().buffers.size());
  Arg arg{Arg::kTensors, {}, {}};
  for (const Tensor& tensor : tensors) arg.values.push_back(state_.result(tensor));
  node_.results.push_back(std::move(arg));
}

void Call::scalar_result(const OpInfo& op) {
  fail(ErrorCode::kUnsupported, "[compile] ", op.base,
       "() gives the host a value, but a graph runs without the host: compute with tensors, or "
       "call it outside of the compiled function");
}

// A call can wait if its results can be made without its kernel: fresh memory, or an argument.
// Views need no kernel.
Trace::Note Call::note() const {
  Trace::Note note;
  note.draws = static_cast<uint32_t>(generator_.call() - call_);
  const Graph& graph = state_.graph();
  const bool view = node_.op().meaning == Meaning::kView;
  const auto same = std::find(operands_.begin(), operands_.end(), result_);
  if (!view && node_.results.size() == 1 && result_ != nullptr && same != operands_.end()) {
    note.same = static_cast<int8_t>(same - operands_.begin());
    return note;
  }
  node_.for_each_result([&](ValueId id) {
    const ValueInfo& info = graph.values[id];
    const bool fresh = info.buffer >= buffers_;
    const bool whole = info.offset == 0 && bytes_of(info) == graph.buffer_of(id).bytes;
    note.waits = note.waits && (view ? !fresh : fresh && whole);
  });
  return note;
}

void Call::finish() {
  if (wanted_ != nullptr) {
    node_.wanted = 0;
    for (size_t i = 0; i < node_.results.size(); ++i) node_.wanted |= uint32_t{wanted_[i]} << i;
  }
  state_.notes.push_back(note());
  state_.note_replaced(node_);
  state_.graph().nodes.push_back(std::move(node_));
}

}  // namespace mytorch::graph
