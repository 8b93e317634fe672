// Copies, conversions, and moves between devices.
#include <array>
#include <cstring>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/runtime/stream_capture.h"
#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "core/types/broadcast.h"
#include "core/types/holds.h"
#include "dispatcher/frame/outputs.h"
#include "mytorch/device_memory.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/new_empty.h"
#include "ops/composites.h"
#include "ops/creation.h"

namespace mytorch {
namespace {

// One side of a transfer.
struct Place {
  explicit Place(Device device)
      : slot(checked_device_slot(device)), device(device), type(&device_type(slot)) {
    if (!device.is_cpu()) stream = context(slot, {device.type, device.index})->stream;
  }
  int slot;
  Device device;
  const DeviceType* type;
  void* stream = nullptr;
};

void check(int status, const Place& place, const char* what) {
  if (status == MT_OK) return;
  fail(static_cast<ErrorCode>(status), "[copy_] ", what, " on ", place.device.str(),
       " failed: ", take_host_error());
}

void synchronize(const Place& place) {
  if (place.type->ops->synchronize == nullptr) return;  // copies are synchronous
  check(place.type->ops->synchronize(place.type->self, place.device.index, place.stream), place,
        "waiting");
}

void copy_on(const Place& place, int kind, void* to, const void* from, size_t bytes) {
  check(place.type->ops->copy(place.type->self, place.device.index, kind, to, from, bytes,
                              place.stream),
        place, "the copy");
}

// Makes the stream of `waiting` wait for the work queued on the stream of `other`.
void wait_for(const Place& waiting, const Place& other) {
  const mt_device_ops& ops = *other.type->ops;
  if (ops.record_event == nullptr) return;  // the device has one stream
  void* event = ops.record_event(other.type->self, other.device.index, other.stream);
  const int status =
      ops.wait_event(waiting.type->self, waiting.device.index, waiting.stream, event);
  ops.destroy_event(other.type->self, event);
  check(status, waiting, "waiting for another stream");
}

// Copies the bytes of a contiguous tensor into another one of its type and shape. On return, `from`
// may be freed or written; `to` may be read on its device's stream or, on the CPU, immediately.
// `asynchronous`: the caller keeps host memory alive and unchanged until the stream has finished
// the copy.
void transfer(const Tensor& to, const Tensor& from, bool asynchronous) {
  const size_t bytes = static_cast<size_t>(from.numel() * from.element_size());
  void* target = to.impl()->abi.dl.data;
  const void* source = from.raw_data();
  const Place there(to.device());
  const Place here(from.device());
  if (!asynchronous && there.slot != here.slot && num_captures() != 0) {
    for (const Place& place : {there, here}) {
      check_not_captured("copy_",
                         "between a device and memory of the host that is not pinned, or without "
                         "non_blocking, the host waits",
                         place.device);
    }
  }
  if (there.device.is_cpu()) {
    copy_on(here, MT_COPY_TO_HOST, target, source, bytes);
    if (!asynchronous) synchronize(here);
  } else if (here.device.is_cpu()) {
    copy_on(there, MT_COPY_TO_DEVICE, target, source, bytes);
    if (!asynchronous) synchronize(there);
  } else if (there.slot == here.slot && here.type->ops->copy_peer != nullptr) {
    wait_for(there, here);
    check(here.type->ops->copy_peer(here.type->self, there.device.index, target, here.device.index,
                                    source, bytes, there.stream),
          there, "the copy between devices");
    wait_for(here, there);  // the source's stream may reuse its memory
  } else {
    const Tensor staged = empty(from.sizes(), from.dtype(), kCPU);
    transfer(staged, from, false);
    transfer(to, staged, false);
  }
}

template <class T>
T load(const void* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

}  // namespace

namespace shape {

void copy_(const Tensor& self, const Tensor& src, bool) {
  check_type(!src.is_complex() || self.is_complex(), "copy_", "a copy of ", src.dtype(), " into ",
             self.dtype(), " would drop the imaginary parts: ",
             self.dtype() == kBool ? "write x != 0" : "take real(x), imag(x) or abs(x)");
  check_shape(broadcasts_to(src.sizes(), self.sizes()), "copy_", "shape ", src.sizes(),
              " does not broadcast to ", self.sizes());
}

}  // namespace shape

namespace composite {

Tensor converted(const Tensor& self, ScalarType dtype, Device device, bool non_blocking,
                 bool copy) {
  if (!self.defined()) fail(ErrorCode::kValue, "[to] argument 'self' is an undefined tensor");
  if (!copy && dtype == self.dtype() && device == self.device()) return self;
  Tensor out = is_batched(self.impl()) ? mytorch::empty_like(self, dtype, device)
                                       : new_like(self, dtype, device);
  mytorch::copy_(out, self, non_blocking);
  return out;
}

void copy_(const Tensor& self, const Tensor& src, bool non_blocking) {
  if (self.numel() == 0) return;
  if (self.device() == src.device()) return copy_into(self, src);  // only the host fallback remains
  // Only contiguous bytes are transferred. Kernels on either side pack and unpack them, and convert
  // on the side that keeps the transferred type the narrower one.
  const LayerMask below(~0u);
  const ScalarType type = src.element_size() <= self.element_size() ? src.dtype() : self.dtype();
  Tensor from = src;
  if (type != src.dtype() || !src.is_contiguous()) {
    from = mytorch::empty(src.sizes(), type, src.device());
    mytorch::copy_(from, src);
  }
  const bool direct = self.is_contiguous() && self.dtype() == type && self.sizes() == from.sizes();
  const Tensor to = direct ? self : mytorch::empty(from.sizes(), type, self.device());
  // A temporary on the host must outlive the stream's access to it.
  const bool lasting = self.device().is_cpu() ? direct : from.is_same(src);
  transfer(to, from, non_blocking && lasting);
  if (!direct) mytorch::copy_(self, to);
}

Tensor contiguous(const Tensor& self) {
  if (self.is_contiguous()) return self;
  Tensor out = is_batched(self.impl()) ? mytorch::new_empty(self, self.sizes())
                                       : mytorch::empty(self.sizes(), self.dtype(), self.device());
  mytorch::copy_(out, self);
  return out;
}

Tensor contiguous_copy(const Tensor& self) {
  return self.is_contiguous() ? self.clone() : self.contiguous();
}

Scalar item(const Tensor& self) {
  check_not_batched(self, "item");
  check_host_access(self, "item");
  check_shape(self.numel() == 1, "item", "a tensor of shape ", self.sizes(), " has ", self.numel(),
              " elements, not one");
  const LayerMask below(~0u);
  check_not_captured("item", "needs the value on the host", self.device());
  const Tensor host = self.to(kCPU);
  const void* data = host.raw_data();
  switch (host.dtype()) {
    case kBool:
      return load<uint8_t>(data) != 0;
    case kUInt8:
      return load<uint8_t>(data);
    case kInt8:
      return load<int8_t>(data);
    case kInt16:
      return load<int16_t>(data);
    case kInt32:
      return load<int32_t>(data);
    case kInt64:
      return load<int64_t>(data);
    case kFloat16:
      return static_cast<float>(load<Half>(data));
    case kBFloat16:
      return static_cast<float>(load<BFloat16>(data));
    case kFloat32:
      return load<float>(data);
    case kFloat64:
      return load<double>(data);
    case kComplex64: {
      const auto parts = load<std::array<float, 2>>(data);
      return Scalar::complex(parts[0], parts[1]);
    }
    case kComplex128: {
      const auto parts = load<std::array<double, 2>>(data);
      return Scalar::complex(parts[0], parts[1]);
    }
  }
  fail(ErrorCode::kInternal, "[item] unknown type");
}

}  // namespace composite

Tensor pin_memory(const Tensor& tensor, Device device) {
  Tensor pinned = empty_pinned(tensor.sizes(), tensor.dtype(), device);
  pinned.copy_(tensor);
  return pinned;
}

Scalar Tensor::item() const { return composite::item(*this); }

}  // namespace mytorch
