#include "graph/plan.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/runtime/device_registry.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/table/fields.h"
#include "graph/interpret.h"
#include "graph/kept_args.h"
#include "graph/memory.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {
namespace {

void release_storage(Storage* storage) {
  if (storage != nullptr && detail::release_last(storage)) storage->destroy(storage);
}

}  // namespace

struct Plan::Impl {
  // The memory that one storage had when the graph ran first.
  struct Memory {
    enum Kind : uint8_t {
      kSource,    // an argument, an outside tensor or its grad: its address may change
      kResult,    // leaves the graph: fresh in each run
      kLoose,     // made by an interpreted node in each run
      kArena,     // an intermediate, which has a place in the arena
      kConstant,  // made outside of the graph's kernels, and only read by them
    };
    Kind kind = kConstant;
    uint64_t id = 0;  // of that storage
    uint64_t bytes = 0;
    Device device;
    Storage* storage = nullptr;  // the current one
    bool counted = false;        // whether the plan holds a reference to it
    int64_t begin = 0;           // of this memory in the current storage, in bytes
    // The steps between which an intermediate holds a value.
    size_t first = 0;
    size_t last = 0;
    // The plan's tensors over it, which count no reference to its storage, with offsets in bytes.
    std::vector<std::pair<Tensor, int64_t>> headers;
  };

  struct Random {
    uint32_t offset;  // of the field in the arguments
    Generator generator;
  };

  // A call of a kernel, or a node for the interpreter.
  struct Step {
    const OpEntry* entry = nullptr;
    int slot = 0;
    mt_device device{};
    KeptArgs args;
    std::vector<int32_t> written;  // memories
    std::vector<Random> random;
  };

  struct Interpreted {
    size_t before;  // the step that follows
    size_t node;
  };

  explicit Impl(const Recorded& recorded_) : recorded(recorded_), graph(recorded.graph) {
    empty = Tensor::adopt(new_tensor(nullptr, 0, kUInt8, Device(), 0));
  }
  ~Impl() {
    for (Memory& memory : memories) {
      if (memory.counted) release_storage(memory.storage);
    }
  }

  const Recorded& recorded;
  const Graph& graph;
  std::deque<Memory> memories;
  absl::flat_hash_map<uint64_t, int32_t> memory_of;  // by the id of the storage in the first run
  std::vector<Step> steps;
  std::vector<Interpreted> nodes;  // in the order of `before`
  std::vector<int32_t> sources;    // memories of the buffers that are not made inside
  std::vector<int32_t> buffers;    // the memory of each buffer
  std::vector<Tensor> values;      // for interpreted nodes
  std::vector<int32_t> fresh;      // memories of kind kResult
  Tensor empty;                    // the base of the plan's headers
  // During the first run: tensors allocated without an operator, the running node, the kernel calls
  // that are in progress, and the number of memories before the outermost.
  std::vector<Tensor> allocated;
  const Node* running = nullptr;
  int depth = 0;
  size_t known_memories = 0;
  uint64_t arena = 0;
  uint64_t intermediates = 0;

  // ---- the first run ----

  int32_t memory(Storage* storage) {
    const auto [at, added] =
        memory_of.try_emplace(storage->abi.id, static_cast<int32_t>(memories.size()));
    if (added) {
      Memory& found = memories.emplace_back();
      found.id = storage->abi.id;
      found.bytes = storage->bytes;
      found.device = storage->device;
      found.storage = storage;
    }
    return at->second;
  }
  static Storage* storage_of(const mt_tensor* tensor) {
    // The first member of a TensorImpl is its mt_tensor, and of a Storage its mt_storage.
    return reinterpret_cast<Storage*>(const_cast<mt_storage*>(tensor->storage));
  }

  // Returns a tensor of the plan like another one.
  const Tensor& header(const mt_tensor& like, int32_t memory_id) {
    Memory& memory = memories[memory_id];
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
    TensorImpl* impl = new_view(empty.impl(), sizes, strides, 0, dtype);
    impl->abi.flags = like.flags;
    impl->abi.layout = like.layout;
    impl->abi.dl.device = like.dl.device;
    impl->device_slot = static_cast<uint8_t>(storage_of(&like)->device_slot);
    place(impl, memory.begin + offset, memory.storage);
    return memory.headers.emplace_back(Tensor::adopt(impl), offset).first;
  }

  static void place(TensorImpl* impl, int64_t offset, Storage* storage) {
    impl->storage = storage;
    impl->abi.storage = &storage->abi;
    impl->abi.dl.data = static_cast<char*>(storage->data) + offset;
  }
  // Moves a memory to another storage. Takes over a reference to it if `counted`.
  static void move(Memory& memory, Storage* storage, bool counted, int64_t begin = 0) {
    if (memory.counted) release_storage(memory.storage);
    memory.storage = storage;
    memory.counted = counted;
    memory.begin = begin;
    for (const auto& [tensor, offset] : memory.headers)
      place(tensor.impl(), begin + offset, storage);
  }

  // Notes a kernel call, which is about to run or has run.
  void note(const KernelCall& call, const Node& node) {
    const OpInfo& op = *call.entry->info;
    const size_t at = steps.size();
    const auto first_seen = [&](const mt_tensor* tensor, bool written) {
      const size_t known = memories.size();
      const int32_t id = memory(storage_of(tensor));
      Memory& memory = memories[id];
      if (memories.size() != known) {
        memory.first = at;
        if (written) {
          memory.kind = Memory::kArena;
        } else {
          detail::retain(memory.storage);
          memory.counted = true;
        }
      }
      memory.last = at;
      return id;
    };
    Step step{call.entry,
              call.slot,
              call.ctx->device,
              KeptArgs(op, call.args,
                       [&](const mt_tensor* tensor) {
                         // Outputs come last, so an operand that is first seen here is read.
                         const int32_t id = first_seen(tensor, is_output(op, call.args, tensor));
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
    steps.push_back(std::move(step));
  }

  static bool is_output(const OpInfo& op, const void* args, const mt_tensor* tensor) {
    bool found = false;
    for_each_output(op, args, [&](const mt_tensor*& t, const OutputInfo&) {
      found = found || t->storage == tensor->storage;
    });
    bool read = false;
    for_each_input(op, args, [&](const mt_tensor*& t, const ArgInfo& arg) {
      // A kernel that fills its argument does not read it.
      if (t->storage == tensor->storage)
        (arg.written && overwrites_argument(op) ? found : read) = true;
    });
    return found && !read;
  }
  static Generator generator_of(const Node& node) {
    for (const Arg& arg : node.args) {
      if (const auto* found = std::get_if<Generator>(&arg.constant.variant())) return *found;
    }
    return default_generator();
  }

  // Drops the memories after the first `count`, which no step refers to.
  void forget(size_t count) {
    for (; memories.size() > count; memories.pop_back()) {
      const Memory& last = memories.back();
      memory_of.erase(last.id);
      if (last.counted) release_storage(last.storage);
    }
  }

  // Called before and after each kernel call of the first run. A kernel runs others only to convert
  // its operands; these are a part of it.
  void begin_call(const KernelCall& call) {
    if (depth++ > 0) return;
    known_memories = memories.size();
    note(call, *running);
  }
  void end_call(const KernelRan& ran) {
    if (--depth > 0 || ran.status == MT_OK) return;
    // No kernel takes the call: those that take its place follow.
    steps.pop_back();
    forget(known_memories);
  }

  // Runs a node, and notes how to run it again.
  void run_first(size_t index, std::vector<Tensor>& env,
                 const std::function<Tensor(ValueId)>& tensor_of) {
    const Node& node = graph.nodes[index];
    const size_t begin = steps.size();
    const uint32_t accesses = host_accesses;
    const size_t known = memories.size();
    running = &node;
    const std::vector<Value> results = interpret(node, tensor_of);
    const bool interpreted = host_accesses != accesses || is_complex_node(node) ||
                             crosses_devices(node) || takes_handle(node.op());
    if (interpreted) {
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(begin), steps.end());
      forget(known);
    }
    for (size_t r = 0; r < results.size(); ++r) {
      const std::vector<Tensor> tensors = tensors_of(results[r]);
      for (size_t k = 0; k < node.results[r].values.size(); ++k) {
        const ValueId id = node.results[r].values[k];
        if (id != kNoValue) env[id] = tensors[k];
      }
    }
    if (!interpreted) {
      // Uninitialized memory, as empty() makes, has been seen by no kernel.
      node.for_each_result([&](ValueId id) {
        const size_t count = memories.size();
        Memory& found = memories[memory(env[id].impl()->storage)];
        if (memories.size() == count) return;
        found.kind = Memory::kArena;
        found.first = found.last = begin;
      });
      return;
    }
    const auto use = [&](ValueId id) {
      const size_t count = memories.size();
      Memory& found = memories[memory(env[id].impl()->storage)];
      found.last = steps.size();
      if (memories.size() == count) return;
      // Memory allocated without an operator, which this node is the first to write.
      found.kind = Memory::kArena;
      found.first = steps.size();
    };
    node.for_each_operand(use);
    node.for_each_result([&](ValueId id) {
      const size_t count = memories.size();
      Memory& found = memories[memory(env[id].impl()->storage)];
      if (memories.size() != count) found.kind = Memory::kLoose;
    });
    nodes.push_back({steps.size(), index});
  }

  // An operator with a handle works through an object that kernel calls do not show.
  static bool takes_handle(const OpInfo& op) {
    return std::any_of(op.args, op.args + op.num_args,
                       [](const ArgInfo& arg) { return arg.type == ArgType::kHandle; });
  }

  // Copies between devices are no kernels.
  bool crosses_devices(const Node& node) const {
    const Device* first = nullptr;
    bool found = false;
    const auto look = [&](ValueId id) {
      const Device& device = graph.buffer_of(id).device;
      if (first == nullptr) first = &device;
      found = found || *first != device;
    };
    node.for_each_operand(look);
    node.for_each_result(look);
    return found;
  }

  bool is_complex_node(const Node& node) const {
    bool found = false;
    const auto look = [&](ValueId id) { found = found || is_complex(graph.values[id].dtype); };
    node.for_each_operand(look);
    node.for_each_result(look);
    return found;
  }

  std::vector<Tensor> build(const std::vector<Tensor>& arguments) {
    std::vector<Tensor> env(graph.values.size());
    std::vector<Tensor> roots(graph.buffers.size());
    for (size_t b = 0; b < graph.buffers.size(); ++b) {
      if (graph.buffers[b].origin == Origin::kInside) continue;
      roots[b] = source(b, arguments);
      const int32_t id = memory(roots[b].impl()->storage);
      Memory& found = memories[id];
      found.kind = Memory::kSource;
      found.begin = begin_of(b, roots[b]);
      detail::retain(found.storage);
      found.counted = true;
    }
    const std::function<Tensor(ValueId)> tensor_of = [&](ValueId id) {
      if (env[id].defined()) return env[id];
      // A tensor that no operator made: an argument, or another header of some memory.
      const ValueInfo& info = graph.values[id];
      Storage* storage = roots[info.buffer].defined() ? roots[info.buffer].impl()->storage
                                                      : storage_inside(env, info.buffer);
      return env[id] = over(storage, info,
                            roots[info.buffer].defined() ? memories[memory(storage)].begin : 0);
    };
    {
      const Observe observe([this](const KernelCall& call) { begin_call(call); },
                            [this](const KernelCall&, const KernelRan& ran) { end_call(ran); });
      for (size_t i = 0; i < graph.nodes.size(); ++i) run_first(i, env, tensor_of);
    }
    std::vector<Tensor> results;
    for (const ValueId id : graph.results) {
      results.push_back(id == kNoValue ? Tensor() : tensor_of(id));
    }
    std::vector<Tensor> grads;
    for (const GradResult& grad : graph.grads) {
      grads.push_back(grad.grad == kNoValue ? Tensor() : tensor_of(grad.grad));
    }
    finish(env, tensor_of);
    set_grads(grads, arguments);
    return results;
  }

  // Returns the storage of a buffer that nodes write: that of another value of it, or a new one for
  // memory that was allocated without an operator.
  Storage* storage_inside(const std::vector<Tensor>& env, int32_t buffer) {
    for (size_t other = 0; other < env.size(); ++other) {
      if (env[other].defined() && graph.values[other].buffer == buffer) {
        return env[other].impl()->storage;
      }
    }
    const Buffer& of = graph.buffers[buffer];
    const auto bytes = static_cast<int64_t>(of.bytes);
    allocated.push_back(
        Tensor::adopt(new_tensor(&bytes, 1, kUInt8, of.device, checked_device_slot(of.device))));
    return allocated.back().impl()->storage;
  }

  // Makes the plan's own tensors for interpreted nodes and results, and plans the arena.
  void finish(const std::vector<Tensor>& env, const std::function<Tensor(ValueId)>& tensor_of) {
    values.resize(graph.values.size());
    buffers.assign(graph.buffers.size(), -1);
    const auto own = [&](ValueId id) {
      if (values[id].defined()) return;
      const Tensor tensor = tensor_of(id);
      const int32_t at = memory(tensor.impl()->storage);
      buffers[graph.values[id].buffer] = at;
      values[id] = header(tensor.impl()->abi, at);
    };
    for (size_t b = 0; b < graph.buffers.size(); ++b) {
      if (graph.buffers[b].origin == Origin::kInside) continue;
      sources.push_back(static_cast<int32_t>(b));
    }
    for (const ValueId id : graph.arguments) own(id);
    for (const Interpreted& each : nodes) {
      graph.nodes[each.node].for_each_operand(own);
      graph.nodes[each.node].for_each_result(own);
    }
    const auto leaves = [&](ValueId id) {
      if (id == kNoValue) return;
      own(id);
      Memory& found = memories[buffers[graph.values[id].buffer]];
      if (found.kind != Memory::kArena) return;
      found.kind = Memory::kResult;
      fresh.push_back(buffers[graph.values[id].buffer]);
    };
    for (const ValueId id : graph.results) leaves(id);
    for (const GradResult& grad : graph.grads) leaves(grad.grad);
    for (const int32_t b : sources) {
      if (buffers[b] >= 0) continue;
      const uint64_t id = source_ids[b];
      buffers[b] = memory_of.at(id);
    }
    (void)env;
    plan_arena();
    allocated.clear();
  }

  // Gives the intermediates of each device places in one block.
  void plan_arena() {
    std::vector<Device> devices;
    for (Memory& memory : memories) {
      if (memory.kind == Memory::kLoose || memory.kind == Memory::kResult) memory.storage = nullptr;
      if (memory.kind != Memory::kArena) continue;
      if (std::find(devices.begin(), devices.end(), memory.device) == devices.end()) {
        devices.push_back(memory.device);
      }
    }
    for (const Device device : devices) {
      std::vector<Lifetime> lifetimes;
      std::vector<Memory*> planned;
      for (Memory& memory : memories) {
        if (memory.kind != Memory::kArena || memory.device != device) continue;
        lifetimes.push_back({memory.bytes, memory.first, memory.last});
        planned.push_back(&memory);
        intermediates += memory.bytes;
      }
      const Placement placement = place_lifetimes(lifetimes);
      arena += placement.bytes;
      Storage* storage = allocate_storage(device, checked_device_slot(device),
                                          std::max<uint64_t>(placement.bytes, 1));
      for (size_t i = 0; i < planned.size(); ++i) {
        if (i > 0) detail::retain(storage);
        planned[i]->counted = false;
        move(*planned[i], storage, true, static_cast<int64_t>(placement.offsets[i]));
      }
    }
  }

  // ---- every run ----

  std::vector<uint64_t> source_ids;

  Tensor source(size_t buffer, const std::vector<Tensor>& arguments) {
    const Buffer& of = graph.buffers[buffer];
    Tensor found = of.origin == Origin::kArgument  ? arguments[of.index]
                   : of.origin == Origin::kOutside ? recorded.outside[of.index]
                                                   : recorded.leaf(of.leaf, arguments).grad();
    if (source_ids.size() <= buffer) source_ids.resize(graph.buffers.size());
    source_ids[buffer] = found.impl()->storage->abi.id;
    return found;
  }

  void set_grads(const std::vector<Tensor>& grads, const std::vector<Tensor>& arguments) {
    for (size_t i = 0; i < grads.size(); ++i) {
      recorded.leaf(graph.grads[i].leaf, arguments).set_grad(grads[i]);
    }
  }

  // Returns a tensor of the value's type and geometry over a storage.
  static Tensor over(Storage* storage, const ValueInfo& info, int64_t begin) {
    detail::retain(storage);
    return Tensor::adopt(new_tensor_over(storage, as_list(info.sizes), as_list(info.strides),
                                         info.dtype,
                                         info.offset + begin / element_size(info.dtype)));
  }

  Tensor leaving(ValueId id) {
    if (id == kNoValue) return {};
    const ValueInfo& info = graph.values[id];
    const Memory& memory = memories[buffers[info.buffer]];
    return over(memory.storage, info, memory.begin);
  }

  void interpret_again(Interpreted& each) {
    const Node& node = graph.nodes[each.node];
    const std::vector<Value> results = interpret(node, [&](ValueId id) { return values[id]; });
    for (size_t r = 0; r < results.size(); ++r) {
      const std::vector<Tensor> tensors = tensors_of(results[r]);
      for (size_t k = 0; k < node.results[r].values.size(); ++k) {
        const ValueId id = node.results[r].values[k];
        if (id == kNoValue) continue;
        Memory& memory = memories[buffers[graph.values[id].buffer]];
        const TensorImpl& impl = *tensors[k].impl();
        if (impl.storage == memory.storage) continue;
        if (memory.kind != Memory::kLoose) {
          values[id].copy_(tensors[k]);
          continue;
        }
        detail::retain(impl.storage);
        move(memory, impl.storage, true);
      }
    }
  }

  void run_step(Step& step) {
    for (const Random& random : step.random) {
      field<mt_random>(step.args.get(), random.offset) = random.generator.next();
    }
    mt_ctx* ctx = context(step.slot, step.device);
    if (!run_kernel(*step.entry, step.slot, ctx, step.args.get())) {
      fail(ErrorCode::kInternal, "[compile] no kernel takes the call of ", step.entry->info->base,
           "() any more, which one took when the graph was recorded");
    }
    for (const int32_t id : step.written) ++memories[id].storage->abi.version;
  }

  // Returns how far an argument lies from where it lay in its storage when it was recorded, in
  // bytes.
  int64_t begin_of(size_t buffer, const Tensor& tensor) const {
    const Buffer& of = graph.buffers[buffer];
    if (of.origin != Origin::kArgument) return 0;
    const ValueInfo& info = graph.values[graph.arguments[of.index]];
    return (tensor.impl()->offset() - info.offset) * element_size(info.dtype);
  }

  void move_source(int32_t buffer, const std::vector<Tensor>& arguments) {
    const Tensor found = source(static_cast<size_t>(buffer), arguments);
    Memory& memory = memories[buffers[buffer]];
    Storage* storage = found.impl()->storage;
    const int64_t begin = begin_of(static_cast<size_t>(buffer), found);
    if (storage == memory.storage && begin == memory.begin) return;
    detail::retain(storage);
    move(memory, storage, true, begin);
  }

  std::vector<Tensor> run(const std::vector<Tensor>& arguments) {
    for (const int32_t b : sources) move_source(b, arguments);
    for (const int32_t id : fresh) {
      Memory& memory = memories[id];
      move(memory,
           allocate_storage(memory.device, checked_device_slot(memory.device), memory.bytes), true);
    }
    auto next = nodes.begin();
    for (size_t i = 0; i <= steps.size(); ++i) {
      for (; next != nodes.end() && next->before == i; ++next) interpret_again(*next);
      if (i < steps.size()) run_step(steps[i]);
    }
    std::vector<Tensor> results;
    results.reserve(graph.results.size());
    for (const ValueId id : graph.results) results.push_back(leaving(id));
    std::vector<Tensor> grads;
    grads.reserve(graph.grads.size());
    for (const GradResult& grad : graph.grads) grads.push_back(leaving(grad.grad));
    set_grads(grads, arguments);
    return results;
  }
};

Plan::Plan(const Recorded& recorded, const std::vector<Tensor>& arguments,
           std::vector<Tensor>* results)
    : impl_(std::make_unique<Impl>(recorded)) {
  *results = impl_->build(arguments);
}
Plan::~Plan() = default;

std::vector<Tensor> Plan::run(const std::vector<Tensor>& arguments) {
  return impl_->run(arguments);
}
size_t Plan::kernel_calls() const { return impl_->steps.size(); }
size_t Plan::interpreted() const { return impl_->nodes.size(); }
uint64_t Plan::arena_bytes() const { return impl_->arena; }
uint64_t Plan::intermediate_bytes() const { return impl_->intermediates; }

}  // namespace mytorch::graph
