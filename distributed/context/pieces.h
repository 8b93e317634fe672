// The pieces that a sequence is cut into, and what the kinds of attention over them share.
#pragma once

#include <cstdint>
#include <vector>

#include "mytorch/distributed/attention.h"
#include "mytorch/generator.h"

namespace mytorch::distributed {

Group or_world(const Group& group);

// How many pieces a rank has.
int64_t pieces_of_rank(SequenceSplit split);
// The pieces of all ranks in the order of the ranks: 0, 3, 1, 2 for two ranks and kZigzag.
std::vector<int64_t> order_of_pieces(int ranks, SequenceSplit split);

// Returns the sequence along `dim` from the ranks' parts, which follow each other there; and the
// reverse.
Tensor in_sequence(const Tensor& parts, int64_t dim, int ranks, SequenceSplit split);
Tensor in_parts(const Tensor& sequence, int64_t dim, int ranks, SequenceSplit split);

// Throws Error(kShape) unless `length` is a multiple of `pieces`.
void check_pieces(const char* op, int64_t length, int64_t pieces, const char* what);
// Throws Error(kShape) unless queries and keys are of the same tokens, as a causal mask needs them.
void check_same_tokens(const char* op, const Tensor& query, const Tensor& key);

// The scale of scores, by default that of the queries' width.
double scale_of(const Tensor& query, const ContextAttentionOptions& options);
// The generator of attention without dropout: the default one must not count its calls, of which
// ranks make different numbers.
const Generator& uncounted();

}  // namespace mytorch::distributed
