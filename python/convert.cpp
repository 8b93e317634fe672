#include "python/convert.h"

#include <complex>

#include "core/types/errors.h"

namespace mytorch::python {
namespace {

bool is_numpy(PyObject* object, const char* prefix) {
  const std::string_view name = Py_TYPE(object)->tp_name;
  return name.starts_with(prefix);
}
// Of an array, which a number's slots do not make a number. Looks at types alone: runs no Python.
bool is_array_type(PyObject* object) {
  static PyObject* dlpack = nullptr;
  if (dlpack == nullptr) dlpack = PyUnicode_InternFromString("__dlpack__");
  PyTypeObject* const type = Py_TYPE(object);
  return _PyType_Lookup(type, dlpack) != nullptr ||
         (PyObject_CheckBuffer(object) != 0 && !is_numpy(object, "numpy."));
}
bool is_numpy_array(PyObject* object) {
  return is_numpy(object, "numpy.ndarray") || is_array_type(object);
}
bool is_numpy_complex(PyObject* object) { return is_numpy(object, "numpy.complex"); }
bool is_number_of_numpy(PyObject* object) {
  return is_numpy(object, "numpy.") && !is_numpy_array(object) && !is_numpy_complex(object) &&
         PyIndex_Check(object) == 0 && Py_TYPE(object)->tp_as_number != nullptr &&
         Py_TYPE(object)->tp_as_number->nb_float != nullptr;
}
bool is_numpy_bool(PyObject* object) { return is_numpy(object, "numpy.bool"); }
bool is_number_tensor(PyObject* object) {
  return is_tensor(object) && tensor_of(object).defined() && tensor_of(object).dim() == 0;
}

template <class Fits>
bool fits_list(PyObject* object, Fits&& fits) {
  if (PyList_Check(object) == 0 && PyTuple_Check(object) == 0) return false;
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
  PyObject** const items = PySequence_Fast_ITEMS(object);
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!fits(items[i])) return false;
  }
  return true;
}

template <class F>
void for_each(PyObject* list, F&& f) {
  // A conversion may run Python, which may change a list.
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) {
    const Ref item(Py_NewRef(PySequence_Fast_ITEMS(list)[i]));
    f(item.get());
  }
}

}  // namespace

// ---- numbers ----

bool fits_bool(PyObject* object) { return PyBool_Check(object) || is_numpy_bool(object); }
bool fits_int(PyObject* object) {
  if (PyLong_CheckExact(object)) return true;
  if (fits_bool(object)) return false;
  if (is_tensor(object))
    return is_number_tensor(object) && !is_differentiable(tensor_of(object).dtype()) &&
           tensor_of(object).dtype() != kBool;
  return PyLong_Check(object) || (PyIndex_Check(object) != 0 && !is_numpy_array(object));
}
bool fits_float(PyObject* object) {
  return PyFloat_Check(object) || fits_int(object) || is_number_of_numpy(object) ||
         is_number_tensor(object);
}
bool fits_scalar(PyObject* object) {
  return PyFloat_Check(object) || PyLong_Check(object) || PyComplex_Check(object) ||
         fits_float(object) || fits_bool(object) || is_numpy_complex(object);
}

Scalar to_scalar(PyObject* object) {
  if (PyFloat_Check(object)) return Scalar(PyFloat_AS_DOUBLE(object));
  if (PyBool_Check(object)) return Scalar(object == Py_True);
  if (is_tensor(object)) return tensor_of(object).item();
  if (PyComplex_Check(object) || is_numpy_complex(object)) {
    const Py_complex value = PyComplex_AsCComplex(object);
    if (value.real == -1 && PyErr_Occurred() != nullptr) throw Raised();
    return Scalar(std::complex<double>(value.real, value.imag));
  }
  if (is_numpy_bool(object)) return Scalar(to_bool(object));
  if (PyIndex_Check(object) != 0) return Scalar(to_int(object));
  return Scalar(to_float(object));
}

std::optional<ScalarType> type_of_number(PyObject* object) {
  if (is_tensor(object)) return tensor_of(object).dtype();
  if (!is_numpy(object, "numpy.")) return std::nullopt;
  const std::string_view name = std::string_view(Py_TYPE(object)->tp_name).substr(6);
  if (name.starts_with("bool")) return kBool;
  for (int i = 0; i < kNumScalarTypes; ++i) {
    if (name == dtype_name(static_cast<ScalarType>(i))) return static_cast<ScalarType>(i);
  }
  return std::nullopt;
}

int64_t to_int(PyObject* object) {
  if (is_tensor(object)) return tensor_of(object).item<int64_t>();
  const Ref number(PyLong_Check(object) ? Py_NewRef(object) : checked(PyNumber_Index(object)));
  const long long value = PyLong_AsLongLong(number.get());
  if (value == -1 && PyErr_Occurred() != nullptr) throw Raised();
  return value;
}

double to_float(PyObject* object) {
  if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
  if (is_tensor(object)) return tensor_of(object).item<double>();
  const double value = PyFloat_AsDouble(object);
  if (value == -1 && PyErr_Occurred() != nullptr) throw Raised();
  return value;
}

bool to_bool(PyObject* object) {
  const int value = PyObject_IsTrue(object);
  if (value < 0) throw Raised();
  return value == 1;
}

// ---- types, devices, text ----

bool fits_dtype(PyObject* object) {
  return is_dtype(object) || object == reinterpret_cast<PyObject*>(&PyFloat_Type) ||
         object == reinterpret_cast<PyObject*>(&PyLong_Type) ||
         object == reinterpret_cast<PyObject*>(&PyBool_Type) ||
         object == reinterpret_cast<PyObject*>(&PyComplex_Type);
}

ScalarType to_dtype(PyObject* object) {
  if (is_dtype(object)) return reinterpret_cast<DtypeObject*>(object)->dtype;
  if (object == reinterpret_cast<PyObject*>(&PyFloat_Type)) return kFloat32;
  if (object == reinterpret_cast<PyObject*>(&PyLong_Type)) return kInt64;
  if (object == reinterpret_cast<PyObject*>(&PyBool_Type)) return kBool;
  if (object == reinterpret_cast<PyObject*>(&PyComplex_Type)) return kComplex64;
  PyErr_Format(PyExc_TypeError, "expected a mytorch.dtype, not %.100s", Py_TYPE(object)->tp_name);
  throw Raised();
}

bool fits_device(PyObject* object) { return is_device(object) || PyUnicode_Check(object); }

Device to_device(PyObject* object) {
  if (is_device(object)) return reinterpret_cast<DeviceObject*>(object)->device;
  return Device(std::string(to_text(object)));
}

Device numbered(Device type, int64_t index) {
  if (index < 0 || index > INT32_MAX || (index > 0 && !type.has_index())) {
    fail(ErrorCode::kDevice, "[device] ", type.str(), " has no number ", index);
  }
  return {type, static_cast<int32_t>(index)};
}

std::string_view to_text(PyObject* object) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(object, &size);
  if (data == nullptr) throw Raised();
  return {data, static_cast<size_t>(size)};
}

// ---- lists ----

bool fits_ints(PyObject* object) { return fits_list(object, fits_int); }
bool fits_floats(PyObject* object) { return fits_list(object, fits_float); }
bool fits_tensors(PyObject* object) { return fits_list(object, is_tensor); }
bool fits_tensors_or_none(PyObject* object) {
  return fits_list(object, [](PyObject* item) { return item == Py_None || is_tensor(item); });
}

Ints::Ints(PyObject* object) : present_(true) {
  if (PyList_Check(object) == 0 && PyTuple_Check(object) == 0) {
    values_.push_back(to_int(object));
    return;
  }
  for_each(object, [&](PyObject* item) { values_.push_back(to_int(item)); });
}
Ints::Ints(PyObject* object, size_t size) : Ints(object) {
  if (values_.size() == 1) values_.resize(size, values_[0]);
}
Floats::Floats(PyObject* object) : present_(true) {
  if (PyList_Check(object) == 0 && PyTuple_Check(object) == 0) {
    values_.push_back(to_float(object));
    return;
  }
  for_each(object, [&](PyObject* item) { values_.push_back(to_float(item)); });
}

std::vector<Tensor> to_tensors(PyObject* object) {
  std::vector<Tensor> tensors;
  if (is_tensor(object)) return {tensor_of(object)};
  const Ref list(checked(PySequence_Fast(object, "expected a list or tuple of Tensors")));
  for_each(list.get(), [&](PyObject* item) {
    tensors.push_back(item == Py_None ? Tensor() : to_tensor(item));
  });
  return tensors;
}

// ---- results ----

PyObject* to_python(const Scalar& value) {
  if (value.is_bool()) return to_python(value.to_bool());
  if (value.is_int()) return to_python(int64_t{value.to_int()});
  if (value.is_float()) return to_python(value.to_double());
  return PyComplex_FromDoubles(value.real(), value.imag());
}

void set_item(PyObject* dictionary, std::string_view key, PyObject* value) {
  const Ref name(checked(to_python(key)));
  if (PyDict_SetItem(dictionary, name.get(), value) != 0) throw Raised();
}

PyObject* to_python(std::string_view text) {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* to_python(const std::vector<Tensor>& values) {
  Ref tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(wrap(values[i])));
  }
  return tuple.release();
}

PyObject* to_python(IntList values) {
  Ref tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(to_python(values[i])));
  }
  return tuple.release();
}

}  // namespace mytorch::python
