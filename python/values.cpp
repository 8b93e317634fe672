#include "python/values.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/ops.h"
#include "mytorch/tensor_values.h"
#include "python/convert.h"
#include "python/exchange.h"

namespace mytorch::python {
namespace {

bool is_list(PyObject* object) { return PyList_Check(object) != 0 || PyTuple_Check(object) != 0; }

void check_depth(int depth) {
  if (depth <= MT_MAX_DIMS) return;
  fail(ErrorCode::kShape, "[tensor] lists are nested more than ", int{MT_MAX_DIMS}, " deep");
}

// The numbers of nested lists, in row-major order.
class Numbers {
 public:
  explicit Numbers(PyObject* object) {
    for (PyObject* first = object; is_list(first); first = PySequence_Fast_ITEMS(first)[0]) {
      sizes_.push_back(PySequence_Fast_GET_SIZE(first));
      check_depth(static_cast<int>(sizes_.size()));
      if (sizes_.back() == 0) break;
    }
    add(object, 0);
  }

  Tensor tensor(std::optional<ScalarType> dtype) const {
    // Numbers of Python have a category only; those of NumPy and 0-dim tensors a type.
    static constexpr ScalarType kDefaults[] = {kFloat32, mytorch::kBool, kInt64, kFloat32,
                                               kComplex64};
    ScalarType own = kDefaults[untyped_];
    if (type_.has_value()) own = untyped_ == kNone ? *type_ : promote_types(*type_, own);
    const ScalarType type = dtype.value_or(own);
    if (kind_ == kComplex) return made(complex_, type);
    return kind_ == kReal || kind_ == kNone ? made(reals_, type) : made(integers_, type);
  }

 private:
  enum KindOfNumber { kNone, kBool, kInteger, kReal, kComplex };

  template <class T>
  Tensor made(const std::vector<T>& values, ScalarType dtype) const {
    return mytorch::tensor(values, dtype).reshape(sizes_);
  }

  // The numbers so far become those of a kind that has them all.
  void raise(KindOfNumber to) {
    if (to <= kind_) return;
    if (to == kReal) reals_.assign(integers_.begin(), integers_.end());
    if (to == kComplex) {
      if (kind_ == kReal) {
        complex_.assign(reals_.begin(), reals_.end());
      } else {
        for (const int64_t value : integers_) complex_.emplace_back(static_cast<double>(value));
      }
    }
    kind_ = to;
  }

  void number(PyObject* object) {
    const Scalar value = to_scalar(object);
    const KindOfNumber kind = value.is_bool()    ? kBool
                              : value.is_int()   ? kInteger
                              : value.is_float() ? kReal
                                                 : kComplex;
    raise(kind);
    if (const std::optional<ScalarType> type = type_of_number(object); type.has_value()) {
      type_ = type_.has_value() ? promote_types(*type_, *type) : *type;
    } else {
      untyped_ = std::max(untyped_, kind);
    }
    if (kind_ == kComplex) {
      complex_.emplace_back(value.real(), value.is_complex() ? value.imag() : 0);
    } else if (kind_ == kReal) {
      reals_.push_back(value.to_double());
    } else {
      integers_.push_back(value.to_int());
    }
  }

  void add(PyObject* object, size_t depth) {
    if (is_list(object) != (depth < sizes_.size())) {
      fail(ErrorCode::kShape, "[tensor] a number stands beside a list, at depth ",
           static_cast<int64_t>(depth), ": all elements of a list must be numbers, or lists of ",
           "equal length");
    }
    if (!is_list(object)) {
      if (!fits_scalar(object)) {
        PyErr_Format(PyExc_TypeError, "[tensor] a list has a %.100s, which is no number",
                     Py_TYPE(object)->tp_name);
        throw Raised();
      }
      number(object);
      return;
    }
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
    if (size != sizes_[depth]) {
      fail(ErrorCode::kShape, "[tensor] a list of ", int64_t{size}, " at depth ",
           static_cast<int64_t>(depth), " stands beside one of ", sizes_[depth]);
    }
    for (Py_ssize_t i = 0; i < size; ++i) {
      const Ref item(Py_NewRef(PySequence_Fast_ITEMS(object)[i]));
      add(item.get(), depth + 1);
      if (PySequence_Fast_GET_SIZE(object) != size) {
        fail(ErrorCode::kValue, "[tensor] a list changed while it was read");
      }
    }
  }

  std::vector<int64_t> sizes_;
  KindOfNumber kind_ = kNone, untyped_ = kNone;  // of all; of those that have no type
  std::optional<ScalarType> type_;               // of those that have one
  std::vector<int64_t> integers_;
  std::vector<double> reals_;
  std::vector<std::complex<double>> complex_;
};

// Whether a list holds tensors or arrays, which are stacked.
bool holds_arrays(PyObject* object) {
  for (int depth = 0; is_list(object) && PySequence_Fast_GET_SIZE(object) > 0; ++depth) {
    check_depth(depth);
    object = PySequence_Fast_ITEMS(object)[0];
  }
  return !is_list(object) && !fits_scalar(object) && (is_tensor(object) || is_array(object));
}

Tensor stacked(PyObject* object, std::optional<ScalarType> dtype, int depth = 0) {
  check_depth(depth);
  if (!is_list(object)) return tensor_from(object, dtype, {}, std::nullopt);
  std::vector<Tensor> parts;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    const Ref item(Py_NewRef(PySequence_Fast_ITEMS(object)[i]));
    parts.push_back(stacked(item.get(), dtype, depth + 1));
  }
  return mytorch::stack(parts);
}

template <class T, class Make>
PyObject* nested(const T*& data, IntList sizes, size_t depth, const Make& make) {
  if (depth == sizes.size()) return checked(make(*data++));
  Ref list(checked(PyList_New(sizes[depth])));
  for (int64_t i = 0; i < sizes[depth]; ++i) {
    PyList_SET_ITEM(list.get(), i, nested(data, sizes, depth + 1, make));
  }
  return list.release();
}

template <class T, class Make>
PyObject* listed(const Tensor& tensor, const Make& make) {
  const std::vector<T> values = tensor.to_vector<T>();
  const T* data = values.data();
  return nested(data, tensor.sizes(), 0, make);
}

}  // namespace

Tensor tensor_from(PyObject* object, std::optional<ScalarType> dtype, std::optional<Device> device,
                   std::optional<bool> copy) {
  Tensor result;
  bool shared = false;
  if (is_tensor(object)) {
    result = tensor_of(object);
    shared = true;
  } else if (is_list(object) || fits_scalar(object)) {
    result = holds_arrays(object) ? stacked(object, dtype) : Numbers(object).tensor(dtype);
  } else if (is_array(object)) {
    result = from_array(object, copy == true ? std::nullopt : copy);
    shared = true;
  } else {
    PyErr_Format(PyExc_TypeError, "[tensor] %.100s is no number, list of numbers or array",
                 Py_TYPE(object)->tp_name);
    throw Raised();
  }
  const Tensor placed = result.to(device.value_or(result.device()), dtype.value_or(result.dtype()));
  const bool copied = !shared || !placed.is_same(result);
  if (copy == false && copied) {
    fail(ErrorCode::kValue, "[asarray] the values cannot be used without a copy: leave `copy` out");
  }
  return copy == true && !copied ? placed.clone() : placed;
}

PyObject* to_list(const Tensor& tensor) {
  if (is_complex(tensor.dtype())) {
    return listed<std::complex<double>>(
        tensor, [](std::complex<double> x) { return PyComplex_FromDoubles(x.real(), x.imag()); });
  }
  if (is_floating_point(tensor.dtype())) {
    return listed<double>(tensor, [](double x) { return PyFloat_FromDouble(x); });
  }
  if (tensor.dtype() == mytorch::kBool) {
    const Tensor bytes = tensor.to(kUInt8);
    return listed<uint8_t>(bytes, [](uint8_t x) { return PyBool_FromLong(x); });
  }
  return listed<int64_t>(tensor, [](int64_t x) { return PyLong_FromLongLong(x); });
}

}  // namespace mytorch::python
