#include "python/operators.h"

namespace mytorch::python {
namespace {

std::vector<PyMethodDef> listed(FastFunction Operator::*form) {
  std::vector<PyMethodDef> found;
  for (int i = 0; i < num_operator_lists; ++i) {
    for (int k = 0; k < operator_lists[i].size; ++k) {
      const Operator& each = operator_lists[i].begin[k];
      if (each.*form == nullptr) continue;
      found.push_back({each.function.name,
                       reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(each.*form)),
                       METH_FASTCALL | METH_KEYWORDS, each.doc});
    }
  }
  found.push_back({});
  return found;
}

}  // namespace

bool prepare(const Function& function) {
  for (int s = 0; s < function.size; ++s) {
    const Signature& signature = function.signatures[s];
    for (int p = 0; p < signature.size; ++p) {
      signature.params[p].key = PyUnicode_InternFromString(signature.params[p].name);
      if (signature.params[p].key == nullptr) return false;
    }
  }
  return true;
}

bool prepare_operators() {
  for (int i = 0; i < num_operator_lists; ++i) {
    for (int k = 0; k < operator_lists[i].size; ++k) {
      if (!prepare(operator_lists[i].begin[k].function)) return false;
    }
  }
  return true;
}

PyMethodDef* operator_functions() {
  static std::vector<PyMethodDef> list = listed(&Operator::call);
  return list.data();
}
PyMethodDef* operator_methods() {
  static std::vector<PyMethodDef> list = listed(&Operator::method);
  return list.data();
}

}  // namespace mytorch::python
