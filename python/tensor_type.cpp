// The type Tensor: its life, its operators in Python's syntax, and its fields.
#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "mytorch/autograd.h"
#include "mytorch/ops.h"
#include "mytorch/result_type.h"
#include "mytorch/tensor_operators.h"
#include "python/arguments.h"
#include "python/autograd.h"
#include "python/exchange.h"
#include "python/indexing.h"
#include "python/values.h"

namespace mytorch::python {

PyTypeObject* tensor_type = nullptr;

namespace {

// ---- life ----

// Objects of this type that were released, for the next ones. Guarded by the interpreter's lock.
constexpr int kKept = 64;
PyObject* kept[kKept];
int num_kept = 0;

// The objects that are remembered, by their tensors. Guarded by the interpreter's lock.
absl::flat_hash_map<const TensorImpl*, PyObject*>& remembered() {
  static auto* const map = new absl::flat_hash_map<const TensorImpl*, PyObject*>;
  return *map;
}

void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  auto* const object = reinterpret_cast<TensorObject*>(self);
  if (object->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  if (object->remembered) remembered().erase(object->tensor.impl());
  object->tensor.~Tensor();
  if (type == tensor_type && num_kept < kKept) {
    kept[num_kept++] = self;
    return;  // keeps its reference to the type
  }
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* new_tensor(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"data", nullptr};
  PyObject* data = nullptr;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "O:Tensor", const_cast<char**>(names), &data) ==
      0) {
    return nullptr;
  }
  return guarded([&] {
    return wrap_as(type, is_tensor(data) ? tensor_of(data).detach()
                                         : tensor_from(data, {}, {}, /*copy=*/true));
  });
}

PyObject* text(const std::string& value) {
  return PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size()));
}

PyObject* repr(PyObject* self) {
  return guarded([&] { return text(tensor_of(self).str()); });
}

// ---- operators of the syntax ----

bool is_operand(PyObject* object) { return is_tensor(object) || fits_scalar(object); }

int64_t work_of(PyObject* a, PyObject* b) {
  return (is_tensor(a) ? elements(tensor_of(a)) : 0) + (is_tensor(b) ? elements(tensor_of(b)) : 0);
}

// Calls f with tensors in place of arrays of other libraries.
template <class F>
PyObject* with_arrays(PyObject* a, PyObject* b, F&& f) {
  const auto converted = [](PyObject* object) -> Ref {
    if (is_operand(object)) return Ref(Py_NewRef(object));
    if (!is_array(object)) return Ref();
    return Ref(wrap(tensor_from(object, {}, {}, std::nullopt)));
  };
  return guarded([&]() -> PyObject* {
    const Ref x = converted(a), y = converted(b);
    if (!x || !y) Py_RETURN_NOTIMPLEMENTED;
    return f(x.get(), y.get());
  });
}

// Calls f(tensor, operand), or g(number, tensor) if the number is on the left.
template <class F, class G>
PyObject* binary(PyObject* a, PyObject* b, F&& f, G&& g) {
  if (!is_operand(a) || !is_operand(b)) {
    return with_arrays(a, b, [&](PyObject* x, PyObject* y) { return binary(x, y, f, g); });
  }
  return guarded([&] {
    if (is_tensor(a)) {
      const Operand right = to_operand(b);
      return run(nullptr, work_of(a, b), [&] { return f(tensor_of(a), right); });
    }
    const Scalar left = to_scalar(a);
    return run(nullptr, work_of(a, b), [&] { return g(left, tensor_of(b)); });
  });
}
#define BINARY(slot, with_tensor, with_number)                               \
  PyObject* slot(PyObject* a, PyObject* b) {                                 \
    return binary(                                                           \
        a, b, [](const Tensor& x, const Operand& y) { return with_tensor; }, \
        [](const Scalar& x, const Tensor& y) { return with_number; });       \
  }
BINARY(nb_add, mytorch::add(x, y), mytorch::add(y, x))
BINARY(nb_subtract, mytorch::sub(x, y), mytorch::rsub(y, x))
BINARY(nb_multiply, mytorch::mul(x, y), mytorch::mul(y, x))
BINARY(nb_divide, mytorch::div(x, y), x / y)
BINARY(nb_floor_divide, mytorch::floor_divide(x, y),
       mytorch::floor_divide(full({}, x, result_type(x, y), y.device()), y))
BINARY(nb_remainder, mytorch::remainder(x, y), mytorch::remainder(x, y))
BINARY(nb_and, mytorch::bitwise_and(x, y), mytorch::bitwise_and(y, x))
BINARY(nb_or, mytorch::bitwise_or(x, y), mytorch::bitwise_or(y, x))
BINARY(nb_xor, mytorch::bitwise_xor(x, y), mytorch::bitwise_xor(y, x))
BINARY(nb_left, mytorch::bitwise_left_shift(x, y), mytorch::bitwise_left_shift(x, y))
BINARY(nb_right, mytorch::bitwise_right_shift(x, y), mytorch::bitwise_right_shift(x, y))
#undef BINARY
PyObject* nb_power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary(
      a, b, [](const Tensor& x, const Operand& y) { return mytorch::pow(x, y); },
      [](const Scalar& x, const Tensor& y) { return mytorch::pow(x, y); });
}
PyObject* nb_matmul(PyObject* a, PyObject* b) {
  if (!is_tensor(a) || !is_tensor(b)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&] {
    return run(nullptr, work_of(a, b), [&] { return mytorch::matmul(tensor_of(a), tensor_of(b)); });
  });
}

template <class F>
PyObject* inplace(PyObject* a, PyObject* b, F&& f) {
  if (!is_operand(b)) {
    return with_arrays(a, b, [&](PyObject* x, PyObject* y) { return inplace(x, y, f); });
  }
  return guarded([&] {
    const Operand right = to_operand(b);
    {
      const Unlocked unlocked(work_of(a, b));
      f(tensor_of(a), right);
    }
    return Py_NewRef(a);
  });
}
#define INPLACE(slot, name)                                                               \
  PyObject* slot(PyObject* a, PyObject* b) {                                              \
    return inplace(a, b, [](const Tensor& x, const Operand& y) { mytorch::name(x, y); }); \
  }
INPLACE(nb_add_to, add_)
INPLACE(nb_subtract_from, sub_)
INPLACE(nb_multiply_by, mul_)
INPLACE(nb_divide_by, div_)
INPLACE(nb_floor_divide_by, floor_divide_)
INPLACE(nb_remainder_of, remainder_)
INPLACE(nb_and_to, bitwise_and_)
INPLACE(nb_or_to, bitwise_or_)
INPLACE(nb_xor_to, bitwise_xor_)
INPLACE(nb_left_by, bitwise_left_shift_)
INPLACE(nb_right_by, bitwise_right_shift_)
#undef INPLACE
PyObject* nb_power_of(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return inplace(a, b, [](const Tensor& x, const Operand& y) { mytorch::pow_(x, y); });
}

template <class F>
PyObject* unary(PyObject* self, F&& f) {
  return guarded(
      [&] { return run(self, work_of(self, self), [&] { return f(tensor_of(self)); }); });
}
PyObject* nb_negative(PyObject* self) {
  return unary(self, [](const Tensor& x) { return mytorch::neg(x); });
}
PyObject* nb_positive(PyObject* self) { return Py_NewRef(self); }
PyObject* nb_absolute(PyObject* self) {
  return unary(self, [](const Tensor& x) { return mytorch::abs(x); });
}
PyObject* nb_invert(PyObject* self) {
  return unary(self, [](const Tensor& x) { return mytorch::bitwise_not(x); });
}
PyObject* nb_float(PyObject* self) {
  return guarded([&] { return PyFloat_FromDouble(tensor_of(self).item<double>()); });
}
PyObject* nb_int(PyObject* self) {
  return guarded([&] {
    const Ref number(checked(to_python(tensor_of(self).item())));
    return PyNumber_Long(number.get());
  });
}
PyObject* nb_index(PyObject* self) {
  return guarded([&]() -> PyObject* {
    if (!fits_int(self)) {
      PyErr_SetString(PyExc_TypeError,
                      "only a tensor of one integer, without dimensions, is an index");
      throw Raised();
    }
    return PyLong_FromLongLong(tensor_of(self).item<int64_t>());
  });
}
int nb_bool(PyObject* self) {
  try {
    const Tensor& x = tensor_of(self);
    if (x.numel() != 1) {
      PyErr_Format(PyExc_ValueError,
                   "the truth of a tensor of %lld elements is not defined: use any() or all()",
                   static_cast<long long>(x.numel()));
      return -1;
    }
    return x.is_nonzero() ? 1 : 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  if (!is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&] {
    const Operand right = to_operand(b);
    const Tensor& x = tensor_of(a);
    return run(nullptr, work_of(a, b), [&] {
      switch (op) {
        case Py_EQ:
          return mytorch::eq(x, right);
        case Py_NE:
          return mytorch::ne(x, right);
        case Py_LT:
          return mytorch::lt(x, right);
        case Py_LE:
          return mytorch::le(x, right);
        case Py_GT:
          return mytorch::gt(x, right);
        default:
          return mytorch::ge(x, right);
      }
    });
  });
}
Py_hash_t hash(PyObject* self) {
  // Of the tensor: another object may refer to the same.
  return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(tensor_of(self).impl()) >> 4);
}

// ---- as a container ----

Py_ssize_t length(PyObject* self) {
  const Tensor& x = tensor_of(self);
  if (x.dim() > 0) return x.size(0);
  PyErr_SetString(PyExc_TypeError, "a tensor without dimensions has no length");
  return -1;
}
PyObject* subscript(PyObject* self, PyObject* index) {
  return guarded([&] { return get_item(self, index); });
}
int assign_subscript(PyObject* self, PyObject* index, PyObject* value) {
  return guarded_status([&] {
    if (value == nullptr) {
      PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
      throw Raised();
    }
    set_item(self, index, value);
  });
}
PyObject* iterate(PyObject* self) {
  return guarded([&]() -> PyObject* {
    if (tensor_of(self).dim() == 0) {
      PyErr_SetString(PyExc_TypeError, "a tensor without dimensions cannot be iterated over");
      throw Raised();
    }
    const Ref rows(checked(to_python(mytorch::unbind(tensor_of(self)))));
    return PyObject_GetIter(rows.get());
  });
}
int contains(PyObject* self, PyObject* value) {
  try {
    if (!is_operand(value)) return 0;
    const Operand wanted = to_operand(value);
    return mytorch::any(mytorch::eq(tensor_of(self), wanted)).is_nonzero() ? 1 : 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

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
FIELD(get_grad_fn, x.grad_fn().empty() ? Py_NewRef(Py_None) : text(x.grad_fn()))
FIELD(get_data, wrap(x.detach()))
FIELD(get_t, wrap(x.dim() < 2 ? x : mytorch::t(x)))
FIELD(get_mt, wrap(mytorch::transpose(x, -2, -1)))
FIELD(get_h, wrap(mytorch::conj(x.dim() < 2 ? x : mytorch::t(x))))
FIELD(get_mh, wrap(mytorch::conj(mytorch::transpose(x, -2, -1))))
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

PyGetSetDef fields[] = {
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

// ---- methods that no record describes ----

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

template <class F>
PyCFunction method(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

PyMethodDef methods[] = {
    {"size", method(size), METH_FASTCALL | METH_KEYWORDS,
     "Returns the sizes of the dimensions, or of one."},
    {"stride", method(stride), METH_FASTCALL, "Returns the strides, in elements, or one of them."},
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
    {"requires_grad_", method(requires_grad_in_place), METH_VARARGS | METH_KEYWORDS,
     "requires_grad_(requires_grad=True)\n--\n\nMakes a leaf require gradients, or not."},
    {"cpu", cpu, METH_NOARGS, "Returns the tensor on the CPU."},
    {"cuda", method(cuda), METH_FASTCALL, "Returns the tensor on a GPU."},
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

template <class F>
void* slot(F* f) {
  return reinterpret_cast<void*>(f);
}

}  // namespace

PyObject* wrap_as(PyTypeObject* type, Tensor tensor) {
  PyObject* const object = checked(type->tp_alloc(type, 0));
  new (&reinterpret_cast<TensorObject*>(object)->tensor) Tensor(std::move(tensor));
  return object;
}

PyObject* wrap(Tensor tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  if (!remembered().empty() && tensor.requires_grad()) {
    const auto found = remembered().find(tensor.impl());
    if (found != remembered().end()) return Py_NewRef(found->second);
  }
  if (num_kept == 0) return wrap_as(tensor_type, std::move(tensor));
  PyObject* const object = kept[--num_kept];
  Py_SET_REFCNT(object, 1);
  auto* const made = reinterpret_cast<TensorObject*>(object);
  new (&made->tensor) Tensor(std::move(tensor));
  made->weak_references = nullptr;
  made->remembered = false;
  return object;
}

void remember(PyObject* object) {
  auto* const tensor = reinterpret_cast<TensorObject*>(object);
  if (tensor->remembered || !tensor->tensor.requires_grad()) return;
  tensor->remembered = remembered().emplace(tensor->tensor.impl(), object).second;
}

bool add_tensor_type(PyObject* module, PyMethodDef* operators) {
  // The records' methods come last: those above are more than their records say.
  static std::vector<PyMethodDef> all;
  const auto is_field = [](std::string_view name) {
    const PyGetSetDef* each = fields;
    while (each->name != nullptr && each->name != name) ++each;
    return each->name != nullptr;
  };
  const auto add = [&](const PyMethodDef* list) {
    for (; list->ml_name != nullptr; ++list) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const PyMethodDef& each) {
        return std::string_view(each.ml_name) == list->ml_name;
      });
      if (!known && !is_field(list->ml_name)) all.push_back(*list);
    }
  };
  add(methods);
  add(exchange_methods);
  add(autograd_methods);
  add(operators);
  all.push_back({});
  static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET,
                                   offsetof(TensorObject, weak_references), READONLY, nullptr},
                                  {}};
  PyType_Slot slots[] = {{Py_tp_dealloc, slot(destroy)},
                         {Py_tp_new, slot(new_tensor)},
                         {Py_tp_repr, slot(repr)},
                         {Py_tp_hash, slot(hash)},
                         {Py_tp_richcompare, slot(compare)},
                         {Py_tp_iter, slot(iterate)},
                         {Py_tp_methods, all.data()},
                         {Py_tp_getset, fields},
                         {Py_tp_members, members},
                         {Py_tp_doc, const_cast<char*>("A reference to an array of numbers.")},
                         {Py_nb_add, slot(nb_add)},
                         {Py_nb_subtract, slot(nb_subtract)},
                         {Py_nb_multiply, slot(nb_multiply)},
                         {Py_nb_true_divide, slot(nb_divide)},
                         {Py_nb_floor_divide, slot(nb_floor_divide)},
                         {Py_nb_remainder, slot(nb_remainder)},
                         {Py_nb_power, slot(nb_power)},
                         {Py_nb_matrix_multiply, slot(nb_matmul)},
                         {Py_nb_and, slot(nb_and)},
                         {Py_nb_or, slot(nb_or)},
                         {Py_nb_xor, slot(nb_xor)},
                         {Py_nb_lshift, slot(nb_left)},
                         {Py_nb_rshift, slot(nb_right)},
                         {Py_nb_inplace_add, slot(nb_add_to)},
                         {Py_nb_inplace_subtract, slot(nb_subtract_from)},
                         {Py_nb_inplace_multiply, slot(nb_multiply_by)},
                         {Py_nb_inplace_true_divide, slot(nb_divide_by)},
                         {Py_nb_inplace_floor_divide, slot(nb_floor_divide_by)},
                         {Py_nb_inplace_remainder, slot(nb_remainder_of)},
                         {Py_nb_inplace_power, slot(nb_power_of)},
                         {Py_nb_inplace_lshift, slot(nb_left_by)},
                         {Py_nb_inplace_rshift, slot(nb_right_by)},
                         {Py_nb_inplace_and, slot(nb_and_to)},
                         {Py_nb_inplace_or, slot(nb_or_to)},
                         {Py_nb_inplace_xor, slot(nb_xor_to)},
                         {Py_nb_negative, slot(nb_negative)},
                         {Py_nb_positive, slot(nb_positive)},
                         {Py_nb_absolute, slot(nb_absolute)},
                         {Py_nb_invert, slot(nb_invert)},
                         {Py_nb_float, slot(nb_float)},
                         {Py_nb_int, slot(nb_int)},
                         {Py_nb_index, slot(nb_index)},
                         {Py_nb_bool, slot(nb_bool)},
                         {Py_mp_length, slot(length)},
                         {Py_mp_subscript, slot(subscript)},
                         {Py_mp_ass_subscript, slot(assign_subscript)},
                         {Py_sq_length, slot(length)},
                         {Py_sq_contains, slot(contains)},
                         {Py_bf_getbuffer, slot(buffer_slots.bf_getbuffer)},
                         {Py_bf_releasebuffer, slot(buffer_slots.bf_releasebuffer)},
                         {0, nullptr}};
  PyType_Spec spec = {"mytorch.Tensor", sizeof(TensorObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (tensor_type == nullptr) return false;
  // NumPy leaves operators with tensors to them.
  const Ref priority(PyLong_FromLong(1000));
  return priority &&
         PyObject_SetAttrString(reinterpret_cast<PyObject*>(tensor_type), "__array_priority__",
                                priority.get()) == 0 &&
         PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type)) == 0;
}

}  // namespace mytorch::python
