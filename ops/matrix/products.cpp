// Matrix products. All decompose into bmm; backends may have kernels for mm, addmm, baddbmm, linear
// and linear_gelu.
#include <algorithm>
#include <tuple>

#include "core/types/broadcast.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/addmm.h"
#include "mytorch/ops/bmm.h"
#include "mytorch/ops/conj.h"
#include "mytorch/ops/dot.h"
#include "mytorch/ops/einsum.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/gelu.h"
#include "mytorch/ops/gelu_grad.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/linear_gelu_backward.h"
#include "mytorch/ops/linear_gelu_forward.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/mv.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/tanh.h"
#include "ops/composites.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

void check_types(const Tensor& a, const Tensor& b, const char* op) {
  check_type(a.dtype() == b.dtype(), op, "operands are ", a.dtype(), " and ", b.dtype(),
             ": convert one of them");
  check_type(a.dtype() != kBool, op, "bool has no sum of products: convert to a number type");
}

void check_pair(bool holds, const Tensor& a, const Tensor& b, const char* op, const char* why) {
  check_shape(holds, op, "shapes ", a.sizes(), " and ", b.sizes(), why);
}

void check_inner(int64_t n, int64_t m, const Tensor& a, const Tensor& b, const char* op) {
  check_shape(n == m, op, "shapes ", a.sizes(), " and ", b.sizes(), ": inner dimensions ", n,
              " and ", m, " differ");
  check_types(a, b, op);
}

void check_matrices(const Tensor& a, const Tensor& b, const char* op) {
  check_pair(a.dim() == 2 && b.dim() == 2, a, b, op, " are not both matrices: use matmul");
  check_inner(a.sizes()[1], b.sizes()[0], a, b, op);
}

void check_batches(const Tensor& a, const Tensor& b, const char* op) {
  check_pair(a.dim() == 3 && b.dim() == 3, a, b, op, " are not both 3-dim: use matmul");
  check_shape(a.sizes()[0] == b.sizes()[0], op, "shapes ", a.sizes(), " and ", b.sizes(),
              ": batch sizes ", a.sizes()[0], " and ", b.sizes()[0], " differ");
  check_inner(a.sizes()[2], b.sizes()[1], a, b, op);
}

// Returns the result of addmm and baddbmm. Checks that `self` broadcasts to the product's shape.
TensorSpec added(const Tensor& self, const Tensor& product_of, Dims sizes, const Scalar& beta,
                 const Scalar& alpha, const char* op) {
  check_types(self, product_of, op);
  check_shape(broadcasts_to(self.sizes(), as_list(sizes)), op, "self, of shape ", self.sizes(),
              ", does not broadcast to the product's shape ", as_list(sizes));
  const auto whole = [](const Scalar& number) { return number.is_int() || number.is_bool(); };
  check_type(self.is_complex() || (!alpha.is_complex() && !beta.is_complex()), op,
             "beta or alpha is complex, but the tensors are ", self.dtype());
  check_type(is_differentiable(self.dtype()) || (whole(beta) && whole(alpha)), op,
             "beta and alpha must be integers for ", self.dtype(), " tensors");
  return like(product_of, std::move(sizes));
}

// Merges all dimensions except the last.
Tensor as_rows(const Tensor& x) {
  const Dims leading = geometry::leading_sizes(x, 1);
  return x.reshape({checked_product(as_list(leading), "matmul"), x.sizes().back()});
}

Dims linear_sizes(const Tensor& input, const Tensor& weight) {
  Dims sizes = geometry::leading_sizes(input, 1);
  if (weight.dim() == 2) sizes.push_back(weight.sizes()[0]);
  return sizes;
}

}  // namespace

namespace shape {

TensorSpec bmm(const Tensor& self, const Tensor& mat2) {
  check_batches(self, mat2, "bmm");
  return like(self, {self.sizes()[0], self.sizes()[1], mat2.sizes()[2]});
}

TensorSpec vdot(const Tensor& self, const Tensor& other) {
  check_pair(self.dim() == 1 && other.dim() == 1, self, other, "vdot",
             " are not both vectors: use linalg_vecdot");
  check_inner(self.numel(), other.numel(), self, other, "vdot");
  return like(self, {});
}

TensorSpec mm(const Tensor& self, const Tensor& mat2) {
  check_matrices(self, mat2, "mm");
  return like(self, {self.sizes()[0], mat2.sizes()[1]});
}

TensorSpec addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                 const Scalar& alpha) {
  check_matrices(mat1, mat2, "addmm");
  return added(self, mat1, {mat1.sizes()[0], mat2.sizes()[1]}, beta, alpha, "addmm");
}

TensorSpec baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2,
                   const Scalar& beta, const Scalar& alpha) {
  check_batches(batch1, batch2, "baddbmm");
  return added(self, batch1, {batch1.sizes()[0], batch1.sizes()[1], batch2.sizes()[2]}, beta, alpha,
               "baddbmm");
}

TensorSpec linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_shape(weight.dim() == 1 || weight.dim() == 2, "linear", "weight has shape ", weight.sizes(),
              ": it must be (out, in) or (in)");
  check_shape(input.dim() != 0 && input.sizes().back() == weight.sizes().back(), "linear",
              "input of shape ", input.sizes(), " does not end in the ", weight.sizes().back(),
              " features of weight, of shape ", weight.sizes(),
              ": flatten or reshape the input, or make the layer for its features");
  check_types(input, weight, "linear");
  Dims sizes = linear_sizes(input, weight);
  if (bias.defined()) {
    check_types(input, bias, "linear");
    const int64_t out = weight.dim() == 2 ? weight.sizes()[0] : 1;
    const bool fits =
        bias.numel() == out && bias.dim() <= 1 && (bias.dim() == 0 || weight.dim() == 2);
    check_shape(fits, "linear", "bias has shape ", bias.sizes(), ", but weight, of shape ",
                weight.sizes(), ", gives ", out, " features");
  }
  return like(input, std::move(sizes));
}

Specs<2> linear_gelu_forward(const Tensor& input, const Tensor& weight, const Tensor& bias, Str,
                             bool keep) {
  TensorSpec output = shape::linear(input, weight, bias);
  check_type(is_floating_point(output.dtype), "linear_gelu_forward", "gives fractions, which ",
             output.dtype, " cannot hold");
  TensorSpec kept = keep ? output : like(input, {0});
  return {std::move(output), std::move(kept)};
}

Specs<2> linear_gelu_backward(const Tensor& grad_output, const Tensor& linear, Str,
                              IntList output_mask) {
  const char* op = "linear_gelu_backward";
  check_floating(linear, "linear", op);
  check_shape(linear.dim() > 0 && grad_output.sizes() == linear.sizes(), op,
              "grad_output has shape ", grad_output.sizes(), ", and linear ", linear.sizes(),
              ": they must be the same, with a last dimension");
  check_types(grad_output, linear, op);
  check_value(output_mask.size() == 2, op, "output_mask has ", output_mask.size(),
              " elements: give 2");
  return {output_mask[0] != 0 ? like(linear) : like(linear, {0}),
          like(linear, {output_mask[1] != 0 ? linear.size(-1) : 0})};
}

}  // namespace shape

namespace composite {

Tensor scaled_sum(const Tensor& self, const Tensor& product, const Scalar& beta,
                  const Scalar& alpha) {
  const auto fraction = [](const Scalar& number) { return number.is_float(); };
  check_type(is_differentiable(self.dtype()) || is_differentiable(product.dtype()) ||
                 (!fraction(beta) && !fraction(alpha)),
             "addmm", "beta and alpha must be integers for ", self.dtype(), " tensors");
  Tensor scaled = alpha == Scalar(1) ? product : product * alpha;
  // If beta is 0, even a NaN in self is ignored, as in BLAS.
  if (beta == Scalar(0)) return scaled;
  return (beta == Scalar(1) ? self : self * beta) + scaled;
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor matrix = weight.dim() == 1 ? weight.unsqueeze(0) : weight;
  const Tensor rows = as_rows(input);
  const Tensor product =
      bias.defined() ? bias.addmm(rows, matrix.transpose(0, 1)) : rows.mm(matrix.transpose(0, 1));
  Dims sizes = linear_sizes(input, weight);
  return product.view(as_list(sizes));
}

Tensors<2> linear_gelu_forward(const Tensor& input, const Tensor& weight, const Tensor& bias,
                               Str approximate, bool keep) {
  Tensor product = mytorch::linear(input, weight, bias);
  Tensor output = mytorch::gelu(product, approximate);
  if (!keep) product = mytorch::empty({0}, product.dtype(), product.device());
  return {std::move(output), std::move(product)};
}

Tensors<2> linear_gelu_backward(const Tensor& grad_output, const Tensor& linear, Str approximate,
                                IntList output_mask) {
  const Tensor grad = mytorch::gelu_grad(grad_output, linear, approximate);
  // Each result is a tensor of its own, with its own history.
  const auto none = [&] { return mytorch::empty({0}, linear.dtype(), linear.device()); };
  Tensor sums = output_mask[1] != 0 ? grads::sum_to(grad, {linear.size(-1)}) : none();
  if (output_mask[0] != 0 && sums.is_same(grad)) sums = grad.clone();
  return {output_mask[0] != 0 ? grad : none(), std::move(sums)};
}

Tensor linear_gelu(const Tensor& input, const Tensor& weight, const Tensor& bias, Str approximate) {
  if (!input.is_floating_point()) {
    return mytorch::gelu(mytorch::linear(input, weight, bias), approximate);
  }
  const bool keep = grad_enabled() && (input.requires_grad() || weight.requires_grad() ||
                                       (bias.defined() && bias.requires_grad()));
  return std::get<0>(mytorch::linear_gelu_forward(input, weight, bias, approximate, keep));
}

Tensor mv(const Tensor& self, const Tensor& vec) {
  check_pair(self.dim() == 2 && vec.dim() == 1, self, vec, "mv",
             " are not a matrix and a vector: use matmul");
  check_inner(self.sizes()[1], vec.sizes()[0], self, vec, "mv");
  return self.mm(vec.unsqueeze(1)).squeeze(1);
}

Tensor dot(const Tensor& self, const Tensor& tensor) {
  check_pair(self.dim() == 1 && tensor.dim() == 1, self, tensor, "dot",
             " are not both vectors: use matmul");
  check_inner(self.numel(), tensor.numel(), self, tensor, "dot");
  // The parts of a complex row and column are no vectors, for which products of matrices have
  // kernels.
  if (self.is_complex()) return mytorch::sum(self * tensor);
  return mytorch::mm(self.unsqueeze(0), tensor.unsqueeze(1)).reshape(IntList());
}

Tensor outer(const Tensor& self, const Tensor& vec2) {
  check_pair(self.dim() == 1 && vec2.dim() == 1, self, vec2, "outer", " are not both vectors");
  return self.unsqueeze(1) * vec2;
}

// Multiplies a batch and an operand of at most two dimensions by a single large matrix product.
static Tensor matmul_folded(const Tensor& batch, const Tensor& other) {
  Dims sizes = geometry::leading_sizes(batch, 1);
  const Tensor rows = as_rows(batch);
  if (other.dim() == 1) return rows.mv(other).view(as_list(sizes));
  sizes.push_back(other.sizes()[1]);
  return rows.mm(other).view(as_list(sizes));
}

static Tensor matmul_batched(const Tensor& self, const Tensor& other) {
  const Tensor a = self.dim() == 1 ? self.unsqueeze(0) : self;
  const Tensor b = other.dim() == 1 ? other.unsqueeze(1) : other;
  Dims sizes = broadcast_shapes(as_list(geometry::leading_sizes(a, 2)),
                                as_list(geometry::leading_sizes(b, 2)), "matmul");
  const int64_t batch = checked_product(as_list(sizes), "matmul");
  // If copies of an operand would take more memory than all that is there, what broadcasts becomes
  // rows and columns of fewer and larger products.
  const auto copies = [batch](const Tensor& x) {
    const Wide all = Wide{batch} * x.size(-2) * x.size(-1);
    return all == x.numel() ? Wide{0} : all;
  };
  if (copies(a) + copies(b) > Wide{a.numel()} + b.numel() + Wide{batch} * a.size(-2) * b.size(-1)) {
    const Tensor product = mytorch::einsum("...ij,...jk->...ik", {a, b});
    if (self.dim() == 1) return product.squeeze(-2).contiguous();
    if (other.dim() == 1) return product.squeeze(-1).contiguous();
    return product.contiguous();
  }
  const auto as_batch = [&](const Tensor& x) {
    Dims expanded = sizes;
    expanded.insert(expanded.end(), x.sizes().end() - 2, x.sizes().end());
    return x.expand(as_list(expanded)).reshape({batch, x.size(-2), x.size(-1)});
  };
  const Tensor product = mytorch::bmm(as_batch(a), as_batch(b));
  if (self.dim() > 1) sizes.push_back(a.size(-2));
  if (other.dim() > 1) sizes.push_back(b.size(-1));
  return product.view(as_list(sizes));
}

Tensor matmul(const Tensor& self, const Tensor& other) {
  const int64_t n = self.dim(), m = other.dim();
  check_pair(n != 0 && m != 0, self, other, "matmul",
             ": both operands need at least one dimension");
  const int64_t inner = other.size(m == 1 ? 0 : -2);
  check_inner(self.sizes().back(), inner, self, other, "matmul");
  if (n == 1 && m == 1) return self.dot(other);
  if (n == 2 && m == 1) return self.mv(other);
  if (n == 1 && m == 2) return mytorch::mm(self.unsqueeze(0), other).squeeze(0);
  if (n == 2 && m == 2) return self.mm(other);
  if (m <= 2) return matmul_folded(self, other);
  if (n <= 2) {
    // A B = (B^T A^T)^T, folded if B^T is a matrix without a copy.
    const Tensor flipped = other.transpose(-2, -1);
    const Dims rows = {flipped.numel() / std::max<int64_t>(inner, 1), inner};
    if (flipped.numel() > 0 &&
        geometry::view_strides(flipped.sizes(), flipped.strides(), as_list(rows)).has_value()) {
      const Tensor product = matmul_folded(flipped, n == 1 ? self : self.transpose(0, 1));
      return n == 1 ? product : product.transpose(-2, -1);
    }
  }
  return matmul_batched(self, other);
}

Tensor tensordot(const Tensor& self, const Tensor& other, IntList dims_self, IntList dims_other) {
  check_shape(dims_self.size() == dims_other.size(), "tensordot", "dims ", dims_self, " and ",
              dims_other, " have different lengths");
  check_types(self, other, "tensordot");
  const Dims a_dims = geometry::wrap_dims(dims_self, self.dim(), "tensordot");
  const Dims b_dims = geometry::wrap_dims(dims_other, other.dim(), "tensordot");
  Tensor a = self, b = other;
  int64_t inner = 1;
  for (size_t i = 0; i < a_dims.size() && self.dim() > 0 && other.dim() > 0; ++i) {
    const int64_t n = self.sizes()[a_dims[i]], m = other.sizes()[b_dims[i]];
    if (n != 1 && m != 1) check_inner(n, m, self, other, "tensordot");
    // A size of 1 broadcasts, so the other operand is summed alone.
    if (n == 1 && m != 1) b = b.sum(b_dims[i], true, b.dtype());
    if (m == 1 && n != 1) a = a.sum(a_dims[i], true, a.dtype());
    if (n == m) inner *= n;
  }
  const auto other_dims = [](const Tensor& x, const Dims& dims, Dims& sizes) {
    Dims rest;
    for (int64_t d = 0; d < x.dim(); ++d) {
      if (std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
      rest.push_back(d);
      sizes.push_back(x.sizes()[d]);
    }
    return rest;
  };
  Dims sizes;
  Dims a_order = other_dims(a, a_dims, sizes);
  const int64_t rows = checked_product(as_list(sizes), "tensordot");
  Dims b_sizes;
  const Dims b_rest = other_dims(b, b_dims, b_sizes);
  const int64_t columns = checked_product(as_list(b_sizes), "tensordot");
  sizes.insert(sizes.end(), b_sizes.begin(), b_sizes.end());
  if (self.dim() > 0) a_order.insert(a_order.end(), a_dims.begin(), a_dims.end());
  Dims b_order = other.dim() > 0 ? b_dims : Dims();
  b_order.insert(b_order.end(), b_rest.begin(), b_rest.end());
  return mytorch::mm(a.permute(as_list(a_order)).reshape({rows, inner}),
                     b.permute(as_list(b_order)).reshape({inner, columns}))
      .reshape(as_list(sizes));
}

Tensor trace(const Tensor& self) {
  check_shape(self.dim() == 2, "trace", "shape ", self.sizes(), " is not a matrix");
  return mytorch::sum(self.diagonal());
}

// Returns the sums of products along a dimension of the broadcast operands. Products of all pairs
// of vectors, as of (n, 1, d) and (1, m, d), never exist as a whole.
static Tensor sum_of_products(const Tensor& x, const Tensor& y, int64_t dim, const char* op) {
  const Dims sizes = broadcast_shapes(x.sizes(), y.sizes(), op);
  const auto n = static_cast<int64_t>(sizes.size());
  const int64_t along = wrap_dim(dim, n, op);
  if (x.dtype() != y.dtype() || !(x.is_floating_point() || x.is_complex()) ||
      Wide{x.numel()} + y.numel() >= checked_product(as_list(sizes), op)) {
    return mytorch::sum(x * y, {along});
  }
  const auto last = [&](Tensor t) {
    while (t.dim() < n) t = t.unsqueeze(0);
    return t.movedim(along, -1);
  };
  return mytorch::einsum("...i,...i->...", {last(x), last(y)});
}

Tensor linalg_vecdot(const Tensor& x, const Tensor& y, int64_t dim) {
  return sum_of_products(mytorch::conj(x), y, dim, "linalg_vecdot");
}

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim, double eps) {
  const char* op = "cosine_similarity";
  check_floating(x1, "x1", op);
  check_floating(x2, "x2", op);
  const Dims sizes = broadcast_shapes(x1.sizes(), x2.sizes(), op);
  const auto n = static_cast<int64_t>(sizes.size());
  const int64_t along = wrap_dim(dim, n, op);
  const auto unit = [&](Tensor x) {
    while (x.dim() < n) x = x.unsqueeze(0);
    Dims own = Dims(x.sizes().begin(), x.sizes().end());
    if (n > 0) own[along] = sizes[along];
    x = x.expand(as_list(own));
    return x / mytorch::linalg_vector_norm(x, 2, {along}, true).clamp_min(eps);
  };
  return sum_of_products(unit(x1), unit(x2), along, op);
}

}  // namespace composite

namespace grads {

Tensor maybe_multiply(const Tensor& x, const Scalar& factor) {
  return factor == Scalar(1) ? x : x * factor;
}

Tensor linear_backward_input(const Tensor& grad, const Tensor& weight) {
  if (weight.dim() == 1) return grad.unsqueeze(-1) * weight;
  const Dims sizes = geometry::with_size(grad.sizes(), grad.dim() - 1, weight.sizes()[1]);
  return mytorch::mm(as_rows(grad), weight).reshape(as_list(sizes));
}

Tensor linear_backward_weight(const Tensor& grad, const Tensor& input, IntList weight_shape) {
  const Tensor in = as_rows(input);
  if (weight_shape.size() == 1) return mytorch::mv(in.transpose(0, 1), grad.reshape(-1));
  return mytorch::mm(as_rows(grad).transpose(0, 1), in);
}

Tensors<3> linear_gelu_gradient(const Tensor* grads, const Tensor& input, const Tensor& weight,
                                const Tensor& bias, const Tensor& product, Str approximate,
                                const bool* wanted) {
  Tensor grad;  // with respect to the product
  Tensors<3> result;
  const bool other = grads[1].defined() && product.numel() != 0;
  if (grads[0].defined()) {
    const IntList sizes = grads[0].sizes();
    const bool kept = product.numel() != 0 || grads[0].numel() == 0;
    // The product of two vectors has no last dimension.
    const Dims rows = sizes.empty() ? Dims(1, 1) : to_dims(sizes);
    const Tensor at = (kept ? product : mytorch::linear(input, weight, bias)).view(as_list(rows));
    const bool sums = wanted[2] && !other && weight.dim() == 2;
    Tensor of_bias;
    std::tie(grad, of_bias) =
        mytorch::linear_gelu_backward(sizes.empty() ? grads[0].reshape(as_list(rows)) : grads[0],
                                      at, approximate, {1, int64_t{sums}});
    if (sizes.empty()) grad = grad.reshape(sizes);
    if (sums) std::get<2>(result) = of_bias.reshape(bias.sizes());
  }
  if (other) grad = grad.defined() ? grad + grads[1] : grads[1];
  if (!grad.defined()) return result;
  if (wanted[0]) std::get<0>(result) = linear_backward_input(grad, weight);
  if (wanted[1]) std::get<1>(result) = linear_backward_weight(grad, input, weight.sizes());
  if (wanted[2] && !std::get<2>(result).defined()) {
    std::get<2>(result) = sum_to(grad, bias.sizes());
  }
  return result;
}

Tensors<2> linear_gelu_double_backward(const Tensor* grads, const Tensor& grad_output,
                                       const Tensor& linear, Str approximate, IntList output_mask,
                                       const bool* wanted) {
  Tensor grad;  // with respect to grad_output * slope
  if (output_mask[0] != 0 && grads[0].defined()) grad = grads[0];
  if (output_mask[1] != 0 && grads[1].defined()) {
    const Tensor all = grads[1].expand(linear.sizes());
    grad = grad.defined() ? grad + all : all;
  }
  if (!grad.defined()) return {};
  Tensors<2> result;
  if (wanted[0]) std::get<0>(result) = mytorch::gelu_grad(grad, linear, approximate);
  if (wanted[1]) {
    const Tensor x = widened(linear), square = x * x;
    Tensor bend;  // the second derivative of gelu
    if (approximate == "tanh") {
      constexpr double kScale = 0.79788456080286535588, kCube = 0.044715;
      const Tensor t = mytorch::tanh(x * (square * kCube + 1) * kScale);
      const Tensor slope = (square * (3 * kCube) + 1) * kScale;
      const Tensor inner = x * (6 * kCube * kScale) - t * slope * slope * 2;
      bend = (t * t * -1 + 1) * (slope + x * inner * 0.5);
    } else {
      constexpr double kDensity = 0.39894228040143267794;
      bend = mytorch::exp(square * -0.5) * (square * -1 + 2) * kDensity;
    }
    const Tensor of_linear = widened(grad) * widened(grad_output) * bend;
    std::get<1>(result) = of_linear.to(linear.dtype());
  }
  return result;
}

}  // namespace grads
}  // namespace mytorch
