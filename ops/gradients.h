// Functions that gradient formulas of ops.yaml call in addition to operators. They consist of
// differentiable operators, so gradients of any order work. `grad` is the incoming gradient.
#pragma once

#include <optional>
#include <string_view>

#include "mytorch/handle.h"
#include "mytorch/tensor.h"
#include "ops/spec.h"

namespace mytorch::grads {

// ---- shapes (gradients.cpp) ----
// Sums `x` over the dimensions that were broadcast from the smaller `shape`.
Tensor sum_to(const Tensor& x, IntList shape);
// Returns a tensor of shape (..., 2) as a complex one, as a view if its strides allow that.
Tensor as_complex(const Tensor& parts);
// Converts the gradient of a converted copy back: for a real source of a complex copy, the real
// part.
Tensor converted_back(const Tensor& grad, Device device, ScalarType dtype);
// Returns zeros with the type and device of `like`.
Tensor zeros_like_shape(const Tensor& like, IntList shape);
// Returns `x` padded with zeros to `shape`, at the end of each dimension.
Tensor padded_to(const Tensor& x, IntList shape);
// Returns `x`, the result of reducing a tensor of `shape` over `dim`, with the reduced dimensions
// as size 1.
Tensor with_reduced_dims(const Tensor& x, IntList shape, OptionalIntList dim, bool keepdim);
// Returns the number of elements that such a reduction combines into one.
int64_t reduced_count(IntList shape, OptionalIntList dim);

// ---- collectives (collective/) ----
Tensor all_reduce_backward(const Tensor& grad, std::string_view reduce_op, const Handle& group,
                           double scale);
Tensor reduce_backward(const Tensor& grad, int64_t dst, std::string_view reduce_op,
                       const Handle& group, double scale);
Tensor all_gather_backward(const Tensor& grad, IntList shape, const Handle& group);
Tensor reduce_scatter_backward(const Tensor& grad, std::string_view reduce_op, const Handle& group,
                               double scale);
Tensor gather_backward(const Tensor& grad, IntList shape, int64_t dst, const Handle& group);
Tensor scatter_backward(const Tensor& grad, IntList shape, int64_t src, const Handle& group);
Tensor reduce_scatter_v_backward(const Tensor& grad, IntList sizes, std::string_view reduce_op,
                                 const Handle& group, double scale);
Tensor send_backward(const Tensor& grad, IntList shape, int64_t dst, const Handle& group);
Tensor recv_backward(const Tensor& grad, IntList shape, int64_t src, const Handle& group);

// ---- Fourier transforms (fourier/) ----
Tensor fft_r2c_backward(const Tensor& grad, IntList shape, IntList dim, int64_t normalization,
                        bool onesided);
Tensor fft_c2r_backward(const Tensor& grad, IntList dim, int64_t normalization);

// ---- reductions (reduction/) ----
Tensor sum_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                    ScalarType dtype);
Tensor mean_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                     ScalarType dtype);
Tensor prod_backward(const Tensor& grad, const Tensor& self);
Tensor prod_dim_backward(const Tensor& grad, const Tensor& self, int64_t dim, bool keepdim);
// The gradient of amax, amin, max and min: equal elements share it.
Tensor extremum_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                         OptionalIntList dim = {}, bool keepdim = false);
// The gradient of operators that select elements along `dim` by `indices`, each at most once.
Tensor value_selecting_backward(const Tensor& grad, int64_t dim, const Tensor& indices,
                                IntList shape, bool keepdim = true);
Tensor logsumexp_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                          OptionalIntList dim, bool keepdim);
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

// ---- special functions (special/incomplete_gamma.cpp) ----
// The gradient of igamma with respect to `other`.
Tensor igamma_slope(const Tensor& grad, const Tensor& self, const Tensor& other);

// ---- scans and scattered reductions (scan/, indexing/scattering.cpp) ----
Tensor cumprod_backward(const Tensor& grad, const Tensor& self, const Tensor& result, int64_t dim);
Tensor logcumsumexp_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                             int64_t dim);
Tensor scatter_reduce_self(const Tensor& grad, const Tensor& self, int64_t dim, const Tensor& index,
                           const Tensor& src, Str reduce, bool include_self, const Tensor& result);
Tensor scatter_reduce_src(const Tensor& grad, const Tensor& self, int64_t dim, const Tensor& index,
                          const Tensor& src, Str reduce, bool include_self, const Tensor& result);
Tensor scatter_src(const Tensor& grad, int64_t dim, const Tensor& index, IntList shape);

// ---- recurrent networks (recurrent/layer_gradients.cpp) ----
// `wanted` has one entry for each gradient; `grads` are those of all results.
Tensors<4> lstm_layer_backward(const Tensor* grads, const Tensor& hx, const Tensor& cx,
                               const Tensor& weight_hh, const Tensor& output, const Tensor& cells,
                               const Tensor& sums, IntList batch_sizes, bool reverse,
                               const bool* wanted);
Tensors<4> gru_layer_backward(const Tensor* grads, const Tensor& gates, const Tensor& hx,
                              const Tensor& weight_hh, const Tensor& bias_hh, const Tensor& output,
                              const Tensor& sums, IntList batch_sizes, bool reverse,
                              const bool* wanted);
Tensors<3> rnn_layer_backward(const Tensor& grad, const Tensor& hx, const Tensor& weight_hh,
                              const Tensor& output, IntList batch_sizes, bool relu, bool reverse,
                              const bool* wanted);

// ---- gated activations (activation/gated.cpp) ----
Tensor swiglu_packed_backward(const Tensor& grad, const Tensor& self, int64_t dim);
Tensor geglu_packed_backward(const Tensor& grad, const Tensor& self, int64_t dim, Str approximate);

// ---- random (random/random.cpp) ----
// Returns the factor by which dropout scales the elements that it keeps.
double dropout_scale(double p, std::optional<bool> train);

// ---- views and joining (view/views.cpp, joining/) ----
Tensor permute_backward(const Tensor& grad, IntList dims);
// The gradient of as_strided(input, size, stride) at `offset` elements after the input's first one.
// Elements of the input that share memory share its gradient; overlapping elements of the view add
// to it.
Tensor as_strided_backward(const Tensor& grad, IntList input_sizes, IntList input_strides,
                           IntList size, IntList stride, int64_t offset);
Tensor constant_pad_nd_backward(const Tensor& grad, IntList pad);
std::vector<Tensor> cat_backward(const Tensor& grad, const std::vector<Dims>& shapes, int64_t dim);

// ---- products, convolution, pooling (matrix/products.cpp, convolution/, pooling/) ----
// Returns x * factor; x itself if the factor is 1.
Tensor maybe_multiply(const Tensor& x, const Scalar& factor);
Tensor linear_backward_input(const Tensor& grad, const Tensor& weight);
Tensor grouped_mm_backward_mat2(const Tensor& grad, const Tensor& self, const Tensor& mat2,
                                IntList offs);
Tensor linear_backward_weight(const Tensor& grad, const Tensor& input, IntList weight_shape);
// `product` is linear(input, weight, bias), or empty if it was not saved.
Tensors<2> linear_gelu_double_backward(const Tensor* grads, const Tensor& grad_output,
                                       const Tensor& linear, Str approximate, IntList output_mask,
                                       const bool* wanted);
Tensors<3> linear_gelu_gradient(const Tensor* grads, const Tensor& input, const Tensor& weight,
                                const Tensor& bias, const Tensor& product, Str approximate,
                                const bool* wanted);
// The gradients of pdist and cdist_backward. (matrix/distances.cpp)
Tensor pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& distances);
Tensors<4> cdist_double_backward(const Tensor* grads, const Tensor& grad_output, const Tensor& x1,
                                 const Tensor& x2, double p, const Tensor& distances,
                                 const bool* wanted);
// Returns the strides of a tensor that is not row-major, else none, so that kernels from before the
// argument existed can run the call.
OptionalIntList strides_of_layout(const Tensor& tensor);
// Returns the sum over all dimensions except dimension 1.
Tensor sum_to_channel(const Tensor& grad);
// Returns `grad` in channels-last layout if an input of this shape and strides has that layout. The
// gradient of a vector of features is row-major. Copies only if a plane has several elements.
Tensor in_layout_of(const Tensor& grad, IntList input_shape, IntList input_strides);

// ---- factorizations and solvers (factorization/) ----
Tensor cholesky_backward(const Tensor& grad, const Tensor& factor, bool upper);
Tensor lu_factor_backward(const Tensor& grad, const Tensor& lu, const Tensor& pivots);
Tensors<2> lu_solve_backward(const Tensor& grad, const Tensor& lu, const Tensor& pivots,
                             IntList b_shape, const Tensor& solution, bool left, bool adjoint,
                             const bool* wanted);
Tensors<2> solve_triangular_backward(const Tensor& grad, const Tensor& a, IntList b_shape,
                                     const Tensor& solution, bool upper, bool left, bool unit,
                                     const bool* wanted);
Tensors<2> solve_forward_backward(const Tensor* grads, const Tensor& a, IntList b_shape,
                                  const Tensor& solution, const Tensor& lu, const Tensor& pivots,
                                  bool left, const bool* wanted);
Tensors<2> householder_product_backward(const Tensor& grad, const Tensor& input, const Tensor& tau,
                                        const Tensor& result, const bool* wanted);
// The vectors are computed again if the call did not compute them.
Tensor eigh_backward(const Tensor* grads, const Tensor& a, Str uplo, const Tensor& values,
                     const Tensor& vectors);
Tensor eig_backward(const Tensor* grads, const Tensor& a, const Tensor& values,
                    const Tensor& vectors);
Tensor svd_backward(const Tensor* grads, const Tensor& a, const Tensor& u_all, const Tensor& s,
                    const Tensor& vh_all);
Tensor qr_backward(const Tensor* grads, const Tensor& q, const Tensor& r, Str mode);
Tensor det_backward(const Tensor& grad, const Tensor& a, const Tensor& det);
Tensor slogdet_backward(const Tensor* grads, const Tensor& a, const Tensor& sign);
Tensor pinv_backward(const Tensor& grad, const Tensor& inverse, const Tensor& a, bool hermitian);
Tensors<2> lstsq_backward(const Tensor* grads, const Tensor& a, const Tensor& b,
                          std::optional<double> rcond, const Tensor& solution, const bool* wanted);
Tensor matrix_exp_backward(const Tensor& grad, const Tensor& a);
Tensor matrix_sqrth_backward(const Tensor& grad, const Tensor& a);

// ---- softmax and normalization (normalization/) ----
// `grads` has the gradients of all results, undefined for unused results.
Tensor softmax_backward_output(const Tensor& grad, const Tensor& grad_output, const Tensor& output,
                               int64_t dim);
Tensor log_softmax_backward_grad(const Tensor& grad, const Tensor& output, int64_t dim);
Tensor log_softmax_backward_output(const Tensor& grad, const Tensor& grad_output,
                                   const Tensor& output, int64_t dim);
Tensors<3> layer_norm_backward(const Tensor* grads, const Tensor& input, IntList normalized_shape,
                               const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                               const bool* wanted);
Tensors<5> layer_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                      const Tensor& input, IntList normalized_shape,
                                      const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                                      IntList mask);
Tensors<2> rms_norm_backward(const Tensor* grads, const Tensor& input, IntList normalized_shape,
                             const Tensor& rstd, const Tensor& weight, const bool* wanted);
Tensors<4> rms_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                    const Tensor& input, IntList normalized_shape,
                                    const Tensor& rstd, const Tensor& weight, IntList mask);
Tensors<4> add_layer_norm_backward(const Tensor* grads, const Tensor& sum, IntList normalized_shape,
                                   const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                                   const bool* wanted);
Tensors<6> add_layer_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                          const Tensor& sum, IntList normalized_shape,
                                          const Tensor& mean, const Tensor& rstd,
                                          const Tensor& weight, IntList mask);
Tensors<3> add_rms_norm_backward(const Tensor* grads, const Tensor& sum, IntList normalized_shape,
                                 const Tensor& rstd, const Tensor& weight, const bool* wanted);
Tensors<5> add_rms_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                        const Tensor& sum, IntList normalized_shape,
                                        const Tensor& rstd, const Tensor& weight, IntList mask);
Tensors<3> group_norm_backward(const Tensor* grads, const Tensor& input, const Tensor& mean,
                               const Tensor& rstd, const Tensor& weight, int64_t group,
                               const bool* wanted);
Tensors<5> group_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                      const Tensor& input, const Tensor& mean, const Tensor& rstd,
                                      const Tensor& weight, int64_t group, IntList mask);
Tensors<3> batch_norm_backward(const Tensor* grads, const Tensor& input, const Tensor& weight,
                               const Tensor& mean, const Tensor& var, double eps,
                               const bool* wanted);
Tensors<5> batch_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                      const Tensor& input, const Tensor& weight, const Tensor& mean,
                                      const Tensor& var, double eps, IntList mask);

// ---- losses (loss/) ----
// The gradient of cross_entropy_forward with respect to `self`, from the gradients of its results.
Tensor cross_entropy_gradient(const Tensor* grads, const Tensor& self, const Tensor& target,
                              const Tensor& weight, const Tensor& log_sum,
                              const Tensor& total_weight, Str reduction, int64_t ignore_index,
                              double label_smoothing);
// The gradients of cross_entropy_backward with respect to grad_output, self and log_sum.
Tensors<3> cross_entropy_double_backward(const Tensor& grad, const Tensor& grad_output,
                                         const Tensor& self, const Tensor& target,
                                         const Tensor& weight, const Tensor& log_sum,
                                         const Tensor& total_weight, Str reduction,
                                         int64_t ignore_index, double label_smoothing);
// Scales the gradients that the forward operator computed, or computes them again.
Tensors<3> linear_cross_entropy_gradient(const Tensor* grads, const Tensor& input,
                                         const Tensor& linear_weight, const Tensor& target,
                                         const Tensor& linear_bias, const Tensor& weight,
                                         const Tensor& grad_input, const Tensor& grad_weight,
                                         const Tensor& grad_bias, bool reduce, int64_t ignore_index,
                                         double label_smoothing, double softcap,
                                         IntList output_mask, const bool* wanted);

// ---- embedding (embedding/) and attention (attention/) ----
Tensor embedding_dense_double_backward(const Tensor& grad, const Tensor& indices,
                                       int64_t num_weights, int64_t padding_idx,
                                       bool scale_grad_by_freq);
// `grads` has the gradients of output and logsumexp, undefined for unused results.
Tensors<4> attention_gradient(const Tensor* grads, const Tensor& query, const Tensor& key,
                              const Tensor& value, const Tensor& attn_mask, const Tensor& slopes,
                              const Tensor& output, const Tensor& logsumexp, const Tensor& draw,
                              int64_t left, int64_t right, int64_t diagonal, double softcap,
                              double scale, double dropout_p, const bool* wanted);
Tensors<3> attention_varlen_gradient(const Tensor* grads, const Tensor& query, const Tensor& key,
                                     const Tensor& value, const Tensor& cu_seqlens_q,
                                     const Tensor& cu_seqlens_k, int64_t max_q, int64_t max_k,
                                     const Tensor& slopes, const Tensor& output,
                                     const Tensor& logsumexp, int64_t left, int64_t right,
                                     bool bottom_right, double softcap, double scale,
                                     const bool* wanted);
Tensors<8> attention_double_backward(const Tensor* grads, const Tensor& grad_output,
                                     const Tensor& grad_logsumexp, const Tensor& query,
                                     const Tensor& key, const Tensor& value,
                                     const Tensor& attn_mask, const Tensor& slopes,
                                     const Tensor& output, const Tensor& logsumexp,
                                     const Tensor& draw, int64_t left, int64_t right,
                                     int64_t diagonal, double softcap, double scale,
                                     double dropout_p, IntList mask);

}  // namespace mytorch::grads
