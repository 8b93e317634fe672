// Optimizer steps for all parameters in one parallel loop. The inner loops are those of the records
// that step one tensor, so the bits are the same.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backends/cpu-openmp/common/stage.h"
#include "backends/cpu-openmp/pointwise/compute_type.h"
#include "backends/cpu-openmp/pointwise/programs.h"
#include "backends/cpu-openmp/registry.h"
#include "backends/cpu-openmp/simd/convert.h"
#include "mytorch/abi_ops/adagrad_step.h"
#include "mytorch/abi_ops/adagrad_steps_.h"
#include "mytorch/abi_ops/adam_step.h"
#include "mytorch/abi_ops/adam_steps_.h"
#include "mytorch/abi_ops/add.h"
#include "mytorch/abi_ops/rmsprop_step.h"
#include "mytorch/abi_ops/rmsprop_steps_.h"
#include "mytorch/abi_ops/sgd_step.h"
#include "mytorch/abi_ops/sgd_steps_.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Parameters are cut into pieces of this many elements; a thread takes at least kLeastPieces.
constexpr int64_t kPiece = 4096, kLeastPieces = 4;
// The variants of a record with one condition.
constexpr uint16_t kTrue = 0, kFalse = 1;

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

// Throws sdk::Declined unless the tensors of each parameter are alike and of one type.
template <size_t kLists>
void check_alike(const std::array<mt_tensor_list, kLists>& lists) {
  for (int64_t i = 0; i < lists[0].size; ++i) {
    for (const mt_tensor_list& list : lists) {
      if (!alike(list.data[i], lists[0].data[i])) throw sdk::Declined{};
    }
  }
}

// The program of a record that steps one tensor. `numbers` has the fields of its numbers.
class Pass {
 public:
  Pass(std::string_view name, uint16_t variant, const void* numbers, mt_dtype dtype)
      : type_(compute_type_of(dtype)) {
    const auto& ops = programs().pointwise;
    const auto op = std::find_if(ops.begin(), ops.end(),
                                 [&](const PointwiseOp& each) { return each.name == name; });
    if (op == ops.end() || variant >= op->num_variants) throw sdk::Declined{};
    const PointwiseProgram& program = op->variants[variant];
    inner_loop_ = program.loops.fn[type_];
    if (inner_loop_ == nullptr) throw sdk::Declined{};
    scalars_.self = program.self;
    for (int32_t i = 0; i < program.num_scalars; ++i) {
      scalars_.value[i] = number_of(numbers, program.scalars[i], dtype);
    }
    const mt_dtype compute = kComputeDtype[type_];
    if (!sdk::same_dtype(dtype, compute)) {
      widen_ = simd::get_convert(dtype, compute);
      round_ = simd::get_convert(compute, dtype);
    }
  }

  // Computes n <= kPiece elements; an output may be an input. 16-bit floats are computed in float32
  // and rounded at the end, as by the record. The last kNumbers inputs are a number, repeated in
  // the compute type.
  template <size_t kInputs, size_t kOutputs, size_t kNumbers = 0>
  void run(const std::array<char*, kInputs>& inputs, const std::array<char*, kOutputs>& outputs,
           int64_t n) const {
    const void* in[kInputs];
    void* out[kOutputs];
    if (widen_ == nullptr) {
      std::copy(inputs.begin(), inputs.end(), in);
      std::copy(outputs.begin(), outputs.end(), out);
      inner_loop_(in, out, scalars_, n);
      return;
    }
    alignas(64) float wide[kInputs + kOutputs][kPiece];
    for (size_t k = 0; k < kInputs; ++k) {
      const bool number = k >= kInputs - kNumbers;
      if (!number) widen_(inputs[k], wide[k], n);
      in[k] = number ? static_cast<const void*>(inputs[k]) : wide[k];
    }
    for (size_t k = 0; k < kOutputs; ++k) out[k] = wide[kInputs + k];
    inner_loop_(in, out, scalars_, n);
    for (size_t k = 0; k < kOutputs; ++k) round_(out[k], outputs[k], n);
  }

 private:
  ComputeType type_;
  InnerLoop inner_loop_ = nullptr;
  Scalars scalars_;
  simd::ConvertFn widen_ = nullptr, round_ = nullptr;
};

// Calls body(piece, n) in parallel for the pieces of all parameters of a type, where `piece` has
// the address of the first of n elements in each list.
template <size_t kLists, class Body>
void for_each_piece(mt_ctx& ctx, const std::array<mt_tensor_list, kLists>& lists, mt_dtype dtype,
                    const Body& body) {
  std::vector<int64_t> which;
  std::vector<int64_t> pieces = {0};  // the first piece of each parameter, and the number of all
  for (int64_t i = 0; i < lists[0].size; ++i) {
    const TensorView parameter = lists[0].data[i];
    if (!sdk::same_dtype(parameter.dtype(), dtype)) continue;
    which.push_back(i);
    pieces.push_back(pieces.back() + (parameter.numel() + kPiece - 1) / kPiece);
  }
  const auto range = [&](int64_t begin, int64_t end) noexcept {
    auto at = static_cast<size_t>(std::upper_bound(pieces.begin(), pieces.end(), begin) -
                                  pieces.begin() - 1);
    for (int64_t piece = begin; piece < end; ++piece) {
      while (pieces[at + 1] <= piece) ++at;
      const int64_t from = (piece - pieces[at]) * kPiece;
      const int64_t n = std::min(kPiece, TensorView(lists[0].data[which[at]]).numel() - from);
      std::array<char*, kLists> place;
      for (size_t k = 0; k < kLists; ++k) {
        place[k] = TensorView(lists[k].data[which[at]]).template data<char>() +
                   from * sdk::itemsize(dtype);
      }
      body(place, n);
    }
  };
  sdk::parallel_for(ctx, 0, pieces.back(), kLeastPieces, range);
}

// Calls f(dtype) for each type of the parameters.
template <class F>
void for_each_type(const mt_tensor_list& parameters, const F& f) {
  std::vector<mt_dtype> done;
  for (int64_t i = 0; i < parameters.size; ++i) {
    const mt_dtype dtype = TensorView(parameters.data[i]).dtype();
    if (std::any_of(done.begin(), done.end(),
                    [&](mt_dtype known) { return sdk::same_dtype(known, dtype); })) {
      continue;
    }
    done.push_back(dtype);
    f(dtype);
  }
}

// Runs the program of `step`, the record that steps one tensor, for each parameter. `lists` are its
// tensors in the record's order, and `outputs` the numbers of the lists that its results replace.
// Throws sdk::Declined if the tensors of a parameter are not alike.
template <class Step, size_t kLists, size_t kOutputs>
void step_all(mt_ctx& ctx, std::string_view name, const Step& step,
              const std::array<mt_tensor_list, kLists>& lists,
              const std::array<size_t, kOutputs>& outputs) {
  check_alike(lists);
  for_each_type(lists[0], [&](mt_dtype dtype) {
    const Pass pass(name, step.header.variant, &step, dtype);
    for_each_piece(ctx, lists, dtype,
                   [&](const std::array<char*, kLists>& piece, int64_t n) noexcept {
                     std::array<char*, kOutputs> out;
                     for (size_t k = 0; k < kOutputs; ++k) out[k] = piece[outputs[k]];
                     pass.run(piece, out, n);
                   });
  });
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
  const auto t = sdk::convert<int64_t>(number(args.step));
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
                                    {0, 2, 3});
}

// Without momentum, as the composite: the parameter shrinks, then the gradient is added.
void sgd_without_momentum(mt_ctx& ctx, const mt_args_sgd_steps_& args, double rate) {
  const std::array<mt_tensor_list, 2> lists = {args.self, args.gradients};
  check_alike(lists);
  for_each_type(args.self, [&](mt_dtype dtype) {
    const double shrink = 1 - rate * args.weight_decay;
    mt_args_add_Tensor by{};
    by.alpha.kind = MT_SCALAR_FLOAT;
    by.alpha.v.d = args.maximize != 0 ? rate : -rate;
    by.header.variant = by.alpha.v.d == 1 ? kTrue : kFalse;
    const Pass add("add.Tensor", by.header.variant, &by, dtype);
    const Pass mul("mul.Tensor", 0, nullptr, dtype);
    // The factor as an operand. Rounded to 16 bits it would often be 1.
    alignas(64) char factors[kPiece * sizeof(double)];
    if (sdk::same_dtype(dtype, sdk::dtype_of<double>)) {
      std::fill_n(reinterpret_cast<double*>(factors), kPiece, shrink);
    } else {
      std::fill_n(reinterpret_cast<float*>(factors), kPiece, static_cast<float>(shrink));
    }
    for_each_piece(ctx, lists, dtype, [&](const std::array<char*, 2>& piece, int64_t n) noexcept {
      if (args.weight_decay != 0) {
        mul.run<2, 1, 1>({piece[0], factors}, {piece[0]}, n);
      }
      add.run<2, 1>({piece[0], piece[1]}, {piece[0]}, n);
    });
  });
}

void sgd_steps_(mt_ctx& ctx, const mt_args_sgd_steps_& args) {
  const double rate = number(args.lr);
  if (args.momentum == 0) return sgd_without_momentum(ctx, args, rate);
  mt_args_sgd_step step{};
  step.lr = rate;
  step.momentum = args.momentum;
  step.rate = 1 - args.dampening;
  step.weight_decay = args.weight_decay;
  step.scale = args.maximize != 0 ? -1 : 1;
  step.nesterov = args.nesterov;
  step.header.variant = args.nesterov != 0 ? kTrue : kFalse;
  step_all<mt_args_sgd_step, 3, 2>(ctx, "sgd_step", step,
                                   {args.self, args.gradients, args.momentum_buffers}, {0, 2});
}

void rmsprop_steps_(mt_ctx& ctx, const mt_args_rmsprop_steps_& args) {
  mt_args_rmsprop_step step{};
  step.lr = number(args.lr);
  step.rate = 1 - args.alpha;
  step.eps = args.eps;
  step.weight_decay = args.weight_decay;
  step.scale = args.maximize != 0 ? -1 : 1;
  step_all<mt_args_rmsprop_step, 3, 2>(ctx, "rmsprop_step", step,
                                       {args.self, args.gradients, args.square_avgs}, {0, 2});
}

void adagrad_steps_(mt_ctx& ctx, const mt_args_adagrad_steps_& args) {
  mt_args_adagrad_step step{};
  step.lr = number(args.lr) / (1 + (number(args.step) - 1) * args.lr_decay);
  step.eps = args.eps;
  step.weight_decay = args.weight_decay;
  step.scale = args.maximize != 0 ? -1 : 1;
  step_all<mt_args_adagrad_step, 3, 2>(ctx, "adagrad_step", step,
                                       {args.self, args.gradients, args.sums}, {0, 2});
}

}  // namespace

void register_steps(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES;
  kernels.push_back(sdk::kernel<&adam_steps_>("one_loop", kTakes));
  kernels.push_back(sdk::kernel<&sgd_steps_>("one_loop", kTakes));
  kernels.push_back(sdk::kernel<&rmsprop_steps_>("one_loop", kTakes));
  kernels.push_back(sdk::kernel<&adagrad_steps_>("one_loop", kTakes));
}

}  // namespace mytorch::cpu
