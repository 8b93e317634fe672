// The operators of the records as functions and methods. Generated, but for operators.cpp.
#pragma once

#include <Python.h>

#include <vector>

#include "python/arguments.h"

namespace mytorch::python {

using FastFunction = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

// One name of Python.
struct Operator {
  Function function;
  FastFunction call, method;  // null if there is no such form
  const char* doc;
};
// A file of generated operators.
struct OperatorList {
  const Operator* begin;
  int size;
};
extern const OperatorList operator_lists[];
extern const int num_operator_lists;

// Interns the names of a function's parameters, which calls compare.
bool prepare(const Function& function);
// The same for all operators. Call before the lists below.
bool prepare_operators();
PyMethodDef* operator_functions();  // of the module
PyMethodDef* operator_methods();    // of tensors

}  // namespace mytorch::python
