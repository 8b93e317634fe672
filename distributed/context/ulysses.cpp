// Attention over whole sequences of some heads.
#include "core/types/errors.h"
#include "distributed/context/pieces.h"
#include "mytorch/ops/all_to_all_single.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/repeat_interleave.h"

namespace mytorch::distributed {
namespace {

constexpr const char* kUlysses = "ulysses_attention";

// (B, H, L / ranks, D) to (B, H / ranks, L, D): rank r gets part r of the heads.
Tensor heads_of_rank(const Tensor& x, const Group& group, SequenceSplit split) {
  const int ranks = group.size();
  const Tensor sent = x.unflatten(1, {ranks, x.size(1) / ranks}).movedim(1, 0);
  const Tensor received = mytorch::all_to_all_single(sent, {}, {}, group);
  return in_sequence(received.movedim(0, 2).flatten(2, 3), 2, ranks, split);
}

// The reverse.
Tensor tokens_of_rank(const Tensor& x, const Group& group, SequenceSplit split) {
  const int ranks = group.size();
  const Tensor parts = in_parts(x, 2, ranks, split);
  const Tensor sent = parts.unflatten(2, {ranks, parts.size(2) / ranks}).movedim(2, 0);
  return mytorch::all_to_all_single(sent, {}, {}, group).movedim(0, 1).flatten(1, 2);
}

// Heads of keys, as many as the ranks if there are fewer.
Tensor enough_heads(const Tensor& x, int ranks) {
  return x.size(1) >= ranks ? x : mytorch::repeat_interleave(x, ranks / x.size(1), 1);
}

}  // namespace

Tensor ulysses_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const Group& group, const ContextAttentionOptions& options) {
  const Group ranks = or_world(group);
  const int n = ranks.size();
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4 || key.size(1) != value.size(1)) {
    fail(ErrorCode::kShape, "[", kUlysses, "] query ", shape_str(query.sizes()), ", key ",
         shape_str(key.sizes()), " and value ", shape_str(value.sizes()),
         " are not (B, H, L, D), (B, K, S, D) and (B, K, S, V)");
  }
  const int64_t heads = query.size(1), shared = key.size(1);
  if (heads == 0 || shared == 0 || heads % shared != 0 || heads % n != 0 ||
      (shared % n != 0 && n % shared != 0)) {
    fail(ErrorCode::kShape, "[", kUlysses, "] ", heads, " heads of queries and ", shared,
         " of keys over ", n,
         " ranks: the first must be a multiple of the ranks, the second a multiple or a divisor; "
         "ring_attention takes any");
  }
  const SequenceSplit split = options.is_causal ? options.split : SequenceSplit::kContiguous;
  for (const Tensor* x : {&query, &key}) {
    check_pieces(kUlysses, x->size(2), pieces_of_rank(split), "the part");
  }
  if (options.is_causal) check_same_tokens(kUlysses, query, key);
  const auto [output, logsumexp, draw] = mytorch::attention_forward(
      heads_of_rank(query, ranks, split), heads_of_rank(enough_heads(key, n), ranks, split),
      heads_of_rank(enough_heads(value, n), ranks, split), {}, {}, /*left=*/-1,
      /*right=*/options.is_causal ? 0 : -1, /*diagonal=*/0, options.softcap,
      scale_of(query, options),
      /*dropout_p=*/0.0, uncounted());
  return tokens_of_rank(output, ranks, split);
}

}  // namespace mytorch::distributed
