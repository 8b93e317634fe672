// Executes a task: on the calling thread alone, or together with the workers of other devices.
#include <cmath>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "autograd/anomaly.h"
#include "autograd/autocast/state.h"
#include "autograd/engine/gradients.h"
#include "autograd/engine/streams.h"
#include "autograd/engine/task.h"
#include "autograd/engine/workers.h"
#include "autograd/operators.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/autograd/callback.h"
#include "mytorch/grad_mode.h"

namespace mytorch::autograd {
namespace {

inline bool is_like(const TensorImpl& impl, const GradInfo& info) {
  if (impl.abi.dl.ndim != info.ndim || impl.dtype != info.dtype ||
      impl.abi.dl.device.type != info.device.type ||
      impl.abi.dl.device.index != info.device.index) {
    return false;
  }
  const int64_t* expected = info.sizes_data();
  for (int32_t i = 0; i < info.ndim; ++i) {
    if (impl.abi.dl.shape[i] != expected[i]) return false;
  }
  return true;
}

[[gnu::noinline]] void make_fit(const Node& from, uint32_t i, Tensor* gradient) {
  const Edge& edge = from.edges()[i];
  const GradInfo& info = edge.node->infos()[edge.input];
  if (NodeAccess::is_unfitted(&from)) *gradient = fit(&from, i, std::move(*gradient));
  if (!is_like(*gradient->impl(), info)) fit_gradient_slow(gradient, info, from.name());
}

// Adds the node to the exception that its execution threw.
[[noreturn]] void fail_in(const Node& node) {
  const std::string where =
      absl::StrCat("\n  in the backward of ", node.name(), describe_origin(node));
  try {
    throw;
  } catch (const Error& error) {
    throw Error(error.code(), error.what() + where);
  } catch (const std::exception& error) {
    // Keep the original for std::rethrow_if_nested.
    std::throw_with_nested(
        Error(ErrorCode::kInternal, absl::StrCat("[", node.name(), "] ", error.what(), where)));
  }
}

// Sets the thread's state while a task runs on it.
class TaskScope {
 public:
  TaskScope(const Task* task, bool pruned, bool create_graph, bool one_stream)
      : task_(std::exchange(thread_data.task, task)),
        one_stream_(std::exchange(thread_data.one_stream, one_stream)),
        pruned_(std::exchange(thread_data.pruned, pruned ? task : nullptr)),
        executing_(thread_data.executing),
        grad_mode_(grad_enabled()) {
    set_grad_enabled(create_graph);
    if ((thread_state.wanted & kLayerAutocast) != 0) autocast_.emplace(autocast::AutocastState());
  }
  ~TaskScope() {
    thread_data.task = task_;
    thread_data.one_stream = one_stream_;
    thread_data.pruned = pruned_;
    thread_data.executing = executing_;
    set_grad_enabled(grad_mode_);
  }

 private:
  std::optional<AutocastScope> autocast_;  // disabled: gradients run in the types of the forward
  const Task* task_;
  const bool one_stream_;
  const Task* pruned_;
  const Node* executing_;
  bool grad_mode_;
};

}  // namespace

void Task::run() {
  discover();
  if (pruned_ && !resumes_) prune();
  TaskScope scope(this, pruned_, options_.create_graph, has_one_stream());
  seed();
  if (several_devices_) {
    if (recording_graph()) {
      fail(
          ErrorCode::kUnsupported,
          "[backward] a compiled function cannot record a backward over several devices: compile a "
          "function for each device");
    }
    run_parallel();
  } else {
    run_here();
  }
  // Order the caller's next work after the work queued for the results.
  result_streams_.join();
  // A callback may queue others.
  for (size_t i = 0; i < callbacks_.size(); ++i) {
    const std::function<void()> callback = std::move(callbacks_[i]);
    callback();
  }
}

void Task::at_end(std::function<void()> function) const {
  const Task* outermost = this;
  while (outermost->outer_ != nullptr) outermost = outermost->outer_;
  const std::lock_guard<std::mutex> lock(outermost->callbacks_mutex_);
  outermost->callbacks_.push_back(std::move(function));
}

bool in_backward() { return thread_data.task != nullptr; }

void queue_callback(std::function<void()> function) {
  if (!in_backward()) {
    fail(ErrorCode::kValue,
         "[queue_callback] no backward runs on this thread: call it from a hook or from the "
         "backward of a function");
  }
  thread_data.task->at_end(std::move(function));
}

[[gnu::always_inline]] inline void Task::process(NodeState& state, Tensor* out) {
  Node* node = state.node;
  Tensor* grads = state.grads();
  if (!wholes_.empty()) [[unlikely]] {
    for (uint32_t i = 0; i < node->num_inputs(); ++i) wholes_.complete(&grads[i]);
  }
  const bool is_leaf = NodeAccess::is_leaf(node);
  if (options_.ends_at_captures) [[unlikely]] {
    for (int32_t c = state.captures; c >= 0; c = captures_[c].next) {
      captures_[c].gradient = std::move(grads[captures_[c].edge.get().input]);
    }
  }
  // Those of a part have run.
  if (NodeAccess::extras(node) != nullptr && state.part == nullptr) [[unlikely]]
    run_hooks(node, grads);
  if (!options_.ends_at_captures) [[likely]] {
    for (int32_t c = state.captures; c >= 0; c = captures_[c].next) {
      captures_[c].gradient = grads[captures_[c].edge.get().input];
    }
  }
  if (state.executes) {
    bool any = false, again = false;
    for (uint32_t i = 0; i < node->num_inputs(); ++i) any |= grads[i].defined();
    if (any && !(NodeAccess::is_part(node) && add_to_whole(state))) {
      if (options_.parks != nullptr) [[unlikely]] {
        again = apply_and_park(state, out);
      } else {
        node->apply(grads, out);
      }
      if (is_leaf) {
        if (NodeAccess::extras(node) != nullptr) [[unlikely]]
          run_accumulated_hooks(node);
      } else {
        if (check_nan_) [[unlikely]]
          check_nan(*node, out);
      }
    }
    if (!options_.retain_graph && !again) node->release_saved();
  }
  for (uint32_t i = 0; i < node->num_inputs(); ++i) grads[i] = Tensor();
}

bool Task::add_to_whole(NodeState& state) {
  // Sums of a run over several threads are written under its lock.
  if (shared_ != nullptr || check_nan_) return false;
  const Edge& edge = state.node->edges()[0];
  NodeState* to = edge.node != nullptr ? find(edge.node) : nullptr;
  if (to == nullptr || !to->reached) return false;
  const GradInfo& info = edge.node->infos()[edge.input];
  Tensor* sum = &to->grads()[edge.input];
  Tensor& gradient = state.grads()[0];
  if (device_.type <= MT_DEVICE_CPU) {
    return add_gradient_of_part(*state.node, gradient, info, sum, &wholes_);
  }
  wait_for_current(*edge.node);  // the whole may be a leaf, with a stream of its own
  StreamScope stream(*edge.node);
  if (!add_gradient_of_part(*state.node, gradient, info, sum, &wholes_)) return false;
  gradient = Tensor();  // on the stream that has read it
  return true;
}

template <bool kShared, class Ready>
void Task::execute(NodeState& state, Ready&& ready) {
  Node* node = state.node;
  const uint32_t n = node->num_edges();
  constexpr uint32_t kFew = 4;
  Tensor few[kFew];
  std::vector<Tensor> many;
  Tensor* out = few;
  if (n > kFew) {
    many.resize(n);
    out = many.data();
  }
  process(state, out);

  const Edge* const edges = node->edges();
  const auto fit_one = [&](uint32_t i) {
    const Edge& edge = edges[i];
    if (edge.node == nullptr || !out[i].defined()) return;
    if (!is_like(*out[i].impl(), edge.node->infos()[edge.input])) [[unlikely]]
      make_fit(*node, i, &out[i]);
  };
  std::unique_lock<std::mutex> lock;
  if constexpr (kShared) {
    for (uint32_t i = 0; i < n; ++i) fit_one(i);
    lock = std::unique_lock<std::mutex>(shared_->mutex);
  }
  if (state.executes) {
    for (uint32_t i = 0; i < n; ++i) {
      if (!state.leads(i)) continue;
      if constexpr (!kShared) fit_one(i);
      NodeState* to = find(edges[i].node);
      if (!to->reached) continue;
      if (out[i].defined()) {
        if (kShared || device_.type > MT_DEVICE_CPU) [[unlikely]] {
          add_on_stream(*to, edges[i].input, std::move(out[i]));
        } else {
          Tensor* sum = &to->grads()[edges[i].input];
          if (!wholes_.empty()) [[unlikely]]
            wholes_.complete(sum);
          add_gradient(sum, std::move(out[i]));
        }
      }
      if (--to->dependencies == 0) ready(to);
    }
  }
  // No more gradients arrive here: release the claim, unless another run holds it.
  uint64_t mine = uint64_t{id_} << 32 | state.index;
  std::atomic<uint64_t>& claim = NodeAccess::claim(node);
  if (claim.load(std::memory_order_relaxed) == mine) claim.store(0, std::memory_order_relaxed);
  state.many.reset();
  ++executed_;
  if ((kShared || device_.type > MT_DEVICE_CPU) &&
      (NodeAccess::is_leaf(node) || state.captures >= 0)) {
    result_streams_.add(*node);
  }
}

void Task::run_here() {
  ReadyHeap& heap = memory_->heap;
  // The next ready node is held outside the heap, so that a chain never touches the heap.
  NodeState* next = nullptr;
  const auto ready = [&](NodeState* state) {
    if (next != nullptr && next->node->sequence() > state->node->sequence()) {
      heap.push(state);
      return;
    }
    if (next != nullptr) heap.push(next);
    next = state;
  };
  for (NodeState* state : first_ready()) ready(state);
  try {
    while (next != nullptr || !heap.empty()) {
      NodeState* state;
      if (next == nullptr || (!heap.empty() && heap.top_sequence() > next->node->sequence())) {
        state = heap.pop();
      } else {
        state = std::exchange(next, nullptr);
      }
      thread_data.executing = state->node;
      StreamScope stream(*state->node);
      execute<false>(*state, ready);
    }
  } catch (...) {
    fail_in(*thread_data.executing);
  }
}

bool Task::is_local(const Node& node) const {
  if (node.num_inputs() == 0) return true;
  const mt_device device = node.infos()[0].device;
  return device.type <= MT_DEVICE_CPU ||
         (device.type == local_device_.type && device.index == local_device_.index);
}

// The caller holds the lock.
void Task::enqueue(NodeState* state) {
  ++shared_->outstanding;
  if (is_local(*state->node)) {
    memory_->heap.push(state);
    shared_->changed.notify_one();
  } else {
    const mt_device device = state->node->infos()[0].device;
    DeviceWorkers::get().submit(Device(device.type, device.index), this, state);
  }
}

void Task::work(NodeState* state) {
  bool failed;
  {
    std::lock_guard<std::mutex> lock(shared_->mutex);
    failed = shared_->error != nullptr;
  }
  if (!failed) {
    TaskScope scope(this, pruned_, options_.create_graph, has_one_stream());
    try {
      thread_data.executing = state->node;
      StreamScope stream(*state->node);
      try {
        execute<true>(*state, [this](NodeState* to) { enqueue(to); });
      } catch (...) {
        fail_in(*state->node);
      }
    } catch (...) {
      std::lock_guard<std::mutex> lock(shared_->mutex);
      if (shared_->error == nullptr) shared_->error = std::current_exception();
    }
  }
  std::lock_guard<std::mutex> lock(shared_->mutex);
  if (--shared_->outstanding == 0) shared_->changed.notify_one();
}

void Task::run_parallel() {
  shared_ = std::make_unique<Shared>();
  // A run started by a worker cannot wait for that worker, so it executes that device's nodes
  // itself.
  local_device_ = DeviceWorkers::device_of_this_thread();
  std::unique_lock<std::mutex> lock(shared_->mutex);
  for (NodeState* state : first_ready()) enqueue(state);
  ReadyHeap& heap = memory_->heap;
  while (true) {
    shared_->changed.wait(lock, [&] { return shared_->outstanding == 0 || !heap.empty(); });
    if (heap.empty()) break;
    NodeState* state = heap.pop();
    lock.unlock();
    work(state);
    lock.lock();
  }
  if (shared_->error != nullptr) std::rethrow_exception(shared_->error);
}

}  // namespace mytorch::autograd
