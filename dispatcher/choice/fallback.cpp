// The fallback of another device's operators to the CPU, and the error if the user did not allow
// it.
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "dispatcher/choice/complex.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/table/args_copy.h"
#include "dispatcher/table/fields.h"
#include "mytorch/backends.h"
#include "mytorch/check.h"

namespace mytorch {
namespace {

std::string describe_operands(const OpInfo& op, const void* args) {
  std::vector<std::string> parts;
  for_each_input(op, args, [&](const mt_tensor*& t, const ArgInfo& arg) {
    parts.push_back(absl::StrCat(arg.name, ": ", dtype_name(from_abi(t->dl.dtype)),
                                 shape_str({t->dl.shape, static_cast<size_t>(t->dl.ndim)})));
  });
  return absl::StrJoin(parts, ", ");
}

std::atomic<int> fallback_allowed{-1};  // -1: not set; see the environment

bool fallback_is_allowed() {
  int allowed = fallback_allowed.load();
  if (allowed < 0) {
    const char* text = std::getenv("MYTORCH_FALLBACK");
    allowed = text != nullptr && std::atoi(text) != 0 ? 1 : 0;
    fallback_allowed.store(allowed);
  }
  return allowed != 0;
}

}  // namespace

void allow_fallback(bool allow) { fallback_allowed.store(allow ? 1 : 0); }

void fail_no_kernel(const OpEntry& entry, int device_slot, const void* args) {
  const OpInfo& op = *entry.info;
  std::string text =
      absl::StrCat("[", op.base, "] no kernel of ", op.name, " on ", device_type(device_slot).name,
                   " takes (", describe_operands(op, args), ").");
  const auto list = kernels(entry, device_slot);
  if (list.empty()) {
    const auto loaded = backends();
    absl::StrAppend(&text, " No backend has a kernel for it;");
    if (loaded.empty()) {
      absl::StrAppend(
          &text,
          " none is loaded: set MYTORCH_BACKEND_PATH to the directory of the backends, or "
          "call load_backend.");
      for (const BackendInfo& info : backend_infos()) {
        if (!info.error.empty()) absl::StrAppend(&text, "\n  ", info.error);
      }
    } else {
      absl::StrAppend(
          &text, " loaded are ",
          absl::StrJoin(loaded, ", ",
                        [](std::string* out, const Backend* b) { absl::StrAppend(out, b->name); }),
          ".");
    }
  }
  for (const KernelEntry& kernel : list) {
    const std::string reason = why_not(op, kernel, device_slot, args);
    absl::StrAppend(&text, "\n  ", kernel.backend->name, "/",
                    kernel.abi.name != nullptr ? kernel.abi.name : "?", ": ",
                    reason.empty() ? "declined at run time" : reason);
  }
  if (device_slot != kCpuSlot) {
    absl::StrAppend(&text,
                    "\nTo run it on the CPU, with copies in both directions, call "
                    "mytorch::allow_fallback(true) or set MYTORCH_FALLBACK=1.");
  }
  throw Error(ErrorCode::kUnsupported, text);
}

namespace {

// A host copy of a device tensor: the memory range of its elements, with the same strides.
struct Mirror {
  Tensor host;
  const mt_tensor* device = nullptr;
  void* device_begin = nullptr;
  uint64_t bytes = 0;
};

Mirror mirror(const mt_tensor* t, int slot, mt_ctx* ctx) {
  Mirror m;
  m.device = t;
  const Extent memory = extent(*t);
  const ScalarType dtype = from_abi(t->dl.dtype);
  m.bytes = memory.bytes();
  m.device_begin = memory.begin;
  Storage* storage = allocate_storage(kCPU, kCpuSlot, m.bytes);
  const size_t ndim = static_cast<size_t>(t->dl.ndim);
  m.host = Tensor::adopt(new_tensor_over(storage, {t->dl.shape, ndim}, {t->dl.strides, ndim}, dtype,
                                         memory.offset(*t) / element_size(dtype)));
  if (m.bytes != 0) {
    const DeviceType& type = device_type(slot);
    if (type.ops->copy(type.self, t->dl.device.index, MT_COPY_TO_HOST, storage->data,
                       m.device_begin, m.bytes, ctx->stream) != MT_OK ||
        (type.ops->synchronize != nullptr &&
         type.ops->synchronize(type.self, t->dl.device.index, ctx->stream) != MT_OK)) {
      fail(ErrorCode::kDevice, "[fallback] copying from ", type.name,
           " failed: ", take_host_error());
    }
  }
  return m;
}

// For outputs whose shape the CPU kernel decides: creates each on the device, as the caller wants
// it, and gives the kernel a host copy.
class DynamicTwins {
 public:
  // `cpu` is null if the operator has no such outputs.
  DynamicTwins(mt_ctx* cpu, mt_ctx* device, int slot, std::vector<Mirror>& outputs)
      : cpu_(static_cast<ThreadContext*>(cpu)), device_(device), slot_(slot), outputs_(outputs) {
    if (cpu_ == nullptr) return;
    cpu_->dynamic_output = make;
    cpu_->dynamic_user = this;
  }
  ~DynamicTwins() {
    if (cpu_ != nullptr) cpu_->dynamic_output = nullptr;
  }
  DynamicTwins(const DynamicTwins&) = delete;
  DynamicTwins& operator=(const DynamicTwins&) = delete;

 private:
  static const mt_tensor* make(void* self, int32_t index, const int64_t* shape, int32_t ndim) {
    auto* twins = static_cast<DynamicTwins*>(self);
    mt_ctx* device = twins->device_;
    const mt_tensor* made = device->make_output(device, index, shape, ndim);
    if (made == nullptr) return nullptr;
    twins->outputs_.push_back(mirror(made, twins->slot_, device));
    return &twins->outputs_.back().host.impl()->abi;
  }
  ThreadContext* cpu_;
  mt_ctx* device_;
  int slot_;
  std::vector<Mirror>& outputs_;
};

}  // namespace

void run_fallback(const OpEntry& entry, int slot, mt_ctx* ctx, const void* args) {
  const OpInfo& op = *entry.info;
  if (slot == kCpuSlot || !fallback_is_allowed()) fail_no_kernel(entry, slot, args);
  OpState& state = state_of(const_cast<OpEntry&>(entry));
  if (state.fallbacks.fetch_add(1) == 0) {
    detail::warn(absl::StrCat("[", op.base, "] runs on the CPU for ", device_type(slot).name,
                              ": no kernel takes the call"));
  }
  ++host_accesses;  // a replay of the kernels alone would lack the copies
  const Substitution substitution({state.entry, slot, ctx, args}, kFellBack);
  ArgsCopy copy(op, args);
  std::vector<Mirror> inputs;
  std::vector<Mirror> outputs;
  for_each_input(op, copy.get(), [&](const mt_tensor*& t, const ArgInfo& arg) {
    if ((t->flags & MT_TENSOR_HOST) != 0) return;
    auto& to = arg.written ? outputs : inputs;
    to.push_back(mirror(t, slot, ctx));
    t = &to.back().host.impl()->abi;
  });
  for_each_output(op, copy.get(), [&](const mt_tensor*& t, const OutputInfo&) {
    outputs.push_back(mirror(t, slot, ctx));
    t = &outputs.back().host.impl()->abi;
  });
  mt_ctx* cpu = context(kCpuSlot, {MT_DEVICE_CPU, 0});
  const DynamicTwins twins(op.dynamic ? cpu : nullptr, ctx, slot, outputs);
  const bool ran = has_complex(op, copy.get())
                       ? run_complex_kernel(entry, kCpuSlot, cpu, copy.get())
                       : run_kernel(entry, kCpuSlot, cpu, copy.get());
  if (!ran) fail_no_kernel(entry, slot, args);
  const DeviceType& type = device_type(slot);
  for (const Mirror& m : outputs) {
    if (m.bytes == 0) continue;
    if (type.ops->copy(type.self, m.device->dl.device.index, MT_COPY_TO_DEVICE, m.device_begin,
                       m.host.impl()->storage->data, m.bytes, ctx->stream) != MT_OK ||
        (type.ops->synchronize != nullptr &&
         type.ops->synchronize(type.self, m.device->dl.device.index, ctx->stream) != MT_OK)) {
      fail(ErrorCode::kDevice, "[fallback] copying to ", type.name, " failed: ", take_host_error());
    }
  }
}

}  // namespace mytorch
