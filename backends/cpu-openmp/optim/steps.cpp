// Optimizer steps for all parameters in one parallel loop. The inner loops are those of the records
// that step one tensor, so the bits are the same.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backends/cpu-openmp/pointwise/compute_type.h"
#include "backends/cpu-openmp/pointwise/programs.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/adagrad_step.h"
#include "mytorch/abi_ops/adagrad_steps_.h"
#include "mytorch/abi_ops/adam_step.h"
#include "mytorch/abi_ops/adam_steps_.h"
#include "mytorch/abi_ops/rmsprop_step.h"
#include "mytorch/abi_ops/rmsprop_steps_.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Parameters are cut into pieces of this many elements; a thread takes at least kLeastPieces.
constexpr int64_t kPiece = 4096, kLeastPieces = 4;

// Whether both have the same shape, type, and offset of each element, in memory without gaps.
bool alike(const TensorView& t, const TensorView& like) {
  if (!sdk::same_dtype(t.dtype(), like.dtype()) || !sdk::same_shape(t, like)) return false;
  if ((t.get()->flags & like.get()->flags & MT_TENSOR_CONTIGUOUS) != 0) return true;
  int64_t last = 0, numel = 1;
  for (int d = 0; d < like.ndim(); ++d) {
    if (like.size(d) != 1 && t.stride(d) != like.stride(d)) return false;
    last += (like.size(d) - 1) * like.stride(d);
    numel *= like.size(d);
  }
  return numel == 0 || last + 1 == numel;
}

// Runs the program of `step`, the record that steps one tensor, for each parameter. `inputs` are
// its tensors in the record's order, and `outputs` the lists that its results replace. Throws
// sdk::Declined for 16-bit types and if the tensors of a parameter are not alike.
template <class Step, size_t kInputs, size_t kOutputs>
void step_all(mt_ctx& ctx, std::string_view name, const Step& step,
              const std::array<mt_tensor_list, kInputs>& inputs,
              const std::array<mt_tensor_list, kOutputs>& outputs) {
  const auto& ops = programs().pointwise;
  const auto op = std::find_if(ops.begin(), ops.end(),
                               [&](const PointwiseOp& each) { return each.name == name; });
  if (op == ops.end() || op->num_variants != 1) throw sdk::Declined{};
  const PointwiseProgram& program = op->variants[0];
  const int64_t count = inputs[0].size;
  if (count == 0) return;
  const TensorView first = inputs[0].data[0];
  const mt_dtype dtype = first.dtype();
  if (dtype.bits < 32) throw sdk::Declined{};
  std::vector<int64_t> pieces;  // the first piece of each parameter, and the number of all
  pieces.reserve(static_cast<size_t>(count) + 1);
  pieces.push_back(0);
  for (int64_t i = 0; i < count; ++i) {
    const TensorView parameter = inputs[0].data[i];
    for (const mt_tensor_list& list : inputs) {
      if (!sdk::same_dtype(parameter.dtype(), dtype) || !alike(list.data[i], parameter)) {
        throw sdk::Declined{};
      }
    }
    pieces.push_back(pieces.back() + (parameter.numel() + kPiece - 1) / kPiece);
  }
  const ComputeType type = compute_type_of(dtype);
  const InnerLoop inner_loop = program.loops.fn[type];
  if (inner_loop == nullptr) throw sdk::Declined{};
  Scalars scalars;
  scalars.self = program.self;
  for (int32_t i = 0; i < program.num_scalars; ++i) {
    scalars.value[i] = number_of(&step, program.scalars[i], dtype);
  }
  const auto body = [&](int64_t begin, int64_t end) noexcept {
    auto at = std::upper_bound(pieces.begin(), pieces.end(), begin) - pieces.begin() - 1;
    while (begin < end) {
      while (pieces[static_cast<size_t>(at) + 1] <= begin) ++at;
      const int64_t own = pieces[static_cast<size_t>(at)];
      const int64_t stop = std::min(end, pieces[static_cast<size_t>(at) + 1]);
      const int64_t from = (begin - own) * kPiece;
      const int64_t to = std::min((stop - own) * kPiece, TensorView(inputs[0].data[at]).numel());
      const void* in[kInputs];
      void* out[kOutputs];
      const auto place = [&](const mt_tensor_list& list) {
        return TensorView(list.data[at]).template data<char>() + from * kComputeBytes[type];
      };
      for (size_t k = 0; k < kInputs; ++k) in[k] = place(inputs[k]);
      for (size_t k = 0; k < kOutputs; ++k) out[k] = place(outputs[k]);
      inner_loop(in, out, scalars, to - from);
      begin = stop;
    }
  };
  sdk::parallel_for(ctx, 0, pieces.back(), kLeastPieces, body);
}

// base^n by squaring, in the order of the composite (ops/optimizers.cpp), so that bits are equal.
double power(double base, int64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1) {
    if ((n & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

double number(const mt_tensor* tensor) { return sdk::scalar_value<double>(tensor); }

void adam_steps_(mt_ctx& ctx, const mt_args_adam_steps_& args) {
  if (args.max_exp_avg_sqs.size != 0 || args.rounded.size != 0) throw sdk::Declined{};
  const double rate = number(args.lr);
  const auto t = static_cast<int64_t>(number(args.step));
  const double root2 = std::sqrt(1 - power(args.beta2, t));
  mt_args_adam_step step{};
  step.lr = rate * root2 / (1 - power(args.beta1, t));
  step.rate1 = 1 - args.beta1;
  step.rate2 = 1 - args.beta2;
  step.eps = args.eps * root2;
  step.shrink = args.decoupled != 0 ? 1 - rate * args.weight_decay : 1;
  step.weight_decay = args.decoupled != 0 ? 0 : args.weight_decay;
  step.scale = args.maximize != 0 ? -1 : 1;
  step_all<mt_args_adam_step, 4, 3>(ctx, "adam_step", step,
                                    {args.self, args.gradients, args.exp_avgs, args.exp_avg_sqs},
                                    {args.self, args.exp_avgs, args.exp_avg_sqs});
}

void rmsprop_steps_(mt_ctx& ctx, const mt_args_rmsprop_steps_& args) {
  mt_args_rmsprop_step step{};
  step.lr = number(args.lr);
  step.rate = 1 - args.alpha;
  step.eps = args.eps;
  step.weight_decay = args.weight_decay;
  step.scale = args.maximize != 0 ? -1 : 1;
  step_all<mt_args_rmsprop_step, 3, 2>(ctx, "rmsprop_step", step,
                                       {args.self, args.gradients, args.square_avgs},
                                       {args.self, args.square_avgs});
}

void adagrad_steps_(mt_ctx& ctx, const mt_args_adagrad_steps_& args) {
  mt_args_adagrad_step step{};
  step.lr = number(args.lr) / (1 + (number(args.step) - 1) * args.lr_decay);
  step.eps = args.eps;
  step.weight_decay = args.weight_decay;
  step.scale = args.maximize != 0 ? -1 : 1;
  step_all<mt_args_adagrad_step, 3, 2>(
      ctx, "adagrad_step", step, {args.self, args.gradients, args.sums}, {args.self, args.sums});
}

}  // namespace

void register_steps(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES;
  kernels.push_back(sdk::kernel<&adam_steps_>("one_loop", kTakes));
  kernels.push_back(sdk::kernel<&rmsprop_steps_>("one_loop", kTakes));
  kernels.push_back(sdk::kernel<&adagrad_steps_>("one_loop", kTakes));
}

}  // namespace mytorch::cpu
