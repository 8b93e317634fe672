#include "mytorch/nn/parallel/tensor_parallel.h"

#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/autograd/function.h"
#include "mytorch/nn/functional.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "nn/functional/options.h"
#include "nn/parallel/split_layers.h"
#include "nn/split.h"

namespace mytorch::nn {
namespace {

using autograd::FunctionContext;
using autograd::tensor_list;
using distributed::Group;
using distributed::Work;
using parallel::or_world;

int64_t wrapped(int64_t dim, const Tensor& x, const char* op) {
  const int64_t found = dim < 0 ? dim + x.dim() : dim;
  if (found < 0 || found >= x.dim()) {
    fail(ErrorCode::kShape, "[", op, "] dimension ", dim, " of a tensor of shape ",
         shape_str(x.sizes()), ": out of range");
  }
  return found;
}

int64_t part_size(const Tensor& x, int64_t dim, const Group& group, const char* op) {
  if (x.size(dim) % group.size() != 0) {
    fail(ErrorCode::kShape, "[", op, "] dimension ", dim, " of shape ", shape_str(x.sizes()),
         " cannot be split over ", group.size(), " ranks: its size must be a multiple");
  }
  return x.size(dim) / group.size();
}

// A collective along a dimension that may be under way.
struct Pending {
  Tensor result;
  Work work;
  int64_t dim = 0;
  Tensor finish() {
    work.wait();
    return dim == 0 ? result : result.transpose(0, dim).contiguous();
  }
};

Pending begin_gather(const Tensor& x, int64_t dim, const Group& group, bool async) {
  const Tensor rows = (dim == 0 ? x : x.transpose(0, dim)).contiguous();
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] *= group.size();
  Pending pending{mytorch::empty(sizes, x.dtype(), x.device()), {}, dim};
  pending.work = group.all_gather(pending.result, rows, async);
  return pending;
}

Pending begin_scatter_sum(const Tensor& x, int64_t dim, const Group& group, bool async,
                          const char* op) {
  const Tensor rows = (dim == 0 ? x : x.transpose(0, dim)).contiguous();
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = part_size(rows, 0, group, op);
  Pending pending{mytorch::empty(sizes, x.dtype(), x.device()), {}, dim};
  pending.work = group.reduce_scatter(pending.result, rows, {}, async);
  return pending;
}

// Keeps group and dimension for the backward of a change of layout.
void keep(FunctionContext* ctx, const Group& group, int64_t dim = 0) {
  ctx->saved_data["group"] = group;
  ctx->saved_data["dim"] = dim;
}
Group group_of(FunctionContext* ctx) { return std::any_cast<Group>(ctx->saved_data["group"]); }
int64_t dim_of(FunctionContext* ctx) { return ctx->saved_data["dim"].toInt(); }

struct CopyToRanks : autograd::Function<CopyToRanks> {
  static constexpr const char* kName = "copy_to_ranks";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, const Group& group) {
    keep(ctx, group);
    return x;
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    return {sum_of_ranks(grads[0], group_of(ctx)), Tensor()};
  }
};

struct SumOfRanks : autograd::Function<SumOfRanks> {
  static constexpr const char* kName = "sum_of_ranks";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, const Group& group) {
    keep(ctx, group);
    Tensor sum = mytorch::clone(x);
    group.all_reduce(sum);
    return sum;
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    return {copy_to_ranks(grads[0], group_of(ctx)), Tensor()};
  }
};

struct PartOfRank : autograd::Function<PartOfRank> {
  static constexpr const char* kName = "part_of_rank";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, int64_t dim, const Group& group) {
    keep(ctx, group, dim);
    const int64_t n = part_size(x, dim, group, kName);
    return mytorch::clone(x.narrow(dim, group.rank() * n, n));
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    return {join_ranks(grads[0], dim_of(ctx), group_of(ctx)), Tensor(), Tensor()};
  }
};

struct JoinRanks : autograd::Function<JoinRanks> {
  static constexpr const char* kName = "join_ranks";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, int64_t dim, const Group& group) {
    keep(ctx, group, dim);
    return begin_gather(x, dim, group, false).finish();
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    return {part_of_rank(grads[0], dim_of(ctx), group_of(ctx)), Tensor(), Tensor()};
  }
};

struct GatherSequence : autograd::Function<GatherSequence> {
  static constexpr const char* kName = "gather_sequence";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, int64_t dim, const Group& group) {
    keep(ctx, group, dim);
    return begin_gather(x, dim, group, false).finish();
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    return {scatter_sum(grads[0], dim_of(ctx), group_of(ctx)), Tensor(), Tensor()};
  }
};

struct ScatterSum : autograd::Function<ScatterSum> {
  static constexpr const char* kName = "scatter_sum";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, int64_t dim, const Group& group) {
    keep(ctx, group, dim);
    return begin_scatter_sum(x, dim, group, false, kName).finish();
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    return {gather_sequence(grads[0], dim_of(ctx), group_of(ctx)), Tensor(), Tensor()};
  }
};

// A linear layer whose input is the same on all ranks, or split along the sequence. The gradient of
// the input is reduced while that of the weight is computed.
struct ColumnLinear : autograd::Function<ColumnLinear> {
  static constexpr const char* kName = "ColumnParallelLinear";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, const Group& group, int64_t sequence_dim) {
    keep(ctx, group, sequence_dim);
    ctx->mark_once_differentiable();
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.defined();
    const Tensor all = sequence_dim < 0 ? x : begin_gather(x, sequence_dim, group, false).finish();
    return mytorch::linear(all, weight, bias);
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    const std::vector<Tensor> saved = ctx->saved_tensors();
    const Tensor &x = saved[0], &weight = saved[1], &grad = grads[0];
    const Group group = group_of(ctx);
    const int64_t dim = dim_of(ctx);
    const bool weight_wanted = ctx->needs_input_grad(1);
    tensor_list result(5);
    // The input is gathered again, beside the first product, rather than kept.
    Pending all;
    if (weight_wanted && dim >= 0) all = begin_gather(x, dim, group, true);
    Tensor sum;
    Work work;
    Pending part;
    if (ctx->needs_input_grad(0)) {
      sum = mytorch::matmul(grad, weight).to(x.dtype()).contiguous();
      if (dim >= 0) {
        part = begin_scatter_sum(sum, dim, group, true, kName);
      } else {
        work = group.all_reduce(sum, {}, true);
      }
    }
    const Tensor rows = grad.reshape({-1, grad.size(-1)});
    if (weight_wanted) {
      const Tensor input = dim >= 0 ? all.finish() : x;
      result[1] = mytorch::matmul(rows.t(), input.reshape({-1, input.size(-1)})).to(weight.dtype());
    }
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) {
      result[2] = mytorch::sum(rows, IntList{0}).to(weight.dtype());
    }
    if (ctx->needs_input_grad(0)) {
      work.wait();
      result[0] = dim >= 0 ? part.finish() : sum;
    }
    return result;
  }
};

int64_t part_of(const char* layer, const char* name, int64_t features, const Group& group) {
  if (features % group.size() != 0) {
    fail(ErrorCode::kValue, "[", layer, "] ", name, " is ", features, ", and there are ",
         group.size(), " ranks: it must be a multiple of them");
  }
  return features / group.size();
}

}  // namespace

Tensor copy_to_ranks(const Tensor& x, const Group& group) { return CopyToRanks::apply(x, group); }
Tensor sum_of_ranks(const Tensor& x, const Group& group) { return SumOfRanks::apply(x, group); }
Tensor part_of_rank(const Tensor& x, int64_t dim, const Group& group) {
  return PartOfRank::apply(x, wrapped(dim, x, "part_of_rank"), group);
}
Tensor join_ranks(const Tensor& x, int64_t dim, const Group& group) {
  return JoinRanks::apply(x, wrapped(dim, x, "join_ranks"), group);
}
Tensor gather_sequence(const Tensor& x, int64_t dim, const Group& group) {
  return GatherSequence::apply(x, wrapped(dim, x, "gather_sequence"), group);
}
Tensor scatter_sum(const Tensor& x, int64_t dim, const Group& group) {
  return ScatterSum::apply(x, wrapped(dim, x, "scatter_sum"), group);
}

Tensor dropout_of_ranks(const Tensor& x, double p, int64_t dim, const Group& group,
                        const std::optional<Generator>& generator) {
  check_probability("dropout_of_ranks", p);
  return part_of_dropout(x, p, generator, dim, or_world(group).rank(), or_world(group).size());
}

void sum_gradients_of_ranks(Module& module, const Group& group) {
  const Group ranks = or_world(group);
  for (const Tensor& parameter : module.parameters()) {
    if (!parameter.requires_grad()) continue;
    parameter.register_hook([ranks](const Tensor& grad) {
      const NoGradGuard no_grad;
      Tensor sum = mytorch::clone(grad);
      ranks.all_reduce(sum);
      return sum;
    });
  }
}

// ---- layers ----

Tensor parallel::column_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                               const Group& group, std::optional<int64_t> sequence_dim) {
  const int64_t dim =
      sequence_dim.has_value() ? wrapped(*sequence_dim, x, "ColumnParallelLinear") : -1;
  return ColumnLinear::apply(x, weight, bias, group, dim);
}

Tensor parallel::row_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const Group& group, std::optional<int64_t> sequence_dim) {
  const Tensor partial = mytorch::linear(x, weight);
  Tensor y = sequence_dim.has_value() ? scatter_sum(partial, *sequence_dim, group)
                                      : sum_of_ranks(partial, group);
  if (!bias.defined()) return y;
  // Each rank adds the bias to its part of a sequence.
  return mytorch::add(y, sequence_dim.has_value() ? copy_to_ranks(bias, group) : bias);
}

namespace {

template <class Args>
std::optional<int64_t> sequence_of(const Args& options) {
  return options.sequence_parallel ? std::optional(options.sequence_dim) : std::nullopt;
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(int64_t in_features, int64_t out_features,
                                           ColumnParallelArgs options)
    : ColumnParallelLinear(Linear(in_features, out_features, options.bias), options) {}

ColumnParallelLinear::ColumnParallelLinear(const Linear& whole, ColumnParallelArgs options)
    : options_(std::move(options)) {
  options_.group = or_world(options_.group);
  const Group& group = options_.group;
  const NoGradGuard no_grad;
  const int64_t n = part_of("ColumnParallelLinear", "out_features", whole.weight.size(0), group);
  weight = whole.weight.detach().narrow(0, group.rank() * n, n).clone();
  if (whole.bias.defined() && options_.bias) {
    bias = whole.bias.detach().narrow(0, group.rank() * n, n).clone();
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor ColumnParallelLinear::forward(const Tensor& input) {
  const Tensor y =
      parallel::column_linear(input, weight, bias, options_.group, sequence_of(options_));
  return options_.gather_output ? join_ranks(y, -1, options_.group) : y;
}

std::string ColumnParallelLinear::describe() const {
  return absl::StrCat("ColumnParallelLinear(in_features=", weight.size(1),
                      ", out_features=", weight.size(0) * options_.group.size(),
                      ", bias=", text(bias.defined()), ", ranks=", options_.group.size(), ")");
}

RowParallelLinear::RowParallelLinear(int64_t in_features, int64_t out_features,
                                     RowParallelArgs options)
    : RowParallelLinear(Linear(in_features, out_features, options.bias), options) {}

RowParallelLinear::RowParallelLinear(const Linear& whole, RowParallelArgs options)
    : options_(std::move(options)) {
  options_.group = or_world(options_.group);
  const Group& group = options_.group;
  const NoGradGuard no_grad;
  const int64_t n = part_of("RowParallelLinear", "in_features", whole.weight.size(1), group);
  weight = whole.weight.detach().narrow(1, group.rank() * n, n).contiguous().clone();
  if (whole.bias.defined() && options_.bias) bias = whole.bias.detach().clone();
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor RowParallelLinear::forward(const Tensor& input) {
  const Group& group = options_.group;
  const Tensor x = options_.input_is_parallel ? input : part_of_rank(input, -1, group);
  return parallel::row_linear(x, weight, bias, group, sequence_of(options_));
}

std::string RowParallelLinear::describe() const {
  return absl::StrCat("RowParallelLinear(in_features=", weight.size(1) * options_.group.size(),
                      ", out_features=", weight.size(0), ", bias=", text(bias.defined()),
                      ", ranks=", options_.group.size(), ")");
}

}  // namespace mytorch::nn
