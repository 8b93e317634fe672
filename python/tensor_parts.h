// What the type Tensor consists of.
#pragma once

#include <Python.h>

#include "python/objects.h"

namespace mytorch::python {

extern PyType_Slot syntax_slots[];  // operators, comparisons, conversions, as a container
extern PyGetSetDef tensor_fields[];
extern PyMethodDef tensor_methods[];  // that no record describes

}  // namespace mytorch::python
