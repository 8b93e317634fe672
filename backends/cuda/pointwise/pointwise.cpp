#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/pointwise/text.h"
#include "backends/cuda/programs/compile.h"
#include "backends/cuda/programs/compiler.h"
#include "backends/cuda/programs/kernels.h"
#include "backends/cuda/programs/loop.h"
#include "backends/cuda/programs/program.h"
#include "backends/cuda/programs/program_kernel.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cuda {
namespace {

using namespace pointwise_key;

constexpr uint32_t kTakes =
    MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;

int64_t numel_of(const mt_tensor* t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t->dl.ndim; ++d) n *= t->dl.shape[d];
  return n;
}

bool same_sizes(const mt_tensor* a, const mt_tensor* b) {
  return a->dl.ndim == b->dl.ndim && std::equal(a->dl.shape, a->dl.shape + a->dl.ndim, b->dl.shape);
}

// The longest run: 16 bytes of the largest element type.
int longest_run(int largest) { return 16 / largest; }

class Variant {
 public:
  explicit Variant(const mt_program& program) : program_(program) {
    if (program_.inputs.size() + program_.outputs.size() >
        static_cast<size_t>(pointwise_key::kMaxOperands)) {
      throw sdk::Declined{};
    }
  }

  void run(mt_ctx& ctx, const void* args) {
    const mt_tensor* shaped = nullptr;
    for (const Program::Argument& argument : program_.outputs) {
      shaped = sdk::tensor_at(args, argument.offset);
      if (shaped != nullptr) break;
    }
    if (shaped == nullptr) return;
    const int64_t n = numel_of(shaped);
    if (n == 0) return;
    use_device(ctx);
    const bool uniform = (static_cast<const mt_args_header*>(args)->flags & MT_ARGS_UNIFORM) != 0;
    const bool is_general = !uniform && n <= general_limit;
    if (is_general || !run_line(ctx, args, shaped, n)) run_strided(ctx, args, shaped);
  }

 private:
  // Handles calls whose operands are contiguous with the output's shape, single elements, or
  // numbers. Returns false for others.
  bool run_line(mt_ctx& ctx, const void* args, const mt_tensor* shaped, int64_t n) {
    const auto& header = *static_cast<const mt_args_header*>(args);
    const bool uniform = (header.flags & MT_ARGS_UNIFORM) != 0;
    const Code compute = code_of(header.compute);
    Key key;
    Params params;
    uintptr_t addresses = 0;
    int largest = 1;
    int byte = kOperands;
    for (const Program::Argument& argument : program_.inputs) {
      const mt_tensor* t = sdk::tensor_at(args, argument.offset);
      if (t == nullptr) {
        ++byte;
        continue;
      }
      if ((t->flags & MT_TENSOR_HOST) != 0) {
        key.set(byte++, operand_key(Kind::kNumber, 0));
        write_operand(t, argument.type, compute, params);
        continue;
      }
      const Code type = code_of(t->dl.dtype);
      params.pointer(t->dl.data);
      if (uniform || is_alike(t, shaped)) {
        key.set(byte++, operand_key(Kind::kElements, type));
        addresses |= reinterpret_cast<uintptr_t>(t->dl.data);
        largest = std::max(largest, size_of(type));
      } else if (numel_of(t) == 1) {
        key.set(byte++, operand_key(Kind::kSingle, type));
      } else {
        return false;
      }
    }
    write_scalars(args, compute, params);
    for (const Program::Argument& argument : program_.outputs) {
      const mt_tensor* t = sdk::tensor_at(args, argument.offset);
      if (t == nullptr) {
        ++byte;
        continue;
      }
      if (!uniform && !is_alike(t, shaped)) return false;
      const Code type = code_of(t->dl.dtype);
      key.set(byte++, operand_key(Kind::kElements, type));
      params.pointer(t->dl.data);
      addresses |= reinterpret_cast<uintptr_t>(t->dl.data);
      largest = std::max(largest, size_of(type));
    }
    write_count(ctx, compute, n, params);
    const int run = (addresses & 15) == 0 ? longest_run(largest) : 1;
    key.set(kForm, kLine);
    launch(ctx, key, compute, run, n, run, params);
    return true;
  }

  // Whether both have the same shape and are contiguous.
  static bool is_alike(const mt_tensor* t, const mt_tensor* shaped) {
    if (!same_sizes(t, shaped)) return false;
    return (t->flags & shaped->flags & MT_TENSOR_CONTIGUOUS) != 0;
  }

  [[gnu::noinline]] void run_strided(mt_ctx& ctx, const void* args, const mt_tensor* shaped) {
    const Code compute = code_of(static_cast<const mt_args_header*>(args)->compute);
    const sdk::TensorView like(shaped);
    sdk::check_ndim(like.shape().size());
    // Outputs come first: their strides determine the order of dimensions.
    std::vector<const mt_tensor*> tensors;
    const auto take = [&](const Program::Argument& argument) {
      tensors.push_back(sdk::tensor_at(args, argument.offset));
    };
    for (const Program::Argument& argument : program_.outputs) take(argument);
    for (const Program::Argument& argument : program_.inputs) take(argument);
    const int num_outputs = static_cast<int>(program_.outputs.size());
    const int num_inputs = static_cast<int>(program_.inputs.size());
    const auto in_device_memory = [](const mt_tensor* t) {
      return t != nullptr && (t->flags & MT_TENSOR_HOST) == 0;
    };
    int64_t strides[Loop::kMaxOperands][sdk::kMaxDims];
    int num_operands = 0;
    std::vector<int> number(tensors.size(), -1);  // in the loop; -1: not in the loop
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (!in_device_memory(tensors[k])) continue;
      number[k] = num_operands;
      sdk::broadcast_strides(tensors[k], like.shape(), strides[num_operands++]);
    }
    Loop loop(like.shape(), strides, num_operands, sdk::Order::kMemory);

    if (loop.numel() <= general_limit && loop.ndim() <= kAnyDims &&
        tensors.size() <= kAnyOperands && !is_complex(compute)) {
      run_any(ctx, args, compute, loop, tensors, number);
      return;
    }

    const int run = run_of(loop, tensors, number, num_outputs);
    std::vector<bool> repeats(tensors.size());
    bool line = loop.ndim() == 1;
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (number[k] < 0) continue;
      repeats[k] =
          loop.stride(number[k], 0) == 0 && (loop.size(0) > 1 || k >= program_.outputs.size());
      line = line && (loop.stride(number[k], 0) == 1 || repeats[k] || loop.size(0) == 1);
    }
    for (int k = 0; k < num_outputs; ++k) {
      line = line && (number[static_cast<size_t>(k)] < 0 || !repeats[static_cast<size_t>(k)]);
    }
    const int64_t n = loop.numel();
    const int across = line || run > 1 ? 0 : across_of(loop, tensors, number, num_outputs);
    if (across > 0) loop.bring(across, num_operands);
    if (run > 1) loop.pack(run, num_operands);

    Key key;
    Params params;
    int byte = kOperands;
    const auto kind_of = [&](size_t k) {
      if (across > 0) {
        return is_transposed(loop, number[k]) ? Kind::kTransposed : Kind::kElements;
      }
      if (!repeats[k]) return Kind::kElements;
      return line ? Kind::kSingle : run > 1 ? Kind::kRepeated : Kind::kElements;
    };
    for (int i = 0; i < num_inputs; ++i) {
      const size_t k = static_cast<size_t>(num_outputs) + static_cast<size_t>(i);
      const mt_tensor* t = tensors[k];
      if (t == nullptr) {
        ++byte;
      } else if (number[k] < 0) {
        key.set(byte++, operand_key(Kind::kNumber, 0));
        write_operand(t, program_.inputs[static_cast<size_t>(i)].type, compute, params);
      } else {
        key.set(byte++, operand_key(kind_of(k), code_of(t->dl.dtype)));
        params.pointer(sdk::TensorView(t).raw());
      }
    }
    write_scalars(args, compute, params);
    for (size_t k = 0; k < static_cast<size_t>(num_outputs); ++k) {
      if (tensors[k] == nullptr) {
        ++byte;
        continue;
      }
      key.set(byte++, operand_key(Kind::kElements, code_of(tensors[k]->dl.dtype)));
      params.pointer(sdk::TensorView(tensors[k]).raw());
    }
    if (line) {
      write_count(ctx, compute, n, params);
      key.set(kForm, kLine);
      launch(ctx, key, compute, run, n, run, params);
      return;
    }
    std::vector<int> order;  // the kernel has inputs first
    for (int i = 0; i < num_inputs + num_outputs; ++i) {
      const int k = i < num_inputs ? num_outputs + i : i - num_inputs;
      if (number[static_cast<size_t>(k)] >= 0) order.push_back(number[static_cast<size_t>(k)]);
    }
    key.set(kDims, static_cast<uint8_t>(loop.dims()));
    if (across > 0) {
      run_tiles(ctx, key, compute, loop, order, params);
      return;
    }
    write_count(ctx, compute, loop.numel(), params);
    key.set(kForm, loop.wide() ? kWide : kStrided);
    loop.write(params, order);
    launch(ctx, key, compute, run, loop.numel(), 1, params);
  }

  // Runs the kernel that serves all types and layouts.
  void run_any(const mt_ctx& ctx, const void* args, Code compute, Loop& loop,
               const std::vector<const mt_tensor*>& tensors, const std::vector<int>& number) {
    const size_t num_outputs = program_.outputs.size();
    Params params;
    uint64_t types = 0;
    std::vector<int> order;  // the kernel has inputs first
    const auto add = [&](size_t k, int32_t type) {
      const mt_tensor* t = tensors[k];
      // Absent operands read as one; their results are unused.
      uint64_t word = count_bits(1, type, compute);
      if (number[k] >= 0) {
        word = reinterpret_cast<uintptr_t>(sdk::TensorView(t).raw());
        types |= static_cast<uint64_t>(code_of(t->dl.dtype)) << (4 * order.size());
      } else if (t != nullptr) {
        word = operand_bits(t, type, compute);
      }
      params.word(word);
      order.push_back(number[k]);
    };
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      add(num_outputs + i, program_.inputs[i].type);
    }
    write_scalars(args, compute, params);
    for (size_t k = 0; k < num_outputs; ++k) add(k, program_.outputs[k].type);
    write_count(ctx, compute, loop.numel(), params);
    params.word(types);
    loop.write(params, order, kAnyDims);
    Key key;
    key.set(kForm, kAny);
    key.set(kDims, kAnyDims);
    const Function function = function_of(ctx, key, compute, 1);
    const int64_t blocks = (loop.numel() + kPointwiseThreads - 1) / kPointwiseThreads;
    launch_function(ctx, program_.base.c_str(), function, dim3(static_cast<unsigned>(blocks)),
                    dim3(kPointwiseThreads), params);
  }

  // Whether an operand is contiguous along dimension 1 rather than 0.
  static bool is_transposed(const Loop& loop, int operand) {
    return loop.stride(operand, 1) == 1 && loop.stride(operand, 0) > 1;
  }

  // Returns the dimension along which some input is contiguous while the outputs are contiguous
  // along dimension 0, if tiles are worth it; else 0.
  static int across_of(const Loop& loop, const std::vector<const mt_tensor*>& tensors,
                       const std::vector<int>& number, int num_outputs) {
    constexpr int64_t kFew = 1 << 14;
    if (loop.ndim() < 2 || loop.size(0) < kTile / 2 || loop.numel() < kFew) return 0;
    for (size_t k = 0; k < number.size(); ++k) {
      if (number[k] < 0) continue;
      if (k < static_cast<size_t>(num_outputs)) {
        if (loop.stride(number[k], 0) != 1) return 0;
        continue;
      }
      if (loop.stride(number[k], 0) <= 1) continue;
      for (int d = 1; d < loop.ndim(); ++d) {
        if (loop.stride(number[k], d) == 1 && loop.size(d) >= kTile / 2) {
          return tiles_fit(loop, tensors, number, d) ? d : 0;
        }
      }
    }
    return 0;
  }

  // Whether the tiles of all operands that are contiguous along `dim` fit in a block's memory.
  static bool tiles_fit(const Loop& loop, const std::vector<const mt_tensor*>& tensors,
                        const std::vector<int>& number, int dim) {
    int bytes = 0;
    for (size_t k = 0; k < number.size(); ++k) {
      if (number[k] < 0 || loop.stride(number[k], dim) != 1 || loop.stride(number[k], 0) <= 1) {
        continue;
      }
      bytes += kTile * (kTile + 1) * size_of(code_of(tensors[k]->dl.dtype));
    }
    return bytes <= 48 << 10;
  }

  void run_tiles(const mt_ctx& ctx, Key& key, Code compute, Loop& loop, std::vector<int>& order,
                 Params& params) {
    const int num_operands = static_cast<int>(order.size());
    const int64_t sizes[] = {loop.size(0), loop.size(1)};
    std::vector<int64_t> strides;
    for (const int k : order) {
      strides.push_back(loop.stride(k, 0));
      strides.push_back(loop.stride(k, 1));
    }
    loop.tile(kTile, num_operands);
    order.push_back(num_operands);
    order.push_back(num_operands + 1);
    const int64_t tiles = loop.numel();  // memory cannot hold 2^31 tiles
    write_count(ctx, compute, tiles, params);
    loop.write(params, order);
    for (const int64_t size : sizes) params.number(size);
    for (const int64_t stride : strides) params.number(stride);
    key.set(kForm, kTiled);
    launch_function(ctx, program_.base.c_str(), function_of(ctx, key, compute, 1),
                    dim3(static_cast<unsigned>(tiles)), dim3(kTile, kTileRows), params);
  }

  // Returns the longest run that every operand allows.
  static int run_of(const Loop& loop, const std::vector<const mt_tensor*>& tensors,
                    const std::vector<int>& number, int num_outputs) {
    int largest = 1;
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (number[k] >= 0 && loop.stride(number[k], 0) != 0) {
        largest = std::max(largest, size_of(code_of(tensors[k]->dl.dtype)));
      }
    }
    int run = longest_run(largest);
    for (; run > 1; run /= 2) {
      bool fits = true;
      for (size_t k = 0; fits && k < tensors.size(); ++k) {
        if (number[k] < 0) continue;
        const bool output = k < static_cast<size_t>(num_outputs);
        const bool repeats = loop.stride(number[k], 0) == 0;
        const auto address = reinterpret_cast<uintptr_t>(sdk::TensorView(tensors[k]).raw());
        const auto bytes = static_cast<uintptr_t>(size_of(code_of(tensors[k]->dl.dtype))) *
                           static_cast<uintptr_t>(run);
        fits =
            loop.packs(number[k], run) && !(output && repeats) && (repeats || address % bytes == 0);
      }
      if (fits) break;
    }
    return run;
  }

  void write_count(const mt_ctx& ctx, Code compute, int64_t n, Params& params) {
    params.number(n);
    if (compute < kFloat16 ? divides_ : divides_index_) write_faults(ctx, program_, site_, params);
  }

  void write_scalars(const void* args, Code compute, Params& params) const {
    for (const Program::Argument& argument : program_.scalars) {
      write_number(args, argument, compute, params);
    }
  }

  Function function_of(const mt_ctx& ctx, Key& key, Code compute, int run) {
    key.set(kDevice, static_cast<uint8_t>(ctx.device.index));
    key.set(kCompute, compute);
    key.set(kRun, static_cast<uint8_t>(run));
    const Function function = kernels_.find(key);
    return function != nullptr ? function : make(key, ctx.device.index);
  }
  [[gnu::noinline]] Function make(const Key& key, int32_t device) {
    if (!program_.takes(key.get(kCompute))) throw sdk::Declined{};
    return kernels_.find_or_make(
        key, device, [&] { return pointwise_prelude(key) + pointwise_text(program_, key); });
  }

  // Launches for n elements in runs of `run` (kLine), or for n runs if `piece` is 1.
  void launch(const mt_ctx& ctx, Key& key, Code compute, int run, int64_t n, int piece,
              Params& params) {
    const Function function = function_of(ctx, key, compute, run);
    const int64_t block = int64_t{kPointwiseThreads} * piece * runs_of(program_, key);
    launch_function(ctx, program_.base.c_str(), function,
                    dim3(static_cast<unsigned>((n + block - 1) / block)), dim3(kPointwiseThreads),
                    params);
  }

  const Program program_;
  const bool divides_ = program_.divides(kInt64);
  const bool divides_index_ = program_.divides(kFloat32);
  std::atomic<uint32_t> site_{0};
  KernelTable kernels_;
};

}  // namespace

int64_t general_limit = [] {
  const char* text = std::getenv("MYTORCH_CUDA_GENERAL");
  return text != nullptr ? std::atoll(text) : int64_t{4096};
}();

void compile_pointwise(const mt_program& program, mt_kernel_entry& kernel) {
  ProgramKernel<Variant>::fill(program, kTakes, kernel);
}

}  // namespace mytorch::cuda
