// Several results with names: a tuple whose fields are also attributes, x.max(0).values.
#pragma once

#include <Python.h>

#include <initializer_list>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::python {

// Returns a type of such tuples. Throws Raised.
PyTypeObject* named_results(const char* name, std::initializer_list<const char*> fields);
// Returns the elements of a tuple, whose reference it takes, as an object of that type.
PyObject* as_named(PyTypeObject* type, PyObject* tuple);
// Returns the tensors of `out`. Throws Error(kValue) if there are not so many.
std::vector<Tensor> to_outs(PyObject* object, size_t count);

}  // namespace mytorch::python
