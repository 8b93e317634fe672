#include "python/autograd.h"

#include <memory>
#include <optional>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/grad_mode.h"
#include "python/convert.h"

namespace mytorch::python {
namespace {

class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released() {
    take_lock([&] { PyEval_RestoreThread(state_); });
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* const state_;
};

// A function of Python that C++ keeps.
std::shared_ptr<PyObject> keep(PyObject* object) {
  return {Py_NewRef(object), [](PyObject* held) {
            if (!Py_IsInitialized()) return;
            const Locked locked;
            Py_DECREF(held);
          }};
}

std::optional<bool> optional_bool(PyObject* object) {
  if (object == nullptr || object == Py_None) return std::nullopt;
  return to_bool(object);
}
std::vector<Tensor> optional_tensors(PyObject* object) {
  if (object == nullptr || object == Py_None) return {};
  return to_tensors(object);
}

PyObject* backward(PyObject* self, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"gradient", "retain_graph", "create_graph", "inputs", nullptr};
  PyObject *gradient = Py_None, *retain = Py_None, *inputs = Py_None;
  int create = 0;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "|OOpO:backward", const_cast<char**>(names),
                                  &gradient, &retain, &create, &inputs) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const Tensor with = gradient == Py_None ? Tensor() : to_tensor(gradient);
    const std::optional<bool> retained = optional_bool(retain);
    const std::vector<Tensor> only = optional_tensors(inputs);
    const Tensor& loss = tensor_of(self);
    {
      const Released released;
      loss.backward(with, retained, create != 0, only);
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* backward_of_all(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"tensors",      "grad_tensors", "retain_graph",
                                "create_graph", "inputs",       nullptr};
  PyObject *tensors = nullptr, *with = Py_None, *retain = Py_None, *inputs = Py_None;
  int create = 0;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "O|OOpO:backward", const_cast<char**>(names),
                                  &tensors, &with, &retain, &create, &inputs) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const std::vector<Tensor> outputs = to_tensors(tensors), weights = optional_tensors(with),
                              only = optional_tensors(inputs);
    const std::optional<bool> retained = optional_bool(retain);
    {
      const Released released;
      autograd::backward(outputs, weights, retained, create != 0, only);
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* grad(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"outputs",      "inputs",       "grad_outputs",      "retain_graph",
                                "create_graph", "allow_unused", "materialize_grads", nullptr};
  PyObject *outputs = nullptr, *inputs = nullptr, *with = Py_None, *retain = Py_None;
  int create = 0, unused = 0, zeros = 0;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "OO|OOppp:grad", const_cast<char**>(names),
                                  &outputs, &inputs, &with, &retain, &create, &unused,
                                  &zeros) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const std::vector<Tensor> of = to_tensors(outputs), by = to_tensors(inputs),
                              weights = optional_tensors(with);
    const autograd::GradOptions options = {
        .retain_graph = optional_bool(retain).value_or(create != 0),
        .create_graph = create != 0,
        .allow_unused = unused != 0,
        .materialize_grads = zeros != 0};
    std::vector<Tensor> result;
    {
      const Released released;
      result = autograd::grad(of, by, weights, options);
    }
    return to_python(result);
  });
}

Tensor call_hook(PyObject* function, const Tensor& gradient) {
  const Locked locked;
  const Ref argument(checked(wrap(gradient)));
  const Ref result(checked(PyObject_CallOneArg(function, argument.get())));
  return result.get() == Py_None ? Tensor() : to_tensor(result.get());
}

PyObject* register_hook(PyObject* self, PyObject* hook) {
  return guarded([&]() -> PyObject* {
    if (PyCallable_Check(hook) == 0) {
      PyErr_SetString(PyExc_TypeError, "a hook is a function of the gradient");
      throw Raised();
    }
    const int64_t handle =
        tensor_of(self).register_hook([function = keep(hook)](const Tensor& gradient) {
          return call_hook(function.get(), gradient);
        });
    return PyLong_FromLongLong(handle);
  });
}
PyObject* remove_hook(PyObject* self, PyObject* handle) {
  return guarded([&] {
    tensor_of(self).remove_hook(to_int(handle));
    return Py_NewRef(Py_None);
  });
}
PyObject* register_post_accumulate(PyObject* self, PyObject* hook) {
  return guarded([&] {
    remember(self);
    const int64_t handle = autograd::register_post_accumulate_hook(
        tensor_of(self), [function = keep(hook)](const Tensor& leaf) {
          const Locked locked;
          const Ref argument(checked(wrap(leaf)));
          const Ref result(checked(PyObject_CallOneArg(function.get(), argument.get())));
        });
    return PyLong_FromLongLong(handle);
  });
}

PyObject* is_grad_enabled(PyObject*, PyObject*) { return to_python(grad_enabled()); }
PyObject* enable_grad(PyObject*, PyObject* value) {
  return guarded([&] {
    set_grad_enabled(to_bool(value));
    return Py_NewRef(Py_None);
  });
}

PyObject* is_anomaly(PyObject*, PyObject*) {
  return guarded([&] { return to_python(autograd::AnomalyMode::is_enabled()); });
}
PyObject* set_anomaly(PyObject*, PyObject* args) {
  int mode = 0, check = 1;
  if (PyArg_ParseTuple(args, "pp:_set_anomaly", &mode, &check) == 0) return nullptr;
  return guarded([&] {
    autograd::AnomalyMode::set_enabled(mode != 0, check != 0);
    return Py_NewRef(Py_None);
  });
}

}  // namespace

PyMethodDef autograd_methods[] = {
    {"backward", as_method(backward), METH_VARARGS | METH_KEYWORDS,
     "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)\n--\n\nAdds the "
     "gradients of this tensor to the `grad` of the leaves that it depends on."},
    {"_register_hook", register_hook, METH_O, nullptr},
    {"_register_post_accumulate_grad_hook", register_post_accumulate, METH_O, nullptr},
    {"_remove_hook", remove_hook, METH_O, nullptr},
    {}};

PyMethodDef autograd_functions[] = {
    {"_backward", as_method(backward_of_all), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"_grad", as_method(grad), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS,
     "Returns whether operations are recorded for differentiation."},
    {"_set_grad_enabled", enable_grad, METH_O, nullptr},
    {"_is_anomaly_enabled", is_anomaly, METH_NOARGS, nullptr},
    {"_set_anomaly", set_anomaly, METH_VARARGS, nullptr},
    {}};

}  // namespace mytorch::python
