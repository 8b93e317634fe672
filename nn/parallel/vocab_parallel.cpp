// Embeddings and losses that are split over the vocabulary.
#include <algorithm>
#include <any>
#include <optional>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/autograd/function.h"
#include "mytorch/nn/parallel/tensor_parallel.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/embedding.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/ge.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/lt.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/scatter_add.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "nn/parallel/split_layers.h"

namespace mytorch::nn {
namespace {

using autograd::FunctionContext;
using autograd::tensor_list;
using distributed::Group;
using distributed::ReduceOp;
using parallel::or_world;

struct VocabCrossEntropy : autograd::Function<VocabCrossEntropy> {
  static constexpr const char* kName = "vocab_parallel_cross_entropy";
  static Tensor forward(FunctionContext* ctx, const Tensor& logits, const Tensor& target,
                        const Group& group, int64_t ignore_index) {
    const Tensor x = logits.to(logits.dtype() == kFloat64 ? kFloat64 : kFloat32);
    const int64_t n = x.size(1), begin = n * group.rank();
    const Tensor largest = mytorch::amax(x, IntList{1}, true);
    group.all_reduce(largest, {ReduceOp::kMax});
    const Tensor shifted = mytorch::sub(x, largest), powers = mytorch::exp(shifted);
    const Tensor here =
        mytorch::logical_and(mytorch::ge(target, begin), mytorch::lt(target, begin + n));
    const Tensor index =
        mytorch::clamp(mytorch::sub(target, begin), 0, std::max<int64_t>(n - 1, 0)).unsqueeze(1);
    const Tensor mine = here.unsqueeze(1);
    const Tensor count = mine.to(x.dtype());
    // Of each row: the sum of powers, the target's logit, and on how many ranks the target is.
    const Tensor sums =
        mytorch::cat({mytorch::sum(powers, IntList{1}, true),
                      mytorch::where(mine, mytorch::gather(shifted, 1, index), 0), count},
                     1);
    group.all_reduce(sums);
    const Tensor total = sums.narrow(1, 0, 1);
    const Tensor counts = mytorch::ne(target, ignore_index).unsqueeze(1);
    const Tensor rows = mytorch::sum(counts).to(x.dtype());  // of the mean
    ctx->save_for_backward(
        {mytorch::div(powers, total), index, count, mytorch::div(counts.to(x.dtype()), rows)});
    ctx->saved_data["dtype"] = logits.dtype();
    ctx->mark_once_differentiable();
    // 0 / 0 for a target that no rank has.
    const Tensor found = sums.narrow(1, 2, 1);
    const Tensor losses = mytorch::sub(mytorch::log(total), sums.narrow(1, 1, 1));
    const Tensor valid = mytorch::div(mytorch::mul(losses, found), found);
    return mytorch::div(mytorch::sum(mytorch::where(counts, valid, 0)), rows);
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    const std::vector<Tensor> saved = ctx->saved_tensors();
    const Tensor scale = mytorch::mul(saved[3], grads[0]);
    const Tensor difference =
        mytorch::scatter_add(saved[0], 1, saved[1], mytorch::mul(saved[2], -1));
    return {mytorch::mul(difference, scale).to(std::any_cast<ScalarType>(ctx->saved_data["dtype"])),
            Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor parallel::own_rows(const Tensor& indices, const Tensor& weight, int64_t num_embeddings,
                          std::optional<int64_t> padding_idx, const Group& group) {
  const int64_t rows = weight.size(0), begin = rows * group.rank();
  const Tensor here = mytorch::logical_and(
      mytorch::ge(indices, begin), mytorch::lt(indices, std::min(begin + rows, num_embeddings)));
  const Tensor valid =
      mytorch::logical_and(mytorch::ge(indices, 0), mytorch::lt(indices, num_embeddings));
  // Rows of other ranks are looked up as row 0 and left out; what no rank has stays an error.
  const Tensor other = mytorch::where(valid, 0, indices);
  const Tensor local = mytorch::where(here, mytorch::sub(indices, begin), other);
  const int64_t padding = padding_idx.value_or(-1) - begin;  // -1 is no row
  const bool has_padding = padding_idx.has_value() && padding >= 0 && padding < rows;
  const Tensor found = mytorch::embedding(weight, local, has_padding ? padding : -1);
  return mytorch::where(here.unsqueeze(-1), found, 0);
}

VocabParallelEmbedding::VocabParallelEmbedding(int64_t num_embeddings, int64_t width,
                                               VocabParallelArgs options)
    : VocabParallelEmbedding(Embedding(num_embeddings, width), options) {}

VocabParallelEmbedding::VocabParallelEmbedding(const Embedding& whole, VocabParallelArgs options)
    : options_(std::move(options)), num_embeddings_(whole.weight.size(0)) {
  options_.group = or_world(options_.group);
  const Group& group = options_.group;
  const NoGradGuard no_grad;
  const int64_t rows = (num_embeddings_ + group.size() - 1) / group.size();
  const int64_t begin = std::min(rows * group.rank(), num_embeddings_);
  const int64_t n = std::min(rows, num_embeddings_ - begin);
  weight =
      mytorch::zeros({rows, whole.weight.size(1)}, whole.weight.dtype(), whole.weight.device());
  if (n > 0) weight.narrow(0, 0, n).copy_(whole.weight.detach().narrow(0, begin, n));
  register_parameter("weight", weight);
}

Tensor VocabParallelEmbedding::forward(const Tensor& indices) {
  const Group& group = options_.group;
  const Tensor y = parallel::own_rows(indices, weight, num_embeddings_, {}, group);
  return options_.sequence_parallel ? scatter_sum(y, options_.sequence_dim, group)
                                    : sum_of_ranks(y, group);
}

std::string VocabParallelEmbedding::describe() const {
  return absl::StrCat("VocabParallelEmbedding(", num_embeddings_, ", ", weight.size(1),
                      ", ranks=", options_.group.size(), ")");
}

Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& target, const Group& group,
                                    int64_t ignore_index) {
  if (logits.dim() != 2 || target.dim() != 1 || logits.size(0) != target.size(0)) {
    fail(ErrorCode::kShape, "[vocab_parallel_cross_entropy] logits of shape ",
         shape_str(logits.sizes()), " and targets of shape ", shape_str(target.sizes()),
         ": give (n, classes / ranks) and (n)");
  }
  return VocabCrossEntropy::apply(logits, target, or_world(group), ignore_index);
}

}  // namespace mytorch::nn
