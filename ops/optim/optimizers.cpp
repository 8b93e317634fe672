// Optimizer steps for all parameters of a group. The composites process one tensor at a time;
// kernels process the whole group.
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/adagrad_step.h"
#include "mytorch/ops/adagrad_steps_.h"
#include "mytorch/ops/adam_step.h"
#include "mytorch/ops/adam_steps_.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/maximum.h"
#include "mytorch/ops/rmsprop_step.h"
#include "mytorch/ops/rmsprop_steps_.h"
#include "mytorch/ops/sgd_step.h"
#include "mytorch/ops/sgd_steps_.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/to.h"

namespace mytorch {
namespace {

// Returns base^n by squaring, which uses only products, so that every backend computes the same
// bits.
double power(double base, int64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1) {
    if ((n & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

double number(const Operand& operand) {
  return (operand.is_tensor() ? operand.tensor().item() : operand.scalar()).to_double();
}

void check_number(const char* op, const char* name, const Operand& operand) {
  if (!operand.is_tensor()) return;
  const IntList sizes = operand.impl()->sizes();
  check_shape(sizes.empty(), op, name, " has shape ", sizes, ": give a number or a 0-dim tensor");
}

using NamedLists = std::initializer_list<std::pair<const char*, TensorList>>;

// Checks that the lists have the same length, and that their tensors have the shape of the
// parameters, which are floats.
void check_shapes(const char* op, TensorList self, NamedLists others) {
  for (size_t i = 0; i < self.size(); ++i) {
    check_type(self[i].is_floating_point(), op, "self[", i, "] is ", self[i].dtype(),
               ": parameters are floats");
  }
  for (const auto& [name, list] : others) {
    check_shape(list.size() == self.size(), op, name, " has ", list.size(), " tensors, and self ",
                self.size());
    for (size_t i = 0; i < list.size(); ++i) {
      check_shape(list[i].sizes() == self[i].sizes(), op, name, "[", i, "] has shape ",
                  list[i].sizes(), ", and self[", i, "] ", self[i].sizes());
    }
  }
}

// Checks, besides, that the tensors have the type of the parameters.
void check_lists(const char* op, TensorList self, NamedLists others) {
  check_shapes(op, self, others);
  for (const auto& [name, list] : others) {
    for (size_t i = 0; i < list.size(); ++i) {
      check_type(list[i].dtype() == self[i].dtype(), op, name, "[", i, "] is ", list[i].dtype(),
                 ", and self[", i, "] ", self[i].dtype());
    }
  }
}

// Returns whether `t` has no gaps in memory, and each element the place that it has in `like`.
bool laid_out_as(const Tensor& t, const Tensor& like) {
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.size(d) != 1 && t.strides()[d] != like.strides()[d]) return false;
    last += (t.size(d) - 1) * t.strides()[d];
  }
  return t.numel() == 0 || last + 1 == t.numel();
}

// The lists of a step, parameters first, with copies in place of the tensors that are laid out in
// memory unlike their parameter, or with gaps. Kernels take lists of tensors that are alike, and
// read the learning rate on the device.
class AlikeLists {
 public:
  // The first `written` lists are those that the step writes.
  AlikeLists(std::initializer_list<TensorList> lists, size_t written) {
    for (const TensorList list : lists) {
      std::vector<Tensor>& own = lists_.emplace_back(list.begin(), list.end());
      for (size_t i = 0; i < own.size(); ++i) {
        if (laid_out_as(own[i], lists_[0][i])) continue;
        changed_ = true;
        const Tensor copy = mytorch::empty_like(lists_[0][i]);
        copy.copy_(own[i]);
        if (lists_.size() <= written) back_.emplace_back(copy, own[i]);
        own[i] = copy;
      }
    }
  }
  bool changed() const { return changed_; }
  const std::vector<Tensor>& operator[](size_t list) const { return lists_[list]; }
  // Copies what the step has written to the tensors themselves.
  void write_back() const {
    for (const auto& [from, to] : back_) to.copy_(from);
  }

 private:
  std::vector<std::vector<Tensor>> lists_;
  std::vector<std::pair<Tensor, Tensor>> back_;
  bool changed_ = false;
};

}  // namespace

namespace shape {

void adam_steps_(TensorList self, TensorList gradients, TensorList exp_avgs, TensorList exp_avg_sqs,
                 TensorList max_exp_avg_sqs, const Operand& lr, const Operand& step, double, double,
                 double, double, bool, bool, TensorList rounded) {
  constexpr const char* kOp = "adam_steps_";
  check_lists(kOp, self, {{"exp_avgs", exp_avgs}, {"exp_avg_sqs", exp_avg_sqs}});
  if (rounded.size() == 0) {
    check_lists(kOp, self, {{"gradients", gradients}});
  } else {
    check_shapes(kOp, self, {{"gradients", gradients}, {"rounded", rounded}});
  }
  for (size_t i = 0; i < rounded.size(); ++i) {
    check_type(rounded[i].is_floating_point(), kOp, "rounded[", i, "] is ", rounded[i].dtype(),
               ": give a tensor of floats");
    check_type(
        gradients[i].dtype() == self[i].dtype() || gradients[i].dtype() == rounded[i].dtype(), kOp,
        "gradients[", i, "] is ", gradients[i].dtype(), ": give ", self[i].dtype(), " as self[", i,
        "], or ", rounded[i].dtype(), " as rounded[", i, "]");
  }
  if (max_exp_avg_sqs.size() != 0) check_lists(kOp, self, {{"max_exp_avg_sqs", max_exp_avg_sqs}});
  check_number(kOp, "lr", lr);
  check_number(kOp, "step", step);
}

void sgd_steps_(TensorList self, TensorList gradients, TensorList momentum_buffers,
                const Operand& lr, double momentum, double, double, bool, bool) {
  constexpr const char* kOp = "sgd_steps_";
  check_lists(kOp, self, {{"gradients", gradients}});
  if (momentum != 0 || momentum_buffers.size() != 0) {
    check_lists(kOp, self, {{"momentum_buffers", momentum_buffers}});
  }
  check_number(kOp, "lr", lr);
}

void rmsprop_steps_(TensorList self, TensorList gradients, TensorList square_avgs,
                    const Operand& lr, double, double, double, bool) {
  check_lists("rmsprop_steps_", self, {{"gradients", gradients}, {"square_avgs", square_avgs}});
  check_number("rmsprop_steps_", "lr", lr);
}

void adagrad_steps_(TensorList self, TensorList gradients, TensorList sums, const Operand& lr,
                    const Operand& step, double, double, double, bool) {
  check_lists("adagrad_steps_", self, {{"gradients", gradients}, {"sums", sums}});
  check_number("adagrad_steps_", "lr", lr);
  check_number("adagrad_steps_", "step", step);
}

}  // namespace shape

namespace composite {

// The bias corrections are numbers, so the step size and eps include them:
//   m / c1 / (sqrt(v / c2) + eps) = sqrt(c2) / c1 * m / (sqrt(v) + eps * sqrt(c2))
void adam_steps_(TensorList self, TensorList gradients, TensorList exp_avgs, TensorList exp_avg_sqs,
                 TensorList max_exp_avg_sqs, const Operand& lr, const Operand& step, double beta1,
                 double beta2, double eps, double weight_decay, bool decoupled, bool maximize,
                 TensorList rounded) {
  // A kernel that cannot round takes one parameter at a time, so that few gradients are converted
  // at once.
  for (size_t i = 0; i < rounded.size(); ++i) {
    const auto one = [i](TensorList list) {
      return i < list.size() ? std::vector<Tensor>{list[i]} : std::vector<Tensor>();
    };
    mytorch::adam_steps_(one(self), {gradients[i].to(self[i].dtype())}, one(exp_avgs),
                         one(exp_avg_sqs), one(max_exp_avg_sqs), lr, step, beta1, beta2, eps,
                         weight_decay, decoupled, maximize);
    rounded[i].copy_(self[i]);
  }
  if (rounded.size() != 0) return;
  const bool largest = max_exp_avg_sqs.size() != 0;
  if (const AlikeLists alike({self, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, gradients},
                             largest ? 4 : 3);
      alike.changed()) {
    mytorch::adam_steps_(alike[0], alike[4], alike[1], alike[2], alike[3], lr, step, beta1, beta2,
                         eps, weight_decay, decoupled, maximize);
    return alike.write_back();
  }
  const double rate = number(lr);
  const auto t = static_cast<int64_t>(number(step));
  const double root2 = std::sqrt(1 - power(beta2, t));
  const double by = rate * root2 / (1 - power(beta1, t));
  const double shrink = decoupled ? 1 - rate * weight_decay : 1;
  const double decay = decoupled ? 0 : weight_decay;
  for (size_t i = 0; i < self.size(); ++i) {
    const Tensor &parameter = self[i], &mean = exp_avgs[i], &square = exp_avg_sqs[i];
    if (max_exp_avg_sqs.size() == 0) {
      adam_step_out(parameter, mean, square, parameter, gradients[i], mean, square, by, 1 - beta1,
                    1 - beta2, eps * root2, shrink, decay, maximize ? -1 : 1);
      continue;
    }
    const Tensor& largest = max_exp_avg_sqs[i];
    Tensor gradient = maximize ? -gradients[i] : gradients[i];
    if (decay != 0) gradient = add(gradient, parameter, decay);
    if (shrink != 1) parameter.mul_(shrink);
    mean.lerp_(gradient, 1 - beta1);
    square.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
    maximum_out(largest, largest, square);
    parameter.addcdiv_(mean, largest.sqrt().add_(eps * root2), -by);
  }
}

void sgd_steps_(TensorList self, TensorList gradients, TensorList momentum_buffers,
                const Operand& lr, double momentum, double dampening, double weight_decay,
                bool nesterov, bool maximize) {
  if (const AlikeLists alike({self, momentum != 0 ? momentum_buffers : TensorList(), gradients}, 2);
      alike.changed()) {
    mytorch::sgd_steps_(alike[0], alike[2], alike[1], lr, momentum, dampening, weight_decay,
                        nesterov, maximize);
    return alike.write_back();
  }
  const double rate = number(lr);
  for (size_t i = 0; i < self.size(); ++i) {
    const Tensor& parameter = self[i];
    if (momentum == 0) {
      // p * (1 - lr * weight_decay) - lr * g, which is p - lr * (g + weight_decay * p), in place.
      if (weight_decay != 0) parameter.mul_(1 - rate * weight_decay);
      parameter.add_(gradients[i], maximize ? rate : -rate);
      continue;
    }
    const Tensor& buffer = momentum_buffers[i];
    sgd_step_out(parameter, buffer, parameter, gradients[i], buffer, rate, momentum, 1 - dampening,
                 weight_decay, maximize ? -1 : 1, nesterov);
  }
}

void rmsprop_steps_(TensorList self, TensorList gradients, TensorList square_avgs,
                    const Operand& lr, double alpha, double eps, double weight_decay,
                    bool maximize) {
  if (const AlikeLists alike({self, square_avgs, gradients}, 2); alike.changed()) {
    mytorch::rmsprop_steps_(alike[0], alike[2], alike[1], lr, alpha, eps, weight_decay, maximize);
    return alike.write_back();
  }
  const double rate = number(lr);
  for (size_t i = 0; i < self.size(); ++i) {
    rmsprop_step_out(self[i], square_avgs[i], self[i], gradients[i], square_avgs[i], rate,
                     1 - alpha, eps, weight_decay, maximize ? -1 : 1);
  }
}

void adagrad_steps_(TensorList self, TensorList gradients, TensorList sums, const Operand& lr,
                    const Operand& step, double eps, double lr_decay, double weight_decay,
                    bool maximize) {
  if (const AlikeLists alike({self, sums, gradients}, 2); alike.changed()) {
    mytorch::adagrad_steps_(alike[0], alike[2], alike[1], lr, step, eps, lr_decay, weight_decay,
                            maximize);
    return alike.write_back();
  }
  const double rate = number(lr) / (1 + (number(step) - 1) * lr_decay);
  for (size_t i = 0; i < self.size(); ++i) {
    adagrad_step_out(self[i], sums[i], self[i], gradients[i], sums[i], rate, eps, weight_decay,
                     maximize ? -1 : 1);
  }
}

}  // namespace composite
}  // namespace mytorch
