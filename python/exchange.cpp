#include "python/exchange.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "mytorch/dlpack.h"
#include "mytorch/ops.h"
#include "ops/dlpack.h"
#include "python/convert.h"

namespace mytorch::python {
namespace {

constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kUnversioned = "dltensor";

// ---- DLPack ----

// Frees what a capsule holds if nobody has taken it.
template <class Managed>
void release_capsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  dlpack::release(static_cast<Managed*>(PyCapsule_GetPointer(capsule, name)));
}
void release_versioned(PyObject* capsule) {
  release_capsule<dlpack::Versioned>(capsule, kVersioned);
}
void release_unversioned(PyObject* capsule) {
  release_capsule<dlpack::Unversioned>(capsule, kUnversioned);
}

constexpr int32_t kCpu = MT_DEVICE_CPU, kCuda = MT_DEVICE_CUDA;  // DLPack's codes

void* native_stream(Device device) {
  return context(checked_device_slot(device), {device.type, device.index})->stream;
}

// Reads a tuple of two integers.
std::pair<int, int> two_integers(PyObject* pair, const char* what) {
  if (PyTuple_Check(pair) == 0 || PyTuple_GET_SIZE(pair) != 2) {
    PyErr_Format(PyExc_TypeError, "%s is a tuple of two integers, not %.100s", what,
                 Py_TYPE(pair)->tp_name);
    throw Raised();
  }
  return {static_cast<int>(to_int(PyTuple_GET_ITEM(pair, 0))),
          static_cast<int>(to_int(PyTuple_GET_ITEM(pair, 1)))};
}

Device device_of_pair(PyObject* pair) {
  const auto [type, index] = two_integers(pair, "dl_device");
  if (type != kCpu && type != kCuda) {
    PyErr_Format(PyExc_BufferError, "[__dlpack__] there is no way to device type %d of DLPack",
                 type);
    throw Raised();
  }
  return type == kCpu ? mytorch::kCPU : Device(type, index);
}

// The consumer's stream, as the array API writes it.
std::optional<void*> stream_of(PyObject* object, const Tensor& tensor) {
  if (tensor.device().is_cpu()) {
    if (object == nullptr || object == Py_None) return std::nullopt;
    PyErr_SetString(PyExc_ValueError, "[__dlpack__] a tensor on the CPU has no stream");
    throw Raised();
  }
  // CUDA's names of its default stream are 1, and 2 for that of the thread; -1: no order is wanted.
  const int64_t number = object == nullptr || object == Py_None ? 1 : to_int(object);
  if (number == -1) return std::nullopt;
  return reinterpret_cast<void*>(static_cast<intptr_t>(number));
}

PyObject* export_dlpack(PyObject* self, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  PyObject *stream = nullptr, *version = nullptr, *device = nullptr, *copy = nullptr;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO:__dlpack__", const_cast<char**>(names),
                                  &stream, &version, &device, &copy) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const Tensor& tensor = tensor_of(self);
    DlpackOptions options;
    if (device != nullptr && device != Py_None) options.device = device_of_pair(device);
    if (copy != nullptr && copy != Py_None) options.copy = to_bool(copy);
    options.stream = stream_of(stream, tensor);
    int major = 0;
    if (version != nullptr && version != Py_None) {
      major = two_integers(version, "max_version").first;
    }
    try {
      if (major >= 1) {
        return PyCapsule_New(to_dlpack(tensor, options), kVersioned, release_versioned);
      }
      return PyCapsule_New(to_dlpack_unversioned(tensor, options), kUnversioned,
                           release_unversioned);
    } catch (const Error& error) {  // what the array API asks for
      PyErr_SetString(PyExc_BufferError, error.what());
      throw Raised();
    }
  });
}

PyObject* dlpack_device(PyObject* self, PyObject*) {
  return guarded([&] {
    const Device device = tensor_of(self).device();
    return Py_BuildValue("(ii)", int{device.type}, int{device.index});
  });
}

Tensor from_capsule(PyObject* capsule, std::optional<bool> copy) {
  if (PyCapsule_IsValid(capsule, kVersioned) != 0) {
    void* const managed = PyCapsule_GetPointer(capsule, kVersioned);
    PyCapsule_SetName(capsule, "used_dltensor_versioned");
    return from_dlpack(static_cast<DLManagedTensorVersioned*>(managed), copy);
  }
  if (PyCapsule_IsValid(capsule, kUnversioned) != 0) {
    void* const managed = PyCapsule_GetPointer(capsule, kUnversioned);
    PyCapsule_SetName(capsule, "used_dltensor");
    return from_dlpack(static_cast<DLManagedTensor*>(managed), copy);
  }
  PyErr_SetString(PyExc_ValueError,
                  "[from_dlpack] the capsule holds no DLPack tensor, or was taken before");
  throw Raised();
}

Tensor import_buffer(PyObject* object, std::optional<bool> copy);

Tensor import_dlpack(PyObject* object, std::optional<bool> copy) {
  const Ref method(checked(PyObject_GetAttrString(object, "__dlpack__")));
  const Ref none(checked(PyTuple_New(0)));
  Ref keywords(checked(Py_BuildValue("{s(ii)}", "max_version", 1, 0)));
  // On a GPU, the producer makes this thread's stream wait.
  const Ref pair(checked(PyObject_CallMethod(object, "__dlpack_device__", nullptr)));
  // Of an enumeration, in some libraries.
  const auto [type, index] = two_integers(pair.get(), "the result of __dlpack_device__");
  if (type == kCuda) {
    const Ref number(checked(PyLong_FromVoidPtr(native_stream(Device(type, index)))));
    if (PyDict_SetItemString(keywords.get(), "stream", number.get()) < 0) throw Raised();
  }
  Ref capsule(PyObject_Call(method.get(), none.get(), keywords.get()));
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {  // before 1.0
    PyErr_Clear();
    if (PyDict_DelItemString(keywords.get(), "max_version") < 0) throw Raised();
    capsule = Ref(PyObject_Call(method.get(), none.get(), keywords.get()));
  }
  // Older libraries have no DLPack for some arrays, such as bools and those that are read-only.
  if (!capsule && PyErr_ExceptionMatches(PyExc_BufferError) != 0 && PyObject_CheckBuffer(object)) {
    PyErr_Clear();
    return import_buffer(object, copy);
  }
  return from_capsule(checked(capsule.get()), copy);
}

// ---- the buffer protocol ----

struct Format {
  ScalarType dtype;
  const char* text;
};
constexpr Format kFormats[] = {{kBool, "?"},       {kUInt8, "B"},      {kInt8, "b"},
                               {kInt16, "h"},      {kInt32, "i"},      {kInt64, "q"},
                               {kFloat16, "e"},    {kFloat32, "f"},    {kFloat64, "d"},
                               {kComplex64, "Zf"}, {kComplex128, "Zd"}};

struct HeldBuffer {
  Tensor tensor;
  std::vector<Py_ssize_t> dims;  // sizes, then strides
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  return guarded_status([&] {
    const Tensor& tensor = tensor_of(self);
    const auto refuse = [](const std::string& why) {
      PyErr_SetString(PyExc_BufferError, why.c_str());
      throw Raised();
    };
    const char* format = nullptr;
    for (const Format& each : kFormats) {
      if (each.dtype == tensor.dtype()) format = each.text;
    }
    if (format == nullptr) {
      refuse(std::string("NumPy has no ") + dtype_name(tensor.dtype()) +
             ": convert the tensor, x.float()");
    }
    if (!tensor.device().is_cpu()) {
      refuse("the tensor is on " + tensor.device().str() + ": copy it, x.cpu()");
    }
    if (tensor.requires_grad()) {
      refuse("the tensor requires a gradient, of which NumPy would know nothing: use x.detach()");
    }
    const bool read_only = tensor.impl()->read_only;
    if (read_only && (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) refuse("the tensor is read-only");
    const auto ndim = static_cast<size_t>(tensor.dim());
    auto held = std::make_unique<HeldBuffer>();
    held->tensor = tensor.detach();  // of the memory, which x.data = ... takes from the tensor
    held->dims.resize(2 * ndim + 1);
    for (size_t d = 0; d < ndim; ++d) {
      held->dims[d] = tensor.sizes()[d];
      held->dims[ndim + d] = tensor.strides()[d] * tensor.element_size();
    }
    view->buf = read_only ? const_cast<void*>(tensor.raw_data()) : tensor.raw_mutable_data();
    view->len = tensor.nbytes();
    view->itemsize = tensor.element_size();
    view->readonly = read_only ? 1 : 0;
    view->ndim = static_cast<int>(ndim);
    view->format = const_cast<char*>(format);
    view->shape = held->dims.data();
    view->strides = held->dims.data() + ndim;
    view->suboffsets = nullptr;
    const auto needs = [&](int flag, char order) {
      return (flags & flag) == flag && PyBuffer_IsContiguous(view, order) == 0;
    };
    if (needs(PyBUF_C_CONTIGUOUS, 'C') || needs(PyBUF_F_CONTIGUOUS, 'F') ||
        needs(PyBUF_ANY_CONTIGUOUS, 'A') ||
        ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && PyBuffer_IsContiguous(view, 'C') == 0)) {
      refuse("the tensor's strides are others than are asked for: use x.contiguous()");
    }
    if ((flags & PyBUF_FORMAT) == 0) view->format = nullptr;
    if ((flags & PyBUF_ND) != PyBUF_ND) view->shape = nullptr;
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) view->strides = nullptr;
    view->internal = held.release();
    view->obj = Py_NewRef(self);
  });
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<HeldBuffer*>(view->internal); }

// Memory of a buffer of bytes, or of numbers that the letters of struct tell.
Tensor import_buffer(PyObject* object, std::optional<bool> copy) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object, view.get(), PyBUF_RECORDS_RO) != 0) throw Raised();
  const std::shared_ptr<Py_buffer> owner(view.release(), [](Py_buffer* held) {
    if (!Py_IsInitialized()) return;
    const Locked locked;
    PyBuffer_Release(held);
    delete held;
  });
  const std::string given = owner->format == nullptr ? "B" : owner->format;
  std::string format = given;
  if (!format.empty() && std::strchr("@=<", format[0]) != nullptr) format.erase(0, 1);
  if (format == "l") format = owner->itemsize == 8 ? "q" : "i";
  std::optional<ScalarType> dtype;
  for (const Format& each : kFormats) {
    if (format == each.text) dtype = each.dtype;
  }
  if (!dtype.has_value() || element_size(*dtype) != owner->itemsize) {
    fail(ErrorCode::kType, "[asarray] a buffer has elements of format '", given, "' and ",
         int64_t{owner->itemsize}, " bytes, which tensors do not have");
  }
  // DLPack's import sees to strides and alignment.
  std::vector<int64_t> sizes, strides;
  if (owner->shape == nullptr && owner->ndim == 1) sizes.push_back(owner->len / owner->itemsize);
  for (int d = 0; d < owner->ndim && owner->shape != nullptr; ++d) sizes.push_back(owner->shape[d]);
  for (int d = 0; d < owner->ndim && owner->strides != nullptr; ++d) {
    strides.push_back(owner->strides[d] / owner->itemsize);
    if (owner->strides[d] % owner->itemsize != 0) {
      fail(ErrorCode::kValue, "[asarray] the strides of a buffer fit no tensor: copy it first");
    }
  }
  const mt_dltensor described = {.data = owner->buf,
                                 .device = {MT_DEVICE_CPU, 0},
                                 .ndim = static_cast<int32_t>(sizes.size()),
                                 .dtype = to_abi(*dtype),
                                 .shape = sizes.data(),
                                 .strides = strides.empty() ? nullptr : strides.data(),
                                 .byte_offset = 0};
  return dlpack::tensor_over(described, owner, owner->readonly != 0, copy);
}

PyObject* to_numpy(PyObject* self, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"force", nullptr};
  int force = 0;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "|$p:numpy", const_cast<char**>(names), &force) ==
      0) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    Ref source(Py_NewRef(self));
    if (force != 0) source = Ref(wrap(tensor_of(self).detach().to(kCPU)));
    const Ref memory(checked(PyMemoryView_FromObject(source.get())));
    const Ref numpy(checked(PyImport_ImportModule("numpy")));
    return checked(PyObject_CallMethod(numpy.get(), "asarray", "O", memory.get()));
  });
}

PyObject* array(PyObject* self, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"dtype", "copy", nullptr};
  PyObject *dtype = Py_None, *copy = Py_None;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "|OO:__array__", const_cast<char**>(names),
                                  &dtype, &copy) == 0) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    const Ref none(checked(PyTuple_New(0)));
    const Ref result(checked(to_numpy(self, none.get(), nullptr)));
    if (dtype == Py_None && copy != Py_True) return Py_NewRef(result.get());
    const Ref numpy(checked(PyImport_ImportModule("numpy")));
    return checked(PyObject_CallMethod(numpy.get(), copy == Py_True ? "array" : "asarray", "OO",
                                       result.get(), dtype));
  });
}

}  // namespace

bool has_dlpack(PyObject* object) { return PyObject_HasAttrString(object, "__dlpack__") != 0; }
bool is_array(PyObject* object) { return has_dlpack(object) || PyObject_CheckBuffer(object) != 0; }

Tensor from_array(PyObject* object, std::optional<bool> copy) {
  if (PyCapsule_CheckExact(object)) return from_capsule(object, copy);
  if (has_dlpack(object)) return import_dlpack(object, copy);
  return import_buffer(object, copy);
}

PyMethodDef exchange_methods[] = {
    {"__dlpack__", as_method(export_dlpack), METH_VARARGS | METH_KEYWORDS,
     "Returns a capsule for another library: see mytorch/dlpack.h."},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, "Returns DLPack's (type, number)."},
    {"numpy", as_method(to_numpy), METH_VARARGS | METH_KEYWORDS,
     "numpy(*, force=False)\n--\n\nReturns an array over the same memory; with `force`, a copy if "
     "it needs one."},
    {"__array__", as_method(array), METH_VARARGS | METH_KEYWORDS, nullptr},
    {}};

PyBufferProcs buffer_slots = {get_buffer, release_buffer};

}  // namespace mytorch::python
