// Calling operators by name, with values whose types are known only at run time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch {

// A value of a kind that the program does not know: a type name and a counted pointer, the same
// boxed and in C.
struct Handle {
  std::string type;
  std::shared_ptr<void> object;
};

// Any argument or result of an operator: the closed set of the C contract.
class Value {
 public:
  using Variant =
      std::variant<std::monostate, Tensor, std::vector<Tensor>, Scalar, std::vector<int64_t>,
                   std::vector<double>, std::string, ScalarType, Device, Generator, Handle>;
  Value() = default;                                  // None
  Value(Tensor x) : v_(std::move(x)) {}               // NOLINT
  Value(std::vector<Tensor> x) : v_(std::move(x)) {}  // NOLINT
  Value(Scalar x) : v_(x) {}                          // NOLINT
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Value(T x) : v_(Scalar(x)) {}                        // NOLINT
  Value(std::vector<int64_t> x) : v_(std::move(x)) {}  // NOLINT
  Value(std::vector<double> x) : v_(std::move(x)) {}   // NOLINT
  Value(IntList x) : v_(x.vec()) {}                    // NOLINT
  Value(std::string x) : v_(std::move(x)) {}           // NOLINT
  Value(const char* x) : v_(std::string(x)) {}         // NOLINT
  Value(ScalarType x) : v_(x) {}                       // NOLINT
  Value(Device x) : v_(std::move(x)) {}                // NOLINT
  Value(Generator x) : v_(std::move(x)) {}             // NOLINT
  Value(Handle x) : v_(std::move(x)) {}                // NOLINT

  bool is_none() const { return v_.index() == 0; }
  const Variant& variant() const { return v_; }
  // The value as T; throws Error(kType) naming what it is.
  const Tensor& tensor() const;
  const std::vector<Tensor>& tensors() const;
  Scalar scalar() const;
  std::string type_name() const;  // "Tensor", "int", "int[]", ...

 private:
  Variant v_;
};

using NamedValue = std::pair<std::string_view, Value>;

// Calls an operator: `name` is "add.Tensor", or "add", whose overloads are then tried in the order
// of the records, as ATen does. "add_" and "add_.Tensor" are the in-place forms; with an argument
// named "out" the out= form is called; several outputs are a list named "out", or each by its name
// or as "out0", "out1", ... Missing arguments take their defaults. One Value per result.
// Throws Error(kValue) for an unknown operator, and Error(kType) that lists every overload with the
// reason why it does not take the arguments.
std::vector<Value> call(std::string_view name, std::vector<Value> args,
                        std::vector<NamedValue> named = {});

// Every operator by its full name, in alphabetical order.
std::vector<std::string> operator_names();

}  // namespace mytorch
