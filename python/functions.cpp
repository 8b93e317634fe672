#include "python/functions.h"

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/autograd/function.h"
#include "mytorch/grad_mode.h"
#include "python/convert.h"

namespace mytorch::python {
namespace {

using autograd::FunctionContext;

// What the context of Python knows of that of C++: null once that is gone, with the graph.
struct Handle {
  FunctionContext* context;
};
constexpr const char* kHandle = "mytorch.function";

void destroy_handle(PyObject* capsule) {
  delete static_cast<std::shared_ptr<Handle>*>(PyCapsule_GetPointer(capsule, kHandle));
}

// What the context of C++ keeps: the class of Python and its context.
struct Link {
  Link(PyObject* of, PyObject* with, std::shared_ptr<Handle> handle)
      : kind(Py_NewRef(of)), context(Py_NewRef(with)), handle(std::move(handle)) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() {
    if (Py_IsInitialized() == 0) return;
    const Locked locked;
    handle->context = nullptr;
    Py_DECREF(kind);
    Py_DECREF(context);
  }

  PyObject* const kind;
  PyObject* const context;
  const std::shared_ptr<Handle> handle;
};
constexpr const char* kLink = "python";

FunctionContext& context_of(PyObject* capsule) {
  auto* const handle =
      static_cast<std::shared_ptr<Handle>*>(PyCapsule_GetPointer(capsule, kHandle));
  if (handle == nullptr) throw Raised();
  if ((*handle)->context == nullptr) {
    fail(ErrorCode::kValue,
         "[Function] the context is used after its graph was freed: keep what is needed in "
         "attributes of your own");
  }
  return *(*handle)->context;
}

// Names of nodes live as long as the process.
const char* name_of(PyObject* kind) {
  static auto* const names = new std::unordered_set<std::string>;  // guarded by the lock
  const Ref name(checked(PyObject_GetAttrString(kind, "__name__")));
  return names->insert(std::string(to_text(name.get())) + "Backward").first->c_str();
}

// Returns the tensors of one or several results of forward or backward; undefined for None.
std::vector<Tensor> tensors_of(PyObject* result, const char* what) {
  std::vector<Tensor> tensors;
  const auto add = [&](PyObject* each) {
    if (each == Py_None) {
      tensors.emplace_back();
    } else if (is_tensor(each)) {
      tensors.push_back(tensor_of(each));
    } else {
      PyErr_Format(PyExc_TypeError, "%s: expected tensors and None, not %.100s", what,
                   Py_TYPE(each)->tp_name);
      throw Raised();
    }
  };
  if (PyTuple_Check(result) == 0 && PyList_Check(result) == 0) {
    add(result);
    return tensors;
  }
  const Ref items(checked(PySequence_Fast(result, "")));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    add(PySequence_Fast_GET_ITEM(items.get(), i));
  }
  return tensors;
}

std::vector<Tensor> run_backward(FunctionContext* context, const std::vector<Tensor>& grads) {
  const Locked locked;
  const auto link = std::any_cast<std::shared_ptr<Link>>(context->saved_data[kLink]);
  const Ref function(checked(PyObject_GetAttrString(link->kind, "backward")));
  const Ref args(checked(PyTuple_New(static_cast<Py_ssize_t>(grads.size()) + 1)));
  PyTuple_SET_ITEM(args.get(), 0, Py_NewRef(link->context));
  for (size_t i = 0; i < grads.size(); ++i) {
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i) + 1, checked(wrap(grads[i])));
  }
  const Ref result(checked(PyObject_CallObject(function.get(), args.get())));
  return tensors_of(result.get(), "backward");
}

// Returns the results of forward with their history: tensors that are arguments of the call stay
// the objects that the program has.
PyObject* with_history(PyObject* result, PyObject* args, const std::vector<Tensor>& outputs) {
  size_t next = 0;
  const auto one = [&](PyObject* each) -> PyObject* {
    if (!is_tensor(each)) return Py_NewRef(each);
    const Tensor& output = outputs[next++];
    if (output.is_same(tensor_of(each))) return Py_NewRef(each);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      PyObject* const arg = PyTuple_GET_ITEM(args, i);
      if (is_tensor(arg) && output.is_same(tensor_of(arg))) return Py_NewRef(arg);
    }
    return checked(wrap(output));
  };
  if (PyTuple_Check(result) == 0 && PyList_Check(result) == 0) return one(result);
  const Ref items(checked(PySequence_Fast(result, "")));
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(items.get());
  Ref tuple(checked(PyTuple_New(size)));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, one(PySequence_Fast_GET_ITEM(items.get(), i)));
  }
  return tuple.release();
}

// _apply_function(class, context, arguments, run): calls run(), which calls forward, and gives its
// results a history.
PyObject* apply(PyObject*, PyObject* given) {
  PyObject *kind = nullptr, *python = nullptr, *args = nullptr, *run = nullptr;
  int once = 0;
  if (PyArg_ParseTuple(given, "OOO!Op:_apply_function", &kind, &python, &PyTuple_Type, &args, &run,
                       &once) == 0) {
    return nullptr;
  }
  return guarded([&] {
    autograd::FunctionCall call(name_of(kind), run_backward);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      PyObject* const arg = PyTuple_GET_ITEM(args, i);
      if (is_tensor(arg)) {
        call.add(tensor_of(arg));
      } else {
        call.add(0);
      }
    }
    FunctionContext* const context = call.begin();
    if (once != 0) context->mark_once_differentiable();
    const auto handle = std::make_shared<Handle>(Handle{context});
    context->saved_data[kLink] = std::make_shared<Link>(kind, python, handle);
    const Ref capsule(
        checked(PyCapsule_New(new std::shared_ptr<Handle>(handle), kHandle, destroy_handle)));
    if (PyObject_SetAttrString(python, "_handle", capsule.get()) != 0) throw Raised();
    Ref result;
    {
      const NoGradGuard no_grad;
      result = Ref(checked(PyObject_CallNoArgs(run)));
    }
    std::vector<Tensor> outputs;
    const auto take = [&](PyObject* each) {
      if (is_tensor(each)) outputs.push_back(tensor_of(each));
    };
    if (PyTuple_Check(result.get()) != 0 || PyList_Check(result.get()) != 0) {
      const Ref items(checked(PySequence_Fast(result.get(), "")));
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
        take(PySequence_Fast_GET_ITEM(items.get(), i));
      }
    } else if (is_tensor(result.get())) {
      take(result.get());
    } else {
      PyErr_Format(PyExc_TypeError, "forward of %s returns tensors, not %.100s", name_of(kind),
                   Py_TYPE(result.get())->tp_name);
      throw Raised();
    }
    call.finish(&outputs);
    return with_history(result.get(), args, outputs);
  });
}

#define OF_CONTEXT(name, use)                                                        \
  PyObject* name(PyObject*, PyObject* given) {                                       \
    PyObject *capsule = nullptr, *value = nullptr;                                   \
    if (PyArg_ParseTuple(given, "OO:" #name, &capsule, &value) == 0) return nullptr; \
    return guarded([&]() -> PyObject* {                                              \
      FunctionContext& context = context_of(capsule);                                \
      use;                                                                           \
      Py_RETURN_NONE;                                                                \
    });                                                                              \
  }
OF_CONTEXT(save, context.save_for_backward(tensors_of(value, "save_for_backward")))
OF_CONTEXT(dirty, context.mark_dirty(to_tensors(value)))
OF_CONTEXT(no_gradient, context.mark_non_differentiable(to_tensors(value)))
OF_CONTEXT(materialize, context.set_materialize_grads(to_bool(value)))
OF_CONTEXT(needs, return to_python(context.needs_input_grad(static_cast<size_t>(to_int(value)))))
#undef OF_CONTEXT

PyObject* saved(PyObject*, PyObject* capsule) {
  return guarded([&] { return to_python(context_of(capsule).saved_tensors()); });
}

}  // namespace

PyMethodDef function_functions[] = {{"_apply_function", apply, METH_VARARGS, nullptr},
                                    {"_function_save", save, METH_VARARGS, nullptr},
                                    {"_function_dirty", dirty, METH_VARARGS, nullptr},
                                    {"_function_no_gradient", no_gradient, METH_VARARGS, nullptr},
                                    {"_function_materialize", materialize, METH_VARARGS, nullptr},
                                    {"_function_needs", needs, METH_VARARGS, nullptr},
                                    {"_function_saved", saved, METH_O, nullptr},
                                    {}};

}  // namespace mytorch::python
