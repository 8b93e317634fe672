// Attention over a sequence whose tokens are divided over ranks (docs/distributed.md).
#pragma once

#include "plan/machine.h"

namespace mytorch::plan {

// Causal attention of one rank: its heads, over the tokens of all ranks.
struct SplitAttention {
  double batch = 1;
  double heads = 1;
  double key_heads = 1;
  double length = 1;
  double width = 1;    // of a head
  double element = 2;  // bytes of an activation
};
// Seconds of one forward or backward; `exchange` is what computation does not hide.
struct AttentionTime {
  double compute = 0;
  double exchange = 0;
};

// Keys and values go around the ranks, and in backward their gradients in float32, while each rank
// computes with those that it has. The tokens are dealt so that all have the same work.
AttentionTime ring_attention(const Machine& machine, const SplitAttention& attention,
                             const Ranks& ranks, bool backward);
// Queries, keys and values are exchanged for those of a part of the heads over all tokens, and the
// result the other way around; in backward their gradients take the same ways back.
AttentionTime ulysses_attention(const Machine& machine, const SplitAttention& attention,
                                const Ranks& ranks, bool backward);

}  // namespace mytorch::plan
