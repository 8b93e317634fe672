#include "python/layers.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "core/types/errors.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/ops.h"
#include "nn/modules/names.h"
#include "nn/parameter_access.h"
#include "python/arguments.h"
#include "python/operators.h"
#include "python/values.h"

namespace mytorch::python {

PyTypeObject* layer_type = nullptr;

// What is generated.
extern const Operator layers_a_list[], layers_b_list[], functions_list[], init_list[], rnn_list[];
extern const int layers_a_size, layers_b_size, functions_size, init_size, rnn_size;
extern const LayerClass layers_a_classes[], layers_b_classes[];
extern const int layers_a_num_classes, layers_b_num_classes;

// ---- calls and changes ----

class Turns {
 public:
  void begin() {
    std::unique_lock lock(mutex_);
    // Changes go first, or calls on several threads would keep them waiting. A call inside of
    // another does not wait, as a change may wait for the outer one.
    if (waiting_ > 0 && own().empty()) {
      lock.unlock();
      {
        const Unlocked unlocked(Unlocked::kElements);
        lock.lock();
        turn_.wait(lock, [this] { return waiting_ == 0; });
        ++running_;
        lock.unlock();
      }
    } else {
      ++running_;
    }
    own().push_back(this);
  }
  void end() {
    const std::lock_guard lock(mutex_);
    own().pop_back();
    if (--running_ == 0) turn_.notify_all();
  }
  // Calls `change` while no call is running. It needs no other lock than the interpreter's, which
  // is released while this thread waits.
  template <class F>
  void change(const F& change) {
    if (std::find(own().begin(), own().end(), this) != own().end()) {
      PyErr_SetString(PyExc_RuntimeError,
                      "the layer is being called: a function that it calls cannot change it");
      throw Raised();
    }
    std::unique_lock lock(mutex_);
    ++waiting_;
    while (running_ != 0) {
      lock.unlock();
      {
        const Unlocked unlocked(Unlocked::kElements);
        lock.lock();
        turn_.wait(lock, [this] { return running_ == 0; });
        lock.unlock();
      }
      lock.lock();
    }
    const auto done = [this] {
      if (--waiting_ == 0) turn_.notify_all();
    };
    try {
      change();
    } catch (...) {
      done();
      throw;
    }
    done();
  }

 private:
  // The layers that this thread is calling, the innermost last.
  static std::vector<Turns*>& own() {
    thread_local std::vector<Turns*> calls;
    return calls;
  }

  std::mutex mutex_;
  std::condition_variable turn_;
  int running_ = 0;
  int waiting_ = 0;  // changes
};

Turn::Turn(PyObject* layer) : turns_(*reinterpret_cast<LayerObject*>(layer)->turns) {
  turns_.begin();
}
Turn::~Turn() { turns_.end(); }

namespace {

template <class F>
void change(PyObject* layer, const F& f) {
  // The object may go while this thread waits.
  const std::shared_ptr<Turns> turns = reinterpret_cast<LayerObject*>(layer)->turns;
  turns->change(f);
}

PyObject* made_of(std::shared_ptr<nn::Module> module, std::shared_ptr<Turns> turns) {
  auto* const object = PyObject_GC_New(LayerObject, layer_type);
  if (object == nullptr) throw Raised();
  new (&object->module) std::shared_ptr<nn::Module>(std::move(module));
  new (&object->turns) std::shared_ptr<Turns>(std::move(turns));
  new (&object->callbacks) std::vector<SharedCallback>();
  PyObject_GC_Track(object);
  return reinterpret_cast<PyObject*>(object);
}

// Makes a layer the owner of a function that C++ calls.
void own(PyObject* layer, const SharedCallback& callback) {
  Py_INCREF(callback->function);
  reinterpret_cast<LayerObject*>(layer)->callbacks.push_back(callback);
}

}  // namespace

std::vector<SharedCallback>& callbacks_of_layer() {
  thread_local std::vector<SharedCallback> callbacks;
  return callbacks;
}

PyObject* made(std::shared_ptr<nn::Module> module) {
  PyObject* const object = made_of(std::move(module), std::make_shared<Turns>());
  for (const SharedCallback& callback : callbacks_of_layer()) own(object, callback);
  callbacks_of_layer().clear();
  return object;
}

// ---- values ----

void refuse_value(const char* name, const std::string& expected, PyObject* given) {
  PyErr_Format(PyExc_TypeError, "%s: expected %s, not %.100s", name, expected.c_str(),
               Py_TYPE(given)->tp_name);
  throw Raised();
}

void refuse_layer(PyObject* object, const std::type_info& expected) {
  const std::string is =
      is_layer(object) ? nn::class_name(*layer_of(object)) : std::string(Py_TYPE(object)->tp_name);
  PyErr_Format(PyExc_TypeError, "expected a layer of type %s, not %s",
               nn::class_name(expected).c_str(), is.c_str());
  throw Raised();
}

std::vector<int64_t> take_ints(PyObject* object, const char* name, size_t sizes) {
  if (fits_int(object)) return std::vector<int64_t>(sizes, to_int(object));
  std::vector<int64_t> values;
  if (fits_ints(object)) values = take<std::vector<int64_t>>(object, name);
  if (values.size() == 1) values.assign(sizes, values[0]);
  if (values.size() != sizes) {
    refuse_value(name,
                 sizes == 1 ? "an integer" : "an integer or " + std::to_string(sizes) + " integers",
                 object);
  }
  return values;
}

#define TAKEN(type, fits, expected, value)                     \
  type Taken<type>::from(PyObject* object, const char* name) { \
    if (!(fits)) refuse_value(name, expected, object);         \
    return value;                                              \
  }
TAKEN(int64_t, fits_int(object), "an integer", to_int(object))
TAKEN(double, fits_float(object), "a number", to_float(object))
// As in PyTorch, None is false, and numbers are what they are as conditions.
TAKEN(bool, object == Py_None || fits_bool(object) || fits_int(object), "a bool",
      PyObject_IsTrue(object) == 1)
TAKEN(std::string, PyUnicode_Check(object), "a str", std::string(to_text(object)))
TAKEN(Tensor, is_tensor(object), "a Tensor", tensor_of(object))
TAKEN(Scalar, fits_scalar(object), "a number", to_scalar(object))
TAKEN(ScalarType, fits_dtype(object), "a dtype", to_dtype(object))
TAKEN(Generator, fits_generator(object), "a Generator", to_generator(object))
TAKEN(std::vector<Tensor>, fits_tensors(object), "a list of Tensors", to_tensors(object))
#undef TAKEN

std::vector<int64_t> Taken<std::vector<int64_t>>::from(PyObject* object, const char* name) {
  if (fits_int(object)) return {to_int(object)};
  if (!fits_ints(object)) refuse_value(name, "a list of integers", object);
  return IntList(Ints(object)).vec();
}

std::vector<double> Taken<std::vector<double>>::from(PyObject* object, const char* name) {
  if (!fits_floats(object)) refuse_value(name, "a list of numbers", object);
  const Floats floats(object);
  const FloatList list = floats;
  return {list.begin(), list.end()};
}

Int64s Taken<Int64s>::from(PyObject* object, const char* name) {
  if (is_tensor(object)) return {tensor_of(object)};
  const std::vector<int64_t> values = take<std::vector<int64_t>>(object, name);
  return {mytorch::tensor(values)};
}

TensorPair Taken<TensorPair>::from(PyObject* object, const char* name) {
  const bool fits = fits_tensors(object);
  std::vector<Tensor> tensors;
  if (fits) tensors = to_tensors(object);
  if (tensors.size() != 2) refuse_value(name, "a pair of Tensors", object);
  return {tensors[0], tensors[1]};
}

nn::utils::rnn::PackedSequence Taken<nn::utils::rnn::PackedSequence>::from(PyObject* object,
                                                                           const char* name) {
  if (PyTuple_Check(object) == 0 || PyTuple_GET_SIZE(object) != 4) {
    refuse_value(name, "a PackedSequence", object);
  }
  Tensor parts[4];
  for (int i = 0; i < 4; ++i) {
    PyObject* const part = PyTuple_GET_ITEM(object, i);
    if (part != Py_None || i < 2) parts[i] = take<Tensor>(part, name);
  }
  return {parts[0], parts[1], parts[2], parts[3]};
}

TensorFunction take_function(PyObject* object, const char* name) {
  if (PyCallable_Check(object) == 0) refuse_value(name, "a function", object);
  const auto callback = std::make_shared<Callback>(Callback{object});
  callbacks_of_layer().push_back(callback);
  return [callback, text = std::string(name)](const std::vector<Tensor>& tensors) {
    const Locked locked;
    if (callback->function == nullptr) {
      fail(ErrorCode::kValue, "[", text,
           "] the function is gone with the layer that it was given to");
    }
    const Ref function(Py_NewRef(callback->function));
    const Ref args(checked(to_python(tensors)));
    const Ref result(checked(PyObject_CallObject(function.get(), args.get())));
    return take<Tensor>(result.get(), (text + "'s result").c_str());
  };
}

PairFunction Taken<PairFunction>::from(PyObject* object, const char* name) {
  return [function = take_function(object, name)](const Tensor& a, const Tensor& b) {
    return function({a, b});
  };
}

nn::TransformerActivation Taken<nn::TransformerActivation>::from(PyObject* object,
                                                                 const char* name) {
  if (PyUnicode_Check(object)) return nn::TransformerActivation(take<std::string>(object, name));
  return nn::TransformerActivation(
      [function = take_function(object, name)](const Tensor& x) { return function({x}); });
}

nn::StackNorm Taken<nn::StackNorm>::from(PyObject* object, const char* name) {
  if (is_layer(object)) {
    nn::Module* const layer = layer_of(object).get();
    if (auto* const norm = dynamic_cast<nn::LayerNorm*>(layer)) return *norm;
    if (auto* const norm = dynamic_cast<nn::RMSNorm*>(layer)) return *norm;
  }
  refuse_value(name, "a LayerNorm or an RMSNorm", object);
}

namespace {

// ---- the object of a layer ----

LayerObject& as_layer(PyObject* self) { return *reinterpret_cast<LayerObject*>(self); }

int traverse(PyObject* self, visitproc visit, void* arg) {
  for (const SharedCallback& callback : as_layer(self).callbacks) Py_VISIT(callback->function);
  Py_VISIT(Py_TYPE(self));
  return 0;
}
int clear(PyObject* self) {
  // Their ends may run code that sees this object.
  const std::vector<SharedCallback> callbacks = std::move(as_layer(self).callbacks);
  for (const SharedCallback& callback : callbacks) Py_CLEAR(callback->function);
  return 0;
}
void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  LayerObject& object = as_layer(self);
  object.callbacks.~vector();
  object.turns.~shared_ptr();
  object.module.~shared_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

using Access = nn::detail::ParameterAccess;

PyObject* tensors(PyObject* self, PyObject*) {
  return guarded([&] {
    Ref list(checked(PyList_New(0)));
    Access::visit_own(*layer_of(self), [&](const std::string& name, Tensor& tensor, bool buffer) {
      const Ref value(checked(wrap(tensor)));
      const Ref item(
          checked(Py_BuildValue("sOO", name.c_str(), value.get(), buffer ? Py_True : Py_False)));
      if (PyList_Append(list.get(), item.get()) != 0) throw Raised();
    });
    return list.release();
  });
}

PyObject* set_tensor(PyObject* self, PyObject* args) {
  const char* name = nullptr;
  PyObject* value = nullptr;
  if (PyArg_ParseTuple(args, "sO", &name, &value) == 0) return nullptr;
  return guarded([&] {
    const Tensor tensor = value == Py_None ? Tensor() : to_tensor(value);
    bool found = false;
    Tensor before;  // goes when the layer may be called again
    change(self, [&] {
      nn::Module& module = *layer_of(self);
      Access::visit_own(module, [&](const std::string& own, Tensor& member, bool /*buffer*/) {
        if (own != name) return;
        before = std::exchange(member, tensor);
        found = true;
      });
      if (found) module.note_change();
    });
    return to_python(found);
  });
}

const LayerClass* find_class(const nn::Module& module) {
  static const auto* const classes = [] {
    auto* const map = new std::unordered_map<std::type_index, const LayerClass*>;
    const auto add = [&](const LayerClass* list, int size) {
      for (int i = 0; i < size; ++i) map->emplace(list[i].type, &list[i]);
    };
    add(layers_a_classes, layers_a_num_classes);
    add(layers_b_classes, layers_b_num_classes);
    return map;
  }();
  const auto found = classes->find(typeid(module));
  return found == classes->end() ? nullptr : found->second;
}

PyObject* children(PyObject* self, PyObject*) {
  return guarded([&] {
    const std::shared_ptr<nn::Module>& module = layer_of(self);
    Ref list(checked(PyList_New(0)));
    for (auto& [name, child] : module->named_children()) {
      const LayerClass* const known = find_class(*child);
      const std::string type = known != nullptr ? known->name : nn::class_name(*child);
      // It lives as long as what contains it.
      const Ref layer(made_of(std::shared_ptr<nn::Module>(module, child), as_layer(self).turns));
      const Ref item(checked(Py_BuildValue("sOs", name.c_str(), layer.get(), type.c_str())));
      if (PyList_Append(list.get(), item.get()) != 0) throw Raised();
    }
    return list.release();
  });
}

PyObject* set_training(PyObject* self, PyObject* on) {
  return guarded([&] {
    const bool mode = to_bool(on);
    change(self, [&] { layer_of(self)->train(mode); });
    return Py_NewRef(Py_None);
  });
}
PyObject* is_training(PyObject* self, PyObject*) {
  return guarded([&] { return to_python(layer_of(self)->training()); });
}

PyObject* get_option(PyObject* self, PyObject* name) {
  return guarded([&]() -> PyObject* {
    const LayerClass* const known = find_class(*layer_of(self));
    PyObject* const value = known != nullptr ? known->get(*layer_of(self), to_text(name)) : nullptr;
    if (value != nullptr) return value;
    if (PyErr_Occurred() != nullptr) throw Raised();
    PyErr_SetObject(PyExc_AttributeError, name);
    throw Raised();
  });
}
PyObject* set_option(PyObject* self, PyObject* args) {
  PyObject *name = nullptr, *value = nullptr;
  if (PyArg_ParseTuple(args, "UO", &name, &value) == 0) return nullptr;
  return guarded([&] {
    const LayerClass* const known = find_class(*layer_of(self));
    callbacks_of_layer().clear();
    std::function<void()> set;
    if (known != nullptr) set = known->set(*layer_of(self), to_text(name), value);
    if (!set) return to_python(false);
    change(self, [&] {
      set();
      layer_of(self)->note_change();
    });
    for (const SharedCallback& callback : callbacks_of_layer()) own(self, callback);
    callbacks_of_layer().clear();
    return to_python(true);
  });
}
PyObject* reset_parameters(PyObject* self, PyObject*) {
  return guarded([&] {
    const LayerClass* const known = find_class(*layer_of(self));
    if (known == nullptr || known->reset == nullptr) refuse_layer(self, typeid(nn::Module));
    change(self, [&] { known->reset(*layer_of(self)); });
    return Py_NewRef(Py_None);
  });
}

PyObject* is_lazy(PyObject* self, PyObject*) {
  return guarded([&] { return to_python(Access::is_lazy(*layer_of(self))); });
}

PyObject* describe(PyObject* self, PyObject*) {
  return guarded([&] { return to_python(layer_of(self)->describe()); });
}

// ---- hooks of layers inside of others, which no code of Python calls ----

struct Hook {
  nn::HookHandle handle;
  SharedCallback callback;
  std::weak_ptr<Turns> turns;
};
constexpr const char* kHook = "mytorch.hook";
void destroy_hook(PyObject* capsule) {
  delete static_cast<Hook*>(PyCapsule_GetPointer(capsule, kHook));
}

PyObject* add_hook(PyObject* self, PyObject* args) {
  const char* kind = nullptr;
  PyObject* function = nullptr;
  if (PyArg_ParseTuple(args, "sO", &kind, &function) == 0) return nullptr;
  return guarded([&] {
    const auto callback = std::make_shared<Callback>(Callback{function});
    // Of Python, the hook returns a tensor, or None to change nothing.
    const auto call = [callback](const Tensor& a, const Tensor& b) -> Tensor {
      const Locked locked;
      if (callback->function == nullptr) return {};
      const Ref called(Py_NewRef(callback->function));
      const Ref first(checked(wrap(a)));
      const Ref second(checked(wrap(b)));
      const Ref result(
          checked(PyObject_CallFunctionObjArgs(called.get(), first.get(), second.get(), nullptr)));
      if (result.get() == Py_None) return {};
      return take<Tensor>(result.get(), "the hook's result");
    };
    nn::HookHandle handle;
    const std::string_view which = kind;
    change(self, [&] {
      nn::Module& module = *layer_of(self);
      if (which == "before") {
        handle = module.register_forward_pre_hook(
            [call](nn::Module&, const Tensor& input) { return call(input, {}); });
      } else if (which == "after") {
        handle = module.register_forward_hook(
            [call](nn::Module&, const Tensor& input, const Tensor& output) {
              return call(input, output);
            });
      } else {
        handle = module.register_full_backward_hook(
            [call](const Tensor& input, const Tensor& output) { return call(input, output); });
      }
    });
    own(self, callback);
    return checked(
        PyCapsule_New(new Hook{handle, callback, as_layer(self).turns}, kHook, destroy_hook));
  });
}

PyObject* remove_hook(PyObject*, PyObject* capsule) {
  return guarded([&] {
    auto* const hook = static_cast<Hook*>(PyCapsule_GetPointer(capsule, kHook));
    if (hook == nullptr) throw Raised();
    if (const std::shared_ptr<Turns> turns = hook->turns.lock()) {
      turns->change([&] { hook->handle.remove(); });
    }
    Py_CLEAR(hook->callback->function);
    return Py_NewRef(Py_None);
  });
}

PyMethodDef methods[] = {
    {"tensors", tensors, METH_NOARGS,
     "Returns (name, tensor, whether it is a buffer) of each tensor of the layer itself; None for "
     "one that it does without."},
    {"set", set_tensor, METH_VARARGS, "set(name, tensor)\n--\n\nMakes a tensor the layer's own."},
    {"children", children, METH_NOARGS, "Returns (name, layer, class) of each child."},
    {"is_training", is_training, METH_NOARGS, "Whether it is in training mode."},
    {"option", get_option, METH_O, "Returns an option by name."},
    {"set_option", set_option, METH_VARARGS,
     "set_option(name, value)\n--\n\nSets an option. Returns whether there is one."},
    {"reset_parameters", reset_parameters, METH_NOARGS, "Draws the parameters again."},
    {"train", set_training, METH_O, "Sets training or evaluation mode."},
    {"is_lazy", is_lazy, METH_NOARGS, "Whether its tensors are made in its first call."},
    {"describe", describe, METH_NOARGS, "Returns the text of C++."},
    {"add_hook", add_hook, METH_VARARGS,
     "add_hook(kind, function)\n--\n\nCalls function(input, output) before or after forward, or "
     "with their gradients."},
    {}};

PyType_Slot slots[] = {{Py_tp_dealloc, as_slot(destroy)},
                       {Py_tp_traverse, as_slot(traverse)},
                       {Py_tp_clear, as_slot(clear)},
                       {Py_tp_methods, methods},
                       {Py_tp_doc, const_cast<char*>("A layer of C++.")},
                       {0, nullptr}};
PyType_Spec spec = {"mytorch._core._Layer", sizeof(LayerObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                    slots};

PyMethodDef others[] = {{"remove_hook", remove_hook, METH_O, "Removes what add_hook() has added."},
                        {}};

// Adds a list of generated functions, of which Python keeps the table.
bool add_list(PyObject* module, const Operator* list, int size) {
  auto* const table = new std::vector<PyMethodDef>;
  for (int i = 0; i < size; ++i) {
    const Function& function = list[i].function;
    if (!prepare(function)) return false;
    table->push_back({function.name, as_method(list[i].call), METH_FASTCALL | METH_KEYWORDS,
                      function.signatures[0].text});
  }
  table->push_back({});
  return PyModule_AddFunctions(module, table->data()) == 0;
}

bool add_module(PyObject* module, const char* name, PyObject* part) {
  const bool added = part != nullptr && PyModule_AddObjectRef(module, name, part) == 0;
  Py_XDECREF(part);
  return added;
}

}  // namespace

bool add_layers(PyObject* module) {
  layer_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (layer_type == nullptr) return false;
  const struct {
    const char* name;
    std::vector<std::pair<const Operator*, int>> lists;
  } parts[] = {
      {"_nn", {{layers_a_list, layers_a_size}, {layers_b_list, layers_b_size}}},
      {"_functional", {{functions_list, functions_size}}},
      {"_init", {{init_list, init_size}}},
      {"_rnn", {{rnn_list, rnn_size}}},
  };
  for (const auto& part : parts) {
    PyObject* const made_module = PyModule_New(part.name);
    if (!add_module(module, part.name, made_module)) return false;
    for (const auto& [list, size] : part.lists) {
      if (!add_list(made_module, list, size)) return false;
    }
    if (part.name == std::string_view("_nn") && PyModule_AddFunctions(made_module, others) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace mytorch::python
