// Tensors shared with other libraries of the process by DLPack, without a copy.
//
//   DLManagedTensorVersioned* managed = to_dlpack(x);  // owns a reference; call its deleter
//   Tensor y = from_dlpack(managed);                   // calls the deleter when it goes
//
// The structs are those of dlpack.h, versions 1.x and, without a version, 0.x; programs that look
// into them include that header.
#pragma once

#include <optional>

#include "mytorch/device.h"
#include "mytorch/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace mytorch {

// What a consumer asks for; as the arguments of Python's __dlpack__.
struct DlpackOptions {
  // Where the elements have to be; without it, where they are.
  std::optional<Device> device = {};
  // true: a copy, that the consumer may change as it likes; false: never a copy, but an Error; and
  // without it, a copy if the device needs one.
  std::optional<bool> copy = {};
  // The native handle (a cudaStream_t) of the stream that will use the elements, which then waits
  // for the work of this thread's stream; null has the host wait. Without it, the consumer has to
  // order its work behind that of this thread's stream.
  std::optional<void*> stream = {};
};

// Returns the tensor for another library: the same elements, of which the result owns a reference,
// with the flag for a copy or for read-only memory if it is one. Throws Error(kValue) for a tensor
// that requires a gradient (detach() it), and Error(kDevice) for one on a kind of device for which
// DLPack has no code.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, const DlpackOptions& options = {});
// The same for consumers older than 1.0. Throws Error(kValue) for read-only memory, of which these
// are not told, unless it is copied.
DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor, const DlpackOptions& options = {});

// Returns a tensor over the elements of another library, whose deleter is called when the last
// tensor that shares them goes; on a device, after the work that this thread's stream has then.
// Owns `managed` also if it throws.
//
// Strides of dimensions of size 1, and of arrays without elements, are not read; writes to
// read-only memory throw. Elements with negative strides, and those that are not aligned, cannot be
// shared: they are copied, unless `copy` is false. true copies all. The memory must be ready for
// this thread's stream. Pinned host memory is CPU memory, and managed CUDA memory that of its GPU.
//
// Throws Error(kType) for elements that tensors cannot have, such as uint16, Error(kDevice) for
// devices that no loaded backend serves, Error(kShape) for sizes that describe no array, and
// Error(kUnsupported) for a later major version.
Tensor from_dlpack(DLManagedTensorVersioned* managed, std::optional<bool> copy = {});
Tensor from_dlpack(DLManagedTensor* managed, std::optional<bool> copy = {});

}  // namespace mytorch
