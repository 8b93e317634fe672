// What of a module is not public: the members that hold its parameters, and its Split.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "mytorch/nn/module.h"

namespace mytorch::nn {
class Split;
}

namespace mytorch::nn::detail {

struct ParameterAccess {
  // Calls `function` with every member, also with those that hold the same tensor.
  static void visit(const Module& module,
                    const std::function<void(const std::string& name, Tensor& member)>& function);
  // The same with buffers.
  static void visit_buffers(
      const Module& module,
      const std::function<void(const std::string& name, Tensor& member)>& function);
  // Replaces the data of parameters, gradients and buffers, as Module::to does.
  static void convert(Module& module, const std::function<Tensor(const Tensor&)>& function);
  // Whether members of the module itself are computed from others.
  static bool is_parametrized(const Module& module);
  // Calls `function` with the module's own tensors alone, also with undefined ones.
  static void visit_own(
      const Module& module,
      const std::function<void(const std::string& name, Tensor& member, bool is_buffer)>& function);
  // Whether the module will make its tensors in its first call.
  static bool is_lazy(const Module& module);
  // Returns the name and the pointer of a child that is held by pointer, as an element of a list.
  static const std::string& child_name(const Module& module, size_t index);
  static std::shared_ptr<Module> child(const Module& module, size_t index);
  // Whether hooks of the module, and so its Split, are also those of a copy.
  static bool shares_hooks(const Module& module);
  // What split_of() returns, and set_split() sets.
  static const Split* split(const Module& module);
  static void set_split(Module& module, std::shared_ptr<const Split> split);
};

}  // namespace mytorch::nn::detail
