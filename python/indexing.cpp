#include "python/indexing.h"

#include <vector>

#include "mytorch/ops.h"
#include "mytorch/tensor_index.h"
#include "python/convert.h"
#include "python/values.h"

namespace mytorch::python {
namespace {

using indexing::TensorIndex;

std::optional<int64_t> bound(PyObject* object) {
  if (object == Py_None) return std::nullopt;
  if (!fits_int(object)) {
    PyErr_Format(PyExc_TypeError, "the bounds of a slice are integers or None, not %.100s",
                 Py_TYPE(object)->tp_name);
    throw Raised();
  }
  // Beyond all positions, Python's slices end there.
  return is_tensor(object) ? to_int(object) : int64_t{PyNumber_AsSsize_t(object, nullptr)};
}

TensorIndex one_index(PyObject* object) {
  if (PyLong_CheckExact(object)) {
    const Py_ssize_t at = PyNumber_AsSsize_t(object, PyExc_IndexError);
    if (at == -1 && PyErr_Occurred() != nullptr) throw Raised();
    return int64_t{at};
  }
  if (PyBool_Check(object)) return object == Py_True;
  if (object == Py_None) return std::nullopt;
  if (object == Py_Ellipsis) return indexing::Ellipsis;
  if (PySlice_Check(object)) {
    auto* const slice = reinterpret_cast<PySliceObject*>(object);
    return indexing::Slice(bound(slice->start), bound(slice->stop), bound(slice->step));
  }
  if (is_tensor(object)) return tensor_of(object);
  if (fits_int(object)) return to_int(object);
  if (PyRange_Check(object)) return one_index(Ref(checked(PySequence_List(object))).get());
  // A list, or an array of NumPy.
  const Tensor values = tensor_from(object, {}, {}, /*copy=*/std::nullopt);
  return values.numel() == 0 ? values.to(kInt64) : values;
}

std::vector<TensorIndex> indices_of(PyObject* index) {
  std::vector<TensorIndex> indices;
  if (PyTuple_Check(index) == 0) {
    indices.push_back(one_index(index));
    return indices;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); ++i) {
    indices.push_back(one_index(PyTuple_GET_ITEM(index, i)));
  }
  return indices;
}

// Throws IndexError, by which Python ends loops, for a position outside of its dimension.
void check_positions(const Tensor& x, const std::vector<TensorIndex>& indices) {
  // How many dimensions an index takes.
  const auto taken = [](const TensorIndex& index) -> int64_t {
    switch (index.kind()) {
      case TensorIndex::kNone:
      case TensorIndex::kEllipsis:
      case TensorIndex::kBool:
        return 0;
      case TensorIndex::kTensor:
        return index.tensor().defined() && index.tensor().dtype() == kBool ? index.tensor().dim()
                                                                           : 1;
      case TensorIndex::kInteger:
      case TensorIndex::kSlice:
        return 1;
    }
    return 1;
  };
  int64_t all = 0, dim = 0;
  for (const TensorIndex& index : indices) all += taken(index);
  if (all > x.dim()) return;  // which the operator refuses
  for (const TensorIndex& index : indices) {
    if (index.kind() == TensorIndex::kEllipsis) dim += x.dim() - all;
    if (index.kind() == TensorIndex::kInteger) {
      const int64_t at = index.integer(), size = x.size(dim);
      if (at < -size || at >= size) {
        PyErr_Format(
            PyExc_IndexError, "[index] position %lld is outside of dimension %lld, of size %lld",
            static_cast<long long>(at), static_cast<long long>(dim), static_cast<long long>(size));
        throw Raised();
      }
    }
    dim += taken(index);
  }
}

}  // namespace

PyObject* get_item(PyObject* self, PyObject* index) {
  const Tensor& x = tensor_of(self);
  const std::vector<TensorIndex> indices = indices_of(index);
  check_positions(x, indices);
  return wrap(Tensor(x.index(indices)));
}

void set_item(PyObject* self, PyObject* index, PyObject* value) {
  const Tensor& x = tensor_of(self);
  const std::vector<TensorIndex> indices = indices_of(index);
  check_positions(x, indices);
  if (is_tensor(value)) {
    x.index_put_(indices, tensor_of(value));
  } else if (fits_scalar(value)) {
    x.index_put_(indices, to_scalar(value));
  } else {
    x.index_put_(indices, tensor_from(value, x.dtype(), x.device(), /*copy=*/std::nullopt));
  }
}

}  // namespace mytorch::python
