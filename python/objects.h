// The types of Python that the bindings define: tensors, element types, devices and generators.
#pragma once

#include <Python.h>

#include <utility>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/generator.h"
#include "mytorch/tensor.h"
#include "python/errors.h"

namespace mytorch::python {

// A reference to an object that is owned by this variable.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Functions as the tables of types and modules list them.
template <class F>
PyCFunction as_method(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}
template <class F>
void* as_slot(F* f) {
  return reinterpret_cast<void*>(f);
}

struct TensorObject {
  PyObject_HEAD Tensor tensor;
  PyObject* weak_references;
  bool remembered;  // see remember()
};
extern PyTypeObject* tensor_type;
inline bool is_tensor(PyObject* object) {
  return Py_TYPE(object) == tensor_type || PyType_IsSubtype(Py_TYPE(object), tensor_type) != 0;
}
inline const Tensor& tensor_of(PyObject* object) {
  return reinterpret_cast<TensorObject*>(object)->tensor;
}
// Returns a new object for a tensor; None for an undefined one.
PyObject* wrap(Tensor tensor);
// From now on, wrap() returns this object for its tensor, a leaf that requires a gradient: hooks
// see the objects that programs know.
void remember(PyObject* object);
// The same as an object of a subtype of tensor_type.
PyObject* wrap_as(PyTypeObject* type, Tensor tensor);

struct DtypeObject {
  PyObject_HEAD ScalarType dtype;
};
extern PyTypeObject* dtype_type;
inline bool is_dtype(PyObject* object) { return Py_TYPE(object) == dtype_type; }
PyObject* dtype_object(ScalarType dtype);  // a new reference to the only one

struct DeviceObject {
  PyObject_HEAD Device device;
};
extern PyTypeObject* device_type_object;
inline bool is_device(PyObject* object) { return Py_TYPE(object) == device_type_object; }
PyObject* wrap(Device device);

struct GeneratorObject {
  PyObject_HEAD Generator generator;
};
extern PyTypeObject* generator_type;
PyObject* wrap(Generator generator);
inline bool is_generator(PyObject* object) { return Py_TYPE(object) == generator_type; }

// Add the types to a module. Return whether they have succeeded.
bool add_plain_types(PyObject* module);  // all but the tensor
bool add_tensor_type(PyObject* module, PyMethodDef* operators);
bool add_functions(PyObject* module);  // that no record describes

}  // namespace mytorch::python
