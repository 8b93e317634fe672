// The norm of gradients of which ranks have parts.
#pragma once

#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/optim/clip.h"

namespace mytorch::nn::parallel {

// Gradients that are whole on a group's ranks count once, and parts of split ones on each.
class NormOfRanks {
 public:
  // The device is that of the groups, and of the norm if there are no gradients.
  NormOfRanks(double norm_type, Device device) : norm_type_(norm_type), device_(device) {}

  // Adds the gradient of a parameter, if it has one. `split` is the group that shares it, null for
  // one that is whole. All ranks add the same parameters, or parts of them.
  void add(const Tensor& parameter, const distributed::Group* split);
  // Scales the gradients so that their norm is at most `max_norm`. The ranks of the further groups
  // have other parameters, or other parts of all. Returns the norm before. Collective. Throws
  // Error(kValue), before that, for a negative or NaN `max_norm`, and an order that is not above 0.
  optim::GradientNorm clip(double max_norm, const std::vector<distributed::Group>& others) const;

 private:
  struct Sharing {
    distributed::Group group;  // undefined for whole gradients
    std::vector<Tensor> gradients = {};
  };
  // Returns the norm, to the power of its order.
  Tensor power_of(const std::vector<Tensor>& gradients) const;
  void reduce(const Tensor& power, const distributed::Group& group) const;

  double norm_type_;
  Device device_;
  std::vector<Sharing> sharings_ = {{}};
};

}  // namespace mytorch::nn::parallel
