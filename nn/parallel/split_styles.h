// The ways in which parallelize() splits modules.
#pragma once

#include <cstdint>

#include "nn/parallel/split_parameters.h"

namespace mytorch::nn::parallel {

// Of a Linear by output features, or of a Dropout of such features.
class ColumnSplit final : public RankSplit {
 public:
  using RankSplit::RankSplit;
  Tensor forward(Module& module, const Tensor& input) const override;

 protected:
  const char* what() const override { return "columns"; }
};

// Of a Linear by input features.
class RowSplit final : public RankSplit {
 public:
  using RankSplit::RankSplit;
  Tensor forward(Module& module, const Tensor& input) const override;

 protected:
  const char* what() const override { return "rows"; }
};

// Of attention, whose forward reads it.
class HeadsSplit final : public RankSplit {
 public:
  using RankSplit::RankSplit;
  Tensor shared(const Tensor& x) const override;
  bool splits_sequence() const override { return sequence_dim().has_value(); }

 protected:
  const char* what() const override { return "heads"; }
};

// Of an Embedding, or of a Linear whose results are joined, with `size` rows.
class VocabularySplit final : public RankSplit {
 public:
  VocabularySplit(const Ranks& ranks, int64_t size) : RankSplit(ranks), size_(size) {}
  Tensor forward(Module& module, const Tensor& input) const override;
  Tensor token_loss(const Linear& head, const Tensor& features,
                    const Tensor& targets) const override;

 protected:
  const char* what() const override { return "vocabulary"; }

 private:
  int64_t size_;
};

// Of what works on a part of a sequence with whole parameters: norms and dropout; and of an
// Embedding whose indices are those of the whole sequence.
class SequenceSplit final : public RankSplit {
 public:
  using RankSplit::RankSplit;
  Tensor forward(Module& module, const Tensor& input) const override;

 protected:
  const char* what() const override { return "sequence"; }
};

}  // namespace mytorch::nn::parallel
