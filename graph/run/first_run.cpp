// The first run of a plan: the nodes run one by one with ordinary tensors, and each kernel call is
// noted with headers of the plan in place of these.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/runtime/device_registry.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/table/fields.h"
#include "graph/fusion/fusion.h"
#include "graph/regions/regions.h"
#include "graph/run/arena.h"
#include "graph/run/kept_steps.h"
#include "graph/run/partial.h"
#include "graph/steps/interpret.h"
#include "graph/steps/plan_parts.h"

namespace mytorch::graph {
namespace {

class FirstRun {
 public:
  explicit FirstRun(PlanParts* parts)
      : parts_(*parts), graph_(parts->graph), memories_(parts->memories), steps_(parts->steps) {}
  std::vector<Tensor> run(const std::vector<Tensor>& arguments);

 private:
  int32_t memory(Storage* storage) {
    const auto [at, added] =
        memory_of_.try_emplace(storage->abi.id, static_cast<int32_t>(memories_.size()));
    if (added) {
      PlanMemory& found = memories_.emplace_back();
      found.id = storage->abi.id;
      found.bytes = storage->bytes;
      found.device = storage->device;
      found.storage = storage;
      found.storage_id = found.id;
    }
    return at->second;
  }
  static Storage* storage_of(const mt_tensor* tensor) {
    // The first member of a TensorImpl is its mt_tensor, and of a Storage its mt_storage.
    return reinterpret_cast<Storage*>(const_cast<mt_storage*>(tensor->storage));
  }

  // Returns a tensor of the plan like another one.
  const Tensor& header(const mt_tensor& like, int32_t memory_id) {
    PlanMemory& memory = memories_[memory_id];
    const auto ndim = static_cast<size_t>(like.dl.ndim);
    const IntList sizes(like.dl.shape, ndim), strides(like.dl.strides, ndim);
    const ScalarType dtype = from_abi(like.dl.dtype);
    const int64_t offset = static_cast<const char*>(like.dl.data) -
                           static_cast<const char*>(storage_of(&like)->data) - memory.begin;
    for (const auto& [known, at] : memory.headers) {
      const TensorImpl& impl = *known.impl();
      if (at == offset && impl.dtype == dtype && impl.sizes() == sizes &&
          impl.strides() == strides && impl.abi.flags == like.flags) {
        return known;
      }
    }
    TensorImpl* impl = new_header(parts_.empty.impl(), sizes, strides, dtype);
    impl->abi.flags = like.flags;
    impl->abi.layout = like.layout;
    impl->abi.dl.device = like.dl.device;
    impl->device_slot = static_cast<uint8_t>(storage_of(&like)->device_slot);
    place(impl, memory.begin + offset, memory.storage);
    return memory.headers.emplace_back(Tensor::adopt(impl), offset).first;
  }

  // Notes a kernel call, which is about to run or has run.
  void note(const KernelCall& call, const GraphNode& node) {
    const OpInfo& op = *call.entry->info;
    const auto first_seen = [&](const mt_tensor* tensor, bool written) {
      const size_t known = memories_.size();
      const int32_t id = memory(storage_of(tensor));
      PlanMemory& memory = memories_[id];
      if (memories_.size() != known) {
        if (written) {
          memory.kind = PlanMemory::kArena;
        } else {
          detail::retain(memory.storage);
          memory.counted = true;
        }
      }
      return id;
    };
    PlanStep step{call.entry,
                  call.slot,
                  call.ctx->device,
                  KeptArgs(op, call.args,
                           [&](const mt_tensor* tensor) {
                             const int32_t id =
                                 first_seen(tensor, is_output(op, call.args, tensor));
                             return &header(*tensor, id).impl()->abi;
                           }),
                  {},
                  {}};
    const auto writes = [&](const mt_tensor* tensor) {
      const int32_t id = memory(storage_of(tensor));
      if (std::find(step.written.begin(), step.written.end(), id) == step.written.end()) {
        step.written.push_back(id);
      }
    };
    for_each_output(op, call.args, [&](const mt_tensor*& t, const OutputInfo&) { writes(t); });
    for_each_input(op, call.args, [&](const mt_tensor*& t, const ArgInfo& arg) {
      if (arg.written && t->storage != nullptr) writes(t);
    });
    for (int i = 0; i < op.num_args; ++i) {
      if (op.args[i].type == ArgType::kGenerator && op.args[i].offset != kNoField) {
        step.random.push_back({op.args[i].offset, generator_of(node)});
      }
    }
    steps_.push_back(std::move(step));
  }

  // Returns whether a call replaces the memory of a tensor without reading it.
  static bool is_output(const OpInfo& op, const void* args, const mt_tensor* tensor) {
    bool found = false;
    for_each_output(op, args, [&](const mt_tensor*& t, const OutputInfo&) {
      found = found || t->storage == tensor->storage;
    });
    bool read = false;
    for_each_input(op, args, [&](const mt_tensor*& t, const ArgInfo& arg) {
      // A kernel that fills its argument does not read it.
      if (t->storage != tensor->storage) return;
      (arg.written && overwrites_argument(op) ? found : read) = true;
    });
    return found && !read;
  }
  static Generator generator_of(const GraphNode& node) {
    for (const Arg& arg : node.args) {
      if (const auto* found = std::get_if<Generator>(&arg.constant.variant())) return *found;
    }
    return default_generator();
  }

  // Drops the memories after the first `count`, which no step refers to.
  void forget(size_t count) {
    for (; memories_.size() > count; memories_.pop_back()) {
      PlanMemory& last = memories_.back();
      memory_of_.erase(last.id);
      release_memory(last);
    }
  }

  // Called before and after each kernel call of the first run. A kernel runs others only to convert
  // its operands; these are a part of it.
  void begin_call(const KernelCall& call) {
    if (depth_++ > 0) return;
    known_memories_ = memories_.size();
    note(call, *running_);
  }
  void end_call(const KernelRan& ran) {
    if (--depth_ > 0) return;
    if (ran.status == MT_OK) {
      steps_.back().kernel = ran.kernel;
      return;
    }
    // No kernel takes the call: those that take its place follow.
    steps_.pop_back();
    forget(known_memories_);
  }

  // Runs a node, and notes how to run it again.
  void run_node(size_t index) {
    const GraphNode& node = graph_.nodes[index];
    const size_t begin = steps_.size();
    const uint32_t accesses = host_accesses;
    const size_t known = memories_.size();
    running_ = &node;
    const std::vector<Value> results =
        interpret(node, [this](ValueId id) { return tensor_of(id); });
    const bool interpreted = host_accesses != accesses || is_complex_node(node) ||
                             crosses_devices(node) || takes_handle(node.op());
    if (interpreted) {
      steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(begin), steps_.end());
      forget(known);
    }
    ran_.push_back({begin, steps_.size(), interpreted});
    for (size_t r = 0; r < results.size(); ++r) {
      const std::vector<Tensor> tensors = tensors_of(results[r]);
      for (size_t k = 0; k < node.results[r].values.size(); ++k) {
        const ValueId id = node.results[r].values[k];
        if (id == kNoValue) continue;
        if (parts_.recorded.is_fitted) check_fitted(node, id, tensors[k]);
        env_[id] = tensors[k];
      }
    }
    if (!interpreted) {
      // Uninitialized memory, as empty() makes, has been seen by no kernel.
      node.for_each_result([&](ValueId id) {
        const size_t count = memories_.size();
        PlanMemory& found = memories_[memory(env_[id].impl()->storage)];
        if (memories_.size() == count) return;
        found.kind = PlanMemory::kArena;
      });
      return;
    }
    const auto use = [&](ValueId id) {
      const size_t count = memories_.size();
      PlanMemory& found = memories_[memory(env_[id].impl()->storage)];
      if (memories_.size() == count) return;
      // Memory allocated without an operator, which this node is the first to write.
      found.kind = PlanMemory::kArena;
    };
    node.for_each_operand(use);
    node.for_each_result([&](ValueId id) {
      const size_t count = memories_.size();
      PlanMemory& found = memories_[memory(env_[id].impl()->storage)];
      if (memories_.size() != count) found.kind = PlanMemory::kUnplanned;
    });
    parts_.nodes.push_back({steps_.size(), index});
  }

  // The sizes of a graph that follow from those of other recordings must be what operators give.
  void check_fitted(const GraphNode& node, ValueId id, const Tensor& tensor) const {
    const ValueInfo& info = graph_.values[id];
    const bool same = tensor.defined() && tensor.dtype() == info.dtype &&
                      tensor.sizes() == as_list(info.sizes) &&
                      tensor.strides() == as_list(info.strides);
    if (same) return;
    fail(ErrorCode::kInternal, "[compile] dynamic_dims: ", node.name(), " gives a tensor of shape ",
         tensor.defined() ? shape_str(tensor.sizes()) : "none", ", and of shape ",
         shape_str(as_list(info.sizes)),
         " by the sizes of other recordings: leave the dimension out of dynamic_dims");
  }

  // An operator with a handle works through an object that kernel calls do not show.
  static bool takes_handle(const OpInfo& op) {
    return std::any_of(op.args, op.args + op.num_args,
                       [](const ArgInfo& arg) { return arg.type == ArgType::kHandle; });
  }

  // Copies between devices are no kernels.
  bool crosses_devices(const GraphNode& node) const {
    const Device* first = nullptr;
    bool found = false;
    const auto look = [&](ValueId id) {
      const Device& device = graph_.buffer_of(id).device;
      if (first == nullptr) first = &device;
      found = found || *first != device;
    };
    node.for_each_operand(look);
    node.for_each_result(look);
    return found;
  }

  bool is_complex_node(const GraphNode& node) const {
    bool found = false;
    const auto look = [&](ValueId id) { found = found || is_complex(graph_.values[id].dtype); };
    node.for_each_operand(look);
    node.for_each_result(look);
    return found;
  }

  // Returns the storage of a buffer that nodes write: that of another value of it, or a new one for
  // memory that was allocated without an operator.
  Storage* storage_inside(int32_t buffer) {
    for (size_t other = 0; other < env_.size(); ++other) {
      if (env_[other].defined() && graph_.values[other].buffer == buffer) {
        return env_[other].impl()->storage;
      }
    }
    const GraphBuffer& of = graph_.buffers[buffer];
    const auto bytes = static_cast<int64_t>(of.bytes);
    allocated_.push_back(
        Tensor::adopt(new_tensor(&bytes, 1, kUInt8, of.device, checked_device_slot(of.device))));
    return allocated_.back().impl()->storage;
  }

  // Returns the ordinary tensor of a value.
  const Tensor& tensor_of(ValueId id) {
    if (env_[id].defined()) return env_[id];
    // A tensor that no operator made: an argument, or another header of some memory.
    const ValueInfo& info = graph_.values[id];
    const int32_t source = parts_.buffers[info.buffer];
    if (source >= 0) {
      env_[id] = tensor_over(memories_[source].storage, info, memories_[source].begin);
    } else {
      env_[id] = tensor_over(storage_inside(info.buffer), info, 0);
    }
    return env_[id];
  }

  // Makes the plan's tensor of a value, for interpreted nodes and results.
  void own(ValueId id) {
    if (parts_.values[id].defined()) return;
    const Tensor& tensor = tensor_of(id);
    const size_t count = memories_.size();
    const int32_t at = memory(tensor.impl()->storage);
    if (memories_.size() != count)
      memories_[at].kind = PlanMemory::kArena;  // that nothing has written
    parts_.buffers[graph_.values[id].buffer] = at;
    parts_.values[id] = header(tensor.impl()->abi, at);
  }

  void finish(const std::vector<const void*>& constants);

  PlanParts& parts_;
  const Graph& graph_;
  std::deque<PlanMemory>& memories_;
  std::vector<PlanStep>& steps_;
  std::vector<Tensor> env_;                           // the ordinary tensors, by value
  absl::flat_hash_map<uint64_t, int32_t> memory_of_;  // by the id of the storage
  std::vector<Tensor> allocated_;                     // without an operator
  std::vector<NodeRun> ran_;                          // each node
  const GraphNode* running_ = nullptr;
  int depth_ = 0;              // kernel calls in progress
  size_t known_memories_ = 0;  // before the outermost of them
};

std::vector<Tensor> FirstRun::run(const std::vector<Tensor>& arguments) {
  // Before this run refers to the tensors, too.
  const std::vector<const void*> constants = constant_memory(parts_.recorded);
  env_.resize(graph_.values.size());
  std::vector<Tensor> sources;
  for (size_t b = 0; b < graph_.buffers.size(); ++b) {
    if (graph_.buffers[b].origin == BufferOrigin::kInside) continue;
    const auto buffer = static_cast<int32_t>(b);
    sources.push_back(parts_.source(buffer, arguments));
    const int32_t id = memory(sources.back().impl()->storage);
    PlanMemory& found = memories_[id];
    found.kind = PlanMemory::kSource;
    found.begin = parts_.begin_of(buffer, sources.back());
    parts_.buffers[b] = id;
    parts_.sources.push_back(buffer);
  }
  std::vector<Tensor> results, grads;
  size_t ran = 0;
  try {
    {
      const Observe observe([this](const KernelCall& call) { begin_call(call); },
                            [this](const KernelCall&, const KernelRan& how) { end_call(how); });
      for (; ran < graph_.nodes.size(); ++ran) run_node(ran);
    }
    const auto output_of = [this](ValueId id) { return id == kNoValue ? Tensor() : tensor_of(id); };
    for (const ValueId id : graph_.results) results.push_back(output_of(id));
    for (const GradResult& grad : graph_.grads) grads.push_back(output_of(grad.grad));
    finish(constants);
  } catch (const Error& error) {
    const std::string changed = partial_first_text(graph_, ran);
    if (changed.empty()) throw;
    throw Error(error.code(), error.what() + changed);
  }
  env_.clear();
  parts_.set_grads(grads, arguments);
  return results;
}

void FirstRun::finish(const std::vector<const void*>& constants) {
  parts_.values.resize(graph_.values.size());
  const auto owned = [this](ValueId id) { own(id); };
  compile_regions(&parts_, ran_, constants, owned);
  for (const Interpreted& each : parts_.nodes) {
    graph_.nodes[each.node].for_each_operand(owned);
    graph_.nodes[each.node].for_each_result(owned);
  }
  const auto leaves = [this](ValueId id) {
    if (id == kNoValue) return;
    own(id);
    PlanMemory& found = memories_[parts_.buffers[graph_.values[id].buffer]];
    if (found.kind == PlanMemory::kArena) found.kind = PlanMemory::kResult;
  };
  for (const ValueId id : graph_.results) leaves(id);
  for (const GradResult& grad : graph_.grads) leaves(grad.grad);
  for (size_t i = 0; i < memories_.size(); ++i) {
    if (memories_[i].kind != PlanMemory::kResult && memories_[i].kind != PlanMemory::kUnplanned)
      continue;
    parts_.allocated.push_back(static_cast<int32_t>(i));
  }
  mark_kept_steps(&parts_);
  fuse_calls(&parts_);
  gather_kept_steps(&parts_);
  plan_arena(&parts_);
}

}  // namespace

std::vector<Tensor> run_first(PlanParts* parts, const std::vector<Tensor>& arguments) {
  return FirstRun(parts).run(arguments);
}

}  // namespace mytorch::graph
