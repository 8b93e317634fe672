// Attention whose heads may be split over ranks: what nn::parallelize asks of a module, and what
// the module's forward does so that it works with all heads or with a rank's.
#pragma once

#include <cstdint>
#include <vector>

#include "mytorch/nn/attention.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/module.h"

namespace mytorch::nn {

// The layers between a module's input and its heads, and between these and its output.
struct HeadProjections {
  struct Input {
    Linear* layer;
    int64_t heads;
    // How many results of all heads lie side by side in the features: 3 for a layer of queries,
    // keys and values.
    int64_t packed = 1;
  };
  std::vector<Input> inputs;
  std::vector<Linear*> outputs = {};  // may be other modules', which a plan then splits by rows
};

// A module that computes attention derives from this class, beside Callable or Layer, if its heads
// may be split. (MultiheadAttention needs none.)
//
//   struct Attention : nn::Callable<Attention>, nn::HeadParallel {
//     nn::HeadProjections head_projections() override {
//       return {.inputs = {{&q, 8}, {&k, 8}, {&v, 8}}, .outputs = {&out}};
//     }
//     Tensor forward(const Tensor& input) {
//       const Tensor x = nn::input_of_heads(*this, input);
//       const auto split = [&](const Tensor& y) {  // (N, L, heads * width) to (N, heads, L, width)
//         return y.unflatten(-1, {nn::own_heads(*this, 8), -1}).transpose(1, 2);
//       };
//       const Tensor y = nn::attention_of_heads(*this, split(q(x)), split(k(x)), split(v(x)));
//       return out(y.transpose(1, 2).flatten(2));
//     }
//     ...
class HeadParallel {
 public:
  virtual ~HeadParallel() = default;
  virtual HeadProjections head_projections() = 0;
};

// Returns how many of the heads this rank has: all, unless they are split.
int64_t own_heads(const Module& attention, int64_t heads);
// Returns `x`. If the heads are split, backward adds up the gradients of all ranks' heads; if
// sequences are split, too, `x` is gathered. Throws Error(kValue) if that and `cached`, whether a
// KVCache has the keys: a cache has whole sequences.
Tensor input_of_heads(const Module& attention, const Tensor& x, bool cached = false);
// Returns scaled_dot_product_attention of this rank's heads, (N, heads, L, width). Dropout drops
// the weights that one rank with all heads would drop; if heads are split, the weights then exist
// as a whole, as they do not otherwise. A mask may have all heads.
Tensor attention_of_heads(const Module& attention, const Tensor& query, const Tensor& key,
                          const Tensor& value, const functional::AttentionArgs& options = {});

}  // namespace mytorch::nn
