// Attention of packed sequences of several lengths, and its gradient.
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/attention_backward.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/attention_varlen_backward.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/zeros.h"
#include "ops/attention/attention.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {

using namespace attention;

namespace {

// The arguments that attention_varlen_forward and attention_varlen_backward share.
struct Packed {
  const Tensor& query;
  const Tensor& key;
  const Tensor& value;
  const Tensor& cu_seqlens_q;
  const Tensor& cu_seqlens_k;
  int64_t max_q;
  int64_t max_k;
  const Tensor& slopes;
  int64_t left;
  int64_t right;
  bool bottom_right;
  double softcap;
  double scale;

  Dims output_sizes() const { return {query.size(0), query.size(1), value.size(2)}; }
  Dims row_sizes() const { return {query.size(1), query.size(0)}; }
  int64_t batch() const { return cu_seqlens_q.numel() - 1; }
};

void check_packed(const Packed& a, const char* op) {
  check_index_type(a.cu_seqlens_q, "cu_seqlens_q", op);
  check_index_type(a.cu_seqlens_k, "cu_seqlens_k", op);
  check_shape(a.query.dim() == 3 && a.key.dim() == 3 && a.value.dim() == 3, op, "query ",
              a.query.sizes(), ", key ", a.key.sizes(), " and value ", a.value.sizes(),
              " are not (T, H, D), (U, K, D) and (U, K, V)");
  check_shape(a.cu_seqlens_q.dim() == 1 && a.cu_seqlens_q.numel() >= 1 &&
                  a.cu_seqlens_k.sizes() == a.cu_seqlens_q.sizes(),
              op, "cu_seqlens_q ", a.cu_seqlens_q.sizes(), " and cu_seqlens_k ",
              a.cu_seqlens_k.sizes(), " are not 1-dim with one element more than sequences");
  const bool by_sequence = a.slopes.defined() && a.slopes.dim() == 2;
  if (by_sequence && a.slopes.size(0) != a.batch()) {
    refuse(ErrorCode::kShape, op, "slopes have shape ", a.slopes.sizes(),
           ": give one per head, or a row for each of ", a.batch(), " sequences");
  }
  const auto one = [](const Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  const Tensor slopes = a.slopes.defined() && a.slopes.dim() == 2 && a.batch() != 0
                            ? a.slopes.select(0, 0)
                            : a.slopes;
  check_arguments({one(a.query),
                   one(a.key),
                   one(a.value),
                   {},
                   slopes,
                   a.left,
                   a.right,
                   0,
                   a.softcap,
                   a.scale,
                   0},
                  op);
}

// Returns the offsets of sequences in `total` packed rows.
std::vector<int64_t> offsets_of(const Tensor& cu_seqlens, int64_t total, int64_t most,
                                const char* name, const char* op) {
  const Tensor host = cu_seqlens.to(kCPU).to(kInt64).contiguous();
  const int64_t* data = host.data<int64_t>();
  std::vector<int64_t> offsets(data, data + host.numel());
  check_value(offsets.front() == 0 && offsets.back() == total, op, name, " runs from ",
              offsets.front(), " to ", offsets.back(), ": it must run from 0 to the ", total,
              " packed rows");
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const int64_t length = offsets[b + 1] - offsets[b];
    check_value(offsets[b + 1] >= offsets[b] && length <= most, op, name, " gives sequence ",
                static_cast<int64_t>(b), " ", length, " rows: lengths are from 0 to ", most);
  }
  return offsets;
}

// Calls body(b, q, n, k, m, slopes, diagonal) for each sequence that has rows: n of them from q on,
// and m keys from k on.
template <class F>
void for_each_sequence(const Packed& a, const char* op, F&& body) {
  const auto q = offsets_of(a.cu_seqlens_q, a.query.size(0), a.max_q, "cu_seqlens_q", op);
  const auto k = offsets_of(a.cu_seqlens_k, a.key.size(0), a.max_k, "cu_seqlens_k", op);
  for (int64_t b = 0; b < a.batch(); ++b) {
    const int64_t n = q[b + 1] - q[b], m = k[b + 1] - k[b];
    if (n == 0) continue;
    const bool by_sequence = a.slopes.defined() && a.slopes.dim() == 2;
    body(q[b], n, k[b], m, by_sequence ? a.slopes.select(0, b) : a.slopes,
         a.bottom_right ? m - n : 0);
  }
}

// Returns n packed rows as (1, heads, n, width), and undoes that.
Tensor sequence(const Tensor& x, int64_t first, int64_t n) {
  return x.narrow(0, first, n).transpose(0, 1).unsqueeze(0);
}
Tensor packed_rows(const Tensor& x) { return x.squeeze(0).transpose(0, 1); }

}  // namespace

namespace shape {

Specs<2> attention_varlen_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                                  int64_t max_q, int64_t max_k, const Tensor& slopes, int64_t left,
                                  int64_t right, bool bottom_right, double softcap, double scale) {
  const Packed a{query,  key,  value, cu_seqlens_q, cu_seqlens_k, max_q, max_k,
                 slopes, left, right, bottom_right, softcap,      scale};
  check_packed(a, "attention_varlen_forward");
  return {like(query, a.output_sizes()), like(query, a.row_sizes(), wide_type(query.dtype()))};
}

Specs<3> attention_varlen_backward(const Tensor& grad_output, const Tensor& grad_logsumexp,
                                   const Tensor& query, const Tensor& key, const Tensor& value,
                                   const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                                   int64_t max_q, int64_t max_k, const Tensor& slopes,
                                   const Tensor& output, const Tensor& logsumexp, int64_t left,
                                   int64_t right, bool bottom_right, double softcap, double scale,
                                   IntList output_mask) {
  const char* op = "attention_varlen_backward";
  const Packed a{query,  key,  value, cu_seqlens_q, cu_seqlens_k, max_q, max_k,
                 slopes, left, right, bottom_right, softcap,      scale};
  check_packed(a, op);
  const auto check_result = [&](const Tensor& x, const char* name, const Dims& sizes,
                                ScalarType type) {
    if (!x.defined()) return;
    check_shape(x.sizes() == as_list(sizes), op, name, " has shape ", x.sizes(), ", expected ",
                as_list(sizes));
    check_type(x.dtype() == type, op, name, " is ", x.dtype(), ", expected ", type);
  };
  const ScalarType wide = wide_type(query.dtype());
  check_result(grad_output, "grad_output", a.output_sizes(), query.dtype());
  check_result(output, "output", a.output_sizes(), query.dtype());
  check_result(logsumexp, "logsumexp", a.row_sizes(), wide);
  check_result(grad_logsumexp, "grad_logsumexp", a.row_sizes(), wide);
  check_shape(output_mask.size() == 3, op, "output_mask has ",
              static_cast<int64_t>(output_mask.size()), " elements, expected 3");
  const auto spec = [&](bool wanted, const Tensor& of) {
    return wanted ? like(of, to_dims(of.sizes())) : like(query, {0});
  };
  return {spec(output_mask[0] != 0, query), spec(output_mask[1] != 0, key),
          spec(output_mask[2] != 0, value)};
}

}  // namespace shape

namespace composite {

Tensors<2> attention_varlen_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                                    int64_t max_q, int64_t max_k, const Tensor& slopes,
                                    int64_t left, int64_t right, bool bottom_right, double softcap,
                                    double scale) {
  const Packed a{query,  key,  value, cu_seqlens_q, cu_seqlens_k, max_q, max_k,
                 slopes, left, right, bottom_right, softcap,      scale};
  const Dims sizes = a.output_sizes(), rows = a.row_sizes();
  const Tensor output = mytorch::empty(as_list(sizes), query.dtype(), query.device());
  const Tensor logsumexp = mytorch::empty(as_list(rows), wide_type(query.dtype()), query.device());
  for_each_sequence(
      a, "attention_varlen_forward",
      [&](int64_t q, int64_t n, int64_t k, int64_t m, const Tensor& by_head, int64_t diagonal) {
        const auto [out, sums, draw] = mytorch::attention_forward(
            sequence(query, q, n), sequence(key, k, m), sequence(value, k, m), {}, by_head, left,
            right, diagonal, softcap, scale, 0, uncounted());
        output.narrow(0, q, n).copy_(packed_rows(out));
        logsumexp.narrow(1, q, n).copy_(sums.squeeze(0));
      });
  return {output, logsumexp};
}

Tensors<3> attention_varlen_backward(const Tensor& grad_output, const Tensor& grad_logsumexp,
                                     const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                                     int64_t max_q, int64_t max_k, const Tensor& slopes,
                                     const Tensor& output, const Tensor& logsumexp, int64_t left,
                                     int64_t right, bool bottom_right, double softcap, double scale,
                                     IntList mask) {
  const Packed a{query,  key,  value, cu_seqlens_q, cu_seqlens_k, max_q, max_k,
                 slopes, left, right, bottom_right, softcap,      scale};
  const auto result = [&](bool wanted, const Tensor& x) {
    // Keys of a sequence without queries have no gradient.
    return wanted ? mytorch::zeros(x.sizes(), x.dtype(), x.device())
                  : mytorch::empty({0}, query.dtype(), query.device());
  };
  Tensors<3> results{result(mask[0] != 0, query), result(mask[1] != 0, key),
                     result(mask[2] != 0, value)};
  const Tensor draw = mytorch::empty({0}, kInt64, query.device());
  for_each_sequence(
      a, "attention_varlen_backward",
      [&](int64_t q, int64_t n, int64_t k, int64_t m, const Tensor& by_head, int64_t diagonal) {
        const auto rows = [&](const Tensor& x) {
          return x.defined() ? x.narrow(1, q, n).unsqueeze(0) : x;
        };
        const auto [to_query, to_key, to_value, to_mask] = mytorch::attention_backward(
            sequence(grad_output, q, n), rows(grad_logsumexp), sequence(query, q, n),
            sequence(key, k, m), sequence(value, k, m), {}, by_head, sequence(output, q, n),
            rows(logsumexp), draw, left, right, diagonal, softcap, scale, 0,
            {mask[0], mask[1], mask[2], 0});
        if (mask[0] != 0) std::get<0>(results).narrow(0, q, n).copy_(packed_rows(to_query));
        if (mask[1] != 0) std::get<1>(results).narrow(0, k, m).copy_(packed_rows(to_key));
        if (mask[2] != 0) std::get<2>(results).narrow(0, k, m).copy_(packed_rows(to_value));
      });
  return results;
}

}  // namespace composite

namespace grads {

Tensors<3> attention_varlen_gradient(const Tensor* grads, const Tensor& query, const Tensor& key,
                                     const Tensor& value, const Tensor& cu_seqlens_q,
                                     const Tensor& cu_seqlens_k, int64_t max_q, int64_t max_k,
                                     const Tensor& slopes, const Tensor& output,
                                     const Tensor& logsumexp, int64_t left, int64_t right,
                                     bool bottom_right, double softcap, double scale,
                                     const bool* wanted) {
  const Tensor grad_output = grads[0].defined()
                                 ? grads[0]
                                 : mytorch::zeros(output.sizes(), output.dtype(), output.device());
  Tensors<3> result = mytorch::attention_varlen_backward(
      grad_output, grads[1], query, key, value, cu_seqlens_q, cu_seqlens_k, max_q, max_k, slopes,
      output, logsumexp, left, right, bottom_right, softcap, scale,
      {int64_t{wanted[0]}, int64_t{wanted[1]}, int64_t{wanted[2]}});
  if (!wanted[0]) std::get<0>(result) = Tensor();
  if (!wanted[1]) std::get<1>(result) = Tensor();
  if (!wanted[2]) std::get<2>(result) = Tensor();
  return result;
}

}  // namespace grads
}  // namespace mytorch
