// What the modules do that parallelize() has split.
#include <limits>

#include "core/types/errors.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/parallel/tensor_parallel.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/ge.h"
#include "nn/modules/names.h"
#include "nn/parallel/split_layers.h"
#include "nn/parallel/split_styles.h"

namespace mytorch::nn::parallel {

RankSplit::RankSplit(const Ranks& ranks)
    : Split(ranks.group.rank(), ranks.group.size()),
      group_(ranks.group),
      sequence_dim_(ranks.sequence_dim) {}

Tensor RankSplit::forward(Module& module, const Tensor& /*input*/) const {
  fail(ErrorCode::kInternal, "[parallelize] a ", class_name(module), " is split as no layer is");
}
Tensor RankSplit::shared(const Tensor& x) const { return copy_to_ranks(x, group_); }
Tensor RankSplit::joined(const Tensor& x, int64_t dim) const { return join_ranks(x, dim, group_); }
Tensor RankSplit::token_loss(const Linear& /*head*/, const Tensor& /*features*/,
                             const Tensor& /*targets*/) const {
  fail(ErrorCode::kValue,
       "[token_loss] the head's outputs are split without being joined: give it kVocabulary");
}
std::string RankSplit::describe() const { return absl::StrCat(what(), " of ", ranks(), " ranks"); }

Tensor ColumnSplit::forward(Module& module, const Tensor& input) const {
  if (const auto* dropout = module.as<Dropout>()) {
    return part_of_dropout(input, dropout->options->p, dropout->options->generator, -1, rank(),
                           ranks());
  }
  const auto& linear = *module.as<Linear>();
  return column_linear(input, linear.weight, linear.bias, group(), sequence_dim());
}

Tensor RowSplit::forward(Module& module, const Tensor& input) const {
  const auto& linear = *module.as<Linear>();
  return row_linear(input, linear.weight, linear.bias, group(), sequence_dim());
}

Tensor HeadsSplit::shared(const Tensor& x) const {
  return sequence_dim().has_value() ? gather_sequence(x, *sequence_dim(), group())
                                    : copy_to_ranks(x, group());
}

Tensor SequenceSplit::forward(Module& module, const Tensor& input) const {
  if (const auto* dropout = module.as<Dropout>()) {
    return part_of_dropout(input, dropout->options->p, dropout->options->generator, *sequence_dim(),
                           rank(), ranks());
  }
  const auto& table = *module.as<Embedding>();
  return part_of_rank(functional::embedding(input, table.weight, table.options.args()),
                      *sequence_dim(), group());
}

Tensor VocabularySplit::forward(Module& module, const Tensor& input) const {
  if (const auto* table = module.as<Embedding>()) {
    const Tensor rows = own_rows(input, table->weight, size_, table->padding_idx(), group());
    return sequence_dim().has_value() ? scatter_sum(rows, *sequence_dim(), group())
                                      : sum_of_ranks(rows, group());
  }
  const auto& linear = *module.as<Linear>();
  const Tensor y = column_linear(input, linear.weight, linear.bias, group(), sequence_dim());
  return join_ranks(y, -1, group()).narrow(-1, 0, size_);
}

Tensor VocabularySplit::token_loss(const Linear& head, const Tensor& features,
                                   const Tensor& targets) const {
  const int64_t rows = head.weight.size(0);
  Tensor logits = column_linear(features, head.weight, head.bias, group(), sequence_dim());
  if (!(targets.sizes() == IntList(logits.sizes().data(), logits.sizes().size() - 1))) {
    fail(ErrorCode::kShape, "[token_loss] targets has shape ", shape_str(targets.sizes()),
         ", expected that of input_ids, for logits of shape ", shape_str(logits.sizes()));
  }
  // Zeros in place of rows are no logits.
  const Tensor number = mytorch::arange(rows, kInt64, logits.device());
  logits = logits.masked_fill(mytorch::ge(number, size_ - rows * rank()),
                              -std::numeric_limits<double>::infinity());
  return vocab_parallel_cross_entropy(logits.reshape({-1, rows}), targets.reshape({-1}), group());
}

}  // namespace mytorch::nn::parallel
