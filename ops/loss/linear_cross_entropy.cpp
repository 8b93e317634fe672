// The cross entropy of a linear projection, in chunks of rows: scores of all rows never exist at
// once. The gradients are computed with the loss, because they need the same scores: three matrix
// products instead of the four that recomputing the scores takes. Sums are kept in float32 for
// 16-bit types.
#include <algorithm>
#include <tuple>
#include <vector>

#include "core/tensor/batched.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/addmm.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/cross_entropy_backward.h"
#include "mytorch/ops/cross_entropy_forward.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/linear_cross_entropy_forward.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/softcap.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

constexpr const char* kOp = "linear_cross_entropy";

// The most bytes of scores that exist at once. A chunk must be large enough that adding its part
// of the weight's gradient, a pass over as many elements as the weight has, costs little beside its
// products.
constexpr int64_t kHostBytes = int64_t{64} << 20, kDeviceBytes = int64_t{256} << 20;
// The rows of a chunk: at most a share of all rows, so that small problems save memory too, but
// enough for a matrix product.
constexpr int64_t kParts = 8, kFewestRows = 128;

int64_t rows_of_chunk(int64_t rows, int64_t classes, int64_t itemsize, Device device) {
  const int64_t bytes = device.is_cpu() ? kHostBytes : kDeviceBytes;
  const int64_t by_memory = bytes / std::max<int64_t>(1, classes) / itemsize;
  const int64_t by_parts = (rows + kParts - 1) / kParts;
  return std::max<int64_t>(1, std::min(rows, std::max(kFewestRows, std::min(by_memory, by_parts))));
}

// The operands, with all leading dimensions of the input as rows.
struct Problem {
  Tensor input;   // (N, D)
  Tensor matrix;  // (C, D)
  Tensor target;  // (N)
  Tensor bias;    // (C) or undefined
  Tensor weight;  // of the classes, (C) or undefined
  int64_t ignore_index;
  double label_smoothing;
  double softcap;

  Problem(const Tensor& input, const Tensor& linear_weight, const Tensor& target,
          const Tensor& linear_bias, const Tensor& weight, int64_t ignore_index,
          double label_smoothing, double softcap)
      : input(input.reshape({target.numel(), linear_weight.size(1)})),
        matrix(linear_weight),
        target(target.reshape(-1)),
        bias(linear_bias),
        weight(weight),
        ignore_index(ignore_index),
        label_smoothing(label_smoothing),
        softcap(softcap) {}

  int64_t rows() const { return input.size(0); }
  ScalarType wide() const { return wide_type(input.dtype()); }

  // Calls f(first, n) for each chunk of rows.
  template <class F>
  void for_each_chunk(F&& f) const {
    const int64_t step = rows_of_chunk(rows(), matrix.size(0), input.itemsize(), input.device());
    for (int64_t i = 0; i < rows(); i += step) f(i, std::min(step, rows() - i));
  }
};

// A chunk of rows. With `recording`, it consists of operators that autograd records.
struct Chunk {
  const Problem& problem;
  Tensor input, target, scores, log_sum, total;
  Tensor terms;  // the loss of each row, in float32 for 16-bit types

  // Without `exact`, scores of 16-bit types are not widened if the loss does not need it.
  Chunk(const Problem& p, int64_t first, int64_t n, bool recording, bool exact)
      : problem(p), input(p.input.narrow(0, first, n)), target(p.target.narrow(0, first, n)) {
    scores = mytorch::linear(input, p.matrix, p.bias);
    if (p.softcap != 0 && recording) scores = mytorch::softcap(scores, p.softcap);
    if (p.softcap != 0 && !recording) mytorch::softcap_out(scores, scores, p.softcap);
    const bool narrow = !exact && p.label_smoothing == 0 && scores.dtype() != p.wide();
    if (!narrow) scores = widened(scores);
    const Tensor weight = narrow ? p.weight : widened(p.weight);
    std::tie(terms, log_sum, total) = mytorch::cross_entropy_forward(
        scores, target, weight, "none", p.ignore_index, p.label_smoothing);
    if (!narrow) return;
    const Tensor valid = target != p.ignore_index;
    const Tensor index = where(valid, target, 0);
    Tensor own = log_sum - scores.gather(1, index.unsqueeze(1)).squeeze(1).to(p.wide());
    if (p.weight.defined()) own = own * p.weight.to(p.wide()).gather(0, index);
    terms = where(valid, own, 0);
  }

  // Returns the gradient of the scores before softcap, given that of each term, (n), or of their
  // sum, (), in the type of the scores.
  Tensor gradient(const Tensor& grad) const {
    const Problem& p = problem;
    const Tensor weight = scores.dtype() == p.wide() ? widened(p.weight) : p.weight;
    Tensor result = mytorch::cross_entropy_backward(
        grad, scores, target, weight, log_sum, total.detach(), grad.dim() == 0 ? "sum" : "none",
        p.ignore_index, p.label_smoothing);
    if (p.softcap != 0) {
      const Tensor relative = scores / p.softcap;
      result = result * (1 - relative * relative);
    }
    return result.to(input.dtype());
  }
};

// Adds a.T @ b to `sum`, which may be undefined.
void add_product(Tensor& sum, const Tensor& a, const Tensor& b, ScalarType wide, bool recording) {
  if (!sum.defined()) {
    sum = mytorch::mm(a.t(), b).to(wide);
  } else if (recording || b.dtype() != wide) {
    sum = sum + mytorch::mm(a.t(), b);
  } else {
    mytorch::addmm_out(sum, sum, a.t(), b);
  }
}

Tensor sum_if_any(const Tensor& a, const Tensor& b) { return a.defined() ? a + b : b; }

// Returns `grad` * `x` in the type of `like`. `grad` is the 0-dim gradient of the sum of all terms.
Tensor scaled(const Tensor& x, const Tensor& grad, const Tensor& like) {
  // One element of one dimension takes part in promotion, so that it is not rounded to 16 bits.
  const Tensor factor = widened(grad).reshape(1);
  if (is_batched(x.impl()) || is_batched(grad.impl())) return (x * factor).to(like.dtype());
  Tensor result = mytorch::empty(x.sizes(), like.dtype(), x.device());
  mytorch::mul_out(result, x, factor);  // no float32 copy of a weight's gradient
  return result;
}

// Returns the gradients, given that of each term; computes the scores again.
Tensors<3> recomputed(const Problem& p, const Tensor& grad, const bool* wanted) {
  const bool recording = grad_enabled();
  std::vector<Tensor> rows;
  Tensor dw, db;
  p.for_each_chunk([&](int64_t first, int64_t n) {
    const Chunk chunk(p, first, n, recording, true);
    const Tensor d = chunk.gradient(grad.narrow(0, first, n).to(chunk.scores.dtype()));
    if (wanted[0]) rows.push_back(mytorch::mm(d, p.matrix));
    if (wanted[1]) add_product(dw, d, chunk.input, p.wide(), recording);
    if (wanted[2]) db = sum_if_any(db, d.sum(0, false, p.wide()));
  });
  Tensor dx;
  if (wanted[0])
    dx = rows.empty() ? grads::zeros_like_shape(p.input, p.input.sizes()) : mytorch::cat(rows, 0);
  if (wanted[1])
    dw = dw.defined() ? dw.to(p.matrix.dtype())
                      : grads::zeros_like_shape(p.matrix, p.matrix.sizes());
  if (wanted[2])
    db = db.defined() ? db.to(p.bias.dtype()) : grads::zeros_like_shape(p.bias, p.bias.sizes());
  return {dx, dw, db};
}

}  // namespace

namespace shape {

Specs<4> linear_cross_entropy_forward(const Tensor& input, const Tensor& linear_weight,
                                      const Tensor& target, const Tensor& linear_bias,
                                      const Tensor& weight, bool reduce, int64_t /*ignore_index*/,
                                      double label_smoothing, double softcap, IntList output_mask) {
  check_floating(input, "input", kOp);
  check_same_type(input, "input", linear_weight, "linear_weight", kOp);
  const IntList sizes = input.sizes();
  check_shape(linear_weight.dim() == 2 && !sizes.empty() && sizes.back() == linear_weight.size(1),
              kOp, "input ", sizes, " and linear_weight ", linear_weight.sizes(),
              " are not (..., D) and (classes, D)");
  check_type(target.dtype() == kInt64, kOp, "target is ", target.dtype(),
             ": class indices are int64");
  check_shape(target.sizes() == IntList(sizes.data(), sizes.size() - 1), kOp, "target has shape ",
              target.sizes(), ", but input ", sizes, " takes that of its leading dimensions");
  const int64_t classes = linear_weight.size(0);
  for (const auto& [name, each] :
       {std::pair<const char*, const Tensor&>("linear_bias", linear_bias),
        std::pair<const char*, const Tensor&>("weight", weight)}) {
    if (!each.defined()) continue;
    check_shape(each.dim() == 1 && each.size(0) == classes, kOp, name, " has shape ", each.sizes(),
                ", but there are ", classes, " classes");
    check_same_type(input, "input", each, name, kOp);
  }
  check_value(label_smoothing >= 0 && label_smoothing <= 1, kOp, "label_smoothing is ",
              label_smoothing, ": give one in [0, 1]");
  check_value(softcap >= 0, kOp, "softcap is ", softcap, ": give a positive number, or 0 for none");
  check_value(output_mask.size() == 3, kOp, "output_mask has ", output_mask.size(),
              " values, not 3");
  check_value(reduce || (output_mask[0] == 0 && output_mask[1] == 0 && output_mask[2] == 0), kOp,
              "gradients are computed with the loss only if it is reduced");
  const ScalarType wide = wide_type(input.dtype());
  const auto if_asked = [&](size_t i, TensorSpec spec) {
    if (output_mask[i] == 0) spec.sizes = {0};
    return spec;
  };
  return {like(input, reduce ? Dims() : to_dims(target.sizes()), wide),
          if_asked(0, like(input, to_dims(sizes))),
          if_asked(1, like(input, to_dims(linear_weight.sizes()), wide)),
          if_asked(2, like(input, {classes}, wide))};
}

}  // namespace shape

namespace composite {

Tensors<4> linear_cross_entropy_forward(const Tensor& input, const Tensor& linear_weight,
                                        const Tensor& target, const Tensor& linear_bias,
                                        const Tensor& weight, bool reduce, int64_t ignore_index,
                                        double label_smoothing, double softcap,
                                        IntList output_mask) {
  const Problem p(input, linear_weight, target, linear_bias, weight, ignore_index, label_smoothing,
                  softcap);
  const Device device = input.device();
  const bool want_x = output_mask[0] != 0, want_w = output_mask[1] != 0;
  const bool want_b = output_mask[2] != 0;
  const Tensor terms = mytorch::empty(p.rows(), p.wide(), device);
  const Tensor dx = mytorch::empty(want_x ? p.input.sizes() : IntList{0}, input.dtype(), device);
  Tensor dw, db;
  p.for_each_chunk([&](int64_t first, int64_t n) {
    const Chunk chunk(p, first, n, false, false);
    mytorch::copy_(terms.narrow(0, first, n), chunk.terms);
    if (!want_x && !want_w && !want_b) return;
    const Tensor d = chunk.gradient(mytorch::ones(IntList(), chunk.scores.dtype(), device));
    if (want_x) mytorch::mm_out(dx.narrow(0, first, n), d, p.matrix);
    if (want_w) add_product(dw, d, chunk.input, p.wide(), false);
    if (want_b) db = sum_if_any(db, d.sum(0, false, p.wide()));
  });
  const auto result = [&](const Tensor& x, bool want, IntList sizes) {
    return x.defined() ? x : mytorch::zeros(want ? sizes : IntList{0}, p.wide(), device);
  };
  return {reduce ? terms.sum() : terms.reshape(target.sizes()),
          want_x ? dx.reshape(input.sizes()) : dx, result(dw, want_w, linear_weight.sizes()),
          result(db, want_b, {linear_weight.size(0)})};
}

Tensor linear_cross_entropy(const Tensor& input, const Tensor& linear_weight, const Tensor& target,
                            const Tensor& linear_bias, const Tensor& weight, Str reduction,
                            int64_t ignore_index, double label_smoothing, double softcap) {
  check_value(reduction == "none" || reduction == "mean" || reduction == "sum", kOp, "reduction \"",
              reduction, "\": give \"none\", \"mean\" or \"sum\"");
  const bool reduce = reduction != "none";
  const auto wanted = [&](const Tensor& x) {
    return int64_t{reduce && x.defined() && grad_enabled() && x.requires_grad()};
  };
  Tensor loss = std::get<0>(mytorch::linear_cross_entropy_forward(
      input, linear_weight, target, linear_bias, weight, reduce, ignore_index, label_smoothing,
      softcap, {wanted(input), wanted(linear_weight), wanted(linear_bias)}));
  if (reduction != "mean") return loss;
  const Tensor valid = target != ignore_index;
  if (!weight.defined()) return loss / valid.sum().to(loss.dtype());
  const Tensor index = where(valid, target, 0).reshape(-1);
  const Tensor chosen = weight.detach().to(loss.dtype()).gather(0, index);
  return loss / where(valid.reshape(-1), chosen, 0).sum();
}

}  // namespace composite

namespace grads {

Tensors<3> linear_cross_entropy_gradient(const Tensor* grads, const Tensor& input,
                                         const Tensor& linear_weight, const Tensor& target,
                                         const Tensor& linear_bias, const Tensor& weight,
                                         const Tensor& grad_input, const Tensor& grad_weight,
                                         const Tensor& grad_bias, bool reduce, int64_t ignore_index,
                                         double label_smoothing, double softcap,
                                         IntList output_mask, const bool* wanted) {
  if (grads[1].defined() || grads[2].defined() || grads[3].defined()) {
    refuse(ErrorCode::kUnsupported, "linear_cross_entropy_forward",
           "the gradients that it returns cannot be differentiated: call linear_cross_entropy, "
           "whose gradient can");
  }
  if (!grads[0].defined()) return {};
  bool kept = reduce && !grad_enabled();
  for (size_t i = 0; i < 3; ++i) kept = kept && (!wanted[i] || output_mask[i] != 0);
  if (kept) {
    const auto result = [&](size_t i, const Tensor& x, const Tensor& like) {
      return wanted[i] ? scaled(x, grads[0], like) : Tensor();
    };
    return {result(0, grad_input, input), result(1, grad_weight, linear_weight),
            result(2, grad_bias, linear_bias)};
  }
  const Problem p(input, linear_weight, target, linear_bias, weight, ignore_index, label_smoothing,
                  softcap);
  const Tensor grad = reduce ? grads[0].reshape(1).expand(p.rows()) : grads[0].reshape(-1);
  auto [dx, dw, db] = recomputed(p, grad, wanted);
  if (dx.defined()) dx = dx.reshape(input.sizes());
  return {dx, dw, db};
}

}  // namespace grads
}  // namespace mytorch
