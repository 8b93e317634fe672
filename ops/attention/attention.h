// What the parts of attention share: checks of arguments, and the scores of queries and keys.
//
// Formulas compute in float32 or double, in the shape (B, K, G, L, ...), where G query heads share
// each of the K heads of key and value.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "core/types/dims.h"
#include "mytorch/tensor.h"
#include "ops/spec.h"

namespace mytorch::attention {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The arguments that attention_forward and attention_backward share.
struct Arguments {
  const Tensor& query;
  const Tensor& key;
  const Tensor& value;
  const Tensor& attn_mask;
  const Tensor& slopes;
  int64_t left;
  int64_t right;
  int64_t diagonal;
  double softcap;
  double scale;
  double dropout_p;

  int64_t batch() const { return query.size(0); }
  int64_t heads() const { return query.size(1); }
  int64_t rows() const { return query.size(2); }
  int64_t keys() const { return key.size(2); }
  bool has_float_mask() const { return attn_mask.defined() && attn_mask.dtype() != kBool; }
  Dims output_sizes() const { return {batch(), heads(), rows(), value.size(3)}; }
  Dims row_sizes() const { return {batch(), heads(), rows()}; }
};

// ---- checks and shapes (attention.cpp) ----

void check_types(const Tensor& query, const Tensor& key, const Tensor& value,
                 const Tensor& attn_mask, const char* op);
void check_probability(double p, const char* op);
void check_band(int64_t distance, const char* name, const char* op);
void check_index_type(const Tensor& x, const char* name, const char* op);
void check_arguments(const Arguments& a, const char* op);

// Returns the spec of a result of these sizes in the order of dimensions of `x`, but with the
// elements of each row adjacent.
TensorSpec rows_like(const Tensor& x, Dims sizes);
// Returns `x` in the type of `as`, with strides as rows_like gives them.
Tensor placed(const Tensor& x, const Tensor& as);

// Without dropout, the default generator does not count the call.
const Generator& uncounted();

// ---- scores (attention_scores.cpp) ----

int64_t group_size(const Arguments& a);

// Splits the heads of a tensor of query heads, (b, H, ...), into (b, K, G, ...); one head becomes
// (b, 1, 1, ...).
Tensor split_heads(const Tensor& x, const Arguments& a);
// Undoes split_heads, for all heads.
Tensor join_heads(const Tensor& x);

// The operands in the compute type.
struct Operands {
  Tensor q, k, v;  // (B, K, G, L, D), (B, K, 1, S, D), (B, K, 1, S, V)

  explicit Operands(const Arguments& a);
};

// The scores before and after everything that changes them.
struct Scores {
  Tensor slope;  // the derivative of softcap; undefined without it
  Tensor capped;
  Tensor masked;

  Scores(const Arguments& a, const Operands& x);
};

// Returns the softmax of scores whose logsumexp, (B, K, G, L), is known; 0 in rows without keys.
Tensor weights_of(const Tensor& scores, const Tensor& logsumexp);

// ---- dropout (attention_dropout.cpp) ----

// Returns the seed and the number of the call that the generator counted last, on the device.
Tensor last_draw(const std::optional<Generator>& generator, Device device);
// Returns the factors of dropout, 0 or 1 / (1 - p), of shape (B, K, G, L, S): the Philox blocks of
// mytorch/backend/philox.h, by operators on int64, so that the host does not read `draw`.
Tensor dropout_factors(const Arguments& a, const Tensor& draw, ScalarType type);

}  // namespace mytorch::attention
