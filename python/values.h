// Tensors from values of Python, and back.
#pragma once

#include <Python.h>

#include <optional>

#include "mytorch/tensor.h"

namespace mytorch::python {

// Returns the tensor of numbers, of nested lists of numbers and tensors, or of an object with
// __dlpack__ or a buffer, such as an array of NumPy. Memory is shared where it can be, unless
// `copy`; if that is false, it is an error where it cannot. Without a dtype, bools, integers,
// floats and complex numbers of Python become bool, int64, float32 and complex64.
Tensor tensor_from(PyObject* object, std::optional<ScalarType> dtype, std::optional<Device> device,
                   std::optional<bool> copy);

// Returns nested lists of numbers, or a number for a tensor without dimensions.
PyObject* to_list(const Tensor& tensor);

}  // namespace mytorch::python
