// Files of tensors, in Python.
#pragma once

#include <Python.h>

namespace mytorch::python {

// Functions of the module.
extern PyMethodDef file_functions[];

}  // namespace mytorch::python
