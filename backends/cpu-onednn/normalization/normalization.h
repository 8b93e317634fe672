// Batch and layer normalization: oneDNN's two primitives have the same operands, over different
// dimensions.
#pragma once

#include "backends/cpu-onednn/engine/dnnl.h"
#include "backends/cpu-onednn/engine/plan.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {

// The layouts of input and result, of mean and variance, and of weight and bias.
struct Normalized {
  Desc data, statistics, parameters;
};

// The memory for a result: `out`, or scratch memory if `out` is NULL.
inline float* or_scratch(mt_ctx& ctx, const mt_tensor* out, int64_t n) {
  return out != nullptr ? sdk::TensorView(out).data<float>() : sdk::scratch<float>(ctx, n);
}

inline dnnl::normalization_flags affine(bool weight, bool bias) {
  auto flags = dnnl::normalization_flags::none;
  if (weight) flags |= dnnl::normalization_flags::use_scale;
  if (bias) flags |= dnnl::normalization_flags::use_shift;
  return flags;
}

// A plan for input, result, mean, variance, weight and bias. `describe` makes the primitive, given
// the flags. `given`: mean and variance are operands, and not computed.
template <class Describe>
Plan normalize(const Normalized& n, const Desc& out, const sdk::TensorView& weight,
               const sdk::TensorView& bias, bool given, Describe&& describe) {
  auto flags = affine(bool{weight}, bool{bias});
  if (given) flags |= dnnl::normalization_flags::use_global_stats;
  Plan plan(describe(flags));
  plan.input(DNNL_ARG_SRC, n.data);
  plan.output(DNNL_ARG_DST, out);
  for (const int statistic : {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE}) {
    given ? plan.input(statistic, n.statistics) : plan.output(statistic, n.statistics);
  }
  plan.input(DNNL_ARG_SCALE, weight ? n.parameters : Desc());
  plan.input(DNNL_ARG_SHIFT, bias ? n.parameters : Desc());
  return plan;
}

// The gradients that a call requests, and those that oneDNN computes for them.
class Gradients {
 public:
  template <class Args>
  explicit Gradients(const Args& args)
      : input_(sdk::wanted(args.output_mask, 0, args.grad_input) != nullptr),
        weight_(sdk::wanted(args.output_mask, 1, args.grad_weight) != nullptr),
        bias_(sdk::wanted(args.output_mask, 2, args.grad_bias) != nullptr),
        scaled_(args.weight != nullptr) {}

  // Returns the reason why oneDNN does not compute them; NULL if it does.
  const char* reason() const {
    if (!input_) return "only gradients of parameters are requested";
    return !scaled_ && weight_ ? "the gradient of an absent weight is requested" : nullptr;
  }
  // A number that differs between plans.
  int64_t which() const { return int64_t{scaled_} | int64_t{sums()} << 1 | int64_t{bias_} << 2; }

  // Memory for the gradients of a weight and a bias of n elements and, if `out` is NULL, for the
  // bias itself, which some versions of oneDNN require as an operand but do not read.
  float* weight(mt_ctx& ctx, const mt_tensor* out, int64_t n) const {
    return makes_weight() ? or_scratch(ctx, weight_ ? out : nullptr, n) : nullptr;
  }
  float* bias(mt_ctx& ctx, const mt_tensor* out, int64_t n) const {
    return bias_ ? or_scratch(ctx, out, n) : nullptr;
  }

  // A plan for the gradient of the result, input, mean, variance, weight, the gradient of the
  // input, and the three operands above. `describe` makes the primitive, given its kind and the
  // flags.
  template <class Describe>
  Plan plan(const Normalized& n, const Desc& grad_out, const Desc& grad_input,
            Describe&& describe) const {
    using Kind = dnnl::prop_kind;
    Plan plan(describe(sums() ? Kind::backward : Kind::backward_data, affine(scaled_, bias_)));
    plan.input(DNNL_ARG_DIFF_DST, grad_out);
    plan.input(DNNL_ARG_SRC, n.data);
    plan.input(DNNL_ARG_MEAN, n.statistics);
    plan.input(DNNL_ARG_VARIANCE, n.statistics);
    plan.input(DNNL_ARG_SCALE, scaled_ ? n.parameters : Desc());
    plan.output(DNNL_ARG_DIFF_SRC, grad_input);
    plan.output(DNNL_ARG_DIFF_SCALE, makes_weight() ? n.parameters : Desc());
    plan.output(DNNL_ARG_DIFF_SHIFT, bias_ ? n.parameters : Desc());
    plan.input(DNNL_ARG_SHIFT, bias_ ? n.parameters : Desc());
    return plan;
  }

 private:
  bool sums() const { return weight_ || bias_; }
  bool makes_weight() const { return scaled_ && sums(); }

  bool input_, weight_, bias_;
  bool scaled_;  // there is a weight
};

}  // namespace mytorch::onednn
