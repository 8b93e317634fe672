// ctc_loss, a composition of operators.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/gt.h"
#include "mytorch/ops/logsumexp.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "mytorch/tensor_values.h"
#include "ops/check.h"
#include "ops/composites.h"

namespace mytorch::composite {
namespace {

constexpr const char* kCtcLoss = "ctc_loss";
// The logarithm of an impossible path's probability: finite, so that sums and gradients are, too.
constexpr double kNever = -1e30;

using Numbers = std::vector<int64_t>;

struct Options {
  int64_t blank;
  Str reduction;
  bool zero_infinity;
};

Numbers numbers(const char* name, const Tensor& tensor) {
  if (is_floating_point(tensor.dtype()) || tensor.dtype() == kBool) {
    fail(ErrorCode::kType, "[", kCtcLoss, "] ", name, " is ", dtype_name(tensor.dtype()),
         ": give integers");
  }
  const Tensor host = tensor.detach().to(kCPU, kInt64).contiguous();
  const auto* data = host.const_data<int64_t>();
  return {data, data + host.numel()};
}

Tensor on_device(const Numbers& numbers, IntList sizes, Device device) {
  return mytorch::tensor(numbers, kInt64).view(sizes).to(device);
}

Tensor mask(const Numbers& numbers, IntList sizes, Device device) {
  return on_device(numbers, sizes, device).to(kBool);
}

void check_lengths(const char* name, const Numbers& lengths, int64_t batch, int64_t longest) {
  if (static_cast<int64_t>(lengths.size()) != batch) {
    fail(ErrorCode::kShape, "[", kCtcLoss, "] ", name, " has ", lengths.size(),
         " elements: give one for each of the ", batch, " sequences of log_probs");
  }
  for (const int64_t length : lengths) {
    if (length >= 0 && length <= longest) continue;
    fail(ErrorCode::kValue, "[", kCtcLoss, "] ", name, " has ", length, ": give 0 to ", longest);
  }
}

// Shifts the states by `count` along the last dimension.
Tensor shifted(const Tensor& alpha, int64_t count) {
  const int64_t batch = alpha.size(0), states = alpha.size(1);
  const Tensor never =
      mytorch::full({batch, std::min(count, states)}, kNever, alpha.dtype(), alpha.device());
  return states <= count ? never : mytorch::cat({never, alpha.narrow(1, 0, states - count)}, 1);
}

Tensor losses(const Tensor& log_probs, const Numbers& labels, const Numbers& begins,
              const Numbers& input_lengths, const Numbers& target_lengths, const Options& options) {
  const int64_t steps = log_probs.size(0), batch = log_probs.size(1);
  const Device device = log_probs.device();
  const int64_t longest =
      target_lengths.empty() ? 0 : *std::max_element(target_lengths.begin(), target_lengths.end());
  // The states of a target are its labels with blanks before, between and after them.
  const int64_t states = 2 * longest + 1;
  const auto total = static_cast<size_t>(batch * states);
  Numbers classes(total, options.blank), may_start(total, 0), may_skip(total, 0);
  Numbers last, has_label, impossible, trivial;
  for (size_t n = 0; n < target_lengths.size(); ++n) {
    const int64_t length = target_lengths[n];
    const size_t row = n * static_cast<size_t>(states);
    may_start[row] = 1;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t label = labels[static_cast<size_t>(begins[n] + i)];
      const size_t state = row + static_cast<size_t>(2 * i + 1);
      classes[state] = label;
      may_start[state] = i == 0;
      may_skip[state] = i > 0 && label != classes[state - 2];
    }
    last.push_back(2 * length);
    has_label.push_back(length > 0);
    trivial.push_back(input_lengths[n] == 0 && length == 0);
    impossible.push_back(input_lengths[n] == 0 && length > 0);
  }
  const Tensor skip = mask(may_skip, {batch, states}, device);
  const Tensor index = on_device(classes, {1, batch, states}, device);
  const Tensor emitted = mytorch::clamp_min(
      mytorch::gather(log_probs, 2, index.expand({steps, batch, states})), kNever);
  Tensor alpha = mytorch::where(mask(may_start, {batch, states}, device), emitted[0], kNever);
  for (int64_t t = 1; t < steps; ++t) {
    const Tensor skipped = mytorch::where(skip, shifted(alpha, 2), kNever);
    const Tensor next = mytorch::add(
        mytorch::logsumexp(mytorch::stack({alpha, shifted(alpha, 1), skipped}), 0), emitted[t]);
    Numbers active;
    for (const int64_t length : input_lengths) active.push_back(t < length);
    const bool all = std::find(active.begin(), active.end(), 0) == active.end();
    alpha = all ? next : mytorch::where(mask(active, {batch, 1}, device), next, alpha);
  }
  // A path ends in the last blank or in the last label.
  const Tensor in_blank = on_device(last, {batch, 1}, device);
  const Tensor in_label = mytorch::clamp_min(mytorch::add(in_blank, -1), 0);
  const Tensor ends = mytorch::cat({mytorch::gather(alpha, 1, in_blank),
                                    mytorch::where(mask(has_label, {batch, 1}, device),
                                                   mytorch::gather(alpha, 1, in_label), kNever)},
                                   1);
  Tensor loss = mytorch::neg(mytorch::logsumexp(ends, 1));
  loss = mytorch::where(mask(trivial, {batch}, device), 0.0, loss);
  const Tensor infinite = mytorch::gt(
      mytorch::where(mask(impossible, {batch}, device), -kNever, loss.detach()), -kNever / 2);
  return mytorch::where(infinite,
                        options.zero_infinity ? 0 : std::numeric_limits<double>::infinity(), loss);
}

Tensor loss_of(const Tensor& log_probs, const Tensor& targets, const Numbers& input_lengths,
               const Numbers& target_lengths, const Options& options) {
  if (!log_probs.is_floating_point()) {
    fail(ErrorCode::kType, "[", kCtcLoss, "] log_probs is ", dtype_name(log_probs.dtype()),
         ": give floats");
  }
  const bool batched = log_probs.dim() == 3;
  if ((!batched && log_probs.dim() != 2) || log_probs.size(0) == 0) {
    fail(ErrorCode::kShape, "[", kCtcLoss, "] log_probs has shape ", shape_str(log_probs.sizes()),
         ": give (T, N, C) or (T, C) of at least one step");
  }
  const Tensor probs = batched ? log_probs : log_probs.unsqueeze(1);
  const int64_t batch = probs.size(1), classes = probs.size(2);
  if (options.blank < 0 || options.blank >= classes) {
    fail(ErrorCode::kValue, "[", kCtcLoss, "] blank is ", options.blank, ": give 0 to ",
         classes - 1);
  }
  check_lengths("input_lengths", input_lengths, batch, probs.size(0));
  const bool padded = targets.dim() == 2 && batched;
  if ((!padded && targets.dim() != 1) || (padded && targets.size(0) != batch)) {
    fail(ErrorCode::kShape, "[", kCtcLoss, "] targets has shape ", shape_str(targets.sizes()),
         ": give (", batch, ", S), or all targets in succession");
  }
  const int64_t available = padded ? targets.size(1) : targets.size(0);
  check_lengths("target_lengths", target_lengths, batch, available);
  const Numbers labels = numbers("targets", targets);
  Numbers begins;
  int64_t end = 0;
  for (const int64_t length : target_lengths) {
    begins.push_back(end);
    for (int64_t i = 0; i < length && end + i < static_cast<int64_t>(labels.size()); ++i) {
      const int64_t label = labels[static_cast<size_t>(end + i)];
      if (label >= 0 && label < classes) continue;
      fail(ErrorCode::kValue, "[", kCtcLoss, "] targets has label ", label, ": give 0 to ",
           classes - 1);
    }
    end += padded ? available : length;
  }
  if (!padded && batched && end != available) {
    fail(ErrorCode::kShape, "[", kCtcLoss, "] targets has ", available,
         " labels, but target_lengths add up to ", end);
  }
  const bool low = probs.dtype() == kBFloat16 || probs.dtype() == kFloat16;
  Tensor loss = losses(low ? probs.to(kFloat32) : probs, labels, begins, input_lengths,
                       target_lengths, options);
  if (options.reduction == "mean") {
    const Tensor lengths = on_device(target_lengths, {batch}, loss.device());
    loss = loss / mytorch::clamp_min(lengths, 1).to(loss.dtype());
  }
  loss = !batched && options.reduction == "none" ? loss[0]
                                                 : reduced(loss, options.reduction, kCtcLoss);
  return low ? loss.to(probs.dtype()) : loss;
}

}  // namespace

Tensor ctc_loss_tensors(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                        const Tensor& target_lengths, int64_t blank, Str reduction,
                        bool zero_infinity) {
  return loss_of(log_probs, targets, numbers("input_lengths", input_lengths),
                 numbers("target_lengths", target_lengths), {blank, reduction, zero_infinity});
}

Tensor ctc_loss_lists(const Tensor& log_probs, const Tensor& targets, IntList input_lengths,
                      IntList target_lengths, int64_t blank, Str reduction, bool zero_infinity) {
  return loss_of(log_probs, targets, input_lengths.vec(), target_lengths.vec(),
                 {blank, reduction, zero_infinity});
}

}  // namespace mytorch::composite
