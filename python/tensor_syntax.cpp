// The type Tensor in Python's syntax: operators, comparisons, conversions, and as a container.
#include "mytorch/ops.h"
#include "mytorch/result_type.h"
#include "mytorch/tensor_operators.h"
#include "python/arguments.h"
#include "python/exchange.h"
#include "python/indexing.h"
#include "python/tensor_parts.h"
#include "python/values.h"

namespace mytorch::python {
namespace {

// ---- operators ----

bool is_operand(PyObject* object) { return is_tensor(object) || fits_scalar(object); }

int64_t work_of(PyObject* a, PyObject* b) {
  return (is_tensor(a) ? elements(tensor_of(a)) : 0) + (is_tensor(b) ? elements(tensor_of(b)) : 0);
}

// Calls f with tensors in place of arrays of other libraries.
template <class F>
PyObject* with_arrays(PyObject* a, PyObject* b, F&& f) {
  const auto converted = [](PyObject* object) -> Ref {
    if (is_operand(object)) return Ref(Py_NewRef(object));
    if (!has_dlpack(object)) return Ref();
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

}  // namespace

PyType_Slot syntax_slots[] = {{Py_tp_richcompare, as_slot(compare)},
                              {Py_tp_iter, as_slot(iterate)},
                              {Py_nb_add, as_slot(nb_add)},
                              {Py_nb_subtract, as_slot(nb_subtract)},
                              {Py_nb_multiply, as_slot(nb_multiply)},
                              {Py_nb_true_divide, as_slot(nb_divide)},
                              {Py_nb_floor_divide, as_slot(nb_floor_divide)},
                              {Py_nb_remainder, as_slot(nb_remainder)},
                              {Py_nb_power, as_slot(nb_power)},
                              {Py_nb_matrix_multiply, as_slot(nb_matmul)},
                              {Py_nb_and, as_slot(nb_and)},
                              {Py_nb_or, as_slot(nb_or)},
                              {Py_nb_xor, as_slot(nb_xor)},
                              {Py_nb_lshift, as_slot(nb_left)},
                              {Py_nb_rshift, as_slot(nb_right)},
                              {Py_nb_inplace_add, as_slot(nb_add_to)},
                              {Py_nb_inplace_subtract, as_slot(nb_subtract_from)},
                              {Py_nb_inplace_multiply, as_slot(nb_multiply_by)},
                              {Py_nb_inplace_true_divide, as_slot(nb_divide_by)},
                              {Py_nb_inplace_floor_divide, as_slot(nb_floor_divide_by)},
                              {Py_nb_inplace_remainder, as_slot(nb_remainder_of)},
                              {Py_nb_inplace_power, as_slot(nb_power_of)},
                              {Py_nb_inplace_lshift, as_slot(nb_left_by)},
                              {Py_nb_inplace_rshift, as_slot(nb_right_by)},
                              {Py_nb_inplace_and, as_slot(nb_and_to)},
                              {Py_nb_inplace_or, as_slot(nb_or_to)},
                              {Py_nb_inplace_xor, as_slot(nb_xor_to)},
                              {Py_nb_negative, as_slot(nb_negative)},
                              {Py_nb_positive, as_slot(nb_positive)},
                              {Py_nb_absolute, as_slot(nb_absolute)},
                              {Py_nb_invert, as_slot(nb_invert)},
                              {Py_nb_float, as_slot(nb_float)},
                              {Py_nb_int, as_slot(nb_int)},
                              {Py_nb_index, as_slot(nb_index)},
                              {Py_nb_bool, as_slot(nb_bool)},
                              {Py_mp_length, as_slot(length)},
                              {Py_mp_subscript, as_slot(subscript)},
                              {Py_mp_ass_subscript, as_slot(assign_subscript)},
                              {Py_sq_length, as_slot(length)},
                              {Py_sq_contains, as_slot(contains)},
                              {0, nullptr}};

}  // namespace mytorch::python
