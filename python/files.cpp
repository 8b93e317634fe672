#include "python/files.h"

#include <string>
#include <utility>

#include "mytorch/nn/serialize.h"
#include "python/arguments.h"
#include "python/convert.h"

namespace mytorch::python {
namespace {

// A str, or an object with __fspath__, as the bytes of a path.
std::string path_of(PyObject* object) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(object, &bytes) == 0) throw Raised();
  const Ref held(bytes);
  return {PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))};
}

// Calls `function(key, value)` for a dictionary with keys of text.
template <class F>
void each_item(PyObject* dictionary, const char* what, const F& function) {
  if (PyDict_Check(dictionary) == 0) {
    PyErr_Format(PyExc_TypeError, "%s: expected a dict, not %.100s", what,
                 Py_TYPE(dictionary)->tp_name);
    throw Raised();
  }
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dictionary, &at, &key, &value) != 0) {
    if (PyUnicode_Check(key) == 0) {
      PyErr_Format(PyExc_TypeError, "%s: the names are str, not %.100s", what,
                   Py_TYPE(key)->tp_name);
      throw Raised();
    }
    function(std::string(to_text(key)), value);
  }
}

PyObject* save(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"tensors", "path", "metadata", nullptr};
  PyObject *given = nullptr, *path = nullptr, *texts = Py_None;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "OO|O:save_safetensors",
                                  const_cast<char**>(names), &given, &path, &texts) == 0) {
    return nullptr;
  }
  return guarded([&] {
    nn::TensorMap tensors;
    each_item(given, "tensors", [&](std::string name, PyObject* value) {
      tensors.emplace(std::move(name), to_tensor(value));
    });
    nn::Metadata metadata;
    if (texts != Py_None) {
      each_item(texts, "metadata", [&](std::string name, PyObject* value) {
        if (PyUnicode_Check(value) == 0) {
          PyErr_SetString(PyExc_TypeError, "metadata: the values are str");
          throw Raised();
        }
        metadata.emplace(std::move(name), to_text(value));
      });
    }
    const std::string file = path_of(path);
    {
      const Unlocked unlocked(Unlocked::kElements);
      nn::save_safetensors(file, tensors, metadata);
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* load(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"path", "device", nullptr};
  PyObject *path = nullptr, *device = Py_None;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O:load_safetensors", const_cast<char**>(names),
                                  &path, &device) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const std::string file = path_of(path);
    const Device to = device == Py_None ? Device(kCPU) : to_device(device);
    nn::TensorMap tensors;
    {
      const Unlocked unlocked(Unlocked::kElements);
      tensors = nn::load_safetensors(file, to);
    }
    Ref found(checked(PyDict_New()));
    for (auto& [name, tensor] : tensors) {
      const Ref value(checked(wrap(std::move(tensor))));
      set_item(found.get(), name, value.get());
    }
    return found.release();
  });
}

PyObject* metadata_of(PyObject*, PyObject* path) {
  return guarded([&] {
    const nn::SafetensorsFile file(path_of(path));
    Ref found(checked(PyDict_New()));
    for (const auto& [name, text] : file.metadata()) {
      const Ref value(checked(to_python(text)));
      set_item(found.get(), name, value.get());
    }
    return found.release();
  });
}

}  // namespace

PyMethodDef file_functions[] = {
    {"save_safetensors", as_method(save), METH_VARARGS | METH_KEYWORDS,
     "save_safetensors(tensors, path, metadata=None)\n--\n\nWrites tensors by name, and texts, in "
     "the safetensors format. A file at the path is replaced only when all has been written."},
    {"load_safetensors", as_method(load), METH_VARARGS | METH_KEYWORDS,
     "load_safetensors(path, device=None)\n--\n\nReturns the tensors of a file, of an index of "
     "files, or of a folder of them, by name."},
    {"safetensors_metadata", metadata_of, METH_O,
     "safetensors_metadata(path)\n--\n\nReturns the texts of a file."},
    {}};

}  // namespace mytorch::python
