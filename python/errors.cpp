#include "python/errors.h"

#include <new>

namespace mytorch::python {
namespace {

constexpr int kCodes = static_cast<int>(ErrorCode::kInternal) + 1;
PyObject* types[kCodes] = {};
PyObject* base = nullptr;

PyObject* take_exception() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr && value != nullptr) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
#endif
}

}  // namespace

Raised::Raised() : exception_(take_exception()) {}

Raised::Raised(const Raised& other) : exception_(other.exception_) {
  const Locked locked;
  Py_XINCREF(exception_);
}

Raised::~Raised() {
  if (!Py_IsInitialized()) return;
  const Locked locked;
  Py_XDECREF(exception_);
}

void Raised::restore() const {
  if (exception_ == nullptr) {
    PyErr_SetString(PyExc_SystemError, "an exception was lost");
    return;
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception_)), exception_);
}

void raise_current() noexcept {
  try {
    throw;
  } catch (const Raised& raised) {
    raised.restore();
  } catch (const Error& error) {
    const int code = static_cast<int>(error.code());
    PyObject* const type = code >= 0 && code < kCodes ? types[code] : nullptr;
    PyErr_SetString(type != nullptr ? type : base, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception that is no std::exception");
  }
}

bool add_errors(PyObject* module) {
  base = PyErr_NewExceptionWithDoc("mytorch.Error",
                                   "Raised for every failure. Those of a kind for which Python has "
                                   "a type are also of that type.",
                                   PyExc_RuntimeError, nullptr);
  if (base == nullptr || PyModule_AddObjectRef(module, "Error", base) < 0) return false;
  struct Row {
    ErrorCode code;
    const char* name;
    PyObject* also;
  };
  const Row rows[] = {{ErrorCode::kShape, "ShapeError", PyExc_ValueError},
                      {ErrorCode::kType, "DtypeError", PyExc_TypeError},
                      {ErrorCode::kDevice, "DeviceError", nullptr},
                      {ErrorCode::kValue, "ArgumentError", PyExc_ValueError},
                      {ErrorCode::kUnsupported, "UnsupportedError", PyExc_NotImplementedError},
                      {ErrorCode::kOutOfMemory, "OutOfMemoryError", PyExc_MemoryError},
                      {ErrorCode::kIo, "IoError", PyExc_OSError}};
  for (const Row& row : rows) {
    const std::string name = std::string("mytorch.") + row.name;
    PyObject* const bases =
        row.also != nullptr ? PyTuple_Pack(2, base, row.also) : PyTuple_Pack(1, base);
    if (bases == nullptr) return false;
    PyObject* const type = PyErr_NewException(name.c_str(), bases, nullptr);
    Py_DECREF(bases);
    if (type == nullptr || PyModule_AddObjectRef(module, row.name, type) < 0) return false;
    types[static_cast<int>(row.code)] = type;
  }
  types[static_cast<int>(ErrorCode::kInternal)] = base;
  return true;
}

}  // namespace mytorch::python
