// The rules, by the files that define them, and what they share. The table in rules.cpp says which
// operators they serve.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "autograd/vmap/rules.h"
#include "mytorch/ops/flatten.h"
#include "mytorch/ops/reshape.h"

namespace mytorch::autograd::batch::rules {

using Sizes = std::vector<int64_t>;

inline Sizes prefixed(int64_t first, const Sizes& rest) {
  Sizes sizes = {first};
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return sizes;
}

inline bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// (B, N, ...) -> (B * N, ...), and back.
inline Tensor folded(const Tensor& x) { return mytorch::flatten(x, 0, 1); }
inline Tensor unfolded(const Tensor& x, int64_t batch) {
  Sizes sizes = x.sizes().vec();
  sizes[0] /= batch;
  return mytorch::reshape(x, prefixed(batch, sizes));
}

// rules_pointwise.cpp
bool pointwise(BatchedCall& call);
bool aligned(BatchedCall& call);

// rules_dims.cpp
bool shifted(BatchedCall& call);
bool reduced(BatchedCall& call);
bool view(BatchedCall& call);

// rules_direct.cpp
bool direct(BatchedCall& call);
bool direct_first(BatchedCall& call);
bool converted(BatchedCall& call);
bool new_like(BatchedCall& call);
bool pad(BatchedCall& call);
bool index_select(BatchedCall& call);
bool join(BatchedCall& call);

// rules_layers.cpp
bool product(BatchedCall& call);
bool convolution(BatchedCall& call);
bool convolution_backward_input(BatchedCall& call);
bool convolution_backward_weight(BatchedCall& call);
bool pooling(BatchedCall& call);
bool embedding_dense_backward(BatchedCall& call);
bool embedding(BatchedCall& call);
bool attention(BatchedCall& call);

// rules_random.cpp
bool copy(BatchedCall& call);
bool fill(BatchedCall& call);
bool random_of_size(BatchedCall& call);
bool random_permutation(BatchedCall& call);
bool random_like(BatchedCall& call);
bool random_from(BatchedCall& call);
bool multinomial(BatchedCall& call);
bool dropout(BatchedCall& call);
bool random_write(BatchedCall& call);

}  // namespace mytorch::autograd::batch::rules
