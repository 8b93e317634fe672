#include "mytorch/nn/normalization.h"

#include <tuple>
#include <utility>

#include "autograd/recomputing.h"
#include "core/runtime/stream_capture.h"
#include "mytorch/autocast.h"
#include "mytorch/autograd.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/add_layer_norm.h"
#include "mytorch/ops/add_rms_norm.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/ops/zeros_like.h"
#include "mytorch/options_epoch.h"
#include "nn/functional/options.h"
#include "nn/split.h"

namespace mytorch::nn {
namespace {

void check_shape_of_norm(const char* module, const std::vector<int64_t>& shape) {
  if (shape.empty()) {
    fail(ErrorCode::kValue, "[", module,
         "] normalized_shape is empty: give the last sizes of inputs");
  }
  for (int64_t size : shape) check_at_least(module, 0, {{"a size", size}});
}

}  // namespace

// ---- channels ----

ChannelNorm::ChannelNorm(const char* name, int64_t num_features, const BatchNormArgs& options)
    : options({options, num_features == kLazy ? 0 : num_features}), name_(name) {
  if (num_features == kLazy) {
    set_lazy();
  } else {
    check_at_least(name, 0, {{"num_features", num_features}});
    create();
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  register_buffer("running_mean", running_mean);
  register_buffer("running_var", running_var);
  register_buffer("num_batches_tracked", num_batches_tracked);
}

void ChannelNorm::create() {
  if (options->affine) {
    weight = empty({options->num_features}, kFloat32);
    bias = empty({options->num_features}, kFloat32);
  }
  if (options->track_running_stats) {
    running_mean = empty({options->num_features}, kFloat32);
    running_var = empty({options->num_features}, kFloat32);
    num_batches_tracked = empty(IntList(), kInt64);
  }
  reset_parameters();
}

void ChannelNorm::finish(const Tensor& input, int64_t channel_dim) {
  const UnrecordedTensors unrecorded;
  options.args().num_features = lazy_size(input, channel_dim);
  create();
  finish_lazy(input);
  name_ += std::string_view("Lazy").size();  // from here on, an ordinary module
}

void ChannelNorm::reset_parameters() {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
  reset_running_stats();
}

void ChannelNorm::reset_running_stats() {
  if (!running_mean.defined()) return;
  init::zeros_(running_mean);
  init::ones_(running_var);
  init::zeros_(num_batches_tracked);
}

void ChannelNorm::set_momentum(std::optional<double> momentum) {
  if (momentum != options->momentum) options_changed();
  options.args().momentum = momentum;
}

ChannelNorm::Statistics ChannelNorm::track() {
  Statistics given = {running_mean, running_var, options->momentum.value_or(0)};
  if (!training() || !running_mean.defined()) return given;
  NoGradGuard no_grad;
  // This batch is counted already: the statistics are neither read nor written, but what is saved
  // of them must be of the same form.
  if (autograd::is_recomputing()) {
    const auto unused = [](const Tensor& like) {
      return zeros(like.sizes(), TensorOptions(like.dtype()).device(like.device()));
    };
    return {unused(running_mean), unused(running_var), 1};
  }
  num_batches_tracked.add_(1);
  if (options->momentum.has_value()) return given;
  // A replay of a recorded function counts on, so the momentum is not a number: takes the
  // statistics of this batch alone, which update() weights by a tensor.
  return {zeros_like(running_mean), zeros_like(running_var), 1};
}

void ChannelNorm::update(const Statistics& tracked) {
  if (!running_mean.defined() || tracked.mean.is_same(running_mean)) return;
  if (autograd::is_recomputing()) return;
  NoGradGuard no_grad;
  const Tensor momentum = num_batches_tracked.to(kFloat64).reciprocal();
  running_mean.lerp_(tracked.mean, momentum);
  running_var.lerp_(tracked.var, momentum);
}

std::string ChannelNorm::describe() const {
  return absl::StrCat(
      name_, "(", lazy() ? "" : absl::StrCat(options->num_features, ", "), "eps=", options->eps,
      ", momentum=", options->momentum.has_value() ? absl::StrCat(*options->momentum) : "none",
      ", affine=", text(options->affine),
      ", track_running_stats=", text(options->track_running_stats), ")");
}

BatchNorm::BatchNorm(const char* name, int64_t num_features, BatchNormArgs options, int64_t min_dim,
                     int64_t max_dim)
    : ChannelNorm(name, num_features, options), min_dim_(min_dim), max_dim_(max_dim) {}

Tensor BatchNorm::forward(const Tensor& input) {
  const bool dims = input.dim() >= min_dim_ && input.dim() <= max_dim_;
  if (lazy() && dims) finish(input, 1);
  if (!dims || input.size(1) != options->num_features) {
    fail(ErrorCode::kShape, "[", name_, "] input ", shape_str(input.sizes()), " does not have ",
         min_dim_,
         min_dim_ == max_dim_      ? ""
         : max_dim_ == MT_MAX_DIMS ? " or more"
                                   : absl::StrCat(" to ", max_dim_),
         " dimensions",
         lazy() ? "" : absl::StrCat(" with ", options->num_features, " channels in dimension 1"));
  }
  const bool tracks = running_mean.defined();
  const bool over_ranks = training() && ranks_ != nullptr;
  if (training() && !over_ranks && input.numel() == options->num_features) {
    fail(ErrorCode::kValue, "[", name_, "] in training, the variance of input ",
         shape_str(input.sizes()),
         " is that of one value per channel: give a larger batch, or call eval()");
  }
  const Statistics statistics = track();
  Tensor result = over_ranks ? ranks_->normalize(input, weight, bias, statistics.mean,
                                                 statistics.var, statistics.momentum, options->eps)
                             : batch_norm(input, weight, bias, statistics.mean, statistics.var,
                                          training() || !tracks, statistics.momentum, options->eps);
  update(statistics);
  return result;
}

void BatchNorm::set_ranks(std::shared_ptr<const detail::BatchOfRanks> ranks) {
  note_change();
  ranks_ = std::move(ranks);
  name_ = lazy() ? "LazySyncBatchNorm" : "SyncBatchNorm";
}

InstanceNorm::InstanceNorm(const char* name, int64_t num_features, InstanceNormArgs options,
                           int64_t dims)
    : ChannelNorm(name, num_features,
                  {.eps = options.eps,
                   .momentum = options.momentum,
                   .affine = options.affine,
                   .track_running_stats = options.track_running_stats}),
      dims_(dims) {}

Tensor InstanceNorm::forward(const Tensor& input) {
  const bool batched = input.dim() == dims_ + 2;
  const bool dims = batched || input.dim() == dims_ + 1;
  if (lazy() && dims) finish(input, batched ? 1 : 0);
  if (!dims || input.size(batched ? 1 : 0) != options->num_features) {
    fail(ErrorCode::kShape, "[", name_, "] input ", shape_str(input.sizes()), " does not have ",
         dims_ + 2, " dimensions, or ", dims_ + 1, " without a batch",
         lazy() ? "" : absl::StrCat(", with ", options->num_features, " channels"));
  }
  const bool tracks = running_mean.defined();
  if ((training() || !tracks) &&
      input.numel() == options->num_features * (batched ? input.size(0) : 1)) {
    fail(ErrorCode::kValue, "[", name_, "] the variance of input ", shape_str(input.sizes()),
         " is that of one value per channel and sample: give more than one spatial element");
  }
  const Statistics statistics = track();
  const Tensor batch = batched ? input : input.unsqueeze(0);
  const Tensor result = instance_norm(batch, weight, bias, statistics.mean, statistics.var,
                                      training() || !tracks, statistics.momentum, options->eps);
  update(statistics);
  return batched ? result : result.squeeze(0);
}

// ---- last dimensions ----

std::tuple<Tensor, Tensor> detail::ResidualNorm::operator()(const Tensor& input,
                                                            const Tensor& residual) {
  // The module is called with the sum if hooks or the names of anomaly mode need the call, or if
  // the fused operator does not take the operands. Autocast would convert both of them.
  if (has_hooks() || autograd::AnomalyMode::is_enabled() || input.dtype() != residual.dtype() ||
      !(input.sizes() == residual.sizes()) || autocast::is_autocast_enabled(input.device())) {
    Tensor sum = add(input, residual);
    return {(*this)(sum), sum};
  }
  try {
    check_not_empty();
    compute_parametrized();
    return add_and_normalize(input, residual);
  } catch (const Error&) {
    rethrow_with_path();
  }
}

LayerNorm::LayerNorm(IntList normalized_shape, LayerNormArgs options)
    : options({options, normalized_shape.vec()}) {
  check_shape_of_norm("LayerNorm", this->options->normalized_shape);
  if (options.elementwise_affine) {
    weight = empty(this->options->normalized_shape, kFloat32);
    if (options.bias) bias = empty(this->options->normalized_shape, kFloat32);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  reset_parameters();
}

void LayerNorm::reset_parameters() {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
}

Tensor LayerNorm::forward(const Tensor& input) {
  const Split* split = has_hooks() ? split_of(*this) : nullptr;
  return layer_norm(input, options->normalized_shape, shared_parameter(split, weight),
                    shared_parameter(split, bias), options->eps);
}

std::tuple<Tensor, Tensor> LayerNorm::add_and_normalize(const Tensor& input,
                                                        const Tensor& residual) {
  const Split* split = has_hooks() ? split_of(*this) : nullptr;
  return add_layer_norm(input, residual, options->normalized_shape, shared_parameter(split, weight),
                        shared_parameter(split, bias), options->eps);
}

std::string LayerNorm::describe() const {
  return absl::StrCat("LayerNorm(", shape_str(options->normalized_shape), ", eps=", options->eps,
                      ", elementwise_affine=", text(options->elementwise_affine), ")");
}

RMSNorm::RMSNorm(IntList normalized_shape, RMSNormArgs options)
    : options({options, normalized_shape.vec()}) {
  check_shape_of_norm("RMSNorm", this->options->normalized_shape);
  if (options.elementwise_affine) weight = empty(this->options->normalized_shape, kFloat32);
  register_parameter("weight", weight);
  reset_parameters();
}

void RMSNorm::reset_parameters() {
  if (weight.defined()) init::ones_(weight);
}

Tensor RMSNorm::forward(const Tensor& input) {
  const Split* split = has_hooks() ? split_of(*this) : nullptr;
  return rms_norm(input, options->normalized_shape, shared_parameter(split, weight), options->eps);
}

std::tuple<Tensor, Tensor> RMSNorm::add_and_normalize(const Tensor& input, const Tensor& residual) {
  const Split* split = has_hooks() ? split_of(*this) : nullptr;
  return add_rms_norm(input, residual, options->normalized_shape, shared_parameter(split, weight),
                      options->eps);
}

std::string RMSNorm::describe() const {
  return absl::StrCat("RMSNorm(", shape_str(options->normalized_shape),
                      ", eps=", options->eps.has_value() ? absl::StrCat(*options->eps) : "none",
                      ", elementwise_affine=", text(options->elementwise_affine), ")");
}

// ---- groups ----

GroupNorm::GroupNorm(int64_t num_groups, int64_t num_channels, GroupNormArgs options)
    : options({options, num_groups, num_channels}) {
  check_at_least("GroupNorm", 1, {{"num_groups", num_groups}, {"num_channels", num_channels}});
  if (num_channels % num_groups != 0) {
    fail(ErrorCode::kValue, "[GroupNorm] ", num_groups, " groups do not divide ", num_channels,
         " channels");
  }
  if (options.affine) {
    weight = empty({num_channels}, kFloat32);
    bias = empty({num_channels}, kFloat32);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  reset_parameters();
}

void GroupNorm::reset_parameters() {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
}

Tensor GroupNorm::forward(const Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options->num_channels) {
    fail(ErrorCode::kShape, "[GroupNorm] input ", shape_str(input.sizes()), " does not have ",
         options->num_channels, " channels in dimension 1");
  }
  return group_norm(input, options->num_groups, weight, bias, options->eps);
}

std::string GroupNorm::describe() const {
  return absl::StrCat("GroupNorm(", options->num_groups, ", ", options->num_channels,
                      ", eps=", options->eps, ", affine=", text(options->affine), ")");
}

LocalResponseNorm::LocalResponseNorm(int64_t size, LocalResponseNormArgs options)
    : options({options, size}) {
  check_at_least("LocalResponseNorm", 1, {{"size", size}});
}

Tensor LocalResponseNorm::forward(const Tensor& input) {
  return functional::local_response_norm(input, options->size, options.args());
}

std::string LocalResponseNorm::describe() const {
  return absl::StrCat("LocalResponseNorm(", options->size, ", alpha=", options->alpha,
                      ", beta=", options->beta, ", k=", options->k, ")");
}

CrossMapLRN2d::CrossMapLRN2d(int64_t size, LocalResponseNormArgs options)
    : options({options, size}) {
  check_at_least("CrossMapLRN2d", 1, {{"size", size}});
}

Tensor CrossMapLRN2d::forward(const Tensor& input) {
  if (input.dim() != 4) {
    fail(ErrorCode::kShape, "[CrossMapLRN2d] input ", shape_str(input.sizes()),
         " does not have 4 dimensions: give (N, C, H, W)");
  }
  LocalResponseNormArgs scaled = options.args();
  const int64_t window = options->size - (options->size % 2 == 0 ? 1 : 0);
  scaled.alpha *= static_cast<double>(window) / static_cast<double>(options->size);
  return functional::local_response_norm(input, window, scaled);
}

std::string CrossMapLRN2d::describe() const {
  return absl::StrCat("CrossMapLRN2d(", options->size, ", alpha=", options->alpha,
                      ", beta=", options->beta, ", k=", options->k, ")");
}

}  // namespace mytorch::nn
