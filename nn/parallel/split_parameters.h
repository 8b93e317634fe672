// Which parameters of a module are split over ranks, and which part of them each rank has.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "nn/split.h"

namespace mytorch::nn::parallel {

// How a tensor is divided along a dimension. Its rows there are `packed` blocks of equal size, each
// of which is divided among the ranks: queries, keys and values, of which a rank has some heads of
// each. If the ranks do not divide a block, the last ranks have zeros in place of what is missing.
struct Cut {
  int64_t dim = 0;
  int64_t size = 0;  // of the whole tensor along the dimension
  int64_t packed = 1;

  bool operator==(const Cut&) const = default;

  struct Piece {
    int64_t begin, at, size;  // rows of the whole tensor, and where the rank has them
  };
  int64_t rows_of_block(int64_t ranks) const { return (size / packed + ranks - 1) / ranks; }
  int64_t rows(int64_t ranks) const { return packed * rows_of_block(ranks); }  // of every rank
  std::vector<Piece> pieces(int64_t rank, int64_t ranks) const;
};

// Returns a rank's part of a tensor, in memory of its own.
Tensor part_of(const Tensor& whole, const Cut& cut, int64_t rank, int64_t ranks);

// Ranks, and the dimension along which what lies between split layers is split, if it is.
struct Ranks {
  distributed::Group group;
  std::optional<int64_t> sequence_dim = {};
};

// What parallelize() gives modules: the ranks, and which of their parameters are split.
class RankSplit : public Split {
 public:
  explicit RankSplit(const Ranks& ranks);
  const distributed::Group& group() const { return group_; }
  const std::optional<int64_t>& sequence_dim() const { return sequence_dim_; }

  Tensor forward(Module& module, const Tensor& input) const override;
  Tensor shared(const Tensor& x) const override;
  Tensor joined(const Tensor& x, int64_t dim) const override;
  Tensor token_loss(const Linear& head, const Tensor& features,
                    const Tensor& targets) const override;
  std::string describe() const override;

  // By names from the module on: of its own parameters, and of children that are split with it.
  std::vector<std::pair<std::string, Cut>> cuts = {};

 protected:
  virtual const char* what() const = 0;

 private:
  distributed::Group group_;
  std::optional<int64_t> sequence_dim_;
};

// A parameter that is split.
struct SplitParameter {
  Cut cut;
  distributed::Group group;
};
// Returns them by all their names.
std::map<std::string, SplitParameter> split_parameters(const Module& module);

// Returns the sizes of the whole parameter, given those of a rank's.
std::vector<int64_t> whole_sizes(std::vector<int64_t> own, const Cut& cut);

// Appends a part of a rank's own tensor, as the parts of the whole tensor that it consists of:
// several if it has blocks of queries, keys and values.
void append_parts(std::vector<TensorPart>* parts, const TensorPart& own,
                  const SplitParameter& split);

}  // namespace mytorch::nn::parallel
