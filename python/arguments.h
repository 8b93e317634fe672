// Which overload of an operator a call from Python means.
//
// A function has the signatures of a record's overloads, in the order of the records; a call means
// the first whose arguments it fits. It gets the arguments in slots, null for those left out.
#pragma once

#include <Python.h>

#include <cstdint>

#include "python/convert.h"

namespace mytorch::python {

enum class Kind : uint8_t {
  kTensor,
  kOperand,  // a tensor or a number
  kScalar,
  kInt,
  kFloat,
  kBool,
  kText,
  kDtype,
  kDevice,
  kGenerator,
  kInts,
  kIntsOrInt,  // one integer stands for a list
  kFloats,
  kTensors,
  kTensorsOrNone,
  kLayer,  // of C++
  kAny,    // the conversion checks it; None stays an argument
};

constexpr int kMaxParams = 24;

struct Param {
  const char* name;
  Kind kind;
  bool optional;            // None leaves it out
  bool required;            // there is no default
  bool keyword_only;        // behind the `*`
  PyObject* key = nullptr;  // the name, interned
};

struct Signature {
  const char* text;  // as users read it
  Param* params;
  int size;
  // A list of integers or tensors that may also be written as arguments: x.view(2, 3). -1: none.
  int spread;
  PyObject* (*call)(PyObject* const* slots);
};

struct Function {
  const char* name;
  const Signature* signatures;
  int size;
};

// Calls a function with the arguments of METH_FASTCALL | METH_KEYWORDS; as a method, `self` is the
// argument of that name. Returns null with an exception.
PyObject* call_function(const Function& function, PyObject* self, PyObject* const* args,
                        Py_ssize_t count, PyObject* keywords) noexcept;

// The forms that a module and a type list.
template <const Function& function>
PyObject* call(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return call_function(function, nullptr, args, count, keywords);
}
template <const Function& function>
PyObject* method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return call_function(function, self, args, count, keywords);
}

// Releases the interpreter's lock in its scope if the work is long.
class Unlocked {
 public:
  // More elements take longer than to release the lock and take it again.
  static constexpr int64_t kElements = 4096;
  explicit Unlocked(int64_t elements)
      : state_(elements >= kElements ? PyEval_SaveThread() : nullptr) {}
  ~Unlocked() {
    if (state_ != nullptr) take_lock([&] { PyEval_RestoreThread(state_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

inline int64_t elements(const Tensor& x) { return x.defined() ? x.numel() : 0; }
inline int64_t elements(const Operand& x) { return x.is_tensor() ? x.impl()->numel : 0; }
inline int64_t elements(const std::vector<Tensor>& list) {
  int64_t sum = 0;
  for (const Tensor& x : list) sum += elements(x);
  return sum;
}

// Runs an operator. A result that is its first tensor is the same object, as x.contiguous() may be.
template <class F>
PyObject* run(PyObject* first, int64_t work, F&& f) {
  using R = decltype(f());
  if constexpr (std::is_void_v<R>) {
    const Unlocked unlocked(work);
    f();
  } else {
    auto result = [&]() -> std::decay_t<R> {
      const Unlocked unlocked(work);
      return f();
    }();
    if constexpr (std::is_same_v<std::decay_t<R>, Tensor>) {
      if (first != nullptr && is_tensor(first) && result.is_same(tensor_of(first))) {
        return Py_NewRef(first);
      }
    }
    return to_python(std::move(result));
  }
  Py_RETURN_NONE;
}

}  // namespace mytorch::python
