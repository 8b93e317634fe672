// The layers of C++ as Python holds them, and the values that their constructors and functions
// take. The functions of each layer are generated from layers.yaml.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include "mytorch/nn/adaptive_softmax.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"
#include "mytorch/nn/packed_sequence.h"
#include "mytorch/nn/transformer.h"
#include "python/convert.h"
#include "python/objects.h"

namespace mytorch::python {

// A function of Python that C++ calls, from any thread. C++ shares the callback; the object of a
// layer owns the function, so that the collector of Python sees it, and forgets it in the end.
struct Callback {
  PyObject* function;  // null once it is gone
};
using SharedCallback = std::shared_ptr<Callback>;

// The calls of a layer that are running. It changes only between them: they read its tensors,
// options and hooks without the interpreter's lock.
class Turns;

struct LayerObject {
  PyObject_HEAD std::shared_ptr<nn::Module> module;
  std::shared_ptr<Turns> turns;  // also of its parts
  std::vector<SharedCallback> callbacks;
};
extern PyTypeObject* layer_type;
inline bool is_layer(PyObject* object) { return Py_TYPE(object) == layer_type; }
inline const std::shared_ptr<nn::Module>& layer_of(PyObject* object) {
  return reinterpret_cast<LayerObject*>(object)->module;
}
// The callbacks that this thread has made for the layer that it makes.
std::vector<SharedCallback>& callbacks_of_layer();
// Returns a new object that holds a layer, and these callbacks.
PyObject* made(std::shared_ptr<nn::Module> module);

// A running call, in its scope.
class Turn {
 public:
  explicit Turn(PyObject* layer);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Turns& turns_;
};

[[noreturn]] void refuse_layer(PyObject* object, const std::type_info& expected);
template <class L>
L& layer_as(PyObject* object) {
  L* const layer = is_layer(object) ? dynamic_cast<L*>(layer_of(object).get()) : nullptr;
  if (layer == nullptr) refuse_layer(object, typeid(L));
  return *layer;
}

// A class of layers: its name in Python, and what is known of its objects.
struct LayerClass {
  std::type_index type;
  const char* name;
  // Returns an option by name; null if there is none.
  PyObject* (*get)(nn::Module& layer, std::string_view name);
  // Returns what sets an option by name; empty if there is none.
  std::function<void()> (*set)(nn::Module& layer, std::string_view name, PyObject* value);
  // Draws the parameters again; null if there are none.
  void (*reset)(nn::Module& layer);
};

// Adds `_nn`, the functions of layers, to a module. Returns whether it has succeeded.
bool add_layers(PyObject* module);

// ---- values ----

inline bool present(PyObject* object) { return object != nullptr && object != Py_None; }
inline Tensor tensor_or_none(PyObject* object) { return object ? tensor_of(object) : Tensor(); }

// Integers, given as a list or as a tensor.
struct Int64s {
  Tensor tensor;
  operator const Tensor&() const { return tensor; }  // NOLINT(google-explicit-constructor)
};

// Raises a TypeError: "stride: expected 2 integers, not str".
[[noreturn]] void refuse_value(const char* name, const std::string& expected, PyObject* given);
std::vector<int64_t> take_ints(PyObject* object, const char* name, size_t sizes);
// Returns a function that calls one of Python, from any thread.
using TensorFunction = std::function<Tensor(const std::vector<Tensor>&)>;
TensorFunction take_function(PyObject* object, const char* name);

// The conversion to a type of C++. Throws Raised for an object of another kind.
template <class T>
struct Taken;
template <class T>
T take(PyObject* object, const char* name) {
  return Taken<T>::from(object, name);
}

#define MYTORCH_TAKEN(type)                               \
  template <>                                             \
  struct Taken<type> {                                    \
    static type from(PyObject* object, const char* name); \
  }
MYTORCH_TAKEN(int64_t);
MYTORCH_TAKEN(double);
MYTORCH_TAKEN(bool);
MYTORCH_TAKEN(std::string);
MYTORCH_TAKEN(Tensor);
MYTORCH_TAKEN(Scalar);
MYTORCH_TAKEN(ScalarType);
MYTORCH_TAKEN(Generator);
MYTORCH_TAKEN(Int64s);
MYTORCH_TAKEN(std::vector<int64_t>);
MYTORCH_TAKEN(std::vector<double>);
MYTORCH_TAKEN(std::vector<Tensor>);
MYTORCH_TAKEN(nn::TransformerActivation);
MYTORCH_TAKEN(nn::StackNorm);
MYTORCH_TAKEN(nn::utils::rnn::PackedSequence);
// Pairs are two tensors, or None for two undefined ones.
using TensorPair = std::tuple<Tensor, Tensor>;
MYTORCH_TAKEN(TensorPair);
using PairFunction = std::function<Tensor(const Tensor&, const Tensor&)>;
MYTORCH_TAKEN(PairFunction);
#undef MYTORCH_TAKEN

template <class T>
struct Taken<std::optional<T>> {
  static std::optional<T> from(PyObject* object, const char* name) {
    if (!present(object)) return std::nullopt;
    return take<T>(object, name);
  }
};
template <size_t n>
struct Taken<nn::Sizes<n>> {
  static nn::Sizes<n> from(PyObject* object, const char* name) {
    return nn::Sizes<n>(take_ints(object, name, n));
  }
};
template <size_t n>
struct Taken<nn::OptionalSizes<n>> {
  static nn::OptionalSizes<n> from(PyObject* object, const char* name) {
    if (!present(object)) return {};
    return nn::OptionalSizes<n>(take<nn::Sizes<n>>(object, name));
  }
};
template <size_t n>
struct Taken<nn::ConvPadding<n>> {
  static nn::ConvPadding<n> from(PyObject* object, const char* name) {
    if (PyUnicode_Check(object)) return nn::ConvPadding<n>(take<std::string>(object, name));
    return nn::ConvPadding<n>(take<nn::Sizes<n>>(object, name));
  }
};
template <class Enum>
struct Taken<nn::OneOf<Enum>> {
  static nn::OneOf<Enum> from(PyObject* object, const char* name) {
    return nn::OneOf<Enum>(take<std::string>(object, name));
  }
};
template <class T>
struct Taken<nn::OneOrMore<T>> {
  static nn::OneOrMore<T> from(PyObject* object, const char* name) {
    if (!present(object)) return {};
    if (PyList_Check(object) || PyTuple_Check(object)) {
      return nn::OneOrMore<T>(take<std::vector<T>>(object, name));
    }
    return nn::OneOrMore<T>(take<T>(object, name));
  }
};
// A copy of a layer, which shares its parameters.
template <class L>
requires(std::is_base_of_v<nn::Module, L>) struct Taken<L> {
  static L from(PyObject* object, const char* /*name*/) { return layer_as<L>(object); }
};

// Sets an option. None makes one absent that can be, and leaves others as they are.
template <class T>
void give(T& option, PyObject* object, const char* name) {
  if constexpr (!requires { option.has_value(); } && !std::is_same_v<T, bool>) {
    if (!present(object)) return;
  }
  option = take<T>(object, name);
}

// The aggregate of options of a builder of libtorch's.
template <class Builder>
struct Parts;
template <class Aggregate, class... First>
struct Parts<nn::Options<Aggregate, First...>> {
  using Args = Aggregate;
};

// ---- options as values of Python; null for those that have none ----

template <class T>
PyObject* option_value(const T& value) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, int64_t> ||
                std::is_same_v<T, double>) {
    return to_python(value);
  } else if constexpr (requires { value.same(); }) {
    return value.same() ? to_python(std::string_view("same")) : to_python(IntList(value.sizes()));
  } else if constexpr (requires {
                         value.has_value();
                         to_python(*value);
                       }) {
    return value.has_value() ? to_python(*value) : Py_NewRef(Py_None);
  } else if constexpr (std::is_convertible_v<const T&, IntList>) {
    return to_python(static_cast<IntList>(value));
  } else {
    return nullptr;
  }
}

template <class Enum>
PyObject* option_value(const nn::OneOf<Enum>& value) {
  if constexpr (requires { name_of(Enum{}); }) {
    return to_python(std::string_view(name_of(static_cast<Enum>(value))));
  } else {
    return nullptr;
  }
}

template <class L>
LayerClass class_of(const char* name) {
  LayerClass known{typeid(L), name, nullptr, nullptr, nullptr};
  known.get = [](nn::Module& module, std::string_view option) -> PyObject* {
    L& layer = static_cast<L&>(module);
    if constexpr (requires { layer.options.args(); }) {
      const auto& args = layer.options.args();
#define MYTORCH_GET(field)                                 \
  if constexpr (requires { args.field; }) {                \
    if (option == #field) return option_value(args.field); \
  }
      MYTORCH_BUILT_OPTION_NAMES(MYTORCH_GET)
#undef MYTORCH_GET
    }
    return nullptr;
  };
  known.set = [](nn::Module& module, std::string_view option,
                 PyObject* value) -> std::function<void()> {
    L& layer = static_cast<L&>(module);
    if constexpr (requires { layer.options.args(); }) {
      auto& args = layer.options.args();
#define MYTORCH_SET(field)                                                                  \
  if constexpr (requires { Taken<std::decay_t<decltype(args.field)>>::from(value, ""); }) { \
    if (option == #field) {                                                                 \
      auto changed = args.field;                                                            \
      give(changed, value, #field);                                                         \
      return [&args, changed = std::move(changed)] { args.field = changed; };               \
    }                                                                                       \
  }
      MYTORCH_BUILT_OPTION_NAMES(MYTORCH_SET)
#undef MYTORCH_SET
    }
    return {};
  };
  if constexpr (requires(L & layer) { layer.reset_parameters(); }) {
    known.reset = [](nn::Module& module) { static_cast<L&>(module).reset_parameters(); };
  }
  return known;
}

// ---- results as types that Python has ----

template <class T>
T plain(T value) {
  return value;
}
inline TensorPair plain(nn::ASMoutput result) {
  return {std::move(result.output), std::move(result.loss)};
}
inline std::tuple<Tensor, Tensor, Tensor, Tensor> plain(
    const nn::utils::rnn::PackedSequence& packed) {
  return {packed.data(), packed.batch_sizes(), packed.sorted_indices(), packed.unsorted_indices()};
}
template <class State>
auto plain(std::tuple<nn::utils::rnn::PackedSequence, State> result) {
  return std::make_tuple(plain(std::get<0>(result)), std::move(std::get<1>(result)));
}

}  // namespace mytorch::python
