#include "backends/cuda/fused/fused.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cuda/fused/text.h"
#include "backends/cuda/programs/kernels.h"
#include "backends/cuda/programs/loop.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/fused.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cuda {
namespace {

using namespace fused_key;

constexpr int kMaxThreads = 1024, kStreamThreads = 256;  // of a row
// Runs of a thread, if a row can have more threads. MYTORCH_CUDA_FUSED_RUNS overrides it.
const int most_parts = [] {
  const char* text = std::getenv("MYTORCH_CUDA_FUSED_RUNS");
  return text != nullptr ? std::max(1, std::atoi(text)) : 4;
}();
// 4-byte registers for the elements of a thread; a block of kMaxThreads leaves fewer to each.
constexpr int64_t kRegisters = 64, kFewRegisters = 24;

int64_t product(const int64_t* sizes, int count) {
  return std::accumulate(sizes, sizes + count, int64_t{1}, std::multiplies<>());
}

// Returns the kernels of all programs with that structure. They stay for the process: a graph of
// the device may run them after the program is gone, and recordings ask for them again.
KernelTable& kernels_of(const std::string& structure) {
  static std::mutex mutex;
  static auto* const known = new std::unordered_map<std::string, std::unique_ptr<KernelTable>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<KernelTable>& found = (*known)[structure];
  if (found == nullptr) found = std::make_unique<KernelTable>();
  return *found;
}

class FusedKernel {
 public:
  explicit FusedKernel(const mt_fused_program& program)
      : source_(program), kernels_(kernels_of(source_.structure)) {
    if (!source_.rows) return;
    for (const FusedSource::Call& call : source_.calls) {
      if (call.is("bound")) sites_.push_back(fault_site(call.program.base.c_str()));
    }
    const std::vector<bool> stays = inputs_that_stay(source_);
    for (size_t v = 0; v < source_.values.size(); ++v) {
      const FusedSource::Value& value = source_.values[v];
      if (value.kept >= 0 || (v < stays.size() && stays[v])) {
        kept_bytes_ += std::max(size_of(value.type), 4);
      }
    }
  }

  // Returns why a kernel of rows does not take a call, or null.
  const char* unsupported(const mt_fused_args& args) const {
    if (!source_.rows) return nullptr;
    for (int k = 0; k < num_operands(); ++k) {
      const mt_tensor* t = args.operands[k];
      sdk::FusedTable table;
      if (value_of(k).is_table()
              ? !sdk::read_table(args, t, &table)
              : !value_of(k).row && !is_number(t) && !sdk::has_contiguous_rows(args, t)) {
        return "the rows of an operand are not contiguous";
      }
    }
    return nullptr;
  }

  void run(mt_ctx& ctx, const mt_fused_args& args) {
    if (product(args.shape, args.ndim) == 0) return;
    use_device(ctx);
    if (source_.rows) {
      run_rows(ctx, args);
    } else if (!run_line(ctx, args)) {
      run_strided(ctx, args);
    }
  }

 private:
  int num_inputs() const { return source_.num_inputs; }
  int num_operands() const { return num_inputs() + static_cast<int>(source_.outputs.size()); }
  bool is_output(int k) const { return k >= num_inputs(); }
  const FusedSource::Value& value_of(int k) const {
    const int32_t value = is_output(k) ? source_.outputs[static_cast<size_t>(k - num_inputs())] : k;
    return source_.values[static_cast<size_t>(value)];
  }
  // Whether the threads of a row read or write its elements in runs.
  bool in_runs(int k) const { return !value_of(k).row && !value_of(k).is_table(); }
  static bool is_number(const mt_tensor* t) { return (t->flags & MT_TENSOR_HOST) != 0; }
  static uintptr_t address_of(const mt_tensor* t) {
    return reinterpret_cast<uintptr_t>(sdk::TensorView(t).raw());
  }

  // Writes the parameter of an operand, and its kind to the key.
  static void add(Key& key, Params& params, int k, const mt_tensor* t, Kind kind) {
    const Code code = code_of(t->dl.dtype);
    if (is_number(t)) {
      key.set(kOperands + k, operand_key(Kind::kNumber, code));
      write_operand(t, code == kBool ? MT_TYPE_BOOL : MT_TYPE_COMPUTE, code, params);
    } else {
      key.set(kOperands + k, operand_key(kind, code));
      params.pointer(sdk::TensorView(t).raw());
    }
  }

  void add_numbers(Params& params) const {
    for (const FusedSource::Parameter& number : source_.numbers) params.word(number.bits);
  }

  bool run_line(mt_ctx& ctx, const mt_fused_args& args) {
    const int64_t n = product(args.shape, args.ndim);
    uintptr_t addresses = 0;
    int largest = 1;
    std::vector<Kind> kinds;
    for (int k = 0; k < num_operands(); ++k) {
      const mt_tensor* t = args.operands[k];
      kinds.push_back(Kind::kElements);
      if (is_number(t)) continue;
      const int64_t size = sdk::TensorView(t).numel();
      if (size == n && (t->flags & MT_TENSOR_CONTIGUOUS) != 0) {
        addresses |= address_of(t);
        largest = std::max(largest, size_of(code_of(t->dl.dtype)));
      } else if (size == 1 && !is_output(k)) {
        kinds.back() = Kind::kSingle;
      } else {
        return false;
      }
    }
    Key key;
    Params params;
    for (int k = 0; k < num_operands(); ++k) {
      add(key, params, k, args.operands[k], kinds[static_cast<size_t>(k)]);
    }
    add_numbers(params);
    params.number(n);
    const int run = (addresses & 15) == 0 ? 16 / largest : 1;
    key.set(kForm, kLine);
    key.set(kRun, static_cast<uint8_t>(run));
    const int64_t block = int64_t{kFusedThreads} * run * kFusedUnroll;
    launch(ctx, key, (n + block - 1) / block, dim3(kFusedThreads), params);
    return true;
  }

  // Returns a loop over some of the dimensions. Its operands are those in memory, outputs first,
  // because their strides determine the order of the dimensions; `number` receives the place of
  // each operand.
  Loop loop_over(const mt_fused_args& args, int dims, sdk::Order order,
                 std::vector<int>* number) const {
    int64_t strides[Loop::kMaxOperands][sdk::kMaxDims];
    int count = 0;
    number->assign(static_cast<size_t>(num_operands()), -1);
    const std::span<const int64_t> shape(args.shape, static_cast<size_t>(args.ndim));
    for (const bool outputs : {true, false}) {
      for (int k = 0; k < num_operands(); ++k) {
        if (is_output(k) != outputs || is_number(args.operands[k])) continue;
        (*number)[static_cast<size_t>(k)] = count;
        if (value_of(k).is_table()) {
          sdk::FusedTable table;
          sdk::read_table(args, args.operands[k], &table);
          std::copy_n(table.strides, args.ndim, strides[count++]);
        } else {
          sdk::broadcast_strides(args.operands[k], shape, strides[count++]);
        }
      }
    }
    return Loop(shape.first(static_cast<size_t>(dims)), strides, count, order);
  }
  static std::vector<int> in_memory(const std::vector<int>& number) {
    std::vector<int> found;
    for (const int k : number) {
      if (k >= 0) found.push_back(k);
    }
    return found;
  }

  void run_strided(mt_ctx& ctx, const mt_fused_args& args) {
    std::vector<int> number;
    Loop loop = loop_over(args, args.ndim, sdk::Order::kMemory, &number);
    const std::vector<int> operands = in_memory(number);
    int run = 16;
    for (int k = 0; k < num_operands(); ++k) {
      const int at = number[static_cast<size_t>(k)];
      if (at < 0) continue;
      const mt_tensor* t = args.operands[k];
      const int size = size_of(code_of(t->dl.dtype));
      const bool repeats = loop.stride(at, 0) == 0;
      if (!repeats) run = std::min(run, 16 / size);
      while (run > 1 && !(loop.packs(at, run) && !(is_output(k) && repeats) &&
                          (repeats || address_of(t) % static_cast<uintptr_t>(run * size) == 0))) {
        run /= 2;
      }
    }
    Key key;
    Params params;
    for (int k = 0; k < num_operands(); ++k) {
      const int at = number[static_cast<size_t>(k)];
      const bool repeats = at >= 0 && run > 1 && loop.stride(at, 0) == 0;
      add(key, params, k, args.operands[k], repeats ? Kind::kRepeated : Kind::kElements);
    }
    if (run > 1) loop.pack(run, static_cast<int>(operands.size()));
    add_numbers(params);
    params.number(loop.numel());
    loop.write(params, operands);
    key.set(kForm, loop.wide() ? kWide : kStrided);
    key.set(kRun, static_cast<uint8_t>(run));
    key.set(kDims, static_cast<uint8_t>(loop.dims()));
    launch(ctx, key, (loop.numel() + kFusedThreads - 1) / kFusedThreads, dim3(kFusedThreads),
           params);
  }

  void run_rows(mt_ctx& ctx, const mt_fused_args& args) {
    const int outer = args.ndim - args.inner;
    const int64_t columns = product(args.shape + outer, args.inner);
    std::vector<int> number;
    const Loop loop = loop_over(args, outer, sdk::Order::kMemory, &number);
    const std::vector<int> operands = in_memory(number);
    // Runs of 16 bytes of the smallest type, and at most twice that of the largest.
    int smallest = 16, largest = 2;
    for (int k = 0; k < num_operands(); ++k) {
      if (number[static_cast<size_t>(k)] < 0 || !in_runs(k)) continue;
      const int size = size_of(code_of(args.operands[k]->dl.dtype));
      smallest = std::min(smallest, size);
      largest = std::max(largest, size);
    }
    int run = std::min(16 / smallest, 32 / largest);
    for (int k = 0; k < num_operands(); ++k) {
      const int at = number[static_cast<size_t>(k)];
      if (at < 0 || !in_runs(k)) continue;
      const mt_tensor* t = args.operands[k];
      const int size = size_of(code_of(t->dl.dtype));
      const auto fits = [&] {
        bool all = columns % run == 0 && address_of(t) % static_cast<uintptr_t>(run * size) == 0;
        for (int d = 0; d < loop.ndim(); ++d) all = all && loop.stride(at, d) % run == 0;
        return all;
      };
      while (run > 1 && !fits()) run /= 2;
    }
    while (columns % run != 0) run /= 2;  // also of rows without elements in memory
    const int64_t runs = columns / run;
    int threads = runs <= 32 * most_parts ? 32 : 64;
    // Where nothing stays in registers and many rows fill the device, blocks are small, so that
    // some load while others join their states.
    const Properties& device = properties(ctx.device.index);
    const bool fills =
        loop.numel() * kStreamThreads >= int64_t{device.multiprocessors} * device.threads;
    const int most = kept_bytes_ == 0 && fills ? kStreamThreads : kMaxThreads;
    while (threads > 32 && threads < most && runs > int64_t{threads} * most_parts) threads *= 2;
    const int64_t parts = (runs + threads - 1) / threads;
    const bool stays =
        kept_bytes_ > 0 &&
        parts * run * kept_bytes_ <= 4 * (threads == kMaxThreads ? kFewRegisters : kRegisters);
    Key key;
    Params params;
    for (int k = 0; k < num_operands(); ++k) {
      const bool single = value_of(k).row && !value_of(k).is_table();
      add(key, params, k, args.operands[k], single ? Kind::kSingle : Kind::kElements);
    }
    add_numbers(params);
    params.number(loop.numel());
    params.number(columns);
    for (int k = 0; k < num_inputs(); ++k) {
      if (!value_of(k).is_table()) continue;
      sdk::FusedTable table;
      sdk::read_table(args, args.operands[k], &table);
      params.number(table.inner);
      params.number(table.stride);
    }
    for (const uint32_t site : sites_) {
      params.pointer(fault_of(ctx));
      params.word(site);
    }
    loop.write(params, operands);
    key.set(kForm, loop.wide() ? kWideRows : kRows);
    key.set(kRun, static_cast<uint8_t>(run));
    key.set(kDims, static_cast<uint8_t>(loop.dims()));
    int log = 0;
    while (32 << log < threads) ++log;
    key.set(kThreads, static_cast<uint8_t>(log));
    key.set(kParts, static_cast<uint8_t>(stays ? parts : 0));
    const int together = threads == 32 ? kFusedThreads / 32 : 1;  // rows of a block
    launch(ctx, key, (loop.numel() + together - 1) / together,
           dim3(static_cast<unsigned>(threads), static_cast<unsigned>(together)), params);
  }

  void launch(const mt_ctx& ctx, Key& key, int64_t blocks, dim3 threads, Params& params) {
    if (blocks > INT32_MAX) throw sdk::Declined{};
    key.set(kDevice, static_cast<uint8_t>(ctx.device.index));
    Function function = kernels_.find(key);
    if (function == nullptr) {
      function =
          kernels_.find_or_make(key, ctx.device.index, [&] { return fused_text(source_, key); });
    }
    launch_function(ctx, source_.name.c_str(), function, dim3(static_cast<unsigned>(blocks)),
                    threads, params);
  }

  const FusedSource source_;
  std::vector<uint32_t> sites_;  // of the checks of indices, in order
  int64_t kept_bytes_ = 0;  // of the registers that an element of a row takes from phase to phase
  KernelTable& kernels_;
};

const char* supports(void* self, const void* args) {
  return static_cast<FusedKernel*>(self)->unsupported(*static_cast<const mt_fused_args*>(args));
}

int run(void* self, mt_ctx* ctx, const void* args) noexcept {
  return sdk::guarded(ctx, [&] {
    static_cast<FusedKernel*>(self)->run(*ctx, *static_cast<const mt_fused_args*>(args));
  });
}

}  // namespace

void compile_fused(const mt_fused_program& program, mt_kernel_entry& kernel) {
  sdk::give_kernel(program, std::make_unique<FusedKernel>(program), kernel);
  kernel.run = &run;
  kernel.supports = &supports;
  kernel.size = sizeof(mt_kernel_entry);
  kernel.name = "fused_program";
}

}  // namespace mytorch::cuda
