// The type _Optimizer: an optimizer of C++ with the class and options that Python names. The
// package mytorch.optim has the rest: PyTorch's classes, groups and state.
#include "python/optimizers.h"

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mytorch/nn/optim/by_name.h"
#include "mytorch/nn/optim/clip.h"
#include "mytorch/tensor_values.h"
#include "python/arguments.h"

namespace mytorch::python {
namespace {

namespace optim = mytorch::nn::optim;
using optim::Optimizer;
using optim::OptimizerOptions;

struct OptimizerObject {
  PyObject_HEAD std::unique_ptr<Optimizer> optimizer;
  std::string name;            // of the class
  std::recursive_mutex mutex;  // of the thread that uses the optimizer, with or without the lock
  int64_t elements;            // of all parameters
  int64_t changes;             // of the state
  int closures;                // that run
};
OptimizerObject* as_object(PyObject* self) { return reinterpret_cast<OptimizerObject*>(self); }

// Locks the mutex. A thread that has it may wait for the interpreter's lock, so this one waits for
// the mutex without that lock.
void take(OptimizerObject* object) {
  if (object->mutex.try_lock()) return;
  const Unlocked unlocked(Unlocked::kElements);
  object->mutex.lock();
}

// Uses the optimizer in its scope, in which other threads wait for it.
class Turn {
 public:
  enum class For : uint8_t { kReading, kChanging };
  Turn(PyObject* self, For purpose) : object_(as_object(self)) {
    take(object_);
    if (purpose == For::kReading || object_->closures == 0) return;
    object_->mutex.unlock();
    PyErr_SetString(PyExc_RuntimeError,
                    "the optimizer is in a step: its closure may clear gradients, read, and set "
                    "options, but not step, load a state or add groups");
    throw Raised();
  }
  ~Turn() { object_->mutex.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  OptimizerObject* operator->() const { return object_; }
  Optimizer& optimizer() const { return *object_->optimizer; }

 private:
  OptimizerObject* const object_;
};

// A closure runs in its scope, which may use the optimizer, as other threads may.
class InClosure {
 public:
  explicit InClosure(OptimizerObject* object) : object_(object) {
    ++object->closures;
    object->mutex.unlock();
  }
  ~InClosure() {
    take(object_);
    --object_->closures;
  }
  InClosure(const InClosure&) = delete;
  InClosure& operator=(const InClosure&) = delete;

 private:
  OptimizerObject* const object_;
};

// ---- options ----

// What an error says.
struct Place {
  const char* optimizer;
  const char* option;

  [[noreturn]] void refuse(PyObject* given, const char* wanted) const {
    PyErr_Format(PyExc_TypeError, "[%s] %s is of type %.100s: give %s", optimizer, option,
                 Py_TYPE(given)->tp_name, wanted);
    throw Raised();
  }
};

bool is_number(PyObject* object) {
  return fits_float(object) || (is_tensor(object) && tensor_of(object).numel() == 1);
}

// Numbers, of which the first may be None.
template <size_t n>
std::array<std::optional<double>, n> several(const Place& at, PyObject* given, const char* wanted,
                                             bool none = false) {
  if (PyList_Check(given) == 0 && PyTuple_Check(given) == 0) at.refuse(given, wanted);
  // A conversion may run Python, which may change a list.
  const Ref items(checked(PySequence_Tuple(given)));
  if (PyTuple_GET_SIZE(items.get()) != n) {
    PyErr_Format(PyExc_ValueError, "[%s] %s has length %zd: give %s", at.optimizer, at.option,
                 PyTuple_GET_SIZE(items.get()), wanted);
    throw Raised();
  }
  std::array<std::optional<double>, n> values;
  for (size_t i = 0; i < n; ++i) {
    PyObject* const item = PyTuple_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i));
    if (none && i == 0 && item == Py_None) continue;
    if (!is_number(item)) at.refuse(item, wanted);
    values[i] = to_float(item);
  }
  return values;
}

void set(const Place& at, double& value, PyObject* given) {
  if (!is_number(given)) at.refuse(given, "a number");
  value = to_float(given);
}
void set(const Place& at, optim::Betas& value, PyObject* given) {
  const auto [first, second] = several<2>(at, given, "two numbers");
  value = {*first, *second};
}
void set(const Place& at, bool& value, PyObject* given) {
  if (!fits_bool(given) && !fits_int(given)) at.refuse(given, "True or False");
  value = to_bool(given);
}
void set(const Place& at, int64_t& value, PyObject* given) {
  if (!fits_int(given)) at.refuse(given, "an integer");
  value = to_int(given);
}
void set(const Place& at, std::optional<int64_t>& value, PyObject* given) {
  if (given != Py_None && !fits_int(given)) at.refuse(given, "an integer or None");
  value = given == Py_None ? std::nullopt : std::optional(to_int(given));
}
void set(const Place& at, std::optional<std::string>& value, PyObject* given) {
  if (given != Py_None && PyUnicode_Check(given) == 0) at.refuse(given, "a text or None");
  value = given == Py_None ? std::nullopt : std::optional(std::string(to_text(given)));
}
void set(const Place& at, std::optional<ScalarType>& value, PyObject* given) {
  if (given != Py_None && !fits_dtype(given)) at.refuse(given, "a dtype or None");
  value = given == Py_None ? std::nullopt : std::optional(to_dtype(given));
}
void set(const Place& at, optim::FactoredEps& value, PyObject* given) {
  const auto [first, second] =
      several<2>(at, given, "two numbers, or None and a number", /*none=*/true);
  value = {first, *second};
}
void set(const Place& at, optim::Quintic& value, PyObject* given) {
  const auto [a, b, c] = several<3>(at, given, "three numbers");
  value = {*a, *b, *c};
}

// Before the templates, which see only these of other namespaces' types.
PyObject* value_to_python(const std::string& value) { return to_python(std::string_view(value)); }
PyObject* value_to_python(ScalarType value) { return dtype_object(value); }
template <class T>
PyObject* value_to_python(const T& value) {
  return to_python(value);
}
template <class T>
PyObject* value_to_python(const std::optional<T>& value) {
  return value ? value_to_python(*value) : Py_NewRef(Py_None);
}
PyObject* value_to_python(const optim::FactoredEps& value) {
  const Ref first(checked(value_to_python(value.first)));
  return Py_BuildValue("(Od)", first.get(), value.second);
}
PyObject* value_to_python(const optim::Quintic& value) {
  return Py_BuildValue("(ddd)", value.a, value.b, value.c);
}

[[noreturn]] void refuse_option(PyObject* name) {
  PyErr_SetObject(PyExc_KeyError, name);
  throw Raised();
}

void set_option(const char* optimizer, OptimizerOptions& options, PyObject* name, PyObject* value) {
  const std::string_view wanted = to_text(name);
  bool found = false;
  optim::for_each_option(options, [&](const char* each, auto& option) {
    if (each != wanted) return;
    found = true;
    set({optimizer, each}, option, value);
  });
  if (!found) refuse_option(name);
}

// Sets the options of a dict by their names.
void set_options(const char* optimizer, OptimizerOptions& options, PyObject* values) {
  const Ref items(checked(PyDict_Items(values)));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* const item = PyList_GET_ITEM(items.get(), i);
    set_option(optimizer, options, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
  }
}

PyObject* options_to_python(OptimizerOptions& options) {
  Ref values(checked(PyDict_New()));
  optim::for_each_option(options, [&](const char* name, const auto& option) {
    const Ref value(checked(value_to_python(option)));
    set_item(values.get(), name, value.get());
  });
  return values.release();
}

OptimizerOptions& options_of(const Turn& turn, Py_ssize_t group) {
  if (group < 0 || static_cast<size_t>(group) >= turn.optimizer().num_groups()) {
    PyErr_Format(PyExc_IndexError, "[%s] there is no group %zd among %zu", turn->name.c_str(),
                 group, turn.optimizer().num_groups());
    throw Raised();
  }
  return turn.optimizer().param_groups()[static_cast<size_t>(group)].options();
}

// ---- groups ----

std::vector<Tensor> tensors_of(PyObject* list) {
  const Ref items(checked(PySequence_Tuple(list)));
  std::vector<Tensor> tensors;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    tensors.push_back(to_tensor(PyTuple_GET_ITEM(items.get(), i)));
  }
  return tensors;
}

// A group from a pair of its parameters and a dict of options.
optim::OptimizerParamGroup to_group(const char* optimizer, const OptimizerOptions& defaults,
                                    PyObject* pair) {
  PyObject *parameters = nullptr, *values = nullptr;
  if (PyTuple_Check(pair) == 0) {
    PyErr_SetString(PyExc_TypeError, "a group is a pair of parameters and a dict of options");
    throw Raised();
  }
  if (PyArg_ParseTuple(pair, "OO!:group", &parameters, &PyDict_Type, &values) == 0) throw Raised();
  std::unique_ptr<OptimizerOptions> options = defaults.clone();
  set_options(optimizer, *options, values);
  return {tensors_of(parameters), std::move(options)};
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  const char* name = nullptr;
  PyObject *defaults = nullptr, *list = nullptr;
  static const char* names[] = {"name", "defaults", "groups", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, keywords, "sO!O!:_Optimizer", const_cast<char**>(names),
                                  &name, &PyDict_Type, &defaults, &PyTuple_Type, &list) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const std::unique_ptr<OptimizerOptions> options = optim::default_options(name);
    set_options(name, *options, defaults);
    std::vector<optim::OptimizerParamGroup> groups;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list); ++i) {
      groups.push_back(to_group(name, *options, PyTuple_GET_ITEM(list, i)));
    }
    std::unique_ptr<Optimizer> made = optim::make_optimizer(name, std::move(groups), *options);
    PyObject* const self = checked(type->tp_alloc(type, 0));
    OptimizerObject* const object = as_object(self);
    new (&object->optimizer) std::unique_ptr<Optimizer>(std::move(made));
    new (&object->name) std::string(name);
    new (&object->mutex) std::recursive_mutex();
    object->elements = elements(object->optimizer->parameters());
    return self;
  });
}

PyObject* add_group(PyObject* self, PyObject* pair) {
  return guarded([&] {
    const Turn turn(self, Turn::For::kChanging);
    turn.optimizer().add_param_group(
        to_group(turn->name.c_str(), turn.optimizer().defaults(), pair));
    turn->elements = elements(turn.optimizer().parameters());
    return Py_NewRef(Py_None);
  });
}

PyObject* all_options(PyObject* self, PyObject* group) {
  return guarded([&] {
    const Turn turn(self, Turn::For::kReading);
    return options_to_python(options_of(turn, to_int(group)));
  });
}

PyObject* get_option(PyObject* self, PyObject* args) {
  Py_ssize_t group = 0;
  PyObject* name = nullptr;
  if (PyArg_ParseTuple(args, "nU:_option", &group, &name) == 0) return nullptr;
  return guarded([&] {
    const Turn turn(self, Turn::For::kReading);
    const std::string_view wanted = to_text(name);
    Ref value;
    optim::for_each_option(options_of(turn, group), [&](const char* each, const auto& option) {
      if (each == wanted) value = Ref(checked(value_to_python(option)));
    });
    if (!value) refuse_option(name);
    return value.release();
  });
}

PyObject* change_option(PyObject* self, PyObject* args) {
  Py_ssize_t group = 0;
  PyObject *name = nullptr, *value = nullptr;
  if (PyArg_ParseTuple(args, "nUO:_set_option", &group, &name, &value) == 0) return nullptr;
  return guarded([&] {
    const Turn turn(self, Turn::For::kReading);
    const std::unique_ptr<OptimizerOptions> options = options_of(turn, group).clone();
    set_option(turn->name.c_str(), *options, name, value);
    // Steps that were recorded read the rate again, but belong to the other options.
    if (to_text(name) == "lr") {
      turn.optimizer().set_lr(static_cast<size_t>(group), options->get_lr());
    } else {
      turn.optimizer().set_options(static_cast<size_t>(group), *options);
    }
    return Py_NewRef(Py_None);
  });
}

// ---- steps ----

PyObject* step_with(PyObject* self, PyObject* closure) {
  if (PyCallable_Check(closure) == 0) {
    PyErr_Format(PyExc_TypeError, "step takes a function that returns the loss, not %.100s",
                 Py_TYPE(closure)->tp_name);
    throw Raised();
  }
  const Turn turn(self, Turn::For::kChanging);
  ++turn->changes;
  Ref first;
  const auto call = [&] {
    const Locked locked;
    const InClosure in_closure(as_object(self));
    Ref loss(checked(PyObject_CallNoArgs(closure)));
    Tensor value;
    if (is_tensor(loss.get())) {
      value = tensor_of(loss.get());
    } else if (fits_float(loss.get())) {
      value = scalar_tensor(to_float(loss.get()), kFloat64);
    }
    if (!first) first = std::move(loss);
    return value;
  };
  {
    const Unlocked unlocked(turn->elements);
    turn.optimizer().step(call);
  }
  return first ? first.release() : Py_NewRef(Py_None);
}

PyObject* step(PyObject* self, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"closure", nullptr};
  PyObject* closure = Py_None;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "|O:step", const_cast<char**>(names), &closure) ==
      0) {
    return nullptr;
  }
  return guarded([&] {
    if (closure != Py_None) return step_with(self, closure);
    const Turn turn(self, Turn::For::kChanging);
    ++turn->changes;
    {
      const Unlocked unlocked(turn->elements);
      turn.optimizer().step();
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* zero_grad(PyObject* self, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"set_to_none", nullptr};
  int to_none = 1;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "|p:zero_grad", const_cast<char**>(names),
                                  &to_none) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const Turn turn(self, Turn::For::kReading);
    {
      const Unlocked unlocked(turn->elements);
      turn.optimizer().zero_grad(to_none != 0);
    }
    return Py_NewRef(Py_None);
  });
}

// ---- state ----

// The state of all parameters by name, without the options.
PyObject* state(PyObject* self, PyObject*) {
  return guarded([&] {
    const Turn turn(self, Turn::For::kReading);
    Ref values(checked(PyDict_New()));
    for (const auto& [name, tensor] : turn.optimizer().state_dict()) {
      if (name.starts_with("group")) continue;
      const Ref value(checked(wrap(tensor)));
      set_item(values.get(), name, value.get());
    }
    return values.release();
  });
}

// Takes the options of all groups, dicts, and what state() returns. Changes nothing if they do not
// fit.
PyObject* load(PyObject* self, PyObject* args) {
  PyObject *list = nullptr, *values = nullptr;
  if (PyArg_ParseTuple(args, "O!O!:_load", &PyTuple_Type, &list, &PyDict_Type, &values) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const Turn turn(self, Turn::For::kChanging);
    Optimizer& optimizer = turn.optimizer();
    std::vector<std::unique_ptr<OptimizerOptions>> before, after;
    nn::TensorMap state;
    for (Py_ssize_t g = 0; g < PyTuple_GET_SIZE(list); ++g) {
      before.push_back(options_of(turn, g).clone());
      after.push_back(before.back()->clone());
      PyObject* const group = PyTuple_GET_ITEM(list, g);
      if (PyDict_Check(group) == 0) {
        PyErr_SetString(PyExc_TypeError, "the options of a group are a dict");
        throw Raised();
      }
      set_options(turn->name.c_str(), *after.back(), group);
      optim::OptionList options;
      after.back()->list(options);
      for (const auto& [name, value] : options.numbers) {
        state["group" + std::to_string(g) + "." + name] = scalar_tensor(*value, kFloat64);
      }
    }
    const Ref items(checked(PyDict_Items(values)));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
      PyObject *name = nullptr, *tensor = nullptr;
      if (PyArg_ParseTuple(PyList_GET_ITEM(items.get(), i), "UO:state", &name, &tensor) == 0) {
        throw Raised();
      }
      state[std::string(to_text(name))] = to_tensor(tensor);
    }
    const auto use = [&](const std::vector<std::unique_ptr<OptimizerOptions>>& options) {
      for (size_t g = 0; g < options.size(); ++g) optimizer.set_options(g, *options[g]);
    };
    {
      const Unlocked unlocked(turn->elements);
      try {
        use(after);  // first, since the types of the state depend on them
        optimizer.load_state_dict(state);
      } catch (...) {
        use(before);
        throw;
      }
    }
    ++turn->changes;
    return Py_NewRef(Py_None);
  });
}

PyObject* changes(PyObject* self, void*) { return to_python(as_object(self)->changes); }

// ---- the type ----

void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  std::destroy_at(&as_object(self)->optimizer);
  std::destroy_at(&as_object(self)->name);
  std::destroy_at(&as_object(self)->mutex);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"_add_group", add_group, METH_O, nullptr},
    {"_options", all_options, METH_O, nullptr},
    {"_option", get_option, METH_VARARGS, nullptr},
    {"_set_option", change_option, METH_VARARGS, nullptr},
    {"_state", state, METH_NOARGS, nullptr},
    {"_load", load, METH_VARARGS, nullptr},
    {"step", as_method(step), METH_VARARGS | METH_KEYWORDS,
     "step(closure=None)\n--\n\nUpdates the parameters from their gradients; skips those without "
     "one. A closure clears the gradients, computes the loss, calls backward() and returns the "
     "loss, which step returns."},
    {"zero_grad", as_method(zero_grad), METH_VARARGS | METH_KEYWORDS,
     "zero_grad(set_to_none=True)\n--\n\nClears the gradients, or fills them with zeros."},
    {}};
PyGetSetDef fields[] = {{"_changes", changes, nullptr, nullptr, nullptr}, {}};

// ---- functions ----

PyObject* class_defaults(PyObject*, PyObject* name) {
  return guarded(
      [&] { return options_to_python(*optim::default_options(std::string(to_text(name)))); });
}

PyObject* clip_norm(PyObject*, PyObject* args) {
  PyObject* list = nullptr;
  double most = 0, order = 2;
  int finite = 0;
  if (PyArg_ParseTuple(args, "Oddp:_clip_grad_norm", &list, &most, &order, &finite) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const std::vector<Tensor> parameters = tensors_of(list);
    return run(nullptr, elements(parameters), [&]() -> Tensor {
      return optim::clip_grad_norm_(parameters, most, order, finite != 0);
    });
  });
}

PyObject* clip_value(PyObject*, PyObject* args) {
  PyObject* list = nullptr;
  double most = 0;
  if (PyArg_ParseTuple(args, "Od:_clip_grad_value", &list, &most) == 0) return nullptr;
  return guarded([&] {
    const std::vector<Tensor> parameters = tensors_of(list);
    return run(nullptr, elements(parameters), [&] { optim::clip_grad_value_(parameters, most); });
  });
}

}  // namespace

PyMethodDef optimizer_functions[] = {{"_optimizer_defaults", class_defaults, METH_O, nullptr},
                                     {"_clip_grad_norm", clip_norm, METH_VARARGS, nullptr},
                                     {"_clip_grad_value", clip_value, METH_VARARGS, nullptr},
                                     {}};

bool add_optimizer_type(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_new, as_slot(create)},
                         {Py_tp_dealloc, as_slot(destroy)},
                         {Py_tp_methods, methods},
                         {Py_tp_getset, fields},
                         {0, nullptr}};
  PyType_Spec spec = {"mytorch._core._Optimizer", sizeof(OptimizerObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};
  const Ref type(PyType_FromSpec(&spec));
  return type && PyModule_AddObjectRef(module, "_Optimizer", type.get()) == 0;
}

}  // namespace mytorch::python
