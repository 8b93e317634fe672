#include "python/named_results.h"

#include <string>

#include "core/types/errors.h"
#include "python/convert.h"

namespace mytorch::python {

PyTypeObject* named_results(const char* name, std::initializer_list<const char*> fields) {
  // Types live as long as the process, and refer to their names.
  auto* const full = new std::string(std::string("mytorch.return_types.") + name);
  auto* const list = new std::vector<PyStructSequence_Field>;
  for (const char* field : fields) list->push_back({field, nullptr});
  list->push_back({nullptr, nullptr});
  PyStructSequence_Desc description = {full->c_str(), "Results with names.", list->data(),
                                       static_cast<int>(fields.size())};
  PyTypeObject* const type = PyStructSequence_NewType(&description);
  if (type == nullptr) throw Raised();
  return type;
}

PyObject* as_named(PyTypeObject* type, PyObject* tuple) {
  const Ref from(tuple);
  Ref result(checked(PyStructSequence_New(type)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyStructSequence_SET_ITEM(result.get(), i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
  }
  return result.release();
}

std::vector<Tensor> to_outs(PyObject* object, size_t count) {
  std::vector<Tensor> outs = to_tensors(object);
  if (outs.size() != count) {
    fail(ErrorCode::kValue, "[out] ", static_cast<int64_t>(outs.size()), " tensors are given for ",
         static_cast<int64_t>(count), " results");
  }
  return outs;
}

}  // namespace mytorch::python
