// Element types, devices and generators in Python.
#include <string>

#include "python/convert.h"
#include "python/objects.h"

namespace mytorch::python {

PyTypeObject* dtype_type = nullptr;
PyTypeObject* device_type_object = nullptr;
PyTypeObject* generator_type = nullptr;

namespace {

PyObject* dtypes[kNumScalarTypes] = {};

template <class T>
T& as(PyObject* object) {
  return *reinterpret_cast<T*>(object);
}

template <class T>
void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  if constexpr (std::is_same_v<T, GeneratorObject>) as<T>(self).generator.~Generator();
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

// ---- dtype ----

PyObject* dtype_repr(PyObject* self) {
  return to_python(std::string("mytorch.") + dtype_name(as<DtypeObject>(self).dtype));
}
PyObject* dtype_reduce(PyObject* self, PyObject*) {
  return Py_BuildValue("O(s)", Py_TYPE(self), dtype_name(as<DtypeObject>(self).dtype));
}
PyObject* new_dtype(PyTypeObject*, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"name", nullptr};
  const char* name = nullptr;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "s:dtype", const_cast<char**>(names), &name) ==
      0) {
    return nullptr;
  }
  return guarded([&] { return dtype_object(dtype_from_name(name)); });
}
PyObject* itemsize(PyObject* self, void*) {
  return PyLong_FromLong(element_size(as<DtypeObject>(self).dtype));
}
PyObject* dtype_floats(PyObject* self, void*) {
  return PyBool_FromLong(is_floating_point(as<DtypeObject>(self).dtype) ? 1 : 0);
}
PyObject* dtype_complex(PyObject* self, void*) {
  return PyBool_FromLong(is_complex(as<DtypeObject>(self).dtype) ? 1 : 0);
}
PyObject* dtype_signed(PyObject* self, void*) {
  return PyBool_FromLong(is_signed(as<DtypeObject>(self).dtype) ? 1 : 0);
}
PyMethodDef dtype_methods[] = {{"__reduce__", dtype_reduce, METH_NOARGS, nullptr}, {}};
PyGetSetDef dtype_fields[] = {{"itemsize", itemsize, nullptr, "The bytes of an element.", nullptr},
                              {"is_floating_point", dtype_floats, nullptr, nullptr, nullptr},
                              {"is_complex", dtype_complex, nullptr, nullptr, nullptr},
                              {"is_signed", dtype_signed, nullptr, nullptr, nullptr},
                              {}};

// ---- device ----

PyObject* new_device(PyTypeObject*, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"type", "index", nullptr};
  PyObject *type = nullptr, *index = Py_None;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O:device", const_cast<char**>(names), &type,
                                  &index) == 0) {
    return nullptr;
  }
  return guarded([&] {
    Device device = to_device(type);
    if (index != Py_None) device = numbered(device, to_int(index));
    return wrap(device);
  });
}
PyObject* device_str(PyObject* self) {
  return guarded([&] { return to_python(as<DeviceObject>(self).device.str()); });
}
PyObject* device_repr(PyObject* self) {
  return guarded(
      [&] { return to_python("device('" + as<DeviceObject>(self).device.str() + "')"); });
}
PyObject* device_compare(PyObject* a, PyObject* b, int op) {
  if ((op != Py_EQ && op != Py_NE) || !is_device(b)) Py_RETURN_NOTIMPLEMENTED;
  const bool equal = as<DeviceObject>(a).device == as<DeviceObject>(b).device;
  return PyBool_FromLong(equal == (op == Py_EQ) ? 1 : 0);
}
Py_hash_t device_hash(PyObject* self) {
  const Device device = as<DeviceObject>(self).device;
  return static_cast<Py_hash_t>(device.type) * 1000003 + device.index;
}
PyObject* device_kind(PyObject* self, void*) {
  return guarded([&] {
    const std::string name = as<DeviceObject>(self).device.str();
    return to_python(name.substr(0, name.find(':')));
  });
}
PyObject* device_index(PyObject* self, void*) {
  const Device device = as<DeviceObject>(self).device;
  if (!device.has_index()) Py_RETURN_NONE;
  return PyLong_FromLong(device.index);
}
PyObject* device_reduce(PyObject* self, PyObject*) {
  return guarded([&] {
    return Py_BuildValue("O(s)", Py_TYPE(self), as<DeviceObject>(self).device.str().c_str());
  });
}
PyMethodDef device_methods[] = {{"__reduce__", device_reduce, METH_NOARGS, nullptr}, {}};
PyGetSetDef device_fields[] = {
    {"type", device_kind, nullptr, "The kind of device, such as 'cpu'.", nullptr},
    {"index", device_index, nullptr, "Its number among its kind; None for the CPU.", nullptr},
    {}};

// ---- generator ----

PyObject* new_generator(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"device", nullptr};
  PyObject* device = nullptr;  // a generator serves all devices
  if (PyArg_ParseTupleAndKeywords(args, keywords, "|O:Generator", const_cast<char**>(names),
                                  &device) == 0 ||
      (device != nullptr && guarded_status([&] { (void)to_device(device); }) < 0)) {
    return nullptr;
  }
  PyObject* const self = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self == nullptr) return nullptr;
  new (&as<GeneratorObject>(self).generator) Generator(0);
  return self;
}
PyObject* generator_manual_seed(PyObject* self, PyObject* seed) {
  const unsigned long long value = PyLong_AsUnsignedLongLongMask(seed);
  if (PyErr_Occurred() != nullptr) return nullptr;
  as<GeneratorObject>(self).generator.set_seed(value);
  return Py_NewRef(self);
}
PyObject* generator_seed(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(as<GeneratorObject>(self).generator.seed());
}
PyObject* generator_state(PyObject* self, PyObject*) {
  return guarded([&] { return wrap(as<GeneratorObject>(self).generator.get_state()); });
}
PyObject* generator_set_state(PyObject* self, PyObject* state) {
  return guarded([&] {
    as<GeneratorObject>(self).generator.set_state(to_tensor(state));
    return Py_NewRef(self);
  });
}
PyMethodDef generator_methods[] = {
    {"manual_seed", generator_manual_seed, METH_O, "Sets the seed; begins at the first call."},
    {"initial_seed", generator_seed, METH_NOARGS, "Returns the seed."},
    {"get_state", generator_state, METH_NOARGS, "Returns seed and call number, as 16 bytes."},
    {"set_state", generator_set_state, METH_O, "Sets what get_state has returned."},
    {}};

template <class T>
PyTypeObject* make_type(PyObject* module, const char* name, const char* short_name,
                        std::initializer_list<PyType_Slot> slots) {
  std::vector<PyType_Slot> all(slots);
  all.push_back({Py_tp_dealloc, reinterpret_cast<void*>(destroy<T>)});
  all.push_back({0, nullptr});
  PyType_Spec spec = {name, sizeof(T), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                      all.data()};
  auto* const type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (type == nullptr) return nullptr;
  return PyModule_AddObjectRef(module, short_name, reinterpret_cast<PyObject*>(type)) < 0 ? nullptr
                                                                                          : type;
}

template <class T>
T* allocate(PyTypeObject* type) {
  return reinterpret_cast<T*>(
      checked(reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0)));
}

}  // namespace

PyObject* dtype_object(ScalarType dtype) { return Py_NewRef(dtypes[static_cast<int>(dtype)]); }

PyObject* wrap(Device device) {
  auto* const object = allocate<DeviceObject>(device_type_object);
  object->device = device;
  return reinterpret_cast<PyObject*>(object);
}

bool add_plain_types(PyObject* module) {
  dtype_type =
      make_type<DtypeObject>(module, "mytorch.dtype", "dtype",
                             {{Py_tp_repr, as_slot(dtype_repr)},
                              {Py_tp_new, as_slot(new_dtype)},
                              {Py_tp_methods, dtype_methods},
                              {Py_tp_getset, dtype_fields},
                              {Py_tp_doc, const_cast<char*>("The type of a tensor's elements.")}});
  if (dtype_type == nullptr) return false;
  for (int i = 0; i < kNumScalarTypes; ++i) {
    auto* const object = allocate<DtypeObject>(dtype_type);
    object->dtype = static_cast<ScalarType>(i);
    dtypes[i] = reinterpret_cast<PyObject*>(object);
    if (PyModule_AddObjectRef(module, dtype_name(object->dtype), dtypes[i]) < 0) return false;
  }
  device_type_object = make_type<DeviceObject>(
      module, "mytorch.device", "device",
      {{Py_tp_repr, as_slot(device_repr)},
       {Py_tp_str, as_slot(device_str)},
       {Py_tp_new, as_slot(new_device)},
       {Py_tp_richcompare, as_slot(device_compare)},
       {Py_tp_hash, as_slot(device_hash)},
       {Py_tp_methods, device_methods},
       {Py_tp_getset, device_fields},
       {Py_tp_doc, const_cast<char*>("A device that holds tensors: device('cuda', 1).")}});
  if (device_type_object == nullptr) return false;
  generator_type = make_type<GeneratorObject>(
      module, "mytorch.Generator", "Generator",
      {{Py_tp_new, as_slot(new_generator)},
       {Py_tp_methods, generator_methods},
       {Py_tp_doc,
        const_cast<char*>("A generator of random numbers: each operator takes one call, and its "
                          "numbers depend on the seed, the call and their place alone.")}});
  return generator_type != nullptr;
}

PyObject* wrap(Generator generator) {
  auto* const object = allocate<GeneratorObject>(generator_type);
  new (&object->generator) Generator(std::move(generator));
  return reinterpret_cast<PyObject*>(object);
}

}  // namespace mytorch::python
