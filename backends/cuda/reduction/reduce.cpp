#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/common/counters.h"
#include "backends/cuda/programs/compile.h"
#include "backends/cuda/programs/compiler.h"
#include "backends/cuda/programs/kernels.h"
#include "backends/cuda/programs/loop.h"
#include "backends/cuda/programs/program.h"
#include "backends/cuda/programs/program_kernel.h"
#include "backends/cuda/reduction/text.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cuda {
namespace {

using namespace reduce_key;

constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES;
constexpr int64_t kThreads = kReduceThreads;
constexpr int64_t kLongestRun = 8;  // a state for each element of a run must fit in registers

int64_t power_above(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}
int64_t pieces(int64_t n, int64_t of) { return (n + of - 1) / of; }

class Variant {
 public:
  explicit Variant(const mt_program& program) : program_(program) {
    if (program_.inputs.size() + program_.outputs.size() > Key::kWords * 8 - kOperands) {
      throw sdk::Declined{};
    }
  }

  void run(mt_ctx& ctx, const void* args) {
    ReduceCall call(*this, ctx, args);
    if (!call.outputs.empty()) call.run();
  }

 private:
  struct Tensor {
    sdk::TensorView view;
    Code type;
  };

  struct ReduceCall {
    ReduceCall(Variant& variant_, mt_ctx& ctx_, const void* args_)
        : variant(variant_),
          program(variant_.program_),
          ctx(ctx_),
          args(args_),
          compute(variant_.program_.computes_in(
              code_of(static_cast<const mt_args_header*>(args_)->compute))) {
      if (!program.takes(compute)) throw sdk::Declined{};
      base.set(kDevice, static_cast<uint8_t>(ctx.device.index));
      base.set(kCompute, compute);
      int byte = kOperands;
      std::vector<sdk::TensorView> shaped;
      for (const Program::Argument& argument : program.inputs) {
        const mt_tensor* t = sdk::tensor_at(args, argument.offset);
        const int at = byte++;
        if (t == nullptr) continue;
        shaped.emplace_back(t);
        if ((t->flags & MT_TENSOR_HOST) != 0) {
          base.set(at, operand_key(Kind::kNumber, 0));
          continue;
        }
        inputs.push_back({t, code_of(t->dl.dtype)});
        base.set(at, operand_key(Kind::kElements, inputs.back().type));
      }
      for (const Program::Argument& argument : program.outputs) {
        const mt_tensor* t = sdk::tensor_at(args, argument.offset);
        const int at = byte++;
        if (t == nullptr) continue;
        outputs.push_back({t, code_of(t->dl.dtype)});
        base.set(at, operand_key(Kind::kElements, outputs.back().type));
      }
      if (inputs.empty()) throw sdk::Declined{};
      make_loops(sdk::broadcast_shape(shaped));
    }

    void make_loops(const std::vector<int64_t>& shape) {
      const int ndim = static_cast<int>(shape.size());
      const uint64_t is_reduced =
          sdk::reduced_dims(args, program.dim_field, program.dim_offset, ndim);
      int64_t kept_shape[sdk::kMaxDims];
      int64_t reduced_shape[sdk::kMaxDims];
      int64_t kept_strides[Loop::kMaxOperands][sdk::kMaxDims];
      int64_t reduced_strides[Loop::kMaxOperands][sdk::kMaxDims];
      const auto num_kept = static_cast<size_t>(sdk::select_dims(~is_reduced, shape, kept_shape));
      const auto num_reduced =
          static_cast<size_t>(sdk::select_dims(is_reduced, shape, reduced_shape));
      for (size_t k = 0; k < inputs.size(); ++k) {
        int64_t strides[sdk::kMaxDims];
        sdk::broadcast_strides(inputs[k].view, shape, strides);
        const std::span<const int64_t> all(strides, shape.size());
        sdk::select_dims(~is_reduced, all, kept_strides[k]);
        sdk::select_dims(is_reduced, all, reduced_strides[k]);
      }
      for (size_t k = 0; k < outputs.size(); ++k) {
        const sdk::TensorView& view = outputs[k].view;
        // With keepdim, the output has the reduced dimensions, with size 1.
        const bool keeps = static_cast<size_t>(view.ndim()) == shape.size();
        sdk::select_dims(keeps ? ~is_reduced : ~uint64_t{0}, view.strides(),
                         kept_strides[inputs.size() + k]);
      }
      const bool ordered = program.fold == "argmax" || program.fold == "argmin";
      const int num_inputs = static_cast<int>(inputs.size());
      reduced = Loop({reduced_shape, num_reduced}, reduced_strides, num_inputs,
                     ordered ? sdk::Order::kRowMajor : sdk::Order::kMemory);
      kept = Loop({kept_shape, num_kept}, kept_strides,
                  num_inputs + static_cast<int>(outputs.size()), sdk::Order::kMemory);
      count = reduced.numel();
    }

    void run() {
      if (kept.numel() == 0) return;
      use_device(ctx);
      results = kept;
      // The dimension with the smaller stride is read by consecutive threads.
      const int64_t along = std::abs(reduced.stride(0, 0));
      const int64_t across = std::abs(kept.stride(0, 0));
      const bool columns =
          kept.numel() > 1 && across != 0 && (reduced.numel() <= 1 || along == 0 || across < along);
      shape_blocks(columns);
      const bool is_split = pays_to_split();
      const Function function = find(key_of(columns, is_split));
      queue(function, columns, is_split ? splits(function) : 0);
    }

    // Chooses the run length and the threads of a block in both directions.
    void shape_blocks(bool columns) {
      Loop& runs = columns ? kept : reduced;
      const Loop& other = columns ? reduced : kept;
      run_length = run_of(runs, other);
      if (run_length > 1) {
        const int operands =
            static_cast<int>(inputs.size()) + (columns ? static_cast<int>(outputs.size()) : 0);
        runs.pack(run_length, operands);
      }
      const int64_t work = std::max<int64_t>(reduced.numel(), 1);
      if (columns) {
        const int64_t most = power_above(kept.numel());
        const int64_t share = std::min<int64_t>(power_above(work + 1) / 2, 8);
        threads_across = std::min(kThreads / share, most);
        threads_along = kThreads / threads_across;
      } else {
        // Several loads for each thread if there are enough rows to occupy all threads.
        const Properties& p = properties(ctx.device.index);
        const int64_t resident = int64_t{p.multiprocessors} * p.threads;
        int64_t threads = power_above(pieces(work, 2 * kReduceUnroll));
        while (threads < work && threads * kept.numel() * 2 <= resident) threads *= 2;
        threads_along = std::min(threads, kThreads);
        threads_across = kThreads / threads_along;
      }
      blocks = pieces(kept.numel(), threads_across);
    }

    // Returns how many consecutive elements along the innermost dimension of `runs` are loaded at
    // once.
    int run_of(const Loop& runs, const Loop& other) const {
      int64_t run = kLongestRun;
      for (const Tensor& t : inputs) run = std::min<int64_t>(run, 16 / size_of(t.type));
      for (; run > 1; run /= 2) {
        bool fits = true;
        for (size_t k = 0; fits && k < inputs.size(); ++k) {
          const int operand = static_cast<int>(k);
          const auto address = reinterpret_cast<uintptr_t>(inputs[k].view.raw());
          fits = runs.stride(operand, 0) == 1 && runs.packs(operand, static_cast<int>(run)) &&
                 address % static_cast<uintptr_t>(run * size_of(inputs[k].type)) == 0;
          for (int d = 0; fits && d < other.ndim(); ++d) {
            fits = other.stride(operand, d) % run == 0;
          }
        }
        if (fits) break;
      }
      return static_cast<int>(run);
    }

    // Whether several blocks share each reduction to occupy the device.
    bool pays_to_split() const {
      const int64_t many = int64_t{properties(ctx.device.index).multiprocessors} * 6;
      return blocks <= many && blocks <= kCounters &&
             reduced.numel() >= 8 * threads_along * kReduceUnroll;
    }

    // Returns how many blocks share a reduction: enough to fill the device once, or a few times if
    // that leaves less of it idle, but not so many that the last block, which merges their states,
    // takes longer than the others. A merge takes some four times as long as the push of a run.
    // Depends only on the device, the kernel and the shapes.
    int64_t splits(Function function) const {
      constexpr int64_t kMostWaves = 4;
      const int64_t resident = int64_t{properties(ctx.device.index).multiprocessors} *
                               resident_blocks(function, kThreads);
      int64_t best = 1;
      double used = 0;
      for (int64_t waves = 1; waves <= kMostWaves && used < 0.95; ++waves) {
        const int64_t count = std::max<int64_t>(waves * resident / blocks, 1);
        const int64_t needed = pieces(count * blocks, resident);
        const double share =
            static_cast<double>(count * blocks) / static_cast<double>(needed * resident);
        if (share > used) {
          best = count;
          used = share;
        }
      }
      const auto balanced =
          static_cast<int64_t>(std::sqrt(static_cast<double>(reduced.numel()) / 4));
      return std::min({best, balanced, reduced.numel() / (2 * threads_along * kReduceUnroll)});
    }

    void write_scalars(Params& params) const {
      for (const Program::Argument& argument : program.scalars) {
        params.word(number_bits(args, argument, compute));
      }
    }
    void write_outputs(Params& params) const {
      for (const Tensor& t : outputs) params.pointer(t.view.raw());
      for (const mt_node& node : program.nodes) {
        if (std::string_view(node.op) == "count") {
          params.word(count_bits(count, node.type, compute));
        }
      }
    }
    // Returns indices of operands in `kept`.
    std::vector<int> numbers(bool with_inputs, bool with_outputs) const {
      std::vector<int> list;
      const int num_inputs = static_cast<int>(inputs.size());
      for (int k = 0; with_inputs && k < num_inputs; ++k) list.push_back(k);
      for (int k = 0; with_outputs && k < static_cast<int>(outputs.size()); ++k) {
        list.push_back(num_inputs + k);
      }
      return list;
    }

    bool exceeds_caches() const {
      int64_t bytes = 0;
      for (const Tensor& t : inputs) bytes += t.view.numel() * size_of(t.type);
      return bytes > static_cast<int64_t>(2 * properties(ctx.device.index).l2);
    }

    Key key_of(bool columns, bool is_split) const {
      Key key = base;
      key.set(kForm, columns ? kColumns : kRows);
      key.set(kRun, static_cast<uint8_t>(run_length));
      key.set(kKeptDims, static_cast<uint8_t>(kept.dims()));
      key.set(kReducedDims, static_cast<uint8_t>(reduced.dims()));
      key.set(kFlags, static_cast<uint8_t>((is_split ? kSplit : 0) | (kept.wide() ? kWideKept : 0) |
                                           (reduced.wide() ? kWideReduced : 0) |
                                           (is_split && exceeds_caches() ? kStreaming : 0)));
      return key;
    }

    Function find(const Key& key) {
      if (const Function found = variant.kernels_.find(key)) [[likely]]
        return found;
      return variant.kernels_.find_or_make(key, ctx.device.index, [&] {
        return std::string(kPrelude) + std::string(kFolds) + reduce_text(program, key);
      });
    }

    // `splits`: the number of blocks that share a reduction; 0 if the kernel is not split.
    void queue(Function function, bool columns, int64_t splits) {
      Params params;
      for (const Program::Argument& argument : program.inputs) {
        const mt_tensor* t = sdk::tensor_at(args, argument.offset);
        if (t == nullptr) continue;
        if ((t->flags & MT_TENSOR_HOST) != 0) {
          params.word(operand_bits(t, argument.type, compute));
        } else {
          params.pointer(sdk::TensorView(t).raw());
        }
      }
      write_scalars(params);
      write_outputs(params);
      params.number(kept.numel());
      params.number(reduced.numel());
      if (program.divides(compute)) write_faults(ctx, program, variant.site_, params);
      kept.write(params, numbers(true, true));
      reduced.write(params, numbers(true, false));
      if (columns) {
        for (const int k : numbers(false, true)) params.number(results.stride(k, 0));
      }
      if (splits != 0) {
        const int64_t states = results.numel() * splits;
        params.pointer(
            scratch_bytes(ctx, static_cast<size_t>(state_size(program, compute) * states)));
        params.pointer(counters_of(ctx));
      }
      const auto x = static_cast<unsigned>(columns ? threads_across : threads_along);
      const auto y = static_cast<unsigned>(columns ? threads_along : threads_across);
      launch_function(
          ctx, program.base.c_str(), function,
          dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(std::max<int64_t>(splits, 1))),
          dim3(x, y), params);
    }

    Variant& variant;
    const Program& program;
    mt_ctx& ctx;
    const void* args;
    const Code compute;
    Key base;
    std::vector<Tensor> inputs;  // in device memory
    std::vector<Tensor> outputs;
    Loop reduced;  // operands: inputs
    Loop kept;     // inputs, then outputs
    Loop results;  // `kept` before it was packed into runs
    int64_t count = 0;
    int run_length = 1;
    int64_t threads_along = 1;
    int64_t threads_across = 1;
    int64_t blocks = 1;
  };

  const Program program_;
  KernelTable kernels_;
  std::atomic<uint32_t> site_{0};
};

}  // namespace

void compile_reduce(const mt_program& program, mt_kernel_entry& kernel) {
  ProgramKernel<Variant>::fill(program, kTakes, kernel);
}

}  // namespace mytorch::cuda
