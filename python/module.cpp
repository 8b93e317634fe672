// The module mytorch._core: the types, the operators of the records, and what no record describes.
#include <Python.h>

#include <cstring>
#include <string>

#include "core/types/errors.h"
#include "mytorch/device_memory.h"
#include "mytorch/generator.h"
#include "mytorch/ops.h"
#include "mytorch/print_options.h"
#include "mytorch/threads.h"
#include "mytorch/version.h"
#include "python/autograd.h"
#include "python/exchange.h"
#include "python/files.h"
#include "python/functions.h"
#include "python/layers.h"
#include "python/operators.h"
#include "python/optimizers.h"
#include "python/values.h"

namespace mytorch::python {
namespace {

std::optional<ScalarType> optional_dtype(PyObject* object) {
  if (object == nullptr || object == Py_None) return std::nullopt;
  return to_dtype(object);
}
std::optional<Device> optional_device(PyObject* object) {
  if (object == nullptr || object == Py_None) return std::nullopt;
  return to_device(object);
}

PyObject* tensor(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"data", "dtype", "device", "requires_grad", nullptr};
  PyObject *data = nullptr, *dtype = nullptr, *device = nullptr;
  int requires_grad = 0;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOp:tensor", const_cast<char**>(names), &data,
                                  &dtype, &device, &requires_grad) == 0) {
    return nullptr;
  }
  return guarded([&] {
    Tensor result =
        tensor_from(data, optional_dtype(dtype), optional_device(device), /*copy=*/true).detach();
    if (requires_grad != 0) result.requires_grad_();
    return wrap(std::move(result));
  });
}

PyObject* as_array(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"obj", "dtype", "device", "copy", nullptr};
  PyObject *data = nullptr, *dtype = nullptr, *device = nullptr, *copy = Py_None;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O$OO:asarray", const_cast<char**>(names),
                                  &data, &dtype, &device, &copy) == 0) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    std::optional<bool> copies;
    if (copy != Py_None) copies = to_bool(copy);
    Tensor result = tensor_from(data, optional_dtype(dtype), optional_device(device), copies);
    if (is_tensor(data) && result.is_same(tensor_of(data))) return Py_NewRef(data);
    return wrap(std::move(result));
  });
}

PyObject* import_dlpack(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"x", "device", "copy", nullptr};
  PyObject *data = nullptr, *device = nullptr, *copy = Py_None;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "O|$OO:from_dlpack", const_cast<char**>(names),
                                  &data, &device, &copy) == 0) {
    return nullptr;
  }
  return guarded([&] {
    std::optional<bool> copies;
    if (copy != Py_None) copies = to_bool(copy);
    if (is_tensor(data)) {
      return wrap(tensor_from(data, std::nullopt, optional_device(device), copies));
    }
    const Tensor result = from_array(data, copies);
    return wrap(result.to(optional_device(device).value_or(result.device()), result.dtype()));
  });
}

PyObject* from_numpy(PyObject*, PyObject* array) {
  return guarded([&] { return wrap(from_array(array, /*copy=*/false)); });
}

PyObject* from_bytes(PyObject*, PyObject* args) {
  PyObject *dtype = nullptr, *shape = nullptr, *type = nullptr;
  const char *data = nullptr, *device = nullptr;
  Py_ssize_t size = 0;
  int requires_grad = 0;
  if (PyArg_ParseTuple(args, "y#OOspO!:_tensor_from_bytes", &data, &size, &dtype, &shape, &device,
                       &requires_grad, &PyType_Type, &type) == 0) {
    return nullptr;
  }
  auto* const of = reinterpret_cast<PyTypeObject*>(type);
  if (PyType_IsSubtype(of, tensor_type) == 0) {
    PyErr_SetString(PyExc_TypeError, "[unpickle] the type is no type of tensors");
    return nullptr;
  }
  return guarded([&] {
    const Ints sizes(shape);
    Tensor result = mytorch::empty(sizes, to_dtype(dtype));
    if (result.nbytes() != size) {
      fail(ErrorCode::kValue, "[unpickle] ", int64_t{size}, " bytes are not those of shape ",
           shape_str(result.sizes()));
    }
    if (size > 0) std::memcpy(result.data_ptr(), data, static_cast<size_t>(size));
    result = result.to(Device(device));
    if (requires_grad != 0) result.requires_grad_();
    return of == tensor_type ? wrap(std::move(result)) : wrap_as(of, std::move(result));
  });
}

PyObject* same_as(PyObject*, PyObject* args) {
  PyObject *type = nullptr, *tensor = nullptr;
  if (PyArg_ParseTuple(args, "O!O:_same_as", &PyType_Type, &type, &tensor) == 0) return nullptr;
  auto* const of = reinterpret_cast<PyTypeObject*>(type);
  if (PyType_IsSubtype(of, tensor_type) == 0) {
    PyErr_SetString(PyExc_TypeError, "the type is no type of tensors");
    return nullptr;
  }
  return guarded([&] {
    PyObject* const made = wrap_as(of, to_tensor(tensor));
    remember(made);
    return made;
  });
}

PyObject* seed_all(PyObject*, PyObject* seed) {
  return guarded([&] {
    const unsigned long long value = PyLong_AsUnsignedLongLongMask(seed);
    if (PyErr_Occurred() != nullptr) throw Raised();
    mytorch::manual_seed(value);
    return Py_NewRef(Py_None);
  });
}
PyObject* usual_generator(PyObject*, PyObject*) {
  return guarded([&] { return wrap(default_generator()); });
}
PyObject* print_format(PyObject*, PyObject*) {
  return guarded([&] {
    const PrintOptions options = print_options();
    const Ref scientific(options.sci_mode.has_value() ? to_python(*options.sci_mode)
                                                      : Py_NewRef(Py_None));
    return Py_BuildValue("(iLLiO)", options.precision, static_cast<long long>(options.threshold),
                         static_cast<long long>(options.edge_items), options.line_width,
                         scientific.get());
  });
}
PyObject* set_print_format(PyObject*, PyObject* args) {
  PrintOptions options;
  long long threshold = 0, edges = 0;
  PyObject* scientific = Py_None;
  if (PyArg_ParseTuple(args, "iLLiO:set_printoptions", &options.precision, &threshold, &edges,
                       &options.line_width, &scientific) == 0) {
    return nullptr;
  }
  return guarded([&] {
    options.threshold = threshold;
    options.edge_items = edges;
    if (scientific != Py_None) options.sci_mode = to_bool(scientific);
    set_print_options(options);
    return Py_NewRef(Py_None);
  });
}
PyObject* count_devices(PyObject*, PyObject* name) {
  return guarded([&] {
    try {
      return to_python(int64_t{device_count(Device(std::string(to_text(name))).type)});
    } catch (const Error&) {
      return to_python(int64_t{0});  // no backend serves it
    }
  });
}
PyObject* synchronize_device(PyObject*, PyObject* device) {
  return guarded([&] {
    const Device of = to_device(device);
    mytorch::synchronize(of);
    return Py_NewRef(Py_None);
  });
}
PyObject* drop_cache(PyObject*, PyObject* device) {
  return guarded([&] {
    empty_cache(to_device(device));
    return Py_NewRef(Py_None);
  });
}
PyObject* threads(PyObject*, PyObject*) {
  return guarded([&] { return to_python(int64_t{get_num_threads()}); });
}
PyObject* use_threads(PyObject*, PyObject* count) {
  return guarded([&] {
    const int64_t number = to_int(count);
    if (number < 1 || number > INT32_MAX) {
      fail(ErrorCode::kValue, "[set_num_threads] ", number, " threads: give 1 or more");
    }
    set_num_threads(static_cast<int>(number));
    return Py_NewRef(Py_None);
  });
}

PyMethodDef functions[] = {
    {"tensor", as_method(tensor), METH_VARARGS | METH_KEYWORDS,
     "tensor(data, *, dtype=None, device=None, requires_grad=False)\n--\n\nReturns a tensor with "
     "copies of numbers, of nested lists of them, or of an array. Bools, integers, floats and "
     "complex numbers become bool, int64, float32 and complex64."},
    {"asarray", as_method(as_array), METH_VARARGS | METH_KEYWORDS,
     "asarray(obj, dtype=None, *, device=None, copy=None)\n--\n\nReturns a tensor over the memory "
     "of an array if its type and device allow it; with copy=True, a copy, and with copy=False, an "
     "error in place of one."},
    {"as_tensor", as_method(as_array), METH_VARARGS | METH_KEYWORDS, "The same as asarray."},
    {"from_dlpack", as_method(import_dlpack), METH_VARARGS | METH_KEYWORDS,
     "from_dlpack(x, *, device=None, copy=None)\n--\n\nReturns a tensor over the memory of an "
     "object with __dlpack__. Negative strides and unaligned elements are copied, unless "
     "copy=False."},
    {"from_numpy", from_numpy, METH_O,
     "from_numpy(array)\n--\n\nReturns a tensor over the memory of an array."},
    {"manual_seed", seed_all, METH_O, "manual_seed(seed)\n--\n\nSeeds the default generator."},
    {"_print_options", print_format, METH_NOARGS, nullptr},
    {"_set_print_options", set_print_format, METH_VARARGS, nullptr},
    {"_default_generator", usual_generator, METH_NOARGS, nullptr},
    {"device_count", count_devices, METH_O,
     "device_count(type)\n--\n\nReturns how many devices of a type there are, 0 without a "
     "backend."},
    {"synchronize", synchronize_device, METH_O,
     "synchronize(device)\n--\n\nWaits for this thread's work on a device."},
    {"_empty_cache", drop_cache, METH_O, nullptr},
    {"get_num_threads", threads, METH_NOARGS, "Returns how many threads a CPU operator may use."},
    {"set_num_threads", use_threads, METH_O, "Sets how many threads a CPU operator may use."},
    {"_same_as", same_as, METH_VARARGS,
     "_same_as(type, tensor)\n--\n\nReturns the same tensor as an object of another type."},
    {"_tensor_from_bytes", from_bytes, METH_VARARGS, nullptr},
    {}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "mytorch._core",
                          "The operators of mytorch, generated from its records.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

bool fill(PyObject* module) {
  return add_errors(module) && add_plain_types(module) && prepare_operators() &&
         add_tensor_type(module, operator_methods()) && add_optimizer_type(module) &&
         PyModule_AddFunctions(module, operator_functions()) == 0 &&
         PyModule_AddFunctions(module, autograd_functions) == 0 && add_layers(module) &&
         PyModule_AddFunctions(module, optimizer_functions) == 0 &&
         PyModule_AddFunctions(module, file_functions) == 0 &&
         PyModule_AddFunctions(module, function_functions) == 0 &&
         PyModule_AddStringConstant(module, "__version__", MYTORCH_VERSION_STRING) == 0;
}

}  // namespace
}  // namespace mytorch::python

PyMODINIT_FUNC PyInit__core() {  // NOLINT(bugprone-reserved-identifier): Python asks for it
  PyObject* const module = PyModule_Create(&mytorch::python::definition);
  if (module == nullptr || mytorch::python::fill(module)) return module;
  Py_DECREF(module);
  return nullptr;
}
