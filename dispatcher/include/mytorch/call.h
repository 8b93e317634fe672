// Calls operators by name, with values whose types are known only at run time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mytorch/handle.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Any argument or result of an operator. The alternatives are the argument types of the C contract.
class Value {
 public:
  using Variant =
      std::variant<std::monostate, Tensor, std::vector<Tensor>, Scalar, std::vector<int64_t>,
                   std::vector<double>, std::string, ScalarType, Device, Generator, Handle>;
  Value() = default;                                  // None
  Value(Tensor x) : v_(std::move(x)) {}               // NOLINT
  Value(std::vector<Tensor> x) : v_(std::move(x)) {}  // NOLINT
  Value(Scalar x) : v_(x) {}                          // NOLINT
  template <detail::AnyNumber T>
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
  // Return the value as the given type. Throw Error(kType), naming the actual type, if it has
  // another.
  const Tensor& tensor() const;
  const std::vector<Tensor>& tensors() const;
  Scalar scalar() const;
  std::string type_name() const;  // "Tensor", "int", "int[]", ...

 private:
  Variant v_;
};

using NamedValue = std::pair<std::string_view, Value>;

// Calls an operator by name.
//
// `name` is a full name such as "add.Tensor", or a base name such as "add", whose overloads are
// tried in the order of the records, as in ATen. "add_" and "add_.Tensor" are the in-place forms.
// An argument named "out" selects the out= form; several outputs are passed as a list named "out",
// or one by one under their names or as "out0", "out1", ... Missing arguments take their defaults.
// Returns one Value per result. Throws Error(kValue) for an unknown operator, and Error(kType),
// listing every overload with the reason why it does not match, if no overload takes the arguments.
std::vector<Value> call(std::string_view name, std::vector<Value> args,
                        std::vector<NamedValue> named = {});

// Returns the full name of every operator, in alphabetical order.
std::vector<std::string> operator_names();

}  // namespace mytorch
