#include "graph/capture/capture.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/runtime/stream_capture.h"
#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "core/types/call_site.h"
#include "core/types/errors.h"
#include "graph/capture/capture_state.h"
#include "graph/capture/splitting.h"
#include "mytorch/autocast.h"
#include "mytorch/compile.h"

namespace mytorch::graph {

Tensor elements_of(const Tensor& tensor) {
  const LayerMask masked(~0u);
  const Tensor host = tensor.detach().to(kCPU).contiguous();
  return host.impl()->storage == tensor.impl()->storage ? host.clone() : host;
}

namespace {

thread_local OperatorCapture::State* active = nullptr;
thread_local Splitting* splits = nullptr;

void host_access(const Tensor& tensor, const char* op) {
  if (splits != nullptr) splits->host_access(tensor, op);
  if (active == nullptr || active->is_middle) return;
  const int32_t buffer = active->find_buffer(*tensor.impl());
  const BufferOrigin origin =
      buffer < 0 ? BufferOrigin::kOutside : active->graph().buffers[buffer].origin;
  if (origin == BufferOrigin::kGrad) return;
  const bool written = buffer >= 0 && active->graph_written()[static_cast<size_t>(buffer)];
  if (origin == BufferOrigin::kOutside && !written) return active->note_host_read(tensor);
  fail(ErrorCode::kUnsupported, "[compile] ", op, "() accesses the memory of ",
       origin == BufferOrigin::kArgument  ? "an argument"
       : origin == BufferOrigin::kOutside ? "a tensor that the function has written"
                                          : "a computed tensor",
       " on the host, but a graph runs without the host: compute with operators, such as where(), "
       "return the tensor and read it outside of the compiled function, or set "
       "CompileOptions::allow_breaks",
       called_from());
}

void grad_read(const Tensor& leaf, const Tensor& grad) {
  if (active == nullptr || active->is_middle) return;
  OperatorCapture::State::TouchedLeaf& touched = active->touched(leaf);
  if (touched.read || touched.written) return;
  touched.read = true;
  if (!grad.defined()) return;
  int32_t buffer = active->find_buffer(*grad.impl());
  if (buffer < 0) buffer = active->add_buffer(*grad.impl(), BufferOrigin::kGrad, -1);
  touched.entry = active->value(buffer, *grad.impl());
}

void grad_written(const Tensor& leaf) {
  if (active != nullptr && !active->is_middle) active->touched(leaf).written = true;
}

void assigned(const Tensor& variable, TensorImpl* former) {
  if (active == nullptr || active->is_middle) return;
  active->note_assigned(variable, former);
}

void caches(const Tensor& tensor) {
  if (active != nullptr) active->living.forget(tensor.impl()->storage);
}

void unrecorded(bool begins) {
  if (active == nullptr || active->is_middle) return;
  const uint64_t id = OperatorCapture::State::new_storage_id();
  if (begins) {
    active->unrecorded.emplace_back(id, id);
  } else if (!active->unrecorded.empty()) {
    active->unrecorded.back().second = id;
  }
}

void depends(std::shared_ptr<RecordedState> state) {
  if (active == nullptr || active->is_middle) return;
  active->recorded.states.push_back(std::move(state));
}

void reads(const std::shared_ptr<StateCell>& cell) {
  if (active == nullptr || active->is_middle) return;
  OperatorCapture::State::TouchedCell& touched = active->touched(cell);
  if (!touched.known()) touched.expected = cell->value;
}

void sets(const std::shared_ptr<StateCell>& cell) {
  if (active != nullptr && !active->is_middle) active->touched(cell).set = cell->value;
}

void makes(const std::shared_ptr<StateCell>& cell) {
  if (active != nullptr && !active->is_middle) active->touched(cell).made = true;
}

uint64_t recording() { return active == nullptr || active->is_middle ? 0 : active->number; }

void effect(const char* op, const char* what) {
  if (splits != nullptr) splits->effect(op);
  if (active == nullptr || active->is_middle) return;
  fail(ErrorCode::kUnsupported, "[compile] ", op, "() ", what,
       " while the function is recorded, but a graph would not do so in each call: call it outside "
       "of the compiled function, or set CompileOptions::allow_breaks",
       called_from());
}

bool keeps(const Tensor& tensor) {
  if (active == nullptr || active->is_middle) return false;
  const int32_t at = active->find_buffer(*tensor.impl());
  if (at < 0 || static_cast<size_t>(at) >= active->replaced_first.size()) return false;
  const GraphBuffer& buffer = active->graph().buffers[at];
  return buffer.origin == BufferOrigin::kOutside &&
         active->replaced_first[static_cast<size_t>(at)] &&
         active->recorded.outside[buffer.index].is_same(tensor);
}

bool keeps_memory(const Tensor& tensor) { return splits != nullptr && splits->holds(tensor); }

void uncaptured() {
  if (splits != nullptr) splits->uncaptured();
}

constexpr CaptureTable kTable = {host_access,  grad_read, grad_written, keeps,
                                 keeps_memory, assigned,  caches,       depends,
                                 reads,        sets,      makes,        recording};

[[maybe_unused]] const bool installed = [] {
  capture_table = &kTable;
  before_uncaptured = uncaptured;
  before_effect = effect;
  around_unrecorded = unrecorded;
  install_wrappers();
  return true;
}();

// A variable of the user whose value the recording takes for granted.
class GuardedValue : public RecordedState {
 public:
  GuardedValue(std::string name, std::function<bool()> unchanged)
      : unchanged_(std::move(unchanged)),
        reason_(name.empty() ? "a guarded value changed"
                             : absl::StrCat("the guarded value `", name, "` changed")) {}
  const char* refresh() override { return unchanged_() ? nullptr : reason_.c_str(); }

 private:
  const std::function<bool()> unchanged_;
  const std::string reason_;
};

}  // namespace

void guard_value(const void* variable, size_t type, const char* name,
                 std::function<bool()> unchanged) {
  if (active == nullptr || active->is_middle) return;
  if (!active->guarded.emplace(variable, type).second) return;
  depends(std::make_shared<GuardedValue>(name, std::move(unchanged)));
}

bool is_recording() { return active != nullptr; }
OperatorCapture::State& active_capture() { return *active; }
Splitting* splitting() { return splits; }
void set_splitting(Splitting* now) { splits = now; }

OperatorCapture::OperatorCapture(const std::vector<Tensor>& arguments, const void* frame)
    : state_(std::make_unique<State>()), wanted_(thread_state.wanted) {
  state_->frame = frame;
  // A cast from before would be a tensor from outside, which does not follow its weight.
  autocast::clear_cache();
  if (active != nullptr) {
    fail(ErrorCode::kUnsupported,
         "[compile] a compiled function is recorded already: call the function itself inside it",
         called_from());
  }
  for (const Tensor& argument : arguments) add_argument(argument);
  activate();
}

OperatorCapture::OperatorCapture()
    : state_(std::make_unique<State>()), wanted_(thread_state.wanted) {
  state_->is_middle = true;
  activate();
}

void OperatorCapture::activate() {
  active = state_.get();
  thread_state.wanted |= kLayerCapture;
}

void OperatorCapture::add_argument(const Tensor& argument) {
  const TensorImpl& impl = *argument.impl();
  check_not_batched(argument, "compile");
  watch_replaced(argument.impl());
  int32_t buffer = state_->find_buffer(impl);
  if (buffer < 0) {
    buffer = state_->add_buffer(impl, BufferOrigin::kArgument,
                                static_cast<int32_t>(state_->arguments.size()));
  }
  state_->arguments.push_back(&impl);
  state_->graph().arguments.push_back(state_->value(buffer, impl));
}

bool OperatorCapture::assigns_variables() {
  const std::vector<State::Assigned> assigned = std::exchange(state_->assigned, {});
  return std::any_of(assigned.begin(), assigned.end(), [](const State::Assigned& each) {
    return each.now.defined() || each.former != nullptr;
  });
}

bool OperatorCapture::leaves_memory(const std::vector<Tensor>& results) const {
  absl::flat_hash_set<const Storage*> known;
  absl::flat_hash_map<const TensorImpl*, uint32_t> references;
  absl::flat_hash_map<const Storage*, absl::flat_hash_set<const TensorImpl*>> owners;
  state_->drop_histories();
  const auto note = [&](const Tensor& tensor, uint32_t count) {
    if (!tensor.defined()) return;
    known.insert(tensor.impl()->storage);
    references[tensor.impl()] += count;
    owners[tensor.impl()->storage].insert(tensor.is_view() ? tensor.impl()->base : tensor.impl());
  };
  for (const Tensor& result : results) {
    note(result, 1);
    if (result.defined() && result.impl()->base != nullptr) ++references[result.impl()->base];
  }
  for (const State::TouchedLeaf& leaf : state_->leaves) note(leaf.tensor.grad(), 1);
  const auto kept = [&](const Tensor& tensor) {
    return tensor.defined() && state_->is_computed(tensor) &&
           tensor.impl()->refs.load() > references[tensor.impl()];
  };
  // The recording refers to memory that was allocated without an operator.
  const std::vector<Tensor>& outside = state_->recorded.outside;
  for (const Tensor& tensor : outside) {
    ++references[tensor.impl()];
    owners[tensor.impl()->storage].insert(tensor.impl());
  }
  // What the recording refers to without its history is the same memory in another header.
  const auto owned = [&](const Tensor& tensor) {
    const Storage* storage = tensor.impl()->storage;
    return state_->is_computed(tensor) && storage->refs.load() > owners[storage].size();
  };
  if (std::any_of(outside.begin(), outside.end(), owned)) return true;
  if (std::any_of(results.begin(), results.end(), kept)) return true;
  if (std::any_of(outside.begin(), outside.end(), kept)) return true;
  return state_->living.any_besides(
      [&](const Storage* storage) { return known.contains(storage); });
}

size_t OperatorCapture::size() const { return state_->graph().nodes.size(); }

OperatorCapture::~OperatorCapture() {
  if (active != state_.get()) return;
  active = nullptr;
  thread_state.wanted = wanted_;
}

Recorded OperatorCapture::finish(const std::vector<Tensor>& results) {
  active = nullptr;
  thread_state.wanted = wanted_;
  for (const Tensor& result : results) {
    state_->graph().results.push_back(result.defined() ? state_->operand(result) : kNoValue);
  }
  state_->drop_inner();
  state_->note_escaping(results);
  state_->read_filled_constants();
  state_->adopt_allocated();
  state_->refuse_written_constants();
  state_->finish_grads();
  state_->finish_cells();
  return std::move(state_->recorded);
}

Trace OperatorCapture::cut() {
  active = nullptr;
  thread_state.wanted = wanted_;
  Trace trace{std::move(state_->graph()), std::move(state_->notes), std::move(state_->storages),
              std::move(state_->alignments)};
  return slice(trace, 0, trace.size());
}

bool OperatorCapture::ends_before_access(const Tensor& tensor, const char* op) const {
  const int32_t found = state_->find_buffer(*tensor.impl());
  if (found < 0) return false;
  const BufferOrigin origin = state_->graph().buffers[found].origin;
  if (origin == BufferOrigin::kInside) return true;
  // So far, the graph could be all of the function, of which the host is no part.
  if (!state_->is_middle) {
    return origin == BufferOrigin::kArgument || state_->graph_written()[static_cast<size_t>(found)];
  }
  // Whoever has a pointer may write.
  return std::string_view(op) == "data" || state_->graph_written()[static_cast<size_t>(found)];
}

}  // namespace mytorch::graph
