// For bodies of records: the results of shape and view functions, and errors.
#pragma once

#include "core/tensor/spec.h"
#include "core/types/errors.h"
