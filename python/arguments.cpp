#include "python/arguments.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "python/layers.h"

namespace mytorch::python {
namespace {

// `exactly`: a tensor is no number.
bool fits(const Param& param, PyObject* object, bool exactly) {
  if (object == Py_None) return param.optional;
  if (exactly && is_tensor(object) && param.kind != Kind::kTensor && param.kind != Kind::kOperand) {
    return false;
  }
  switch (param.kind) {
    case Kind::kTensor:
      return is_tensor(object);
    case Kind::kOperand:
      return is_tensor(object) || fits_scalar(object);
    case Kind::kScalar:
      return fits_scalar(object);
    case Kind::kInt:
      return fits_int(object);
    case Kind::kFloat:
      return fits_float(object);
    case Kind::kBool:
      return fits_bool(object);
    case Kind::kText:
      return PyUnicode_Check(object) != 0;
    case Kind::kDtype:
      return fits_dtype(object);
    case Kind::kDevice:
      return fits_device(object);
    case Kind::kGenerator:
      return fits_generator(object);
    case Kind::kInts:
      return fits_ints(object);
    case Kind::kIntsOrInt:
      return fits_int(object) || fits_ints(object);
    case Kind::kFloats:
      return fits_floats(object);
    case Kind::kTensors:
      return fits_tensors(object);
    case Kind::kTensorsOrNone:
      return fits_tensors_or_none(object);
    case Kind::kLayer:
      return is_layer(object);
    case Kind::kAny:
      return true;
  }
  return false;
}

// Names that NumPy and PyTorch have for arguments.
struct Alias {
  const char* given;
  const char* name;
};
constexpr Alias kAliases[] = {
    {"input", "self"}, {"axis", "dim"}, {"keepdims", "keepdim"}, {"x1", "self"}, {"x2", "other"}};

int find_param(const Signature& signature, PyObject* keyword) {
  for (int i = 0; i < signature.size; ++i) {
    if (signature.params[i].key == keyword) return i;
  }
  const char* const name = PyUnicode_AsUTF8(keyword);
  if (name == nullptr) throw Raised();
  for (int i = 0; i < signature.size; ++i) {
    if (std::strcmp(signature.params[i].name, name) == 0) return i;
  }
  for (const Alias& alias : kAliases) {
    if (std::strcmp(alias.given, name) != 0) continue;
    for (int i = 0; i < signature.size; ++i) {
      if (std::strcmp(signature.params[i].name, alias.name) == 0) return i;
    }
  }
  return -1;
}

// A call's arguments by the parameters of a signature.
class Slots {
 public:
  // Returns whether the call fits the signature.
  bool fill(const Signature& signature, PyObject* self, PyObject* const* args, Py_ssize_t count,
            PyObject* keywords, bool exactly) {
    std::fill_n(slots_, signature.size, nullptr);
    int next = 0;
    const auto give = [&](int at, PyObject* object) {
      if (slots_[at] != nullptr || !fits(signature.params[at], object, exactly)) return false;
      slots_[at] = object;
      return true;
    };
    if (self != nullptr) {
      int at = 0;
      while (at < signature.size && std::strcmp(signature.params[at].name, "self") != 0) ++at;
      if (at == signature.size || !give(at, self)) return false;
    }
    for (Py_ssize_t i = 0; i < count; ++i, ++next) {
      while (next < signature.size && slots_[next] != nullptr) ++next;
      if (next == signature.size || signature.params[next].keyword_only) return false;
      const bool tensors =
          next == signature.spread && signature.params[next].kind == Kind::kTensors;
      const auto is_item = [&](PyObject* object) {
        return tensors ? is_tensor(object) : fits_int(object) && !(exactly && is_tensor(object));
      };
      if (next == signature.spread && is_item(args[i])) {
        // The items from here on are one list.
        Py_ssize_t end = i;
        while (end < count && is_item(args[end])) ++end;
        if (end != count) return false;
        list_ = Ref(checked(PyTuple_New(count - i)));
        for (Py_ssize_t k = i; k < count; ++k) {
          PyTuple_SET_ITEM(list_.get(), k - i, Py_NewRef(args[k]));
        }
        slots_[next] = list_.get();
        break;
      }
      if (!give(next, args[i])) return false;
    }
    const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t i = 0; i < named; ++i) {
      const int at = find_param(signature, PyTuple_GET_ITEM(keywords, i));
      if (at < 0 || !give(at, args[count + i])) return false;
    }
    for (int i = 0; i < signature.size; ++i) {
      if (slots_[i] == Py_None && signature.params[i].kind != Kind::kAny)
        slots_[i] = nullptr;
      else if (slots_[i] == nullptr && signature.params[i].required)
        return false;
    }
    return true;
  }
  PyObject* const* get() const { return slots_; }

 private:
  PyObject* slots_[kMaxParams];
  Ref list_;
};

[[noreturn]] void refuse(const Function& function, PyObject* self, PyObject* const* args,
                         Py_ssize_t count, PyObject* keywords) {
  std::string given;
  const auto add = [&](const std::string& name, PyObject* object) {
    given += (given.empty() ? "" : ", ") + (name.empty() ? "" : name + "=");
    given += Py_TYPE(object)->tp_name;
  };
  if (self != nullptr) add("", self);
  for (Py_ssize_t i = 0; i < count; ++i) add("", args[i]);
  for (Py_ssize_t i = 0; keywords != nullptr && i < PyTuple_GET_SIZE(keywords); ++i) {
    add(std::string(to_text(PyTuple_GET_ITEM(keywords, i))), args[count + i]);
  }
  std::string message = std::string(function.name) + "(" + given + ") fits none of";
  for (int i = 0; i < function.size; ++i) {
    message += "\n  " + std::string(function.signatures[i].text);
  }
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw Raised();
}

}  // namespace

PyObject* call_function(const Function& function, PyObject* self, PyObject* const* args,
                        Py_ssize_t count, PyObject* keywords) noexcept {
  return guarded([&]() -> PyObject* {
    Slots slots;
    for (const bool exactly : {true, false}) {
      for (int i = 0; i < function.size; ++i) {
        const Signature& signature = function.signatures[i];
        if (slots.fill(signature, self, args, count, keywords, exactly)) {
          return signature.call(slots.get());
        }
      }
    }
    refuse(function, self, args, count, keywords);
  });
}

}  // namespace mytorch::python
