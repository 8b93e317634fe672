// The fields of tensors in Python, and the methods that no record describes.
#include "mytorch/ops.h"
#include "python/arguments.h"
#include "python/tensor_parts.h"
#include "python/values.h"

namespace mytorch::python {
namespace {

// ---- fields ----

#define FIELD(name, value)                \
  PyObject* name(PyObject* self, void*) { \
    return guarded([&]() -> PyObject* {   \
      const Tensor& x = tensor_of(self);  \
      return value;                       \
    });                                   \
  }
FIELD(get_shape, to_python(x.sizes()))
FIELD(get_dtype, dtype_object(x.dtype()))
FIELD(get_device, wrap(x.device()))
FIELD(get_ndim, to_python(x.dim()))
FIELD(get_requires_grad, to_python(x.requires_grad()))
FIELD(get_is_leaf, to_python(x.is_leaf()))
FIELD(get_grad, wrap(x.grad()))
FIELD(get_grad_fn, x.grad_fn().empty() ? Py_NewRef(Py_None) : to_python(x.grad_fn()))
FIELD(get_data, wrap(x.detach()))
FIELD(get_t, wrap(x.dim() < 2 ? x : mytorch::t(x)))
FIELD(get_mt, wrap(mytorch::mT(x)))
FIELD(get_h, wrap(mytorch::conj(x.dim() < 2 ? x : mytorch::t(x))))
FIELD(get_mh, wrap(mytorch::mH(x)))
FIELD(get_itemsize, to_python(x.element_size()))
FIELD(get_nbytes, to_python(x.nbytes()))
FIELD(get_is_cuda, to_python(x.is_cuda()))
FIELD(get_real, wrap(mytorch::real(x)))
FIELD(get_imag, wrap(mytorch::imag(x)))
FIELD(get_version, to_python(x._version()))
#undef FIELD

int set_requires_grad(PyObject* self, PyObject* value, void*) {
  return guarded_status([&] {
    if (value == nullptr || !fits_bool(value)) {
      PyErr_SetString(PyExc_TypeError, "requires_grad is a bool");
      throw Raised();
    }
    tensor_of(self).requires_grad_(to_bool(value));
  });
}
int set_grad(PyObject* self, PyObject* value, void*) {
  return guarded_status([&] {
    const bool none = value == nullptr || value == Py_None;
    tensor_of(self).set_grad(none ? Tensor() : to_tensor(value));
  });
}
int set_data(PyObject* self, PyObject* value, void*) {
  return guarded_status([&] {
    if (value == nullptr) {
      PyErr_SetString(PyExc_TypeError, "data cannot be deleted");
      throw Raised();
    }
    tensor_of(self).set_data(to_tensor(value));
  });
}

// ---- methods ----

PyObject* size(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    const Tensor& x = tensor_of(self);
    const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    if (count + named == 0) return to_python(x.sizes());
    if (count + named > 1 || (named == 1 && to_text(PyTuple_GET_ITEM(keywords, 0)) != "dim")) {
      PyErr_SetString(PyExc_TypeError, "size() takes one dimension, `dim`, or none");
      throw Raised();
    }
    return to_python(x.size(to_int(args[0])));
  });
}
PyObject* stride(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    const Tensor& x = tensor_of(self);
    return count == 0 ? to_python(x.strides()) : to_python(x.stride(to_int(args[0])));
  });
}
#define METHOD(name, value)                   \
  PyObject* name(PyObject* self, PyObject*) { \
    return guarded([&]() -> PyObject* {       \
      const Tensor& x = tensor_of(self);      \
      return value;                           \
    });                                       \
  }
METHOD(dim, to_python(x.dim()))
METHOD(numel, to_python(x.numel()))
METHOD(element_size, to_python(x.element_size()))
METHOD(is_contiguous, to_python(x.is_contiguous()))
METHOD(is_floating_point, to_python(x.is_floating_point()))
METHOD(is_complex, to_python(x.is_complex()))
METHOD(storage_offset, to_python(x.storage_offset()))
METHOD(data_ptr,
       PyLong_FromVoidPtr(x.impl()->read_only ? const_cast<void*>(x.raw_data()) : x.data_ptr()))
METHOD(item, to_python(x.item()))
METHOD(tolist, to_list(x))
METHOD(detach, wrap(x.detach()))
METHOD(cpu, run(self, 0, [&] { return x.to(kCPU); }))
METHOD(to_double, run(self, x.numel(), [&] { return x.to(kFloat64); }))
METHOD(to_float32, run(self, x.numel(), [&] { return x.to(kFloat32); }))
METHOD(to_half, run(self, x.numel(), [&] { return x.to(kFloat16); }))
METHOD(to_bfloat16, run(self, x.numel(), [&] { return x.to(kBFloat16); }))
METHOD(to_long, run(self, x.numel(), [&] { return x.to(kInt64); }))
METHOD(to_int32, run(self, x.numel(), [&] { return x.to(kInt32); }))
METHOD(to_bool8, run(self, x.numel(), [&] { return x.to(mytorch::kBool); }))
#undef METHOD

PyObject* detach_in_place(PyObject* self, PyObject*) {
  return guarded([&] {
    tensor_of(self).detach_();
    return Py_NewRef(self);
  });
}
PyObject* retain_grad(PyObject* self, PyObject*) {
  return guarded([&] {
    tensor_of(self).retain_grad();
    return Py_NewRef(Py_None);
  });
}
PyObject* requires_grad_in_place(PyObject* self, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"requires_grad", nullptr};
  int value = 1;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "|p:requires_grad_", const_cast<char**>(names),
                                  &value) == 0) {
    return nullptr;
  }
  return guarded([&] {
    tensor_of(self).requires_grad_(value != 0);
    return Py_NewRef(self);
  });
}
PyObject* cuda(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] {
    const Device device = count == 0              ? kCUDA
                          : PyLong_Check(args[0]) ? numbered(kCUDA, to_int(args[0]))
                                                  : to_device(args[0]);
    return run(self, 0, [&] { return tensor_of(self).to(device); });
  });
}
// Returns what a program has written to an object of a subtype, or null.
PyObject* attributes_of(PyObject* self) {
  if (Py_TYPE(self) == tensor_type) return nullptr;
  PyObject* const attributes = PyObject_GetAttrString(self, "__dict__");
  if (attributes == nullptr) PyErr_Clear();  // a subtype with slots alone
  return attributes;
}

PyObject* deep_copy(PyObject* self, PyObject* memo) {
  return guarded([&]() -> PyObject* {
    const Tensor& x = tensor_of(self);
    if (!x.is_leaf()) {
      PyErr_SetString(PyExc_RuntimeError,
                      "only leaves can be copied deeply: copy x.detach(), which has no history");
      throw Raised();
    }
    Tensor copy = x.detach().clone();
    if (x.requires_grad()) copy.requires_grad_();
    if (x.grad().defined()) copy.set_grad(x.grad().detach().clone());
    Ref result(checked(wrap_as(Py_TYPE(self), std::move(copy))));
    const Ref attributes(attributes_of(self));
    if (attributes) {
      const Ref module(checked(PyImport_ImportModule("copy")));
      const Ref copied(
          checked(PyObject_CallMethod(module.get(), "deepcopy", "OO", attributes.get(), memo)));
      if (PyObject_SetAttrString(result.get(), "__dict__", copied.get()) < 0) throw Raised();
    }
    return result.release();
  });
}
PyObject* shallow_copy(PyObject* self, PyObject*) { return Py_NewRef(self); }
PyObject* reduce(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const Tensor& x = tensor_of(self);
    if (!x.is_leaf()) {
      PyErr_SetString(PyExc_RuntimeError,
                      "only leaves can be pickled: pickle x.detach(), which has no history");
      throw Raised();
    }
    const Tensor host = x.detach().to(kCPU).contiguous();
    const Ref bytes(checked(PyBytes_FromStringAndSize(static_cast<const char*>(host.raw_data()),
                                                      static_cast<Py_ssize_t>(host.nbytes()))));
    const Ref module(checked(PyImport_ImportModule("mytorch._core")));
    const Ref rebuild(checked(PyObject_GetAttrString(module.get(), "_tensor_from_bytes")));
    const Ref shape(checked(to_python(x.sizes())));
    const Ref dtype(dtype_object(x.dtype()));
    const Ref arguments(checked(
        Py_BuildValue("(OOOsOO)", bytes.get(), dtype.get(), shape.get(), x.device().str().c_str(),
                      x.requires_grad() ? Py_True : Py_False, Py_TYPE(self))));
    const Ref attributes(attributes_of(self));
    if (!attributes) return PyTuple_Pack(2, rebuild.get(), arguments.get());
    return PyTuple_Pack(3, rebuild.get(), arguments.get(), attributes.get());
  });
}

}  // namespace

PyGetSetDef tensor_fields[] = {
    {"shape", get_shape, nullptr, "The sizes of the dimensions, a tuple.", nullptr},
    {"dtype", get_dtype, nullptr, "The type of the elements.", nullptr},
    {"device", get_device, nullptr, "The device that has the elements.", nullptr},
    {"ndim", get_ndim, nullptr, "The number of dimensions.", nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, "Whether gradients are computed.",
     nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether no recorded operation has made it.", nullptr},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", nullptr},
    {"grad_fn", get_grad_fn, nullptr, "The name of the operation that made it, or None.", nullptr},
    {"data", get_data, set_data, "The same elements, which take no part in differentiation.",
     nullptr},
    {"T", get_t, nullptr, "The transposed matrix.", nullptr},
    {"mT", get_mt, nullptr, "The last two dimensions transposed.", nullptr},
    {"H", get_h, nullptr, "The conjugate of the transposed matrix.", nullptr},
    {"mH", get_mh, nullptr, "The conjugate of the last two dimensions, transposed.", nullptr},
    {"itemsize", get_itemsize, nullptr, "The bytes of an element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "The bytes of all elements.", nullptr},
    {"is_cuda", get_is_cuda, nullptr, nullptr, nullptr},
    {"real", get_real, nullptr, "The real parts, a view.", nullptr},
    {"imag", get_imag, nullptr, "The imaginary parts, a view.", nullptr},
    {"_version", get_version, nullptr, "How often operators have written the memory.", nullptr},
    {}};

PyMethodDef tensor_methods[] = {
    {"size", as_method(size), METH_FASTCALL | METH_KEYWORDS,
     "Returns the sizes of the dimensions, or of one."},
    {"stride", as_method(stride), METH_FASTCALL,
     "Returns the strides, in elements, or one of them."},
    {"dim", dim, METH_NOARGS, "Returns the number of dimensions."},
    {"numel", numel, METH_NOARGS, "Returns the number of elements."},
    {"nelement", numel, METH_NOARGS, "Returns the number of elements."},
    {"element_size", element_size, METH_NOARGS, "Returns the bytes of an element."},
    {"is_contiguous", is_contiguous, METH_NOARGS, "Returns whether the memory is row-major."},
    {"is_floating_point", is_floating_point, METH_NOARGS, nullptr},
    {"is_complex", is_complex, METH_NOARGS, nullptr},
    {"storage_offset", storage_offset, METH_NOARGS, nullptr},
    {"data_ptr", data_ptr, METH_NOARGS, "Returns the address of the first element."},
    {"item", item, METH_NOARGS, "Returns the value of a tensor of one element."},
    {"tolist", tolist, METH_NOARGS, "Returns nested lists of numbers."},
    {"detach", detach, METH_NOARGS, "Returns the same elements without history."},
    {"detach_", detach_in_place, METH_NOARGS, "Forgets the history."},
    {"retain_grad", retain_grad, METH_NOARGS, "Keeps the gradient of a tensor that is no leaf."},
    {"requires_grad_", as_method(requires_grad_in_place), METH_VARARGS | METH_KEYWORDS,
     "requires_grad_(requires_grad=True)\n--\n\nMakes a leaf require gradients, or not."},
    {"cpu", cpu, METH_NOARGS, "Returns the tensor on the CPU."},
    {"cuda", as_method(cuda), METH_FASTCALL, "Returns the tensor on a GPU."},
    {"double", to_double, METH_NOARGS, "Returns the tensor as float64."},
    {"float", to_float32, METH_NOARGS, "Returns the tensor as float32."},
    {"half", to_half, METH_NOARGS, "Returns the tensor as float16."},
    {"bfloat16", to_bfloat16, METH_NOARGS, "Returns the tensor as bfloat16."},
    {"long", to_long, METH_NOARGS, "Returns the tensor as int64."},
    {"int", to_int32, METH_NOARGS, "Returns the tensor as int32."},
    {"bool", to_bool8, METH_NOARGS, "Returns the tensor as bool."},
    {"__deepcopy__", deep_copy, METH_O, nullptr},
    {"__copy__", shallow_copy, METH_NOARGS, nullptr},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {}};

}  // namespace mytorch::python
