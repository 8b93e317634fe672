#include "distributed/context/pieces.h"

#include <algorithm>
#include <cmath>

#include "core/types/errors.h"
#include "mytorch/ops/all_gather_into_tensor.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"

namespace mytorch::distributed {
namespace {

// Returns pieces of a tensor, joined in another order.
Tensor reordered(const Tensor& x, int64_t dim, const std::vector<int64_t>& order) {
  if (std::is_sorted(order.begin(), order.end())) return x;
  const int64_t length = x.size(dim) / static_cast<int64_t>(order.size());
  std::vector<Tensor> pieces;
  for (const int64_t piece : order) pieces.push_back(x.narrow(dim, piece * length, length));
  return mytorch::cat(pieces, dim);
}

}  // namespace

Group or_world(const Group& group) { return group.defined() ? group : world(); }

int64_t pieces_of_rank(SequenceSplit split) { return split == SequenceSplit::kZigzag ? 2 : 1; }

std::vector<int64_t> order_of_pieces(int ranks, SequenceSplit split) {
  std::vector<int64_t> order;
  for (int rank = 0; rank < ranks; ++rank) {
    order.push_back(rank);
    if (split == SequenceSplit::kZigzag) order.push_back(2 * ranks - 1 - rank);
  }
  return order;
}

Tensor in_parts(const Tensor& sequence, int64_t dim, int ranks, SequenceSplit split) {
  return reordered(sequence, dim, order_of_pieces(ranks, split));
}

Tensor in_sequence(const Tensor& parts, int64_t dim, int ranks, SequenceSplit split) {
  const std::vector<int64_t> order = order_of_pieces(ranks, split);
  std::vector<int64_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return reordered(parts, dim, place);
}

void check_pieces(const char* op, int64_t length, int64_t pieces, const char* what) {
  if (length % pieces == 0) return;
  fail(ErrorCode::kShape, "[", op, "] ", what, " has ", length, " tokens, no multiple of the ",
       pieces, " pieces: pad it to ", (length / pieces + 1) * pieces,
       ", and leave the padding out of the loss");
}

void check_same_tokens(const char* op, const Tensor& query, const Tensor& key) {
  if (query.size(2) == key.size(2)) return;
  fail(ErrorCode::kShape, "[", op, "] ", query.size(2), " queries and ", key.size(2),
       " keys: under a causal mask they are of the same tokens");
}

double scale_of(const Tensor& query, const ContextAttentionOptions& options) {
  const auto width = static_cast<double>(std::max<int64_t>(query.size(3), 1));
  return options.scale.value_or(1 / std::sqrt(width));
}

const Generator& uncounted() {
  static const auto* const unused = new Generator(0);
  return *unused;
}

Tensor split_sequence(const Tensor& x, int64_t dim, const Group& group, SequenceSplit split) {
  const char* op = "split_sequence";
  const Group ranks = or_world(group);
  dim = wrap_dim(dim, x.dim(), op);
  const int64_t own = pieces_of_rank(split), pieces = own * ranks.size();
  check_pieces(op, x.size(dim), pieces, "the sequence");
  const int64_t length = x.size(dim) / pieces;
  const std::vector<int64_t> order = order_of_pieces(ranks.size(), split);
  std::vector<Tensor> mine;
  for (int64_t i = 0; i < own; ++i) {
    const int64_t piece = order[static_cast<size_t>(ranks.rank() * own + i)];
    mine.push_back(x.narrow(dim, piece * length, length));
  }
  return mytorch::cat(mine, dim);
}

Tensor join_sequence(const Tensor& x, int64_t dim, const Group& group, SequenceSplit split) {
  const char* op = "join_sequence";
  const Group ranks = or_world(group);
  dim = wrap_dim(dim, x.dim(), op);
  check_pieces(op, x.size(dim), pieces_of_rank(split), "the part");
  const Tensor parts =
      mytorch::all_gather_into_tensor(x.transpose(0, dim), ranks).transpose(0, dim);
  return in_sequence(parts, dim, ranks.size(), split);
}

Tensor sequence_positions(int64_t length, const Group& group, SequenceSplit split, Device device) {
  const char* op = "sequence_positions";
  const Group ranks = or_world(group);
  if (length < 0) fail(ErrorCode::kValue, "[", op, "] length is ", length, ": give at least 0");
  check_pieces(op, length, pieces_of_rank(split), "the part");
  const Tensor all = mytorch::arange(length * ranks.size(), kInt64, device);
  return split_sequence(all, 0, ranks, split);
}

}  // namespace mytorch::distributed
