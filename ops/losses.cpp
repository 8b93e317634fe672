// Losses. Each is one fused kernel of terms and one reduction.
#include <string_view>
#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/binary_cross_entropy_terms.h"
#include "mytorch/ops/binary_cross_entropy_with_logits_terms.h"
#include "mytorch/ops/cross_entropy.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/huber_loss_terms.h"
#include "mytorch/ops/kl_div_terms.h"
#include "mytorch/ops/l1_loss_terms.h"
#include "mytorch/ops/log_softmax.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mse_loss_terms.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/nll_loss.h"
#include "mytorch/ops/nll_loss_forward.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/smooth_l1_loss_terms.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/unsqueeze.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"

namespace mytorch {
namespace {

[[noreturn]] void fail_reduction(std::string_view reduction, const char* op) {
  fail(ErrorCode::kValue, "[", op, "] reduction \"", reduction,
       "\": give \"none\", \"mean\" or \"sum\"");
}

void check_reduction(std::string_view reduction, const char* op) {
  if (reduction != "none" && reduction != "mean" && reduction != "sum") {
    fail_reduction(reduction, op);
  }
}

Tensor reduce(const Tensor& terms, Str reduction, const char* op) {
  if (reduction == "none") return terms;
  if (reduction == "mean") return mean(terms);
  if (reduction == "sum") return sum(terms);
  fail_reduction(reduction, op);
}

// ---- losses of class indices
// -----------------------------------------------------------------------

int64_t class_dim(size_t ndim) { return ndim == 1 ? 0 : 1; }

// The shape of a target: that of the scores without their classes.
Dims target_sizes(IntList scores) {
  Dims sizes = to_dims(scores);
  if (!sizes.empty()) sizes.erase(sizes.begin() + class_dim(sizes.size()));
  return sizes;
}

void check_targets(IntList scores, ScalarType dtype, const Tensor& target, const Tensor& weight,
                   Str reduction) {
  check_reduction(reduction, "nll_loss");
  if (scores.empty()) {
    fail(ErrorCode::kShape, "[nll_loss] a 0-dim input has no classes: give (C,) or (N, C, ...)");
  }
  if (target.dtype() != kInt64) {
    fail(ErrorCode::kType, "[nll_loss] target is ", dtype_name(target.dtype()),
         ": class indices are int64");
  }
  const Dims expected = target_sizes(scores);
  if (target.sizes() != as_list(expected)) {
    fail(ErrorCode::kShape, "[nll_loss] input ", shape_str(scores), " expects target ",
         shape_str(as_list(expected)), ", not ", shape_str(target.sizes()));
  }
  if (!weight.defined()) return;
  const int64_t classes = scores[class_dim(scores.size())];
  if (weight.dim() != 1 || weight.size(0) != classes) {
    fail(ErrorCode::kShape, "[nll_loss] weight has shape ", shape_str(weight.sizes()),
         ", but there are ", classes, " classes");
  }
  if (weight.dtype() != dtype) {
    fail(ErrorCode::kType, "[nll_loss] weight is ", dtype_name(weight.dtype()), " and input ",
         dtype_name(dtype), ": convert one with to()");
  }
}

// Sums over a batch leave the range of 16-bit floats.
ScalarType total_type(ScalarType type) {
  return type == kFloat16 || type == kBFloat16 ? kFloat32 : type;
}

struct Targets {
  Tensor valid;   // not to be ignored
  Tensor index;   // where valid; 0 elsewhere
  Tensor weight;  // of the target's class, 0 where ignored; undefined without weights
};

Targets targets(const Tensor& target, const Tensor& weight, int64_t ignore_index) {
  Targets t;
  t.valid = ne(target, ignore_index);
  t.index = where(t.valid, target, 0);
  if (weight.defined()) {
    const Tensor chosen = gather(weight, 0, reshape(t.index, {-1}));
    t.weight = where(t.valid, reshape(chosen, target.sizes()), 0);
  }
  return t;
}

// The sum of the weights that count.
Tensor total(const Targets& t, ScalarType type) {
  return t.weight.defined() ? sum(t.weight, {}, false, total_type(type))
                            : to(sum(t.valid), total_type(type));
}

}  // namespace

namespace shape {

std::tuple<TensorSpec, TensorSpec> nll_loss_forward(const Tensor& self, const Tensor& target,
                                                    const Tensor& weight, Str reduction, int64_t) {
  if (!self.is_floating_point()) {
    fail(ErrorCode::kType, "[nll_loss] input is ", dtype_name(self.dtype()),
         ": log-probabilities are floats");
  }
  check_targets(self.sizes(), self.dtype(), target, weight, reduction);
  TensorSpec total = like(self, {});
  total.dtype = total_type(self.dtype());
  return {like(self, reduction == "none" ? target_sizes(self.sizes()) : Dims()), total};
}

TensorSpec nll_loss_backward(const Tensor& grad_output, IntList input_size, const Tensor& target,
                             const Tensor& weight, Str reduction, int64_t,
                             const Tensor& total_weight) {
  check_targets(input_size, grad_output.dtype(), target, weight, reduction);
  const IntList expected = reduction == "none" ? target.sizes() : IntList();
  if (grad_output.sizes() != expected || total_weight.dim() != 0) {
    fail(ErrorCode::kShape, "[nll_loss_backward] grad_output has shape ",
         shape_str(grad_output.sizes()), " and total_weight ", shape_str(total_weight.sizes()),
         ", expected ", shape_str(expected), " and ()");
  }
  return like(grad_output, to_dims(input_size));
}

}  // namespace shape

namespace composite {

Tensor mse_loss(const Tensor& self, const Tensor& target, Str reduction) {
  return reduce(mse_loss_terms(self, target), reduction, "mse_loss");
}

Tensor l1_loss(const Tensor& self, const Tensor& target, Str reduction) {
  return reduce(l1_loss_terms(self, target), reduction, "l1_loss");
}

Tensor smooth_l1_loss(const Tensor& self, const Tensor& target, Str reduction, double beta) {
  return reduce(smooth_l1_loss_terms(self, target, beta), reduction, "smooth_l1_loss");
}

Tensor huber_loss(const Tensor& self, const Tensor& target, Str reduction, double delta) {
  return reduce(huber_loss_terms(self, target, delta), reduction, "huber_loss");
}

Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight,
                            Str reduction) {
  return reduce(binary_cross_entropy_terms(self, target, weight), reduction,
                "binary_cross_entropy");
}

Tensor binary_cross_entropy_with_logits(const Tensor& self, const Tensor& target,
                                        const Tensor& weight, const Tensor& pos_weight,
                                        Str reduction) {
  return reduce(binary_cross_entropy_with_logits_terms(self, target, weight, pos_weight), reduction,
                "binary_cross_entropy_with_logits");
}

Tensor kl_div(const Tensor& self, const Tensor& target, Str reduction, bool log_target) {
  const Tensor terms = kl_div_terms(self, target, log_target);
  if (reduction != "batchmean") return reduce(terms, reduction, "kl_div");
  if (terms.dim() == 0) fail(ErrorCode::kShape, "[kl_div] \"batchmean\" of a 0-dim input");
  return div(sum(terms), self.size(0));
}

std::tuple<Tensor, Tensor> nll_loss_forward(const Tensor& self, const Tensor& target,
                                            const Tensor& weight, Str reduction,
                                            int64_t ignore_index) {
  const Targets t = targets(target, weight, ignore_index);
  const int64_t dim = class_dim(self.sizes().size());
  const Tensor chosen = mytorch::gather(self, dim, mytorch::unsqueeze(t.index, dim));
  const Tensor scores = mytorch::reshape(chosen, target.sizes());
  const Tensor weighted = t.weight.defined() ? mul(scores, t.weight) : scores;
  // Selected, not multiplied by 0: an ignored score may be -inf.
  const Tensor terms = where(t.valid, neg(weighted), 0);
  const ScalarType wide = total_type(self.dtype());
  if (reduction == "none") return {terms, mytorch::zeros(IntList(), wide, self.device())};
  Tensor weights = total(t, self.dtype());
  Tensor sum_of_terms = sum(terms, {}, false, wide);
  if (reduction == "mean") sum_of_terms = div(sum_of_terms, weights);
  return {to(sum_of_terms, self.dtype()), std::move(weights)};
}

Tensor nll_loss_backward(const Tensor& grad_output, IntList input_size, const Tensor& target,
                         const Tensor& weight, Str reduction, int64_t ignore_index,
                         const Tensor& total_weight) {
  const Targets t = targets(target, weight, ignore_index);
  const int64_t dim = class_dim(input_size.size());
  Tensor grad = neg(grad_output);
  if (reduction == "mean") grad = div(grad, total_weight);
  if (t.weight.defined()) grad = mul(t.weight, grad);
  const Tensor chosen = to(where(t.valid, grad, 0), grad_output.dtype());
  const Tensor zero = mytorch::zeros(input_size, grad_output.dtype(), grad_output.device());
  return mytorch::scatter(zero, dim, mytorch::unsqueeze(t.index, dim),
                          mytorch::unsqueeze(chosen, dim));
}

Tensor nll_loss(const Tensor& self, const Tensor& target, const Tensor& weight, Str reduction,
                int64_t ignore_index) {
  return std::get<0>(mytorch::nll_loss_forward(self, target, weight, reduction, ignore_index));
}

}  // namespace composite

namespace {

// Targets that are probabilities.
Tensor cross_entropy_of_probabilities(const Tensor& log_p, const Tensor& target,
                                      const Tensor& weight, Str reduction, double label_smoothing,
                                      int64_t dim) {
  const int64_t classes = log_p.size(dim);
  Tensor wanted = target;
  if (label_smoothing > 0) {
    wanted = add(mul(target, 1 - label_smoothing), label_smoothing / static_cast<double>(classes));
  }
  Tensor terms = mul(log_p, wanted);
  if (weight.defined()) terms = mul(terms, weight);
  if (reduction == "none") return neg(sum(terms, dim));
  Tensor loss = neg(sum(terms));
  if (reduction == "sum") return loss;
  return div(loss, static_cast<double>(log_p.numel()) / static_cast<double>(classes));
}

// The mean over the classes of -log p, in the reduction of nll_loss: what label smoothing mixes in.
Tensor smooth_part(const Tensor& log_p, const Tensor& target, const Tensor& weight,
                   const Tensor& weight_by_dim, Str reduction, int64_t ignore_index, int64_t dim) {
  const Tensor weighted = weight.defined() ? mul(log_p, weight_by_dim) : log_p;
  const Tensor valid = ne(target, ignore_index);
  Tensor terms = where(valid, neg(mean(weighted, dim)), 0);
  if (reduction == "none") return terms;
  if (reduction == "sum") return sum(terms);
  return div(sum(terms, {}, false, total_type(log_p.dtype())),
             total(targets(target, weight, ignore_index), log_p.dtype()));
}

}  // namespace

namespace composite {

Tensor cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight, Str reduction,
                     int64_t ignore_index, double label_smoothing) {
  check_reduction(reduction, "cross_entropy");
  if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
    fail(ErrorCode::kValue, "[cross_entropy] label_smoothing is ", label_smoothing,
         ": give one in [0, 1]");
  }
  if (self.dim() == 0) {
    fail(ErrorCode::kShape,
         "[cross_entropy] a 0-dim input has no classes: give (C,) or (N, C, ...)");
  }
  const int64_t dim = class_dim(self.sizes().size());
  const Tensor log_p = mytorch::log_softmax(self, dim);
  Tensor weight_by_dim = weight;
  if (weight.defined() && self.dim() > 1) {
    Dims sizes(self.dim(), 1);
    sizes[1] = -1;
    weight_by_dim = mytorch::reshape(weight, as_list(sizes));
  }
  if (target.is_floating_point()) {
    if (target.sizes() != self.sizes()) {
      fail(ErrorCode::kShape, "[cross_entropy] target has shape ", shape_str(target.sizes()),
           ": probabilities have the shape of the input, ", shape_str(self.sizes()));
    }
    if (ignore_index >= 0) {
      fail(ErrorCode::kValue, "[cross_entropy] ignore_index is for targets of class indices");
    }
    return cross_entropy_of_probabilities(log_p, target, weight_by_dim, reduction, label_smoothing,
                                          dim);
  }
  Tensor hard = mytorch::nll_loss(log_p, target, weight, reduction, ignore_index);
  if (label_smoothing == 0) return hard;
  const Tensor smooth =
      smooth_part(log_p, target, weight, weight_by_dim, reduction, ignore_index, dim);
  return add(mul(hard, 1 - label_smoothing), to(mul(smooth, label_smoothing), self.dtype()));
}

}  // namespace composite
}  // namespace mytorch
