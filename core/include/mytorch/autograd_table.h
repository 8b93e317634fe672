// What core asks of the autograd library. Core links without it: the table is then null, and the
// methods of Tensor that need it throw an Error that says what to link.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mytorch/std_function.h"
#include "mytorch/tensor.h"

namespace mytorch {

struct AutogradTable {
  // Called when a tensor that has a meta goes; frees the meta.
  void (*destroy_meta)(TensorImpl* impl);
  // Called after replace_data on a tensor that has a meta.
  void (*data_replaced)(TensorImpl* impl);

  // The methods of Tensor of the same names.
  void (*set_requires_grad)(const Tensor& self, bool requires_grad);
  bool (*is_leaf)(const Tensor& self);
  void (*detach)(const Tensor& self);  // detach_
  Tensor (*grad)(const Tensor& self);
  void (*set_grad)(const Tensor& self, const Tensor& grad);
  void (*retain_grad)(const Tensor& self);
  bool (*retains_grad)(const Tensor& self);
  void (*backward)(const Tensor& self, const Tensor& gradient, std::optional<bool> retain_graph,
                   bool create_graph, TensorList inputs);
  int64_t (*register_hook)(const Tensor& self, std::function<Tensor(const Tensor&)> hook);
  void (*remove_hook)(const Tensor& self, int64_t hook);
  std::string (*grad_fn)(const Tensor& self);
};

// Set once, while the autograd library is initialized.
extern const AutogradTable* autograd_table;

}  // namespace mytorch
