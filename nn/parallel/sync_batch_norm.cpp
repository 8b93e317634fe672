#include "mytorch/nn/parallel/sync_batch_norm.h"

#include <any>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/abi.h"
#include "mytorch/autograd/function.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/addcmul.h"
#include "mytorch/ops/all_gather_into_tensor.h"
#include "mytorch/ops/all_reduce.h"
#include "mytorch/ops/batch_norm.h"
#include "mytorch/ops/batch_norm_training_backward.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/lerp.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/rsqrt.h"
#include "mytorch/ops/square.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/var_mean.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::nn {
namespace {

using autograd::FunctionContext;
using autograd::tensor_list;
using distributed::Group;

// 16-bit types compute in float32.
ScalarType compute_type(const Tensor& input) {
  return input.dtype() == kFloat64 ? kFloat64 : kFloat32;
}

int64_t values_per_channel(const Tensor& input) {
  return input.size(1) == 0 ? 0 : input.numel() / input.size(1);
}

// Of a batch over all ranks, in float64.
struct Statistics {
  Tensor mean, var;  // (channels); the variance is biased
  Tensor count;      // 0-dim: values per channel
};

// The variance is put together from those of the ranks, because the mean of squares less the square
// of the mean cancels if the mean is large.
Statistics statistics_of_ranks(const Tensor& input, const Group& group) {
  const int64_t channels = input.size(1), count = values_per_channel(input);
  const Tensor mine = mytorch::zeros({2 * channels + 1}, kFloat64, input.device());
  if (count != 0) {  // a mean of nothing is NaN
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < input.dim(); ++d) {
      if (d != 1) dims.push_back(d);
    }
    const auto [var, mean] = mytorch::var_mean(input.to(compute_type(input)), dims, 0);
    mine.narrow(0, 0, channels).copy_(mean);
    mine.narrow(0, channels, channels).copy_(var);
    mine.narrow(0, 2 * channels, 1).fill_(count);
  }
  // Operators, which compiled functions record, and not methods of the group.
  const Tensor rows =
      mytorch::all_gather_into_tensor(mine, group).view({group.size(), mine.numel()});
  const Tensor means = rows.narrow(1, 0, channels), vars = rows.narrow(1, channels, channels);
  const Tensor counts = rows.narrow(1, 2 * channels, 1);
  const Tensor total = counts.sum();
  const Tensor mean = (means * counts).sum(0) / total;
  const Tensor var = ((vars + (means - mean).square()) * counts).sum(0) / total;
  return {mean, var, total};
}

// A value for each channel, for an input of `ndim` dimensions.
Tensor by_channel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim() - 1), 1);
  sizes[0] = values.numel();
  return values.to(compute_type(input)).view(sizes);
}

struct NormalizeOverRanks : autograd::Function<NormalizeOverRanks> {
  static constexpr const char* kName = "sync_batch_norm";
  static Tensor forward(FunctionContext* ctx, const Tensor& input, const Tensor& weight,
                        const Tensor& bias, const Statistics& statistics, double eps,
                        const Group& group) {
    const auto& [mean, var, count] = statistics;
    ctx->save_for_backward({input, weight, mean, var, count});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["group"] = group;
    ctx->mark_once_differentiable();
    const ScalarType type = compute_type(input);
    return mytorch::batch_norm(input, weight, bias, mean.to(type), var.to(type), false, 0, eps);
  }

  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    const std::vector<Tensor> saved = ctx->saved_tensors();
    const Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &var = saved[3];
    const double eps = ctx->saved_data["eps"].toDouble();
    const ScalarType type = compute_type(input);
    // The sums do not depend on the weight, whose type they take.
    const Tensor any_weight = mean.to(type);
    const std::vector<int64_t> sums{0, 1, 1};
    const auto [none, scaled, shifted] = mytorch::batch_norm_training_backward(
        grads[0], input, any_weight, mean.to(type), var.to(type), eps, sums);
    const Tensor of_weight = ctx->needs_input_grad(1) ? scaled.to(weight.dtype()) : Tensor();
    const Tensor of_bias = ctx->needs_input_grad(2) ? shifted.to(weight.dtype()) : Tensor();
    return {ctx->needs_input_grad(0) ? of_input(ctx, grads[0], saved, scaled, shifted) : Tensor(),
            of_weight,
            of_bias,
            Tensor(),
            Tensor(),
            Tensor()};
  }

  // The gradient of the input also goes through mean and variance, to which all ranks' gradients
  // contribute: weight / std * (grad - mean of grad - normal * mean of grad * normal), where
  // normal = (input - mean) / std.
  static Tensor of_input(FunctionContext* ctx, const Tensor& grad, const std::vector<Tensor>& saved,
                         const Tensor& scaled, const Tensor& shifted) {
    const Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &var = saved[3];
    const Tensor sums =
        mytorch::cat(std::vector<Tensor>{scaled.to(kFloat64), shifted.to(kFloat64)});
    const Group group = std::any_cast<Group>(ctx->saved_data["group"]);
    const Tensor means = mytorch::all_reduce(sums, "sum", group) / saved[4];
    const int64_t channels = mean.numel();
    const Tensor mean_scaled = means.narrow(0, 0, channels);
    const Tensor mean_grad = means.narrow(0, channels, channels);
    const Tensor inverse = (var + ctx->saved_data["eps"].toDouble()).rsqrt();
    const Tensor scale = weight.defined() ? inverse * weight.to(kFloat64) : inverse;
    const Tensor slope = -(scale * inverse * mean_scaled);
    const Tensor rest = -(scale * mean_grad + slope * mean);
    const ScalarType type = compute_type(input);
    const Tensor line =
        mytorch::addcmul(by_channel(rest, input), input.to(type), by_channel(slope, input));
    return mytorch::addcmul(line, grad.to(type), by_channel(scale, input)).to(input.dtype());
  }
};

void update_running(const Tensor& running, const Tensor& value, double momentum) {
  running.lerp_(value.to(running.dtype()), momentum);
}

class NormOfGroup final : public detail::BatchOfRanks {
 public:
  explicit NormOfGroup(Group group) : group_(std::move(group)) {}

  Tensor normalize(const Tensor& input, const Tensor& weight, const Tensor& bias,
                   const Tensor& running_mean, const Tensor& running_var, double momentum,
                   double eps) const override {
    if (!is_floating_point(input.dtype())) {
      fail(ErrorCode::kType, "[SyncBatchNorm] input is ", dtype_name(input.dtype()),
           ": it must have a floating type");
    }
    const Statistics statistics = [&] {
      const NoGradGuard no_grad;
      return statistics_of_ranks(input, group_);
    }();
    // A rank that has several values needs not ask how many there are.
    const double total = values_per_channel(input) > 1 ? 2 : statistics.count.item<double>();
    if (total == 1) {
      fail(ErrorCode::kValue,
           "[SyncBatchNorm] in training, the variance over all ranks is that of one value per "
           "channel: give larger batches, or call eval()");
    }
    if (running_mean.defined() && total != 0) {
      const NoGradGuard no_grad;
      update_running(running_mean, statistics.mean, momentum);
      update_running(running_var, statistics.var * (statistics.count / (statistics.count - 1)),
                     momentum);
    }
    return NormalizeOverRanks::apply(input, weight, bias, statistics, eps, group_);
  }

 private:
  Group group_;
};

// None for a rank alone, whose batch is the whole one.
std::shared_ptr<const detail::BatchOfRanks> batch_of(const Group& given) {
  Group group = given.defined() ? given : distributed::world();
  if (group.size() == 1) return nullptr;
  return std::make_shared<NormOfGroup>(std::move(group));
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(int64_t num_features, SyncBatchNormArgs options)
    : Layer("SyncBatchNorm", num_features,
            BatchNormArgs{.eps = options.eps,
                          .momentum = options.momentum,
                          .affine = options.affine,
                          .track_running_stats = options.track_running_stats},
            2, MT_MAX_DIMS) {
  set_ranks(batch_of(options.group));
}

void SyncBatchNorm::convert_sync_batchnorm(Module& module, const Group& group) {
  const std::shared_ptr<const detail::BatchOfRanks> ranks = batch_of(group);
  for (Module* each : module.modules()) {
    if (auto* norm = each->as<BatchNorm>(); norm != nullptr) norm->set_ranks(ranks);
  }
}

}  // namespace mytorch::nn
