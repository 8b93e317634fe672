// Memory shared with other libraries of Python: DLPack and the buffer protocol.
#pragma once

#include <Python.h>

#include <optional>

#include "mytorch/tensor.h"

namespace mytorch::python {

bool has_dlpack(PyObject* object);
// Whether an object has __dlpack__ or a buffer, as bytes have.
bool is_array(PyObject* object);
// Returns a tensor over its memory; `copy` as for mytorch::from_dlpack.
Tensor from_array(PyObject* object, std::optional<bool> copy);

extern PyMethodDef exchange_methods[];  // of tensors
extern PyBufferProcs buffer_slots;

}  // namespace mytorch::python
