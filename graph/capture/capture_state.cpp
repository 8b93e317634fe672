#include "graph/capture/capture_state.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "core/runtime/cpu_block.h"
#include "core/types/call_site.h"
#include "core/types/errors.h"
#include "graph/capture/guards.h"
#include "graph/ir/uses.h"
#include "mytorch/autograd/callback.h"
#include "mytorch/grad_mode.h"

namespace mytorch::graph {

int32_t OperatorCapture::State::add_buffer(const TensorImpl& impl, BufferOrigin origin,
                                           int32_t index) {
  const auto id = static_cast<int32_t>(graph().buffers.size());
  graph().buffers.push_back({origin, index, {}, impl.device(), impl.storage->bytes});
  values_of.emplace_back();
  buffers.emplace(impl.storage->abi.id, id);
  storages.push_back(impl.storage->abi.id);
  alignments.push_back(
      static_cast<uint8_t>(reinterpret_cast<uintptr_t>(impl.storage->data) % kTraceAlignment));
  return id;
}

int32_t OperatorCapture::State::add_outside(const Tensor& tensor) {
  for (size_t i = 0; i < recorded.outside.size(); ++i) {
    if (recorded.outside[i].is_same(tensor)) return static_cast<int32_t>(i);
  }
  recorded.outside.push_back(tensor);
  return static_cast<int32_t>(recorded.outside.size() - 1);
}

int32_t OperatorCapture::State::find_buffer(const TensorImpl& impl) {
  const auto found = buffers.find(impl.storage->abi.id);
  return found == buffers.end() ? -1 : found->second;
}

ValueId OperatorCapture::State::value(int32_t buffer, const TensorImpl& impl) {
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

ValueId OperatorCapture::State::operand(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  int32_t buffer = find_buffer(impl);
  if (buffer < 0) {
    // Without a reference, which would change what autograd does with the tensor.
    if (!is_middle) {
      refuse_history(tensor);
      watch_replaced(tensor.impl());
    }
    const int32_t index = is_middle ? -1 : add_outside(owner_of(tensor));
    buffer = add_buffer(impl, BufferOrigin::kOutside, index);
  }
  if (!is_middle && tensor.is_view() && !seen_headers.contains(&impl) &&
      graph().buffers[buffer].origin == BufferOrigin::kOutside) {
    seen_headers.insert(&impl);
    recorded.views.push_back(tensor);
  }
  return value(buffer, impl);
}

Tensor OperatorCapture::State::owner_of(const Tensor& tensor) {
  const Tensor root = tensor.is_view() ? Tensor::share(tensor.impl()->base) : tensor;
  return root.is_leaf() ? root : root.detach();
}

void OperatorCapture::State::refuse_history(const Tensor& tensor) {
  if (!grad_enabled() || !tensor.requires_grad() || tensor.is_leaf()) return;
  const Tensor root = tensor.is_view() ? Tensor::share(tensor.impl()->base) : tensor;
  if (root.is_leaf()) return;
  fail(ErrorCode::kUnsupported, "[compile] the function uses a tensor of shape ",
       shape_str(tensor.sizes()),
       " that is no argument and was computed from others that require gradients, which differ "
       "from call to call: give it as an argument, or detach() it",
       called_from());
}

ValueId OperatorCapture::State::result(const Tensor& tensor) {
  if (!tensor.defined()) return kNoValue;
  const TensorImpl& impl = *tensor.impl();
  seen_headers.insert(&impl);
  if (!is_middle) watch_replaced(tensor.impl());
  int32_t buffer = find_buffer(impl);
  if (buffer < 0) {
    buffer = add_buffer(impl, BufferOrigin::kInside, -1);
    if (frame != nullptr) living.add(impl.storage);
  }
  return value(buffer, impl);
}

void OperatorCapture::State::note_host_read(const Tensor& tensor) {
  for (const Recorded::HostRead& read : recorded.host_reads) {
    if (read.tensor.is_same(tensor)) return;
  }
  recorded.host_reads.push_back({tensor, elements_of(tensor)});
}

std::pair<uintptr_t, uintptr_t> OperatorCapture::State::stack_above(const void* frame) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {0, 0};
  void* low = nullptr;
  size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &low, &size) == 0;
  pthread_attr_destroy(&attributes);
  const uintptr_t end = known ? reinterpret_cast<uintptr_t>(low) + size : 0;
  return {reinterpret_cast<uintptr_t>(frame), end};
}

void OperatorCapture::State::note_assigned(const Tensor& variable, const TensorImpl* former) {
  // What hooks do happens while recording only, and what the engine does is no variable.
  if (frame == nullptr || autograd::in_backward()) return;
  if (!callers.has_value()) callers = stack_above(frame);
  const auto place = reinterpret_cast<uintptr_t>(&variable);
  if (place < callers->first || place >= callers->second) return;
  for (Assigned& known : assigned) {
    if (known.variable != &variable) continue;
    // Moves are no assignments of the same variable: what it holds in the end counts.
    known.now = Tensor::share(variable.impl());
    return;
  }
  assigned.push_back({&variable, former, Tensor::share(variable.impl())});
}

void OperatorCapture::State::note_replaced(const GraphNode& node) {
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

void OperatorCapture::State::note_escaping(const std::vector<Tensor>& results) {
  end = new_storage_id();
  for (const Tensor& result : results) {
    if (result.defined()) escaping.insert(result.impl()->storage->abi.id);
  }
  for (const TouchedLeaf& touched : leaves) {
    const Tensor grad = touched.tensor.grad();
    if (grad.defined()) escaping.insert(grad.impl()->storage->abi.id);
  }
}

bool OperatorCapture::State::is_computed(const Tensor& tensor) {
  const int32_t buffer = find_buffer(*tensor.impl());
  if (buffer < 0) return false;
  const auto b = static_cast<size_t>(buffer);
  if (graph().buffers[b].origin == BufferOrigin::kInside) return true;
  return b < replaced_first.size() && replaced_first[b] &&
         is_between(tensor.impl()->storage->abi.id, begin, new_storage_id());
}

bool OperatorCapture::State::is_made_inside(const Tensor& tensor) const {
  const uint64_t id = tensor.impl()->storage->abi.id;
  const bool stays = std::any_of(unrecorded.begin(), unrecorded.end(), [&](const auto& part) {
    return is_between(id, part.first, part.second);
  });
  // A history may refer to it, too.
  return is_gone(*tensor.impl()) || (is_between(id, begin, end) && !stays);
}

void OperatorCapture::State::adopt_allocated() {
  replaced_first.resize(graph().buffers.size());
  std::vector<Tensor> kept;
  for (size_t b = 0; b < graph().buffers.size(); ++b) {
    GraphBuffer& buffer = graph().buffers[b];
    if (buffer.origin != BufferOrigin::kOutside) continue;
    Tensor& tensor = recorded.outside[buffer.index];
    if (replaced_first[b] && is_made_inside(tensor)) {
      buffer = {BufferOrigin::kInside, -1, {}, buffer.device, buffer.bytes};
      continue;
    }
    buffer.index = static_cast<int32_t>(kept.size());
    kept.push_back(tensor);
  }
  recorded.outside = std::move(kept);
}

bool OperatorCapture::State::is_between(uint64_t id, uint64_t begin, uint64_t end) {
  const auto block = [](uint64_t of) { return of / kStorageIdBlock; };
  return (block(id) == block(begin) && id > begin && (block(end) != block(begin) || id < end)) ||
         (block(id) == block(end) && id < end && block(end) != block(begin));
}

namespace {

// A cell as a condition of a recording, and as an effect of its replays.
class CellState final : public RecordedState {
 public:
  explicit CellState(OperatorCapture::State::TouchedCell touched) : touched_(std::move(touched)) {}
  const char* refresh() override {
    const bool holds = touched_.expected == touched_.kNone ||
                       touched_.expected == touched_.cell->value.load(std::memory_order_relaxed);
    return holds ? nullptr : touched_.cell->changed;
  }
  void replayed() override {
    if (touched_.set != touched_.kNone && touched_.cell->value != StateCell::kGone) {
      touched_.cell->set(touched_.set);
    }
  }

  // Returns what has become of the cell if the function itself has run in place of a replay, and
  // has left another number there than the replay would; null if it has not.
  const char* differs() const {
    const int8_t now = touched_.cell->value;
    if (now == StateCell::kGone) return nullptr;
    const int8_t left = touched_.set != touched_.kNone ? touched_.set : touched_.expected;
    return left == touched_.kNone || left == now ? nullptr : touched_.cell->changed;
  }

 private:
  OperatorCapture::State::TouchedCell touched_;
};

}  // namespace

const char* cell_that_differs(const Recorded& recorded) {
  for (const std::shared_ptr<RecordedState>& state : recorded.states) {
    const auto* const cell = dynamic_cast<const CellState*>(state.get());
    if (cell == nullptr) continue;
    if (const char* what = cell->differs(); what != nullptr) return what;
  }
  return nullptr;
}

OperatorCapture::State::TouchedCell& OperatorCapture::State::touched(
    const std::shared_ptr<StateCell>& cell) {
  TouchedCell& found = cells[cell.get()];
  if (found.cell == nullptr) found.cell = cell;
  return found;
}

void OperatorCapture::State::finish_cells() {
  for (auto& [key, touched] : cells) {
    // What the function has made is its own, unless it has kept it.
    if (touched.made) {
      touched.expected = touched.cell->value;
      touched.set = touched.kNone;
      if (touched.expected == StateCell::kGone) continue;
    }
    recorded.states.push_back(std::make_shared<CellState>(std::move(touched)));
  }
  cells.clear();
}

uint64_t OperatorCapture::State::next_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

uint64_t OperatorCapture::State::new_storage_id() {
  const Tensor marker = Tensor::adopt(new_tensor(nullptr, 0, kUInt8, Device(), 0));
  return marker.impl()->storage->abi.id;
}

bool OperatorCapture::State::is_gone(const TensorImpl& impl, uint32_t held) {
  return impl.refs.load() <= held && impl.storage->refs.load() <= 1;
}

void OperatorCapture::State::drop_histories() {
  for (Tensor& tensor : recorded.outside) {
    if (!tensor.is_leaf() && !tensor.is_view() && is_computed(tensor)) tensor = tensor.detach();
  }
}

void OperatorCapture::State::drop_inner() {
  std::erase_if(recorded.views, [](const Tensor& view) { return view.impl()->refs.load() <= 1; });
  std::erase_if(recorded.host_reads, [this](const Recorded::HostRead& read) {
    const auto same = [&](const Tensor& tensor) { return tensor.is_same(read.tensor); };
    const bool twice = std::any_of(recorded.outside.begin(), recorded.outside.end(), same);
    return is_gone(*read.tensor.impl(), twice ? 2 : 1);
  });
}

void OperatorCapture::State::read_filled_constants() {
  for (Recorded::HostRead& read : recorded.host_reads) {
    const uint64_t id = read.tensor.impl()->storage->abi.id;
    if (is_between(id, begin, end)) read.elements = elements_of(read.tensor);
  }
}

void OperatorCapture::State::refuse_written_constants() const {
  std::vector<bool> written(graph_written());
  for (size_t b = 0; b < written.size(); ++b) {
    const GraphBuffer& buffer = recorded.graph.buffers[b];
    if (buffer.origin != BufferOrigin::kOutside) continue;
    const Tensor& tensor = recorded.outside[buffer.index];
    const bool escapes = escaping.contains(tensor.impl()->storage->abi.id);
    if ((!written[b] && !escapes) || !is_made_inside(tensor)) continue;
    fail(ErrorCode::kUnsupported, "[compile] the function ", written[b] ? "writes" : "returns",
         " a tensor of shape ", shape_str(tensor.sizes()),
         " that it makes from values of the host: ", written[b] ? "write" : "return",
         " a clone() of it, which each call makes anew", called_from());
  }
}

std::vector<bool> OperatorCapture::State::graph_written() const {
  const Graph& graph = recorded.graph;
  std::vector<bool> written(graph.buffers.size());
  for (const GraphNode& node : graph.nodes) {
    node.for_each_written([&](ValueId id) { written[graph.values[id].buffer] = true; });
  }
  return written;
}

OperatorCapture::State::TouchedLeaf& OperatorCapture::State::touched(const Tensor& tensor) {
  const auto [at, added] = leaf_index.try_emplace(tensor.impl(), leaves.size());
  if (added) leaves.push_back({tensor, {}, false, false, kNoValue});
  return leaves[at->second];
}

void OperatorCapture::State::finish_grads() {
  for (TouchedLeaf& touched : leaves) {
    if (is_gone(touched)) continue;
    const auto argument = std::find(arguments.begin(), arguments.end(), touched.tensor.impl());
    touched.leaf =
        argument != arguments.end()
            ? Leaf{BufferOrigin::kArgument, static_cast<int32_t>(argument - arguments.begin())}
            : Leaf{BufferOrigin::kOutside, add_outside(touched.tensor)};
    if (touched.read) recorded.entry_grads.push_back({touched.leaf, touched.entry});
    if (touched.entry != kNoValue) {
      GraphBuffer& buffer = graph().buffers[graph().values[touched.entry].buffer];
      if (buffer.origin == BufferOrigin::kGrad) buffer.leaf = touched.leaf;
    }
    if (!touched.written) continue;
    const Tensor grad = touched.tensor.grad();
    GradResult found{touched.leaf, kNoValue};
    if (grad.defined()) {
      found.grad = operand(grad);
      const GraphBuffer& buffer = graph().buffer_of(found.grad);
      // Accumulated in place.
      if (buffer.origin == BufferOrigin::kGrad && buffer.leaf == found.leaf) continue;
    }
    graph().grads.push_back(found);
  }
}

}  // namespace mytorch::graph
