// The type Tensor: its life, and its tables.
#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "python/autograd.h"
#include "python/convert.h"
#include "python/exchange.h"
#include "python/tensor_parts.h"
#include "python/values.h"

namespace mytorch::python {

PyTypeObject* tensor_type = nullptr;

namespace {

// Objects of this type that were released, for the next ones. Guarded by the interpreter's lock.
constexpr int kKept = 64;
PyObject* kept[kKept];
int num_kept = 0;

// The objects that are remembered, by their tensors. Guarded by the interpreter's lock.
absl::flat_hash_map<const TensorImpl*, PyObject*>& remembered() {
  static auto* const map = new absl::flat_hash_map<const TensorImpl*, PyObject*>;
  return *map;
}

void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  auto* const object = reinterpret_cast<TensorObject*>(self);
  if (object->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  if (object->remembered) remembered().erase(object->tensor.impl());
  object->tensor.~Tensor();
  if (type == tensor_type && num_kept < kKept) {
    kept[num_kept++] = self;
    return;  // keeps its reference to the type
  }
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* new_tensor(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"data", nullptr};
  PyObject* data = nullptr;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "O:Tensor", const_cast<char**>(names), &data) ==
      0) {
    return nullptr;
  }
  return guarded([&] {
    return wrap_as(type, is_tensor(data) ? tensor_of(data).detach()
                                         : tensor_from(data, {}, {}, /*copy=*/true));
  });
}

PyObject* repr(PyObject* self) {
  return guarded([&] { return to_python(tensor_of(self).str()); });
}

Py_hash_t hash(PyObject* self) {
  // Of the tensor: another object may refer to the same.
  return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(tensor_of(self).impl()) >> 4);
}

}  // namespace

PyObject* wrap_as(PyTypeObject* type, Tensor tensor) {
  PyObject* const object = checked(type->tp_alloc(type, 0));
  new (&reinterpret_cast<TensorObject*>(object)->tensor) Tensor(std::move(tensor));
  return object;
}

PyObject* wrap(Tensor tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  if (!remembered().empty() && tensor.requires_grad()) {
    const auto found = remembered().find(tensor.impl());
    if (found != remembered().end()) return Py_NewRef(found->second);
  }
  if (num_kept == 0) return wrap_as(tensor_type, std::move(tensor));
  PyObject* const object = kept[--num_kept];
  Py_SET_REFCNT(object, 1);
  auto* const made = reinterpret_cast<TensorObject*>(object);
  new (&made->tensor) Tensor(std::move(tensor));
  made->weak_references = nullptr;
  made->remembered = false;
  return object;
}

void remember(PyObject* object) {
  auto* const tensor = reinterpret_cast<TensorObject*>(object);
  if (tensor->remembered || !tensor->tensor.requires_grad()) return;
  tensor->remembered = remembered().emplace(tensor->tensor.impl(), object).second;
}

bool add_tensor_type(PyObject* module, PyMethodDef* operators) {
  // The records' methods come last: those above are more than their records say.
  static std::vector<PyMethodDef> all;
  const auto is_field = [](std::string_view name) {
    const PyGetSetDef* each = tensor_fields;
    while (each->name != nullptr && each->name != name) ++each;
    return each->name != nullptr;
  };
  const auto add = [&](const PyMethodDef* list) {
    for (; list->ml_name != nullptr; ++list) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const PyMethodDef& each) {
        return std::string_view(each.ml_name) == list->ml_name;
      });
      if (!known && !is_field(list->ml_name)) all.push_back(*list);
    }
  };
  add(tensor_methods);
  add(exchange_methods);
  add(autograd_methods);
  add(operators);
  all.push_back({});
  static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET,
                                   offsetof(TensorObject, weak_references), READONLY, nullptr},
                                  {}};
  std::vector<PyType_Slot> slots = {
      {Py_tp_dealloc, as_slot(destroy)},
      {Py_tp_new, as_slot(new_tensor)},
      {Py_tp_repr, as_slot(repr)},
      {Py_tp_hash, as_slot(hash)},
      {Py_tp_methods, all.data()},
      {Py_tp_getset, tensor_fields},
      {Py_tp_members, members},
      {Py_tp_doc, const_cast<char*>("A reference to an array of numbers.")},
      {Py_bf_getbuffer, as_slot(buffer_slots.bf_getbuffer)},
      {Py_bf_releasebuffer, as_slot(buffer_slots.bf_releasebuffer)}};
  for (const PyType_Slot* each = syntax_slots; each->slot != 0; ++each) slots.push_back(*each);
  slots.push_back({0, nullptr});
  PyType_Spec spec = {"mytorch.Tensor", sizeof(TensorObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots.data()};
  tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (tensor_type == nullptr) return false;
  // NumPy leaves operators with tensors to them.
  const Ref priority(PyLong_FromLong(1000));
  return priority &&
         PyObject_SetAttrString(reinterpret_cast<PyObject*>(tensor_type), "__array_priority__",
                                priority.get()) == 0 &&
         PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type)) == 0;
}

}  // namespace mytorch::python
