// What gradient formulas of ops.yaml call beside operators. All are made of differentiable ones,
// so that gradients of gradients need nothing more. `grad` is the incoming gradient.
#pragma once

#include <optional>

#include "core/types/dims.h"
#include "mytorch/tensor.h"

namespace mytorch::grads {

// ---- shapes (gradients/shape.cpp) ----
// Adds up what broadcasting spread: `x` in the smaller `shape`.
Tensor sum_to(const Tensor& x, IntList shape);
// Zeros of the type and device of `like`.
Tensor zeros_like_shape(const Tensor& like, IntList shape);
// `x` with zeros behind it in every dimension in which `shape` is larger.
Tensor padded_to(const Tensor& x, IntList shape);
Tensor copy_backward(const Tensor& grad, IntList shape, ScalarType dtype, Device device);
// The result of a reduction over `dim` of a tensor of `shape`, with the reduced dimensions as 1.
Tensor with_reduced_dims(const Tensor& x, IntList shape, OptionalIntList dim, bool keepdim);
// The number of elements that such a reduction puts into one.
int64_t reduced_count(IntList shape, OptionalIntList dim);

// ---- reductions (gradients/reduction.cpp) ----
Tensor sum_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                    ScalarType dtype);
Tensor mean_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                     ScalarType dtype);
Tensor prod_backward(const Tensor& grad, const Tensor& self);
Tensor prod_dim_backward(const Tensor& grad, const Tensor& self, int64_t dim, bool keepdim);
// Of amax, amin, max, min: equal elements share.
Tensor extremum_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                         OptionalIntList dim = {}, bool keepdim = false);
// Of ops whose results are elements of the input along `dim`, chosen by `indices`, each once.
Tensor value_selecting_backward(const Tensor& grad, int64_t dim, const Tensor& indices,
                                IntList shape, bool keepdim = true);
Tensor var_backward(const Tensor& grad, const Tensor& self, OptionalIntList dim,
                    const Scalar& correction, bool keepdim);
Tensor std_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                    OptionalIntList dim, const Scalar& correction, bool keepdim);
// Either gradient may be absent.
Tensor var_mean_backward(const Tensor& grad_variance, const Tensor& grad_average,
                         const Tensor& self, OptionalIntList dim, const Scalar& correction,
                         bool keepdim);
Tensor norm_backward(const Tensor& grad, const Tensor& self, const Scalar& ord,
                     const Tensor& result, OptionalIntList dim, bool keepdim);
Tensor logsumexp_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                          OptionalIntList dim, bool keepdim);

// ---- random (random.cpp) ----
// The factor of the elements that dropout keeps.
double dropout_scale(double p, std::optional<bool> train);

// ---- views and joining (gradients/views.cpp) ----
Tensor permute_backward(const Tensor& grad, IntList dims);
// Of as_strided(input, size, stride) `offset` elements after the input's first element; memory that
// several elements share is counted once for the input, and adds up for the view.
Tensor as_strided_backward(const Tensor& grad, IntList input_sizes, IntList input_strides,
                           IntList size, IntList stride, int64_t offset);
Tensor constant_pad_nd_backward(const Tensor& grad, IntList pad);
std::vector<Tensor> cat_backward(const Tensor& grad, const std::vector<Dims>& shapes, int64_t dim);
Tensor index_select_backward(const Tensor& grad, IntList shape, int64_t dim, const Tensor& index);

// ---- products, convolution, pooling (gradients/products.cpp) ----
// x * factor, and x itself for a factor of 1.
Tensor maybe_multiply(const Tensor& x, const Scalar& factor);
Tensor linear_backward_input(const Tensor& grad, const Tensor& weight);
Tensor linear_backward_weight(const Tensor& grad, const Tensor& input, IntList weight_shape);
// `product` is linear(input, weight, bias), of no elements where it was not kept.
std::tuple<Tensor, Tensor, Tensor> linear_gelu_gradient(const Tensor* grads, const Tensor& input,
                                                        const Tensor& weight, const Tensor& bias,
                                                        const Tensor& product, Str approximate,
                                                        bool want_input, bool want_weight,
                                                        bool want_bias);
// `convolution` without bias.
Tensor convolution_like(const Tensor& input, const Tensor& weight, IntList stride, IntList padding,
                        IntList dilation, bool transposed, IntList output_padding, int64_t groups);
// Strides of what does not lie row-major. Else none, and kernels that were built before there was
// the argument serve the call.
OptionalIntList strides_of_layout(const Tensor& tensor);
// The sum over all dimensions but 1.
Tensor sum_to_channel(const Tensor& grad);
// The elements of the planes of `grad` at the indices that max_pool2d_with_indices gave.
Tensor max_pool2d_gather(const Tensor& grad, const Tensor& indices);
// `grad` channels-last where an input of this shape and strides was: what comes from a vector of
// features is row-major. A copy only where a plane has several elements.
Tensor in_layout_of(const Tensor& grad, IntList input_shape, IntList input_strides);

// ---- softmax and normalization (gradients/normalization.cpp) ----
// `grads` are those of all results of the op, undefined where a result was not used.
Tensor softmax_backward_output(const Tensor& grad, const Tensor& grad_output, const Tensor& output,
                               int64_t dim);
Tensor log_softmax_backward_grad(const Tensor& grad, const Tensor& output, int64_t dim);
Tensor log_softmax_backward_output(const Tensor& grad, const Tensor& grad_output,
                                   const Tensor& output, int64_t dim);
std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor* grads, const Tensor& input,
                                                       IntList normalized_shape, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& weight,
                                                       bool want_input, bool want_weight,
                                                       bool want_bias);
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> layer_norm_double_backward(
    const Tensor* grads, const Tensor& grad_out, const Tensor& input, IntList normalized_shape,
    const Tensor& mean, const Tensor& rstd, const Tensor& weight, IntList output_mask);
std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor* grads, const Tensor& input,
                                             IntList normalized_shape, const Tensor& rstd,
                                             const Tensor& weight, bool want_input,
                                             bool want_weight);
std::tuple<Tensor, Tensor, Tensor, Tensor> rms_norm_double_backward(
    const Tensor* grads, const Tensor& grad_out, const Tensor& input, IntList normalized_shape,
    const Tensor& rstd, const Tensor& weight, IntList output_mask);
std::tuple<Tensor, Tensor, Tensor> group_norm_backward(const Tensor* grads, const Tensor& input,
                                                       const Tensor& mean, const Tensor& rstd,
                                                       const Tensor& weight, int64_t group,
                                                       bool want_input, bool want_weight,
                                                       bool want_bias);
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> group_norm_double_backward(
    const Tensor* grads, const Tensor& grad_out, const Tensor& input, const Tensor& mean,
    const Tensor& rstd, const Tensor& weight, int64_t group, IntList output_mask);
std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(const Tensor* grads, const Tensor& input,
                                                       const Tensor& weight, const Tensor& mean,
                                                       const Tensor& var, double eps,
                                                       bool want_input, bool want_weight,
                                                       bool want_bias);
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> batch_norm_double_backward(
    const Tensor* grads, const Tensor& grad_out, const Tensor& input, const Tensor& weight,
    const Tensor& mean, const Tensor& var, double eps, IntList output_mask);

// ---- losses (losses.cpp) ----
// The gradient of cross_entropy_forward with respect to its scores, from those of its results.
Tensor cross_entropy_gradient(const Tensor* grads, const Tensor& self, const Tensor& target,
                              const Tensor& weight, const Tensor& log_sum,
                              const Tensor& total_weight, Str reduction, int64_t ignore_index,
                              double label_smoothing);
// Of cross_entropy_backward: with respect to grad_output, self and log_sum.
std::tuple<Tensor, Tensor, Tensor> cross_entropy_double_backward(
    const Tensor& grad, const Tensor& grad_output, const Tensor& self, const Tensor& target,
    const Tensor& weight, const Tensor& log_sum, const Tensor& total_weight, Str reduction,
    int64_t ignore_index, double label_smoothing);

// ---- embedding (embedding.cpp) and attention (attention.cpp) ----
Tensor embedding_dense_double_backward(const Tensor& grad, const Tensor& indices,
                                       int64_t num_weights, int64_t padding_idx,
                                       bool scale_grad_by_freq);
std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& attn_mask, bool is_causal, double scale);

}  // namespace mytorch::grads
