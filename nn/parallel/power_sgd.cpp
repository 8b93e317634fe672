#include "mytorch/nn/parallel/power_sgd.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/le.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/reciprocal.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/where.h"

namespace mytorch::nn {

struct PowerSGD::State {
  explicit State(const PowerSGDOptions& options)
      : options(options), generator(options.random_seed) {}

  // What is kept of a parameter's last gradient.
  struct Kept {
    Tensor error, q;
  };
  PowerSGDOptions options;
  Generator generator;  // in the same state on all ranks, which draw the same numbers
  std::unordered_map<const TensorImpl*, Kept> kept;
  int64_t iteration = 0;
};

namespace {

// A gradient and its factors.
struct Factored {
  Tensor gradient;
  const TensorImpl* parameter;
  Tensor matrix;  // (m, n)
  Tensor p, q;    // (m, rank) and (n, rank)
};

// Makes the columns of a matrix orthonormal. Each is made orthogonal to those before it twice,
// since rounding is much of what once leaves of a column that hardly differs from them. Where
// nothing but rounding is left, which may be along the others, the column becomes zero.
void orthogonalize(const Tensor& matrix, double epsilon) {
  constexpr double kTiny = std::numeric_limits<float>::min();
  const double rounding = 64 * (matrix.dtype() == kFloat64 ? std::numeric_limits<double>::epsilon()
                                                           : std::numeric_limits<float>::epsilon());
  for (int64_t k = 0; k < matrix.size(1); ++k) {
    const Tensor column = matrix.narrow(1, k, 1), before = matrix.narrow(1, 0, k);
    column.div_(column.abs().amax().clamp_min(kTiny));
    const Tensor whole = mytorch::linalg_vector_norm(column);
    for (int i = 0; k != 0 && i < 2; ++i) {
      column.sub_(before.matmul(before.transpose(0, 1).matmul(column)));
    }
    const Tensor norm = mytorch::linalg_vector_norm(column);
    const Tensor zero = norm <= whole * rounding;
    column.mul_(mytorch::where(zero, 0.0, (norm + epsilon).reciprocal()));
  }
}

// Tensors of one type, one behind the other in a buffer.
class Joined {
 public:
  Joined(ScalarType dtype, Device device, const std::vector<std::vector<int64_t>>& shapes) {
    int64_t numel = 0;
    for (const auto& shape : shapes) numel += product(shape);
    memory = mytorch::empty({numel}, dtype, device);
    int64_t at = 0;
    for (const auto& shape : shapes) {
      parts.push_back(memory.narrow(0, at, product(shape)).view(shape));
      at += product(shape);
    }
  }
  Tensor memory;
  std::vector<Tensor> parts;

 private:
  static int64_t product(const std::vector<int64_t>& shape) {
    int64_t result = 1;
    for (const int64_t size : shape) result *= size;
    return result;
  }
};

}  // namespace

PowerSGD::PowerSGD(PowerSGDOptions options) : state_(std::make_shared<State>(options)) {
  if (options.matrix_approximation_rank < 1) {
    fail(ErrorCode::kValue, "[PowerSGD] matrix_approximation_rank is ",
         options.matrix_approximation_rank, ": give at least 1");
  }
  if (options.start_powerSGD_iter < 0) {
    fail(ErrorCode::kValue, "[PowerSGD] start_powerSGD_iter is ", options.start_powerSGD_iter,
         ": give the number of steps that reduce gradients whole, or 0");
  }
  if (!(options.orthogonalization_epsilon >= 0)) {
    fail(ErrorCode::kValue, "[PowerSGD] orthogonalization_epsilon is ",
         options.orthogonalization_epsilon, ": give 0 or a small positive number");
  }
}

std::function<void()> PowerSGD::operator()(const distributed::Group& group,
                                           const GradBucket& bucket, double scale) const {
  const NoGradGuard no_grad;
  const distributed::Reduction sum{distributed::ReduceOp::kSum, scale};
  State& state = *state_;
  const PowerSGDOptions& options = state.options;
  const bool whole = state.iteration < options.start_powerSGD_iter;
  if (bucket.is_last) ++state.iteration;
  if (whole) {
    const auto work =
        std::make_shared<distributed::Work>(group.all_reduce(bucket.memory, sum, true));
    return [work] { work->wait(); };
  }

  // What is compressed, and what is not.
  const ScalarType type = bucket.memory.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Device device = bucket.memory.device();
  std::vector<Factored> factored;
  std::vector<std::vector<int64_t>> ps, qs;
  std::vector<Tensor> rest;
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const Tensor& gradient = bucket.gradients[i];
    const int64_t m = gradient.dim() < 2 ? 0 : gradient.size(0);
    const int64_t n = m == 0 ? 0 : gradient.numel() / m;
    const double sent =
        static_cast<double>(m + n) * static_cast<double>(options.matrix_approximation_rank);
    if (gradient.numel() == 0 || m == 0 || is_complex(gradient.dtype()) ||
        sent * options.min_compression_rate >= static_cast<double>(gradient.numel())) {
      if (gradient.numel() != 0) rest.push_back(gradient);
      continue;
    }
    const int64_t rank = std::min({m, n, options.matrix_approximation_rank});
    ps.push_back({m, rank});
    qs.push_back({n, rank});
    factored.push_back(
        {gradient, bucket.parameters[i].impl(), gradient.view({m, n}).to(type), {}, {}});
  }

  const Joined p(type, device, ps), q(type, device, qs);
  for (size_t i = 0; i < factored.size(); ++i) {
    Factored& each = factored[i];
    const State::Kept& kept = state.kept[each.parameter];
    each.p = p.parts[i];
    each.q = q.parts[i];
    if (options.use_error_feedback && kept.error.defined()) each.matrix.add_(kept.error);
    each.q.copy_(mytorch::randn(each.q.sizes(), type, device, state.generator));
    if (options.warm_start && kept.q.defined()) {
      // A column of zeros, as a gradient of zeros leaves, would never find anything again.
      const Tensor lost = kept.q.abs().amax({0}, true) == 0;
      each.q.copy_(mytorch::where(lost, each.q, kept.q));
    }
    orthogonalize(each.q, options.orthogonalization_epsilon);
    each.p.copy_(each.matrix.matmul(each.q));
  }
  struct Pending {
    distributed::Work p, rest;
    Tensor joined;
  };
  auto pending = std::make_shared<Pending>();
  if (!factored.empty()) pending->p = group.all_reduce(p.memory, sum, true);
  if (!rest.empty()) {
    std::vector<Tensor> flat;
    for (const Tensor& gradient : rest) flat.push_back(gradient.reshape({-1}));
    pending->joined = mytorch::cat(flat);
    pending->rest = group.all_reduce(pending->joined, sum, true);
  }

  return [state = state_, group, sum, factored, q = q.memory, rest, pending] {
    const NoGradGuard unrecorded;
    const PowerSGDOptions& options = state->options;
    pending->p.wait();
    for (const Factored& each : factored) {
      orthogonalize(each.p, options.orthogonalization_epsilon);
      each.q.copy_(each.matrix.transpose(0, 1).matmul(each.p));
    }
    if (!factored.empty()) group.all_reduce(q, sum);
    for (const Factored& each : factored) {
      const Tensor found = each.p.matmul(each.q.transpose(0, 1)).to(each.gradient.dtype());
      State::Kept& kept = state->kept[each.parameter];
      if (options.use_error_feedback) kept.error = each.matrix - found;
      if (options.warm_start) kept.q = each.q.clone();
      each.gradient.copy_(found.view(each.gradient.sizes()));
    }
    pending->rest.wait();
    int64_t at = 0;
    for (const Tensor& gradient : rest) {
      gradient.copy_(pending->joined.narrow(0, at, gradient.numel()).view(gradient.sizes()));
      at += gradient.numel();
    }
  };
}

}  // namespace mytorch::nn
