// Losses: a fused kernel for the terms, then a reduction.
#include <cmath>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/amin.h"
#include "mytorch/ops/cross_entropy.h"
#include "mytorch/ops/cross_entropy_backward.h"
#include "mytorch/ops/cross_entropy_forward.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/kl_div_terms.h"
#include "mytorch/ops/l1_loss_terms.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/nll_loss_forward.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/unsqueeze.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "ops/composites.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

void check_reduction(Str reduction, const char* op) {
  check_value(reduction == "none" || reduction == "mean" || reduction == "sum", op, "reduction \"",
              reduction, "\": give \"none\", \"mean\" or \"sum\"");
}

void warn_broadcast(const Tensor& self, const Tensor& target, const Tensor& terms, const char* op) {
  static std::mutex mutex;
  static std::set<std::string>* const warned = new std::set<std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  if (!warned->insert(op).second) return;
  std::fprintf(stderr,
               "mytorch: warning: [%s] input %s and target %s are broadcast to %s, which is rarely "
               "intended: give both the same shape\n",
               op, shape_str(self.sizes()).c_str(), shape_str(target.sizes()).c_str(),
               shape_str(terms.sizes()).c_str());
}

// ---- losses of class indices ----

int64_t class_dim(size_t ndim) { return ndim == 1 ? 0 : 1; }

// Returns the shape of a target: the scores' shape without the class dimension.
Dims target_sizes(IntList scores) {
  Dims sizes = to_dims(scores);
  if (!sizes.empty()) sizes.erase(sizes.begin() + class_dim(sizes.size()));
  return sizes;
}

void check_targets(IntList scores, ScalarType dtype, const Tensor& target, const Tensor& weight,
                   Str reduction, const char* op) {
  check_reduction(reduction, op);
  check_shape(!scores.empty(), op, "a 0-dim input has no classes: give (C,) or (N, C, ...)");
  check_type(target.dtype() == kInt64, op, "target is ", target.dtype(),
             ": class indices are int64");
  const Dims expected = target_sizes(scores);
  check_shape(target.sizes() == as_list(expected), op, "input ", scores, " expects target ",
              as_list(expected), ", not ", target.sizes());
  if (!weight.defined()) return;
  const int64_t classes = scores[class_dim(scores.size())];
  check_shape(weight.dim() == 1 && weight.size(0) == classes, op, "weight has shape ",
              weight.sizes(), ", but there are ", classes, " classes");
  check_type(weight.dtype() == dtype, op, "weight is ", weight.dtype(), " and input ", dtype,
             ": convert one with to()");
}

struct Targets {
  Tensor valid;   // true for targets that are not ignored
  Tensor index;   // the class of a valid target, else 0
  Tensor weight;  // the weight of the target's class, 0 if ignored; undefined without weights
};

Targets targets(const Tensor& target, const Tensor& weight, int64_t ignore_index) {
  Targets t;
  t.valid = target != ignore_index;
  t.index = where(t.valid, target, 0);
  if (weight.defined()) {
    const Tensor chosen = weight.gather(0, t.index.reshape({-1}));
    t.weight = where(t.valid, chosen.reshape(target.sizes()), 0);
  }
  return t;
}

// Returns the sum of the weights of valid targets.
Tensor total(const Targets& t, ScalarType type) {
  return t.weight.defined() ? t.weight.sum({}, false, wide_type(type))
                            : to(t.valid.sum(), wide_type(type));
}

}  // namespace

namespace shape {

Specs<2> nll_loss_forward(const Tensor& self, const Tensor& target, const Tensor& weight,
                          Str reduction, int64_t) {
  check_type(self.is_floating_point(), "nll_loss", "input is ", self.dtype(),
             ": log-probabilities are floats");
  check_targets(self.sizes(), self.dtype(), target, weight, reduction, "nll_loss");
  return {like(self, reduction == "none" ? target_sizes(self.sizes()) : Dims()),
          like(self, {}, wide_type(self.dtype()))};
}

TensorSpec nll_loss_backward(const Tensor& grad_output, IntList input_size, const Tensor& target,
                             const Tensor& weight, Str reduction, int64_t,
                             const Tensor& total_weight) {
  check_targets(input_size, grad_output.dtype(), target, weight, reduction, "nll_loss");
  const IntList expected = reduction == "none" ? target.sizes() : IntList();
  check_shape(grad_output.sizes() == expected && total_weight.dim() == 0, "nll_loss_backward",
              "grad_output has shape ", grad_output.sizes(), " and total_weight ",
              total_weight.sizes(), ", expected ", expected, " and ()");
  return like(grad_output, to_dims(input_size));
}

Specs<3> cross_entropy_forward(const Tensor& self, const Tensor& target, const Tensor& weight,
                               Str reduction, int64_t, double) {
  check_type(self.is_floating_point(), "cross_entropy", "input is ", self.dtype(),
             ": scores are floats");
  check_targets(self.sizes(), self.dtype(), target, weight, reduction, "cross_entropy");
  const Dims sizes = target_sizes(self.sizes());
  const ScalarType wide = wide_type(self.dtype());  // sums over a batch overflow 16-bit floats
  return {like(self, reduction == "none" ? sizes : Dims()), like(self, sizes, wide),
          like(self, {}, wide)};
}

TensorSpec cross_entropy_backward(const Tensor& grad_output, const Tensor& self,
                                  const Tensor& target, const Tensor& weight, const Tensor& log_sum,
                                  const Tensor& total_weight, Str reduction, int64_t, double) {
  check_type(self.is_floating_point(), "cross_entropy_backward", "self is ", self.dtype(),
             ": scores are floats");
  check_targets(self.sizes(), self.dtype(), target, weight, reduction, "cross_entropy");
  const IntList expected = reduction == "none" ? target.sizes() : IntList();
  check_shape(grad_output.sizes() == expected && total_weight.dim() == 0 &&
                  log_sum.sizes() == target.sizes(),
              "cross_entropy_backward", "grad_output has shape ", grad_output.sizes(), ", log_sum ",
              log_sum.sizes(), " and total_weight ", total_weight.sizes(), ", expected ", expected,
              ", ", target.sizes(), " and ()");
  check_shape(self.numel() != 0 || target.numel() == 0, "cross_entropy_backward", "self, of shape ",
              self.sizes(), ", has no classes");
  return like(self, to_dims(self.sizes()));
}

}  // namespace shape

namespace composite {

Tensor reduced(const Tensor& terms, Str reduction, const char* op) {
  check_reduction(reduction, op);
  if (reduction == "none") return terms;
  return reduction == "mean" ? terms.mean() : terms.sum();
}

Tensor loss(const Tensor& self, const Tensor& target, const Tensor& terms, Str reduction,
            const char* op) {
  if (self.sizes() != target.sizes()) warn_broadcast(self, target, terms, op);
  return reduced(terms, reduction, op);
}

Tensor l1_loss(const Tensor& self, const Tensor& target, Str reduction) {
  const bool complex = self.is_complex() || target.is_complex();
  return loss(self, target,
              complex ? mytorch::abs(self - target) : mytorch::l1_loss_terms(self, target),
              reduction, "l1_loss");
}

Tensor loss_of_probabilities(const Tensor& self, const Tensor& target, const Tensor& terms,
                             Str reduction, const char* op) {
  check_reduction(reduction, op);
  if (self.device().is_cpu() && self.numel() != 0 && !recording_graph()) {
    const Tensor values = all_examples(self.detach());
    const double least = mytorch::amin(values).item<double>();
    const double greatest = mytorch::amax(values).item<double>();
    if (!(least >= 0 && greatest <= 1)) {
      fail(ErrorCode::kValue, "[", op, "] input has values from ", least, " to ", greatest,
           ": give probabilities in [0, 1], as sigmoid() returns, or scores to "
           "binary_cross_entropy_with_logits");
    }
  }
  return loss(self, target, terms, reduction, op);
}

Tensor kl_div(const Tensor& self, const Tensor& target, Str reduction, bool log_target) {
  const Tensor terms = kl_div_terms(self, target, log_target);
  if (reduction != "batchmean") return reduced(terms, reduction, "kl_div");
  // As in ATen, an input of 0 dimensions has no batch.
  return self.dim() == 0 ? terms.sum() : terms.sum() / self.size(0);
}

Tensors<2> nll_loss_forward(const Tensor& self, const Tensor& target, const Tensor& weight,
                            Str reduction, int64_t ignore_index) {
  const Targets t = targets(target, weight, ignore_index);
  const int64_t dim = class_dim(self.sizes().size());
  const Tensor chosen = self.gather(dim, t.index.unsqueeze(dim));
  const Tensor scores = chosen.reshape(target.sizes());
  const Tensor weighted = t.weight.defined() ? scores * t.weight : scores;
  // Selects instead of multiplying by 0: an ignored score may be -inf.
  const Tensor terms = where(t.valid, -weighted, 0);
  const ScalarType wide = wide_type(self.dtype());
  if (reduction == "none") return {terms, mytorch::zeros(IntList(), wide, self.device())};
  Tensor weights = total(t, self.dtype());
  Tensor sum_of_terms = terms.sum({}, false, wide);
  if (reduction == "mean") sum_of_terms = sum_of_terms / weights;
  return {sum_of_terms.to(self.dtype()), std::move(weights)};
}

Tensor nll_loss_backward(const Tensor& grad_output, IntList input_size, const Tensor& target,
                         const Tensor& weight, Str reduction, int64_t ignore_index,
                         const Tensor& total_weight) {
  const Targets t = targets(target, weight, ignore_index);
  const int64_t dim = class_dim(input_size.size());
  Tensor grad = -grad_output;
  if (reduction == "mean") grad = grad / total_weight;
  if (t.weight.defined()) grad = t.weight * grad;
  const Tensor chosen = to(where(t.valid, grad, 0), grad_output.dtype());
  const Tensor zero = mytorch::zeros(input_size, grad_output.dtype(), grad_output.device());
  return zero.scatter(dim, t.index.unsqueeze(dim), chosen.unsqueeze(dim));
}

}  // namespace composite

namespace {

// The cross entropy of targets that are probabilities.
Tensor cross_entropy_of_probabilities(const Tensor& log_p, const Tensor& target,
                                      const Tensor& weight, Str reduction, double label_smoothing,
                                      int64_t dim) {
  const int64_t classes = log_p.size(dim);
  Tensor wanted = target;
  if (label_smoothing > 0) {
    wanted = target * (1 - label_smoothing) + label_smoothing / static_cast<double>(classes);
  }
  // A class that is impossible for both adds nothing.
  const Tensor neither = mytorch::logical_and(log_p == -HUGE_VAL, wanted == 0);
  Tensor terms = log_p.masked_fill(neither, 0) * wanted;
  if (weight.defined()) terms = terms * weight;
  if (reduction == "none") return -terms.sum(dim);
  Tensor loss = -terms.sum();
  if (reduction == "sum") return loss;
  return loss / (static_cast<double>(log_p.numel()) / static_cast<double>(classes));
}

// Returns the mean of -log p over the classes, reduced like nll_loss: the part of label smoothing.
Tensor smooth_part(const Tensor& log_p, const Tensor& target, const Tensor& weight,
                   const Tensor& weight_by_dim, Str reduction, int64_t ignore_index, int64_t dim) {
  const Tensor weighted = weight.defined() ? log_p * weight_by_dim : log_p;
  const Tensor valid = target != ignore_index;
  Tensor terms = where(valid, -weighted.mean(dim), 0);
  if (reduction == "none") return terms;
  if (reduction == "sum") return terms.sum();
  return terms.sum({}, false, wide_type(log_p.dtype())) /
         total(targets(target, weight, ignore_index), log_p.dtype());
}

// The gradient with respect to score k of target i is factor[i] * p[i, k], minus `own` at the
// target's class, minus `every` (times the class's weight) at all classes.
struct Shares {
  Tensor factor, own,
      every;  // in the target's shape with the classes as 1; `every` may be undefined
};

Shares shares_of(const Tensor& scale, const Targets& t, const Tensor& weight, int64_t classes,
                 double label_smoothing, int64_t dim) {
  const auto at_classes = [&](const Tensor& x) {
    return mytorch::unsqueeze(where(t.valid, x, 0), dim);
  };
  Shares shares;
  const Tensor weighted = t.weight.defined() ? scale * t.weight : scale;
  if (label_smoothing == 0) {
    shares.factor = shares.own = at_classes(weighted);
    return shares;
  }
  shares.own = at_classes(weighted * (1 - label_smoothing));
  shares.every = at_classes(scale * (label_smoothing / static_cast<double>(classes)));
  shares.factor = shares.own + (weight.defined() ? shares.every * weight.sum()
                                                 : shares.every * static_cast<double>(classes));
  return shares;
}

// Returns the incoming gradient of each target, before weights.
Tensor scale_of(const Tensor& grad_output, const Tensor& total_weight, Str reduction) {
  const Tensor grad = widened(grad_output);
  return reduction == "mean" ? grad / total_weight : grad;
}

// Returns the weights of the classes, in a shape that broadcasts to that of the scores.
Tensor along_classes(const Tensor& weight, const Tensor& self) {
  if (!weight.defined() || self.dim() == 1) return weight;
  Dims sizes(self.dim(), 1);
  sizes[1] = -1;
  return weight.reshape(as_list(sizes));
}

Tensor probabilities(const Tensor& self, const Tensor& log_sum, int64_t dim) {
  return mytorch::exp(widened(self) - log_sum.unsqueeze(dim));
}

}  // namespace

namespace composite {

Tensors<3> cross_entropy_forward(const Tensor& self, const Tensor& target, const Tensor& weight,
                                 Str reduction, int64_t ignore_index, double label_smoothing) {
  const int64_t dim = class_dim(self.sizes().size());
  const Tensor x = widened(self), wide_weight = widened(weight);
  Tensor log_p = x, log_sum;
  if (self.numel() == 0) {
    log_sum = mytorch::zeros(target.sizes(), x.dtype(), x.device());
  } else {
    const Tensor largest = x.amax(dim, true);
    const Tensor shifted = x - largest;
    const Tensor rest = mytorch::log(sum(shifted.exp(), dim, true));
    log_p = shifted - rest;
    log_sum = mytorch::reshape(largest + rest, target.sizes());
  }
  auto [loss, total_weight] =
      mytorch::nll_loss_forward(log_p, target, wide_weight, reduction, ignore_index);
  if (label_smoothing != 0) {
    const Tensor smooth = smooth_part(log_p, target, wide_weight, along_classes(wide_weight, self),
                                      reduction, ignore_index, dim);
    loss = loss * (1 - label_smoothing) + smooth * label_smoothing;
  }
  return {loss.to(self.dtype()), std::move(log_sum), std::move(total_weight)};
}

Tensor cross_entropy_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                              const Tensor& weight, const Tensor& log_sum,
                              const Tensor& total_weight, Str reduction, int64_t ignore_index,
                              double label_smoothing) {
  const int64_t dim = class_dim(self.sizes().size());
  if (self.numel() == 0) return mytorch::zeros(self.sizes(), self.dtype(), self.device());
  const Tensor wide_weight = widened(weight);
  const Targets t = targets(target, wide_weight, ignore_index);
  const Shares shares = shares_of(scale_of(grad_output, total_weight, reduction), t, wide_weight,
                                  self.size(dim), label_smoothing, dim);
  // Selects instead of multiplying by 0: the scores of an ignored target may be infinite.
  const Tensor p = where(t.valid.unsqueeze(dim), probabilities(self, log_sum, dim), 0);
  Tensor result = p * shares.factor;
  if (shares.every.defined()) {
    result = result -
             (weight.defined() ? shares.every * along_classes(wide_weight, self) : shares.every);
  }
  const Tensor index = t.index.unsqueeze(dim);
  const Tensor own = result.gather(dim, index) - shares.own;
  return to(result.scatter(dim, index, own), self.dtype());
}

}  // namespace composite

namespace grads {

Tensor cross_entropy_gradient(const Tensor* grads, const Tensor& self, const Tensor& target,
                              const Tensor& weight, const Tensor& log_sum,
                              const Tensor& total_weight, Str reduction, int64_t ignore_index,
                              double label_smoothing) {
  Tensor result;
  if (grads[0].defined()) {
    // The total weight does not depend on the scores.
    result = mytorch::cross_entropy_backward(grads[0], self, target, weight, log_sum,
                                             total_weight.detach(), reduction, ignore_index,
                                             label_smoothing);
  }
  if (grads[1].defined()) {
    const int64_t dim = class_dim(self.sizes().size());
    const Tensor more =
        to(probabilities(self, log_sum, dim) * grads[1].unsqueeze(dim), self.dtype());
    result = result.defined() ? result + more : more;
  }
  return result;
}

Tensors<3> cross_entropy_double_backward(const Tensor& grad, const Tensor& grad_output,
                                         const Tensor& self, const Tensor& target,
                                         const Tensor& weight, const Tensor& log_sum,
                                         const Tensor& total_weight, Str reduction,
                                         int64_t ignore_index, double label_smoothing) {
  const int64_t dim = class_dim(self.sizes().size());
  const Tensor wide_weight = widened(weight), v = widened(grad);
  // The gradient is linear in grad_output.
  const Tensor of_one = mytorch::cross_entropy_backward(mytorch::ones_like(grad_output), self,
                                                        target, weight, log_sum, total_weight,
                                                        reduction, ignore_index, label_smoothing);
  const Tensor along = v * widened(of_one);
  const Tensor to_grad = reduction == "none" ? along.sum(dim) : along.sum();
  const Targets t = targets(target, wide_weight, ignore_index);
  const Shares shares = shares_of(scale_of(grad_output, total_weight, reduction), t, wide_weight,
                                  self.size(dim), label_smoothing, dim);
  const Tensor p = where(t.valid.unsqueeze(dim), probabilities(self, log_sum, dim), 0);
  const Tensor to_self = p * shares.factor * v;
  return {to_grad.to(grad_output.dtype()), to_self.to(self.dtype()), -to_self.sum(dim)};
}

}  // namespace grads

namespace composite {

Tensor cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight, Str reduction,
                     int64_t ignore_index, double label_smoothing) {
  check_reduction(reduction, "cross_entropy");
  check_value(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy", "label_smoothing is ",
              label_smoothing, ": give one in [0, 1]");
  check_shape(self.dim() != 0, "cross_entropy",
              "a 0-dim input has no classes: give (C,) or (N, C, ...)");
  if (!target.is_floating_point()) {
    return std::get<0>(mytorch::cross_entropy_forward(self, target, weight, reduction, ignore_index,
                                                      label_smoothing));
  }
  check_shape(target.sizes() == self.sizes(), "cross_entropy", "target has shape ", target.sizes(),
              ": probabilities have the shape of the input, ", self.sizes());
  check_value(ignore_index < 0, "cross_entropy", "ignore_index is for targets of class indices");
  const int64_t dim = class_dim(self.sizes().size());
  return cross_entropy_of_probabilities(self.log_softmax(dim), target, along_classes(weight, self),
                                        reduction, label_smoothing, dim);
}

}  // namespace composite
}  // namespace mytorch
