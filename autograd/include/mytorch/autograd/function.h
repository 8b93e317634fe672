// Custom differentiable operations.
//
//   struct Cube : autograd::Function<Cube> {
//     static Tensor forward(autograd::AutogradContext* ctx, const Tensor& x, double scale) {
//       ctx->save_for_backward({x});
//       ctx->saved_data["scale"] = scale;
//       return x * x * x * scale;
//     }
//     static autograd::tensor_list backward(autograd::AutogradContext* ctx,
//                                           autograd::tensor_list grads) {
//       const Tensor x = ctx->saved_tensors()[0];
//       const double scale = ctx->saved_data["scale"].toDouble();
//       return {grads[0] * x * x * (3 * scale), Tensor()};  // one per argument of forward
//     }
//   };
//   Tensor y = Cube::apply(x, 2.0);
#pragma once

#include <any>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "mytorch/autograd/node.h"
#include "mytorch/autograd/saved_tensor.h"
#include "mytorch/grad_mode.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

class FunctionNode;

using tensor_list = std::vector<Tensor>;

// Any value that forward keeps for backward: a std::any with libtorch's accessors. Numbers convert
// to each other. The accessors throw Error(kType) if the value does not convert.
class SavedValue : public std::any {
 public:
  using std::any::any;
  bool toBool() const;
  int64_t toInt() const;
  double toDouble() const;
  std::string toString() const;
  std::vector<int64_t> toIntVector() const;
  Tensor toTensor() const;
};

// The state shared by forward and backward of one call.
class FunctionContext {
 public:
  FunctionContext() = default;
  FunctionContext(const FunctionContext&) = delete;
  FunctionContext& operator=(const FunctionContext&) = delete;

  // In forward: saves tensors for backward, replacing any saved earlier. They must be arguments or
  // results of the call, or tensors that need no gradient.
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
  // In forward: declares arguments that it modified in place. Each must also be a result.
  void mark_dirty(std::vector<Tensor> tensors) { dirty_ = std::move(tensors); }
  // In forward: declares results that have no gradient.
  void mark_non_differentiable(std::vector<Tensor> tensors) {
    non_differentiable_ = std::move(tensors);
  }
  // Whether backward receives zeros (the default) or undefined tensors for results without a
  // gradient.
  void set_materialize_grads(bool materialize) { materialize_ = materialize; }
  // Declares that backward is not differentiable: differentiating its results throws, with the text
  // `why`, a literal, after the name of the function.
  void mark_once_differentiable(
      const char* why =
          "its backward was marked once_differentiable, but is being differentiated") {
    once_differentiable_ = why;
  }

  // In backward: returns the saved tensors. Throws Error(kValue) if one was modified since, or
  // freed.
  std::vector<Tensor> saved_tensors() const;
  // Returns whether the gradient of argument i is wanted. Arguments are numbered as forward
  // receives them; each tensor of a list counts as one argument.
  bool needs_input_grad(size_t i) const;

  // libtorch's name of saved_tensors.
  std::vector<Tensor> get_saved_variables() const { return saved_tensors(); }

  // Other values for backward. Tensors that need a gradient belong in save_for_backward.
  std::map<std::string, SavedValue> saved_data;
  std::map<std::string, SavedValue>& data = saved_data;  // the same, by a shorter name

 private:
  friend class FunctionNode;
  friend class FunctionCall;

  std::vector<Tensor> to_save_;
  std::vector<Tensor> dirty_;
  std::vector<Tensor> non_differentiable_;
  std::vector<SavedTensor> saved_;
  std::vector<char> needs_;  // before backward
  const FunctionNode* node_ = nullptr;
  bool materialize_ = true;
  const char* once_differentiable_ = nullptr;  // why, if it is
};
using AutogradContext = FunctionContext;  // libtorch's name

using FunctionBackward = std::vector<Tensor> (*)(FunctionContext*, const std::vector<Tensor>&);

// The part of Function::apply that does not depend on its template arguments.
class FunctionCall {
 public:
  FunctionCall(const char* name, FunctionBackward backward);

  template <class Arg>
  void add(const Arg& arg) {
    if constexpr (std::is_convertible_v<const Arg&, Tensor>) {
      arguments_.push_back(arg);
    } else if constexpr (std::is_convertible_v<const Arg&, TensorList>) {
      for (const Tensor& tensor : TensorList(arg)) arguments_.push_back(tensor);
    } else {
      arguments_.emplace_back();
    }
  }
  FunctionContext* begin();  // call after adding all arguments, before forward
  // Gives the results their history. Arguments that forward returns unchanged become aliases.
  void finish(std::vector<Tensor>* results);

 private:
  const char* name_;
  FunctionBackward backward_;
  std::vector<Tensor> arguments_;
  std::unique_ptr<FunctionContext> context_;
};

// The base of custom operations, with the derived class as its parameter. Self defines the static
// functions forward and backward and, optionally, `static constexpr const char* kName` for
// messages. forward runs without recording and returns a Tensor or a std::vector<Tensor>. backward
// receives one gradient per result, as a `const tensor_list&` or a `tensor_list`, and returns one
// per argument of forward (undefined for arguments that are not tensors or need no gradient).
template <class Self>
class Function {
 public:
  template <class... Args>
  static auto apply(const Args&... args) {
    FunctionCall call(name(), [](FunctionContext* context, const tensor_list& grads) {
      return tensor_list(Self::backward(context, grads));
    });
    (call.add(args), ...);
    FunctionContext* context = call.begin();
    using Result = decltype(Self::forward(context, args...));
    std::vector<Tensor> results;
    if constexpr (std::is_same_v<Result, Tensor>) {
      {
        NoGradGuard no_grad;
        results.push_back(Self::forward(context, args...));
      }
      call.finish(&results);
      return Tensor(std::move(results[0]));
    } else {
      static_assert(std::is_same_v<Result, std::vector<Tensor>>,
                    "forward returns a Tensor or a std::vector<Tensor>");
      {
        NoGradGuard no_grad;
        results = Self::forward(context, args...);
      }
      call.finish(&results);
      return results;
    }
  }

 private:
  static const char* name() {
    if constexpr (requires { Self::kName; }) {
      return Self::kName;
    } else {
      return "Function";
    }
  }
};

}  // namespace mytorch::autograd
