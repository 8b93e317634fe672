// x[...] in Python.
#pragma once

#include <Python.h>

namespace mytorch::python {

PyObject* get_item(PyObject* self, PyObject* index);  // throws
void set_item(PyObject* self, PyObject* index, PyObject* value);

}  // namespace mytorch::python
