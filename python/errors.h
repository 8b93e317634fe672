// Errors on their way between C++ and Python.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <utility>

#include "mytorch/error.h"

namespace mytorch::python {

// Thrown where an exception of Python has been raised on this thread. It travels through C++ as
// itself: it is no std::exception, which the engine of autograd would give another text. Work on
// other threads may end with it, so it holds the exception.
class Raised {
 public:
  Raised();  // takes the thread's exception; the thread holds the interpreter's lock
  Raised(const Raised& other);
  Raised& operator=(const Raised&) = delete;
  ~Raised();
  void restore() const;  // raises it on this thread

 private:
  PyObject* exception_;
};

// Takes the interpreter's lock by `f`. If another thread ends the interpreter meanwhile, Python
// before 3.14 unwinds the frames of this one by force, through destructors that use the lock: the
// thread then stops here for good, as later versions have it.
template <class F>
auto take_lock(F&& f) {
  try {
    return f();
  } catch (const abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

// Has the interpreter's lock in its scope, on any thread.
class Locked {
 public:
  Locked() : state_(take_lock(PyGILState_Ensure)) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  const PyGILState_STATE state_;
};

// Throws Raised if `object` is null.
inline PyObject* checked(PyObject* object) {
  if (object == nullptr) throw Raised();
  return object;
}

// Raises the exception that is being handled, in Python. Call in a catch block.
void raise_current() noexcept;

// Returns the result of `f`, or null after its exception has been raised in Python.
template <class F>
PyObject* guarded(F&& f) noexcept {
  try {
    return std::forward<F>(f)();
  } catch (...) {
    raise_current();
    return nullptr;
  }
}
// The same for slots that return a status.
template <class F>
int guarded_status(F&& f) noexcept {
  try {
    std::forward<F>(f)();
    return 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

// Adds the exception types to a module: Error, and for each code a type that is also Python's own.
// Returns whether it has succeeded.
bool add_errors(PyObject* module);

}  // namespace mytorch::python
