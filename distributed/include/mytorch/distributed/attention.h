// Attention over a sequence whose tokens are split over the ranks of a group (context parallelism).
//
//   Tensor mine = distributed::split_sequence(x, 1, group);          // (B, L / ranks, E)
//   Tensor y = distributed::ring_attention(q, k, v, group, {.is_causal = true});
//
// Each rank calls with the queries, keys and values of its tokens, and gets the output of its
// tokens. What backward computes is, as for the collective operators, the gradient of the sum of
// all ranks' losses; every rank must run it.
#pragma once

#include <cstdint>
#include <optional>

#include "mytorch/device.h"
#include "mytorch/distributed.h"
#include "mytorch/tensor.h"

namespace mytorch::distributed {

// Which tokens a rank has.
enum class SequenceSplit {
  // Of n ranks, rank r has pieces r and 2n - 1 - r of 2n equal pieces: under a causal mask, every
  // rank has the same number of keys to look at in every step of the ring.
  kZigzag,
  // Rank r has piece r of n. Under a causal mask the last rank works n times as long as the first.
  kContiguous,
};

struct ContextAttentionOptions {
  bool is_causal = false;            // a token sees itself and those before it
  std::optional<double> scale = {};  // of scores; 1 / sqrt(width) by default
  double softcap = 0;                // scores become softcap * tanh(score / softcap), unless 0
  SequenceSplit split = SequenceSplit::kZigzag;  // has no effect without a causal mask
};

// Takes this rank's queries (B, H, L, D), keys (B, K, S, D) and values (B, K, S, V), where H is a
// multiple of K, and returns (B, H, L, V) in the type of the queries. Keys and values go around the
// ranks, the next ones while attention to the present ones is computed; the results for parts of
// the keys are combined by their logsumexp, in float32 or double. Backward sends them around again,
// their gradients behind them. Memory is that of two ranks' keys and values. All ranks have the
// same S; under a causal mask, L = S. Throws Error(kShape) if L is odd and the split is kZigzag.
// Not differentiable twice. (Liu et al., "Ring Attention with Blockwise Transformers", 2023.)
Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                      const Group& group = {}, const ContextAttentionOptions& options = {});

// The same by four all-to-alls: each rank gets the whole sequence of some of the heads, and
// computes their attention. All ranks have the same L, and the same S. H is a multiple of the
// number of ranks, and K of it, or it of K: then ranks share heads of keys, which are sent to each
// of them. Throws Error(kShape) otherwise. (Jacobs et al., "DeepSpeed Ulysses", 2023.)
Tensor ulysses_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const Group& group = {}, const ContextAttentionOptions& options = {});

// Returns this rank's part of a tensor that all ranks have, along the sequence's dimension. Throws
// Error(kShape) if its size is no multiple of the pieces (of 2 ranks for kZigzag): pad it.
Tensor split_sequence(const Tensor& x, int64_t dim, const Group& group = {},
                      SequenceSplit split = SequenceSplit::kZigzag);
// Returns the whole sequence from the ranks' parts.
Tensor join_sequence(const Tensor& x, int64_t dim, const Group& group = {},
                     SequenceSplit split = SequenceSplit::kZigzag);
// Returns the positions, int64, of the `length` tokens of this rank, for embeddings of positions.
Tensor sequence_positions(int64_t length, const Group& group = {},
                          SequenceSplit split = SequenceSplit::kZigzag, Device device = kCPU);

}  // namespace mytorch::distributed
