// A module's part in a work that several ranks share. nn::parallelize gives modules a Split, so
// that they stay objects of their classes, which may be members of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/attention.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

class Linear;
class Module;

class Split {
 public:
  Split(int64_t rank, int64_t ranks) : rank_(rank), ranks_(ranks) {}
  virtual ~Split() = default;
  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }

  // Computes what a module of one input would compute with whole parameters.
  virtual Tensor forward(Module& module, const Tensor& input) const = 0;
  // Returns `x`, with which each rank computes something of its own: backward adds up the
  // gradients. It is the same on all ranks, or a part of a sequence, which is gathered.
  virtual Tensor shared(const Tensor& x) const = 0;
  // Returns the ranks' parts, joined along a dimension.
  virtual Tensor joined(const Tensor& x, int64_t dim) const = 0;
  // Returns the mean cross entropy of the logits of a head whose outputs are split, which no rank
  // then has as a whole: features (..., E), targets (...).
  virtual Tensor token_loss(const Linear& head, const Tensor& features,
                            const Tensor& targets) const = 0;
  // Whether `shared` gathers a sequence, of which each rank has a part.
  virtual bool splits_sequence() const { return false; }
  // For Module::describe(): "columns of 4 ranks".
  virtual std::string describe() const = 0;

 private:
  int64_t rank_, ranks_;
};

// Returns null for a module that works alone.
const Split* split_of(const Module& module);
// Copies of the module share it, as they share hooks.
void set_split(Module& module, std::shared_ptr<const Split> split);

// Returns a parameter for a forward: of a module that works on a part of a sequence, shared.
inline Tensor shared_parameter(const Split* split, const Tensor& parameter) {
  return split == nullptr || !parameter.defined() ? parameter : split->shared(parameter);
}

// ---- dropout of tensors that are split along a dimension: an element is dropped if it would be in
// the whole tensor on one rank, and the generator takes as many calls ----

// Returns the dropout, in training, of this rank's part of a tensor.
Tensor part_of_dropout(const Tensor& x, double p, const std::optional<Generator>& generator,
                       int64_t dim, int64_t rank, int64_t ranks);
// Returns attention of this rank's heads, all tensors as of scaled_dot_product_attention, (N,
// heads, L, width). A mask may be that of all heads. With dropout, the weights exist as a whole,
// (N, heads, L, S): the kernels that need no such memory draw for all heads from the first on.
Tensor attention_of_part(const Tensor& query, const Tensor& key, const Tensor& value,
                         const functional::AttentionArgs& options, const Split& split);

}  // namespace mytorch::nn
