// Values of Python as arguments of operators, and results of operators as values of Python.
//
// The `fits` functions tell, without raising, whether an object is of the kind that an argument
// takes; the `to_` functions convert one that is, and throw Raised or Error if its value is wrong.
#pragma once

#include <Python.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "mytorch/scalar.h"
#include "mytorch/tensor.h"
#include "python/objects.h"

namespace mytorch::python {

// ---- numbers ----

// Numbers are Python's, those of NumPy, and, if `tensors`, 0-dim tensors. A bool is no integer.
bool fits_scalar(PyObject* object);
bool fits_int(PyObject* object);
bool fits_float(PyObject* object);
bool fits_bool(PyObject* object);
Scalar to_scalar(PyObject* object);
// Returns the type of a number of NumPy or of a tensor; numbers of Python have none.
std::optional<ScalarType> type_of_number(PyObject* object);
int64_t to_int(PyObject* object);
double to_float(PyObject* object);
bool to_bool(PyObject* object);

// ---- types, devices, generators, text ----

bool fits_dtype(PyObject* object);  // a dtype, or Python's bool, int, float or complex
ScalarType to_dtype(PyObject* object);
bool fits_device(PyObject* object);  // a device or its name
Device to_device(PyObject* object);
Device numbered(Device type, int64_t index);  // throws Error(kDevice) for a number that is none
inline bool fits_generator(PyObject* object) { return is_generator(object); }
inline Generator to_generator(PyObject* object) {
  return reinterpret_cast<GeneratorObject*>(object)->generator;
}
// Valid while the object lives.
std::string_view to_text(PyObject* object);

// ---- tensors and lists ----

inline const Tensor& to_tensor(PyObject* object) {
  if (!is_tensor(object)) {
    PyErr_Format(PyExc_TypeError, "expected a Tensor, not %.100s", Py_TYPE(object)->tp_name);
    throw Raised();
  }
  return tensor_of(object);
}
inline Operand to_operand(PyObject* object) {
  return is_tensor(object) ? Operand(tensor_of(object)) : Operand(to_scalar(object));
}

bool fits_ints(PyObject* object);     // a list or tuple of integers
bool fits_floats(PyObject* object);   // of numbers
bool fits_tensors(PyObject* object);  // of tensors, or, if `or_none`, of tensors and None
bool fits_tensors_or_none(PyObject* object);

// Lists that live until the end of the call.
class Ints {
 public:
  Ints() = default;  // absent
  Ints(std::initializer_list<int64_t> values) : values_(values), present_(true) {}
  explicit Ints(PyObject* object);  // one integer stands for a list of `size` of them
  Ints(PyObject* object, size_t size);
  operator IntList() const { return IntList(values_.data(), values_.size()); }  // NOLINT
  operator OptionalIntList() const {                                            // NOLINT
    return present_ ? OptionalIntList(IntList(values_.data(), values_.size())) : OptionalIntList();
  }

 private:
  std::vector<int64_t> values_;
  bool present_ = false;
};
class Floats {
 public:
  Floats() = default;
  explicit Floats(PyObject* object);
  operator FloatList() const { return FloatList(values_.data(), values_.size()); }  // NOLINT
  operator OptionalFloatList() const {                                              // NOLINT
    return present_ ? OptionalFloatList(FloatList(values_.data(), values_.size()))
                    : OptionalFloatList();
  }

 private:
  std::vector<double> values_;
  bool present_ = false;
};
std::vector<Tensor> to_tensors(PyObject* object);

// ---- results ----

// Sets an item of a dictionary. PyDict_SetItemString interns the key, and a table of the
// interpreter grows by names that are made anew in each call.
void set_item(PyObject* dictionary, std::string_view key, PyObject* value);

PyObject* to_python(const Scalar& value);
inline PyObject* to_python(Tensor value) { return wrap(std::move(value)); }
inline PyObject* to_python(bool value) { return PyBool_FromLong(value ? 1 : 0); }
inline PyObject* to_python(int64_t value) { return PyLong_FromLongLong(value); }
inline PyObject* to_python(double value) { return PyFloat_FromDouble(value); }
PyObject* to_python(std::string_view text);
PyObject* to_python(const char*) = delete;               // would be a bool
PyObject* to_python(const std::vector<Tensor>& values);  // a tuple
PyObject* to_python(IntList values);                     // a tuple
template <class... T>
PyObject* to_python(const std::tuple<T...>& values) {
  Ref tuple(checked(PyTuple_New(sizeof...(T))));
  Py_ssize_t at = 0;
  std::apply(
      [&](const auto&... each) {
        (PyTuple_SET_ITEM(tuple.get(), at++, checked(to_python(each))), ...);
      },
      values);
  return tuple.release();
}

}  // namespace mytorch::python
