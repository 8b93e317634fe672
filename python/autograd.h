// Gradients in Python.
#pragma once

#include <Python.h>

namespace mytorch::python {

extern PyMethodDef autograd_methods[];    // of tensors
extern PyMethodDef autograd_functions[];  // of the module

}  // namespace mytorch::python
