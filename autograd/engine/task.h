// One run of backward: the part of the graph that it covers, and its progress.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "autograd/access.h"
#include "autograd/engine/parked.h"
#include "autograd/engine/streams.h"
#include "autograd/engine/wholes.h"
#include "mytorch/autograd/node.h"

namespace mytorch::autograd {

// The state of a node in one run.
struct NodeState {
  Node* node = nullptr;
  uint32_t index = 0;
  uint32_t dependencies = 0;  // number of gradients still to come
  int32_t captures = -1;      // the first of the run's captures at this node
  bool executes = true;       // whether to call its apply
  bool reached = true;        // whether it executes or its gradients are captured
  Tensor one;                 // the accumulated gradient of a node with one input
  std::unique_ptr<Tensor[]> many;
  const Parked::Part* part = nullptr;  // of a node that another run has executed in part

  // Returns whether this run computes a gradient along edge i.
  bool leads(uint32_t i) const {
    return node->edges()[i].node != nullptr && (part == nullptr || part->open[i]);
  }
  Tensor* grads() { return many != nullptr ? many.get() : &one; }
};

// Nodes whose gradients are complete, ordered by sequence number, latest first.
class ReadyHeap {
 public:
  bool empty() const { return heap_.empty(); }
  uint64_t top_sequence() const { return heap_.front().sequence; }
  void push(NodeState* state);
  NodeState* pop();
  void clear() { heap_.clear(); }

 private:
  struct Entry {
    uint64_t sequence;
    NodeState* state;
    bool operator<(const Entry& other) const { return sequence < other.sequence; }
  };
  std::vector<Entry> heap_;
};

// Memory that the thread's next run reuses.
struct TaskMemory {
  static constexpr size_t kChunk = 256;
  std::vector<std::unique_ptr<NodeState[]>> chunks;
  std::vector<NodeState*> stack;
  ReadyHeap heap;
};

struct TaskOptions {
  bool retain_graph = false;
  bool create_graph = false;
  // Gradients that are captured go no further, as if their tensors had no history, and hooks of
  // these tensors do not see them.
  bool ends_at_captures = false;
  // Takes what other leaves than the captured ones would get, for a run that resumes.
  Parked* parks = nullptr;
};

class Task {
 public:
  explicit Task(const TaskOptions& options);
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Call before run(). Add an output with its gradient, an input whose gradient to capture (returns
  // the index for captured()), and a leaf to accumulate into.
  void add_root(Edge edge, Tensor gradient);
  int32_t capture(Edge edge);
  void accumulate(Edge leaf);
  // Or: executes what another run has parked, which must outlive this one.
  void resume(Parked& parked);

  void run();
  // Calls a function at the end of the outermost run that this one is a part of.
  void at_end(std::function<void()> function) const;
  Tensor& captured(int32_t capture) { return captures_[capture].gradient; }

  // Returns whether what nobody wants now is kept for another run.
  bool parks() const { return options_.parks != nullptr; }
  // Returns whether the gradient that goes to a node is needed.
  bool wants(const Node* node) const;
  // Executes a node on this thread, in a run over several devices.
  void work(NodeState* state);

 private:
  struct Root {
    CountedEdge edge;
    Tensor gradient;
  };
  struct GradientCapture {
    CountedEdge edge;
    int32_t next = -1;  // the next capture at the same node
    Tensor gradient;
  };
  // Additional state of a run over several threads.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    int64_t outstanding = 0;  // nodes that are ready or executing
    std::exception_ptr error;
  };

  NodeState& at(uint64_t index) const {
    return memory_->chunks[index / TaskMemory::kChunk][index % TaskMemory::kChunk];
  }
  NodeState* find(const Node* node) const;
  NodeState& find_or_add(Node* node, bool* added);
  void discover();
  void add_parts();
  void prune();
  void seed();
  std::vector<NodeState*> first_ready();

  void run_here();
  void run_parallel();
  // Executes a node, and calls ready(state) for each node that received its last gradient.
  template <bool kShared, class Ready>
  void execute(NodeState& state, Ready&& ready);
  void process(NodeState& state, Tensor* out);  // hooks, captures, apply
  // Applies a node, and parks what it must do for other leaves. Returns whether it is to be applied
  // again for them.
  bool apply_and_park(NodeState& state, Tensor* out);
  // Adds the gradient of a part of a tensor to what the tensor has so far, in place of apply, which
  // makes a tensor of its size. Returns whether it did.
  bool add_to_whole(NodeState& state);
  // Adds to a gradient of a node, on the node's stream, after making it wait for the current one.
  void add_on_stream(NodeState& state, uint32_t input, Tensor&& gradient);
  bool has_one_stream() const { return !several_devices_ && !several_streams_; }
  bool is_local(const Node& node) const;  // whether the calling thread executes it
  void enqueue(NodeState* state);         // to the thread that executes it

  TaskOptions options_;
  const Task* outer_ = thread_data.task;  // the run that began this one, or null
  mutable std::mutex callbacks_mutex_;
  mutable std::vector<std::function<void()>> callbacks_;
  uint32_t id_;
  uint64_t size_ = 0;      // number of states in use
  uint64_t executed_ = 0;  // number of them executed, whose claims are released
  bool pruned_ = false;    // only some nodes' gradients are wanted
  bool resumes_ = false;   // what is parked, all of it
  bool check_nan_ = false;
  Device device_{0, 0};  // of the graph, unless it has several
  bool several_devices_ = false;
  void* stream_ = nullptr;  // of the first node with a device that is no leaf
  bool has_stream_ = false;
  bool several_streams_ = false;
  Device local_device_{0, 0};  // served by the calling thread besides the CPU
  StreamSet result_streams_;
  std::unique_ptr<TaskMemory> memory_;
  // Nodes claimed by other runs, mostly leaves shared between threads.
  std::unordered_map<const Node*, uint64_t> elsewhere_;
  std::vector<Root> roots_;
  std::vector<GradientCapture> captures_;
  std::vector<CountedEdge> accumulated_;
  std::vector<Parked::Part*> parts_;
  Wholes wholes_;  // among the gradients of the states
  std::unique_ptr<Shared> shared_;
};

}  // namespace mytorch::autograd
