#include "tests/dispatcher/fake_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/table/fields.h"
#include "dispatcher/table/op.h"
#include "graph/steps/kept_args.h"
#include "mytorch/backends.h"

extern "C" int mytorch_reference_init(const mt_host* host, mt_backend* backend);

namespace mytorch::testing {
namespace {

// A vector clock: the progress of each stream, by its number, at an event.
class Clock {
 public:
  uint64_t of(int stream) const {
    return static_cast<size_t>(stream) < at_.size() ? at_[static_cast<size_t>(stream)] : 0;
  }
  void tick(int stream) {
    if (at_.size() <= static_cast<size_t>(stream)) at_.resize(static_cast<size_t>(stream) + 1);
    ++at_[static_cast<size_t>(stream)];
  }
  void merge(const Clock& other) {
    at_.resize(std::max(at_.size(), other.at_.size()));
    for (size_t i = 0; i < other.at_.size(); ++i) at_[i] = std::max(at_[i], other.at_[i]);
  }

 private:
  std::vector<uint64_t> at_;
};

struct Stream {
  int number;
  Clock clock;
};

struct Access {
  int stream;
  uint64_t time;
  std::string by;
};

struct Block {
  size_t bytes;
  std::vector<Access> writes;  // at most one
  std::vector<Access> reads;   // since the last write
};

// A tensor that a graph keeps, at the address that it had during capture.
struct KeptTensor {
  explicit KeptTensor(const mt_tensor& of)
      : shape(of.dl.shape, of.dl.shape + of.dl.ndim),
        strides(of.dl.strides, of.dl.strides + of.dl.ndim),
        tensor(of) {
    tensor.dl.shape = shape.data();
    tensor.dl.strides = strides.data();
  }
  std::vector<int64_t> shape, strides;
  mt_tensor tensor;
};

// Work that was queued during a capture.
struct Graph {
  std::vector<std::function<int(void* stream)>> work;
  std::set<char*> memory;  // allocated during the capture
};

}  // namespace

struct FakeDevice::State {
  struct Wrapped {
    State* device;
    std::string op;
    mt_kernel_entry inner;
  };

  FakeOptions options;
  mutable std::mutex mutex;
  DeviceCalls calls;
  std::vector<std::string> races;
  std::string failing;
  int fails_after = 0;
  std::map<char*, Block> blocks;
  void* capturing = nullptr;  // a stream
  std::unique_ptr<Graph> captured;
  std::map<char*, bool> graph_memory;  // of all graphs, and whether it is released
  Clock host;                          // covers all work that the host has waited for
  std::vector<std::unique_ptr<Stream>> streams;
  mt_device_ops ops{};
  std::vector<mt_kernel_entry> kernels;
  std::vector<std::unique_ptr<Wrapped>> wrapped;
  int (*compile_inner)(void*, const mt_program*, mt_dtype, const mt_dtype*, int32_t,
                       mt_kernel_entry*) = nullptr;
  void* self_inner = nullptr;

  bool fails(const char* function) { return failing == function && fails_after-- <= 0; }
  void begin(Stream& stream) {
    stream.clock.merge(host);
    stream.clock.tick(stream.number);
  }
  void check(const Stream& stream, const std::vector<Access>& before, const std::string& by) {
    for (const Access& access : before) {
      if (stream.clock.of(access.stream) >= access.time) continue;
      races.push_back(by + " on stream " + std::to_string(stream.number) + " does not wait for " +
                      access.by + " on stream " + std::to_string(access.stream));
    }
  }
  // Records an access to memory by work running on the stream.
  void use(Stream& stream, const void* data, bool writes, const std::string& by) {
    auto at = blocks.upper_bound(static_cast<char*>(const_cast<void*>(data)));
    if (at == blocks.begin()) return;
    --at;
    if (static_cast<const char*>(data) >= at->first + at->second.bytes) return;
    Block& block = at->second;
    check(stream, block.writes, by);
    const Access access{stream.number, stream.clock.of(stream.number), by};
    if (writes) {
      check(stream, block.reads, by);
      block.reads.clear();
      block.writes = {access};
    } else {
      block.reads.push_back(access);
    }
  }
  void use_operands(Stream& stream, const std::string& op, const void* args) {
    const OpInfo& info = *find_op(op)->info;
    for_each_input(info, args, [&](const mt_tensor*& t, const ArgInfo& arg) {
      if ((t->flags & MT_TENSOR_HOST) == 0) use(stream, t->dl.data, arg.written, op);
    });
    for_each_output(info, args, [&](const mt_tensor*& t, const OutputInfo&) {
      use(stream, t->dl.data, true, op);
    });
  }
  mt_kernel_entry wrap(const std::string& op, const mt_kernel_entry& inner) {
    wrapped.push_back(std::make_unique<Wrapped>(Wrapped{this, op, inner}));
    mt_kernel_entry outer = inner;
    outer.self = wrapped.back().get();
    outer.supports = nullptr;
    outer.run = [](void* self, mt_ctx* ctx, const void* args) {
      const auto& w = *static_cast<Wrapped*>(self);
      State& s = *w.device;
      {
        std::lock_guard<std::mutex> lock(s.mutex);
        if (s.capturing != nullptr && ctx->stream == s.capturing) {
          s.keep(w, ctx, args);
          return int{MT_OK};
        }
        auto& stream = *static_cast<Stream*>(ctx->stream);
        s.begin(stream);
        s.use_operands(stream, w.op, args);
        ++s.calls.kernels;
      }
      return w.inner.run(w.inner.self, ctx, args);
    };
    return outer;
  }
  // Adds a kernel call to the graph that is captured.
  void keep(const Wrapped& w, const mt_ctx* ctx, const void* args) {
    const auto tensors = std::make_shared<std::deque<KeptTensor>>();
    const auto kept = std::make_shared<graph::KeptArgs>(
        *find_op(w.op)->info, args,
        [&](const mt_tensor* t) -> const mt_tensor* { return &tensors->emplace_back(*t).tensor; });
    const mt_device device = ctx->device;
    captured->work.push_back([&w, device, tensors, kept](void* stream) {
      mt_ctx* const now = context(device_slot(device.type), device);
      {
        std::lock_guard<std::mutex> lock(w.device->mutex);
        w.device->begin(*static_cast<Stream*>(stream));
        w.device->use_operands(*static_cast<Stream*>(stream), w.op, kept->get());
        ++w.device->calls.kernels;
      }
      return w.inner.run(w.inner.self, now, kept->get());
    });
  }
};

namespace {

using State = FakeDevice::State;

State& state_of(void* self) { return *static_cast<State*>(self); }

mt_device_ops device_functions() {
  mt_device_ops ops{};
  ops.size = sizeof(ops);
  ops.device_count = [](void* self) { return state_of(self).options.devices; };
  ops.allocate = [](void* self, int32_t, size_t bytes, void* stream) -> void* {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.fails("allocate")) return nullptr;
    void* data = std::aligned_alloc(64, (std::max<size_t>(bytes, 1) + 63) / 64 * 64);
    s.blocks[static_cast<char*>(data)] = {std::max<size_t>(bytes, 1), {}, {}};
    ++s.calls.blocks;
    s.calls.bytes += static_cast<int64_t>(bytes);
    if (s.capturing != nullptr && stream == s.capturing) {
      s.captured->memory.insert(static_cast<char*>(data));
      s.graph_memory[static_cast<char*>(data)] = false;
    }
    return data;
  };
  ops.release = [](void* self, int32_t, void* data, size_t bytes, void*) {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    --s.calls.blocks;
    s.calls.bytes -= static_cast<int64_t>(bytes);
    if (const auto at = s.graph_memory.find(static_cast<char*>(data)); at != s.graph_memory.end()) {
      at->second = true;  // the graph has it until it is destroyed
      return;
    }
    s.blocks.erase(static_cast<char*>(data));
    std::free(data);
  };
  ops.copy = [](void* self, int32_t, int32_t kind, void* to, const void* from, size_t bytes,
                void* stream) {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.fails("copy")) return int{MT_ERROR_DEVICE};
    if (s.capturing != nullptr && stream == s.capturing) {
      s.captured->work.push_back([=](void*) {
        std::memcpy(to, from, bytes);
        return int{MT_OK};
      });
      return int{MT_OK};
    }
    auto& on = *static_cast<Stream*>(stream);
    s.begin(on);
    const char* by = kind == MT_COPY_TO_HOST ? "a copy to the host" : "a copy to the device";
    s.use(on, from, false, by);  // host memory counts if it is pinned
    s.use(on, to, true, by);
    ++s.calls.copies[kind];
    std::memcpy(to, from, bytes);
    return int{MT_OK};
  };
  ops.create_stream = [](void* self, int32_t, int32_t) -> void* {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    s.streams.push_back(std::make_unique<Stream>(Stream{s.calls.streams++, {}}));
    return s.streams.back().get();
  };
  ops.synchronize = [](void* self, int32_t, void* stream) {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.fails("synchronize")) return int{MT_ERROR_DEVICE};
    ++s.calls.synchronizations;
    s.host.merge(static_cast<Stream*>(stream)->clock);
    return int{MT_OK};
  };
  ops.record_event = [](void* self, int32_t, void* stream) -> void* {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.fails("record_event")) return nullptr;
    ++s.calls.events_recorded;
    return new Clock(static_cast<Stream*>(stream)->clock);
  };
  ops.wait_event = [](void* self, int32_t, void* stream, void* event) {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.fails("wait_event")) return int{MT_ERROR_DEVICE};
    ++s.calls.events_waited;
    Clock& waiting = stream != nullptr ? static_cast<Stream*>(stream)->clock : s.host;
    waiting.merge(*static_cast<Clock*>(event));
    return int{MT_OK};
  };
  ops.query_event = [](void*, void*) { return 1; };
  ops.destroy_event = [](void* self, void* event) {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    ++s.calls.events_destroyed;
    delete static_cast<Clock*>(event);
  };
  ops.copy_peer = [](void* self, int32_t, void* to, int32_t, const void* from, size_t bytes,
                     void* stream) {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    auto& on = *static_cast<Stream*>(stream);
    s.begin(on);
    s.use(on, from, false, "a copy between devices");
    s.use(on, to, true, "a copy between devices");
    ++s.calls.peer_copies;
    std::memcpy(to, from, bytes);
    return int{MT_OK};
  };
  return ops;
}

void add_pinned(mt_device_ops* ops) {
  ops->allocate_pinned = [](void* self, size_t bytes) -> void* {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.fails("allocate_pinned")) return nullptr;
    void* data = std::aligned_alloc(64, (std::max<size_t>(bytes, 1) + 63) / 64 * 64);
    s.blocks[static_cast<char*>(data)] = {std::max<size_t>(bytes, 1), {}, {}};
    s.calls.pinned_bytes += static_cast<int64_t>(bytes);
    return data;
  };
  ops->release_pinned = [](void* self, void* data, size_t bytes) {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    s.calls.pinned_bytes -= static_cast<int64_t>(bytes);
    s.blocks.erase(static_cast<char*>(data));
    std::free(data);
  };
}

void add_graphs(mt_device_ops* ops) {
  ops->begin_graph = [](void* self, int32_t, void* stream) {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.fails("begin_graph")) return int{MT_ERROR_DEVICE};
    s.capturing = stream;
    s.captured = std::make_unique<Graph>();
    return int{MT_OK};
  };
  ops->end_graph = [](void* self, int32_t, void*) -> void* {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    s.capturing = nullptr;
    return s.captured.release();
  };
  ops->launch_graph = [](void* self, int32_t, void* graph, void* stream) {
    State& s = state_of(self);
    const auto& work = static_cast<Graph*>(graph)->work;
    bool fails;
    {
      std::lock_guard<std::mutex> lock(s.mutex);
      ++s.calls.graph_launches;
      fails = s.fails("launch_graph");
    }
    for (size_t i = 0; i < work.size(); ++i) {
      if (fails && 2 * i >= work.size()) return int{MT_ERROR_DEVICE};
      if (const int status = work[i](stream); status != MT_OK) return status;
    }
    return int{MT_OK};
  };
  ops->destroy_graph = [](void* self, int32_t, void* graph) {
    State& s = state_of(self);
    std::lock_guard<std::mutex> lock(s.mutex);
    const std::unique_ptr<Graph> owned(static_cast<Graph*>(graph));
    for (char* data : owned->memory) {
      const bool released = s.graph_memory.at(data);
      s.graph_memory.erase(data);
      if (!released) continue;  // a tensor has it
      s.blocks.erase(data);
      std::free(data);
    }
  };
}

// An init function has no user data, so pass it in a global; register_backend calls it
// synchronously.
std::function<int(const mt_host*, mt_backend*)> current_init;

void register_with(std::function<int(const mt_host*, mt_backend*)> init) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  current_init = std::move(init);
  register_backend(
      [](const mt_host* host, mt_backend* backend) { return current_init(host, backend); });
}

int fill(State& s, const mt_host* host, mt_backend* backend) {
  mt_backend reference{};
  reference.size = sizeof(reference);
  if (const int status = mytorch_reference_init(host, &reference); status != MT_OK) return status;
  for (int64_t i = 0; i < reference.num_kernels; ++i) {
    const mt_kernel_entry& inner = reference.kernels[i];
    if (s.options.has_kernel && !s.options.has_kernel(inner.op)) continue;
    s.kernels.push_back(s.wrap(inner.op, inner));
  }
  s.compile_inner = reference.compile;
  s.self_inner = reference.self;
  s.ops = device_functions();
  s.ops.type = s.options.type;
  if (s.options.graphs) add_graphs(&s.ops);
  if (s.options.pins) add_pinned(&s.ops);
  backend->name = s.options.name.c_str();
  backend->version = "1.0";
  backend->device_type = s.options.name.c_str();
  backend->self = &s;
  backend->device = &s.ops;
  backend->kernels = s.kernels.data();
  backend->num_kernels = static_cast<int64_t>(s.kernels.size());
  backend->compile = [](void* self, const mt_program* program, mt_dtype compute,
                        const mt_dtype* types, int32_t num_types, mt_kernel_entry* kernel) {
    State& s = state_of(self);
    if (s.options.compiles && !s.options.compiles(*program)) return int{MT_DECLINED};
    const int status = s.compile_inner(s.self_inner, program, compute, types, num_types, kernel);
    if (status == MT_OK) {
      std::lock_guard<std::mutex> lock(s.mutex);
      *kernel = s.wrap(program->name, *kernel);
    }
    return status;
  };
  return MT_OK;
}

}  // namespace

FakeDevice& FakeDevice::create(FakeOptions options) {
  auto* state = new State;  // lives as long as the backend
  state->options = std::move(options);
  register_with(
      [state](const mt_host* host, mt_backend* backend) { return fill(*state, host, backend); });
  return *new FakeDevice(state);
}

Device FakeDevice::device(int index) const {
  return Device(device_type_from_name(state_->options.name), index);
}

int FakeDevice::slot() const { return device_slot(device().type); }

DeviceCalls FakeDevice::calls() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->calls;
}

std::vector<std::string> FakeDevice::take_races() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return std::exchange(state_->races, {});
}

void FakeDevice::let_fail(const std::string& function, int after) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->failing = function;
  state_->fails_after = after;
}

void add_backend_with(const std::string& name, const std::string& device_type,
                      std::vector<TestKernel> kernels, uint32_t flags) {
  struct Held {
    std::string name;
    std::string device_type;
    std::vector<TestKernel> kernels;
    std::vector<mt_kernel_entry> entries;
  };
  auto* held = new Held{name, device_type, std::move(kernels), {}};  // lives as long as the backend
  for (TestKernel& kernel : held->kernels) {
    mt_kernel_entry entry{};
    entry.size = sizeof(entry);
    entry.op = kernel.op.c_str();
    entry.hash = kernel.hash != 0 ? kernel.hash : find_op(kernel.op)->info->hash;
    entry.name = kernel.name.c_str();
    entry.priority = kernel.priority;
    entry.flags = kernel.flags;
    entry.self = &kernel;
    entry.run = [](void* self, mt_ctx* ctx, const void* args) {
      return static_cast<TestKernel*>(self)->run(ctx, args);
    };
    if (kernel.supports) {
      entry.supports = [](void* self, const void* args) {
        return static_cast<TestKernel*>(self)->supports(args);
      };
    }
    held->entries.push_back(entry);
  }
  register_with([held, flags](const mt_host*, mt_backend* backend) {
    backend->name = held->name.c_str();
    backend->version = "1.0";
    backend->device_type = held->device_type.c_str();
    backend->kernels = held->entries.data();
    backend->num_kernels = static_cast<int64_t>(held->entries.size());
    backend->flags = flags;
    return int{MT_OK};
  });
}

}  // namespace mytorch::testing
