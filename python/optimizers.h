// Optimizers, and the clipping of gradients, in Python.
#pragma once

#include <Python.h>

namespace mytorch::python {

extern PyMethodDef optimizer_functions[];  // of the module

// Adds the type of optimizers to a module. Returns whether it has succeeded.
bool add_optimizer_type(PyObject* module);

}  // namespace mytorch::python
