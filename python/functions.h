// Operations that a program differentiates by itself: autograd.Function of Python.
#pragma once

#include <Python.h>

namespace mytorch::python {

// Functions of the module.
extern PyMethodDef function_functions[];

}  // namespace mytorch::python
