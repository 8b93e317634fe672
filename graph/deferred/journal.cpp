#include "graph/deferred/journal.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/table/fields.h"
#include "graph/deferred/calls.h"
#include "mytorch/backends.h"
#include "mytorch/ops/empty.h"

namespace mytorch::graph {
namespace {

constexpr const char* kName = "meta";
// Replays of what follows from other tensors are nested, as deeply as here at most.
constexpr int kMaxDepth = 200;

// The blocks that tensors have now, by address.
class Journal {
 public:
  char* allocate(size_t bytes) {
    if (bytes == 0) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    constexpr size_t kStep = 64;
    if (bytes > kEnd - next_ - 2 * kStep) return nullptr;
    char* const address = reinterpret_cast<char*>(next_);
    next_ += (bytes + 2 * kStep - 1) / kStep * kStep;
    blocks_[address] = {++count_, bytes, nullptr};
    return address;
  }

  void release(char* address) {
    Block released;  // is destroyed without the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return;
    released = std::move(found->second);
    blocks_.erase(found);
  }

  // Returns the block of an address, and the bytes between its start and the address.
  std::pair<Block, int64_t> find(const void* address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = place(address);
    return {at->second, static_cast<const char*>(address) - at->first};
  }

  // Adds a call that writes to the blocks at these addresses.
  void add(const std::shared_ptr<const Call>& call, const std::set<const void*>& written,
           int depth) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const void* address : written) {
      Content& content = place(address)->second.content;
      auto write = std::make_shared<Write>();
      write->depth = std::max(depth, content == nullptr ? 0 : content->depth);
      write->before = std::move(content);
      write->call = call;
      content = std::move(write);
    }
  }

 private:
  // Beyond what processes have; the kernel of the system has the other half.
  static constexpr uintptr_t kBegin = uintptr_t{1} << 56, kEnd = uintptr_t{1} << 62;

  std::map<char*, Block>::iterator place(const void* address) {
    auto at = blocks_.upper_bound(const_cast<char*>(static_cast<const char*>(address)));
    if (at == blocks_.begin() ||
        static_cast<const char*>(address) >= std::prev(at)->first + std::prev(at)->second.bytes) {
      fail(ErrorCode::kInternal, "[", kName, "] no tensor has the memory of an operand");
    }
    return std::prev(at);
  }

  std::mutex mutex_;
  uintptr_t next_ = kBegin;
  uint64_t count_ = 0;
  std::map<char*, Block> blocks_;
};

Journal& journal() {
  static Journal* const instance = new Journal;  // never destroyed: tensors may outlive main
  return *instance;
}

bool has_elements(const mt_tensor& tensor) {
  return std::find(tensor.dl.shape, tensor.dl.shape + tensor.dl.ndim, 0) ==
         tensor.dl.shape + tensor.dl.ndim;
}

Operand operand_of(const mt_tensor& tensor) {
  if (!has_elements(tensor)) return {{}, Geometry(tensor, 0)};
  auto [block, offset] = journal().find(tensor.dl.data);
  return {std::move(block), Geometry(tensor, offset / (tensor.dl.dtype.bits / 8))};
}

// A call that is being added.
class NewCall {
 public:
  // Returns what stands for a tensor in the arguments that are kept.
  const mt_tensor* keep(const mt_tensor& tensor) {
    if ((tensor.flags & MT_TENSOR_HOST) != 0) {
      call_->elements.push_back(from_blob(tensor.dl.data, {}, from_abi(tensor.dl.dtype)).clone());
      call_->hosts.push_back(*to_abi(call_->elements.back().impl()));
      call_->hosts.back().flags |= MT_TENSOR_HOST;
      return &call_->hosts.back();
    }
    Operand& operand = call_->operands.emplace_back(operand_of(tensor));
    operand.header.storage = &operand.storage;  // null marks numbers
    return &operand.header;
  }
  void note_written(const mt_tensor& tensor, size_t operand) {
    if (written_.empty()) call_->written = operand;
    call_->operands[operand].written = true;
    if (has_elements(tensor)) written_.insert(tensor.dl.data);
  }

  void finish(const char* op) {
    if (written_.empty()) return;  // tensors without elements
    std::set<uint64_t> blocks;
    for (const void* address : written_) blocks.insert(journal().find(address).first.number);
    int depth = 0;
    for (Operand& operand : call_->operands) {
      // Its replay begins with what the block had.
      if (blocks.size() == 1 && blocks.count(operand.block.number) != 0) {
        operand.block.content = nullptr;
      }
      if (operand.block.content != nullptr) {
        depth = std::max(depth, operand.block.content->depth + 1);
      }
    }
    if (depth > kMaxDepth) {
      fail(ErrorCode::kUnsupported, "[", op, "] its result follows from ", depth,
           " others, which were all made under nn::DeferredInit: compute it on kCPU, and copy it");
    }
    journal().add(call_, written_, depth);
  }
  Call& operator*() const { return *call_; }

 private:
  std::shared_ptr<Call> call_ = std::make_shared<Call>();
  std::set<const void*> written_;
};

void add_kernel_call(const OpEntry& entry, const void* args) {
  const LayerMask below(~0u);
  const OpInfo& op = *entry.info;
  NewCall call;
  std::map<const mt_tensor*, size_t> places;
  (*call).entry = &entry;
  (*call).args = std::make_unique<KeptArgs>(op, args, [&](const mt_tensor* tensor) {
    places[tensor] = (*call).operands.size();
    return call.keep(*tensor);
  });
  const auto written = [&](const mt_tensor* tensor) {
    call.note_written(*tensor, places.at(tensor));
  };
  for_each_output(op, args, [&](const mt_tensor* tensor, const OutputInfo&) { written(tensor); });
  for_each_input(op, args, [&](const mt_tensor* tensor, const ArgInfo& arg) {
    if (arg.written) written(tensor);
  });
  call.finish(op.base);
}

// ---- the device ----

// Returns the status of what `body` does.
template <class Report, class F>
int guarded(const Report& report, F&& body) {
  try {
    body();
    return MT_OK;
  } catch (const Error& error) {
    report(static_cast<int>(error.code()), error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    report(MT_ERROR_INTERNAL, error.what());
    return MT_ERROR_INTERNAL;
  }
}

int fail_on_host(int status, const char* message) {
  host()->set_error(status, message);
  return status;
}

[[noreturn]] void fail_read(const char* what) {
  fail(ErrorCode::kValue, "[", kName, "] ", what, " ", kNotYetThere);
}

int run(void* self, mt_ctx* ctx, const void* args) {
  return guarded([&](int status, const char* message) { ctx->set_error(ctx, status, message); },
                 [&] { add_kernel_call(*static_cast<const OpEntry*>(self), args); });
}

// The shape of the result depends on the elements.
int refuse(void*, mt_ctx* ctx, const void*) {
  return guarded([&](int status, const char* message) { ctx->set_error(ctx, status, message); },
                 [] { fail_read("a tensor whose elements are needed"); });
}

int copy(void*, int32_t, int32_t kind, void* to, const void* from, size_t bytes, void*) {
  return guarded(fail_on_host, [&] {
    if (kind != MT_COPY_TO_DEVICE) fail_read("a tensor that is read");
    const Tensor values = mytorch::empty({static_cast<int64_t>(bytes)}, kUInt8, kCPU);
    std::memcpy(values.data_ptr(), from, bytes);
    mt_tensor target = *to_abi(values.impl());
    target.dl.data = to;
    NewCall call;
    call.keep(target);
    call.note_written(target, 0);
    (*call).write = [values](const Tensor& memory) { memory.copy_(values); };
    call.finish("copy_");
  });
}

const mt_device_ops& device_functions() {
  static const mt_device_ops ops = [] {
    mt_device_ops made{};
    made.size = sizeof(made);
    made.device_count = [](void*) { return 1; };
    made.allocate = [](void*, int32_t, size_t bytes, void*) -> void* {
      return journal().allocate(bytes);
    };
    made.release = [](void*, int32_t, void* data, size_t, void*) {
      journal().release(static_cast<char*>(data));
    };
    made.copy = copy;
    return made;
  }();
  return ops;
}

// Takes the calls of all operators but those that consist of others.
const std::vector<mt_kernel_entry>& kernels() {
  static const auto* const made = [] {
    auto* list = new std::vector<mt_kernel_entry>;
    for (OpEntry* entry : all_ops()) {
      const OpInfo& op = *entry->info;
      const bool composite =
          op.meaning == Meaning::kComposite && std::strcmp(op.name, "copy_") != 0;
      if (!op.has_kernel || composite) continue;
      mt_kernel_entry kernel{};
      kernel.size = sizeof(kernel);
      kernel.op = op.name;
      kernel.hash = op.hash;
      kernel.name = "journal";
      kernel.flags = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES |
                     MT_TAKES_ALIAS | MT_TAKES_COMPLEX;
      kernel.run = op.dynamic ? refuse : run;
      kernel.self = entry;
      list->push_back(kernel);
    }
    return list;
  }();
  return *made;
}

int init(const mt_host*, mt_backend* backend) {
  backend->name = kName;
  backend->version = "1.0";
  backend->device_type = kName;
  backend->device = &device_functions();
  backend->kernels = kernels().data();
  backend->num_kernels = static_cast<int64_t>(kernels().size());
  return MT_OK;
}

}  // namespace

Geometry::Geometry(const mt_tensor& tensor, int64_t offset_)
    : dtype(from_abi(tensor.dl.dtype)),
      sizes(tensor.dl.shape, tensor.dl.shape + tensor.dl.ndim),
      strides(tensor.dl.strides, tensor.dl.strides + tensor.dl.ndim),
      offset(offset_) {}

Device deferred_device() {
  static const Device device = [] {
    register_backend(init);
    const int slot = register_device_type(kName, nullptr, nullptr);
    deferred_slot.store(slot, std::memory_order_relaxed);
    return Device(device_type(slot).type, 0);
  }();
  return device;
}

void defer_write(const Tensor& tensor, std::function<void(const Tensor& memory)> write) {
  NewCall call;
  call.keep(*to_abi(tensor.impl()));
  call.note_written(*to_abi(tensor.impl()), 0);
  (*call).write = std::move(write);
  call.finish("defer_write");
  tensor.impl()->bump_version();
}

Tensor Materializer::operator()(const Tensor& tensor) {
  const Operand operand = operand_of(*to_abi(tensor.impl()));
  const auto [memory, is_new] = blocks_.try_emplace(operand.block.number);
  if (is_new) memory->second = replay(operand.block, device_);
  return view_of(memory->second, operand.geometry);
}

}  // namespace mytorch::graph
