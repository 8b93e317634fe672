// Attention to keys that go around the ranks.
#include <optional>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "distributed/context/pieces.h"
#include "mytorch/autograd/function.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/attention_backward.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/lerp.h"
#include "mytorch/ops/logaddexp.h"
#include "mytorch/ops/sigmoid.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::distributed {
namespace {

using autograd::FunctionContext;
using autograd::tensor_list;

constexpr const char* kRing = "ring_attention";

struct RingCall {
  Group group;
  bool causal;
  SequenceSplit split;
  double softcap, scale;

  int rank() const { return group.rank(); }
  int size() const { return group.size(); }
  // The rank whose keys are here in a step.
  int source(int step) const { return (rank() - step + size()) % size(); }
};

// Which rows of the queries see which keys of a rank. What is seen is seen as a whole, except that
// the keys of the rank itself are before, at or after each row.
struct Seen {
  int64_t first_row = 0, rows = 0;
  int64_t keys = 0;  // from the first one on
  bool causal = false;
};

Seen seen_by(const RingCall& call, int source, int64_t rows, int64_t keys) {
  if (!call.causal) return {0, rows, keys, false};
  // The pieces of a rank are in the order of the sequence, so that its own mask is the plain one.
  if (source == call.rank()) return {0, rows, keys, true};
  const bool before = source < call.rank();
  if (call.split == SequenceSplit::kContiguous) return {0, before ? rows : 0, keys, false};
  // Of an earlier rank, the first piece is before both pieces of this one, and the last after both.
  // Of a later rank, both are between them.
  if (before) return {0, rows, keys / 2, false};
  return {rows / 2, rows - rows / 2, keys, false};
}

// Keys and values, or their gradients, as one message.
struct Pair {
  Tensor buffer;
  Tensor key, value;

  static Pair like(const Pair& other, ScalarType dtype) {
    return of(mytorch::empty({other.buffer.numel()}, dtype, other.buffer.device()), other.key,
              other.value);
  }
  static Pair copy(const Tensor& key, const Tensor& value) {
    Pair pair =
        of(mytorch::empty({key.numel() + value.numel()}, key.dtype(), key.device()), key, value);
    mytorch::copy_(pair.key, key);
    mytorch::copy_(pair.value, value);
    return pair;
  }

 private:
  static Pair of(Tensor buffer, const Tensor& key, const Tensor& value) {
    const auto part = [&](int64_t at, const Tensor& x) {
      return buffer.narrow(0, at, x.numel()).view(x.sizes());
    };
    return {buffer, part(0, key), part(key.numel(), value)};
  }
};

// Sends a pair to the next rank and receives one from the rank before.
Work pass_on(const RingCall& call, const Pair& sent, const Pair& received) {
  const int n = call.size();
  return call.group.exchange({{sent.buffer, (call.rank() + 1) % n, true},
                              {received.buffer, (call.rank() + n - 1) % n, false}},
                             /*async=*/true);
}

// Attention so far, in the wide type.
struct Sum {
  Tensor output, logsumexp;  // (B, H, L, V), (B, H, L)

  // Adds attention to further keys. A row of two parts with the logsumexps a and b weighs the
  // second by exp(b) / (exp(a) + exp(b)).
  void add(const Tensor& more, const Tensor& more_logsumexp, int64_t first_row) {
    const int64_t rows = more.size(2);
    const Tensor out = output.narrow(2, first_row, rows);
    const Tensor lse = logsumexp.narrow(2, first_row, rows);
    const Tensor weight = mytorch::sigmoid(mytorch::sub(more_logsumexp, lse)).unsqueeze(-1);
    mytorch::copy_(out, mytorch::lerp(out, more.to(output.dtype()), weight));
    mytorch::copy_(lse, mytorch::logaddexp(lse, more_logsumexp));
  }
};

struct RingAttention : autograd::Function<RingAttention> {
  static constexpr const char* kName = kRing;

  static Tensor forward(FunctionContext* ctx, const Tensor& query, const Tensor& key,
                        const Tensor& value, const RingCall& call) {
    ctx->mark_once_differentiable();
    ctx->saved_data["call"] = call;
    std::optional<Sum> sum;
    Pair here = Pair::copy(key, value);
    for (int step = 0; step < call.size(); ++step) {
      const bool last = step == call.size() - 1;
      const Pair next = last ? here : Pair::like(here, key.dtype());
      Work coming = last ? Work() : pass_on(call, here, next);
      const Seen seen = seen_by(call, call.source(step), query.size(2), key.size(2));
      if (step == 0 || seen.rows > 0) {
        const auto [output, logsumexp, draw] = mytorch::attention_forward(
            query.narrow(2, seen.first_row, seen.rows), here.key.narrow(2, 0, seen.keys),
            here.value.narrow(2, 0, seen.keys), {}, {}, /*left=*/-1,
            /*right=*/seen.causal ? 0 : -1, /*diagonal=*/0, call.softcap, call.scale,
            /*dropout_p=*/0.0, uncounted());
        // The first keys are the rank's own, which all rows see.
        if (sum.has_value()) {
          sum->add(output, logsumexp, seen.first_row);
        } else {
          sum = Sum{output.to(logsumexp.dtype()), logsumexp};
        }
      }
      coming.wait();
      here = next;
    }
    Tensor output = sum->output.to(query.dtype());
    ctx->save_for_backward({query, key, value, output, sum->logsumexp});
    return output;
  }

  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    const std::vector<Tensor> saved = ctx->saved_tensors();
    const Tensor &query = saved[0], &key = saved[1], &value = saved[2];
    const Tensor &output = saved[3], &logsumexp = saved[4];
    const Tensor grad = grads[0].to(output.dtype());
    const auto call = std::any_cast<RingCall>(ctx->saved_data["call"]);
    const ScalarType wide = logsumexp.dtype();
    const Tensor no_draw = mytorch::empty({0}, kInt64, query.device());
    const Tensor grad_query = mytorch::zeros(query.sizes(), wide, query.device());
    Pair here = Pair::copy(key, value);
    // Gradients of the keys that are here, from this rank and those before it, and those that come.
    Pair sums, coming_sums;
    Work sums_coming;
    for (int step = 0; step < call.size(); ++step) {
      const bool last = step == call.size() - 1;
      const Pair next = last ? here : Pair::like(here, key.dtype());
      Work coming = last ? Work() : pass_on(call, here, next);
      const Seen seen = seen_by(call, call.source(step), query.size(2), key.size(2));
      Tensor grad_key, grad_value;
      if (step == 0 || seen.rows > 0) {
        const auto rows = [&](const Tensor& x) { return x.narrow(2, seen.first_row, seen.rows); };
        // With the output and the logsumexp over all keys, the gradient of a part of the keys does
        // not depend on the others.
        const auto [of_query, of_key, of_value, of_mask] = mytorch::attention_backward(
            rows(grad), {}, rows(query), here.key.narrow(2, 0, seen.keys),
            here.value.narrow(2, 0, seen.keys), {}, {}, rows(output), rows(logsumexp), no_draw,
            /*left=*/-1, /*right=*/seen.causal ? 0 : -1, /*diagonal=*/0, call.softcap, call.scale,
            /*dropout_p=*/0.0, {1, 1, 1, 0});
        const Tensor part = rows(grad_query);
        mytorch::copy_(part, mytorch::add(part, of_query));
        grad_key = of_key;
        grad_value = of_value;
      }
      sums_coming.wait();
      if (step == 0) {
        sums = Pair::copy(grad_key.to(wide), grad_value.to(wide));
      } else {
        sums = coming_sums;
        if (seen.rows > 0) {
          const Tensor of_key = sums.key.narrow(2, 0, seen.keys);
          const Tensor of_value = sums.value.narrow(2, 0, seen.keys);
          mytorch::copy_(of_key, mytorch::add(of_key, grad_key));
          mytorch::copy_(of_value, mytorch::add(of_value, grad_value));
        }
      }
      // After the last step they are one rank away from where they belong.
      if (call.size() > 1) {
        coming_sums = Pair::like(sums, wide);
        sums_coming = pass_on(call, sums, coming_sums);
      }
      coming.wait();
      here = next;
    }
    sums_coming.wait();
    if (call.size() > 1) sums = coming_sums;
    return {grad_query.to(query.dtype()), sums.key.to(key.dtype()), sums.value.to(value.dtype()),
            Tensor()};
  }
};

}  // namespace

Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                      const Group& group, const ContextAttentionOptions& options) {
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4 || key.size(2) == 0 ||
      key.size(2) != value.size(2)) {
    fail(ErrorCode::kShape, "[", kRing, "] query ", shape_str(query.sizes()), ", key ",
         shape_str(key.sizes()), " and value ", shape_str(value.sizes()),
         " are not (B, H, L, D), (B, K, S, D) and (B, K, S, V) with at least one key");
  }
  if (options.is_causal) {
    check_same_tokens(kRing, query, key);
    check_pieces(kRing, query.size(2), pieces_of_rank(options.split), "the part");
  }
  return RingAttention::apply(query, key, value,
                              RingCall{or_world(group), options.is_causal, options.split,
                                       options.softcap, scale_of(query, options)});
}

}  // namespace mytorch::distributed
