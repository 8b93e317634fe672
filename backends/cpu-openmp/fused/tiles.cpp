// Fused programs without reductions: a loop over elements in any layout.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/fused/code.h"
#include "backends/cpu-openmp/fused/fused.h"
#include "backends/cpu-openmp/fused/join.h"
#include "backends/cpu-openmp/pointwise/job.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/fused.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kFirstLevelCache = 24 << 10;  // what tiles may take of it
constexpr int64_t kMaxTileBytes = 192 << 10;
constexpr int64_t kWidths[] = {kMaxWidth, 512, 256};
constexpr int64_t kGrain = 64 * 1024;  // additions that justify waking another thread

class FusedTiles {
 public:
  explicit FusedTiles(const mt_fused_program& program);
  FusedTiles(const FusedTiles&) = delete;
  void run(mt_ctx& ctx, const mt_fused_args& args) const;

 private:
  static bool run_loop(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                       int64_t n);
  static bool run_direct(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                         int64_t n);
  void find_direct();
  bool run_small(const mt_ctx& ctx, const mt_fused_args& args) const;

  const std::string name_;
  TileCode code_;
  std::vector<Step> steps_;
  std::vector<Place> inputs_, outputs_;
  int num_tiles_ = 0;
  int64_t width_ = 0;  // elements of a tile
  int64_t cost_ = 0;
  // Whether one step reads the inputs and writes the outputs, so that no tiles are needed; and
  // which ones.
  bool direct_ = false;
  int direct_inputs_[kMaxPlaces], direct_outputs_[kMaxPlaces];
};

FusedTiles::FusedTiles(const mt_fused_program& program) : name_(program.name), code_(program) {
  code_.steps = &steps_;
  for (int32_t i = 0; i < program.num_calls; ++i) {
    code_.add_call(sdk::fused_call(program, i));
  }
  for (int32_t i = 0; i < program.num_inputs; ++i) inputs_.push_back(code_.place(i));
  for (int32_t i = 0; i < program.num_outputs; ++i) {
    outputs_.push_back(code_.output(program.outputs[i]));
  }
  std::vector<bool> kept(static_cast<size_t>(code_.num_tiles), false);
  for (const Place& place : outputs_) kept[static_cast<size_t>(place.index)] = true;
  cost_ = join_steps(steps_, code_.constants, kept, (program.flags & MT_FUSED_EXACT) != 0);
  drop_unused(code_.constants, steps_, kept);
  find_direct();
  // The kernel of the record is faster than tiles of a single call.
  if (program.num_calls == 1 && !direct_) throw sdk::Declined{};
  std::vector<Place*> outputs;
  for (Place& place : outputs_) outputs.push_back(&place);
  num_tiles_ = reuse_tiles(steps_, code_.constants, outputs, code_.num_tiles);
  for (const int64_t width : kWidths) {
    width_ = width;
    if (num_tiles_ * width * 4 <= kFirstLevelCache) break;
  }
  if (num_tiles_ * width_ * 8 > kMaxTileBytes) throw sdk::Declined{};
}

void FusedTiles::find_direct() {
  if (steps_.size() != 1 || steps_[0].kind != Step::kLoop || !code_.constants.empty()) return;
  const Step& step = steps_[0];
  for (size_t k = 0; k < step.inputs.size(); ++k) direct_inputs_[k] = step.inputs[k].index;
  for (size_t k = 0; k < step.results.size(); ++k) {
    direct_outputs_[k] = -1;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i].index == step.results[k].index) direct_outputs_[k] = static_cast<int>(i);
    }
  }
  // Each output is a result of its own.
  direct_ = step.results.size() == outputs_.size() &&
            std::none_of(direct_outputs_, direct_outputs_ + step.results.size(),
                         [](int output) { return output < 0; });
}

bool FusedTiles::run_direct(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                            int64_t n) {
  const auto& self = *static_cast<const FusedTiles*>(scalars.self);
  const Step& step = self.steps_[0];
  const void* in[kMaxPlaces];
  void* out[kMaxPlaces];
  for (size_t k = 0; k < step.inputs.size(); ++k) in[k] = inputs[self.direct_inputs_[k]];
  for (size_t k = 0; k < step.results.size(); ++k) out[k] = outputs[self.direct_outputs_[k]];
  return step.loop(in, out, step.scalars, n);
}

// Runs a call of few contiguous elements of the tiles' types. Returns false, without doing
// anything, if it is another one.
bool FusedTiles::run_small(const mt_ctx& ctx, const mt_fused_args& args) const {
  const size_t num_inputs = inputs_.size();
  const int64_t n = sdk::TensorView(args.operands[num_inputs]).numel();
  if (n * cost_ > kGrain && (ctx.num_threads > 1 || n * 4 >= kStreamBytes)) return false;
  const void* inputs[kMaxInputs];
  void* outputs[kMaxOutputs];
  const auto fits = [n](const mt_tensor* tensor, const Place& place) {
    return (tensor->flags & (MT_TENSOR_CONTIGUOUS | MT_TENSOR_HOST)) == MT_TENSOR_CONTIGUOUS &&
           sdk::same_dtype(tensor->dl.dtype, place.type) && sdk::TensorView(tensor).numel() == n;
  };
  for (size_t k = 0; k < num_inputs; ++k) {
    if (!fits(args.operands[k], inputs_[k])) return false;
    inputs[k] = sdk::TensorView(args.operands[k]).raw();
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    if (!fits(args.operands[num_inputs + k], outputs_[k])) return false;
    outputs[k] = sdk::TensorView(args.operands[num_inputs + k]).raw();
  }
  Scalars scalars;
  scalars.self = this;
  return n == 0 || run_direct(inputs, outputs, scalars, n);
}

bool FusedTiles::run_loop(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                          int64_t n) {
  const auto& self = *static_cast<const FusedTiles*>(scalars.self);
  alignas(64) char tiles[kMaxTileBytes];
  const void* in[kMaxInputs];
  Memory memory;
  memory.inputs = in;
  memory.tiles = tiles;
  memory.tile_bytes = self.width_ * 8;
  fill_constants(self.code_.constants, false, memory, std::min(n, self.width_));
  for (int64_t i = 0; i < n; i += self.width_) {
    const int64_t count = std::min(n - i, self.width_);
    for (size_t k = 0; k < self.inputs_.size(); ++k) {
      in[k] = static_cast<const char*>(inputs[k]) + i * sdk::itemsize(self.inputs_[k].type);
    }
    if (!run_steps(self.steps_, memory, count)) return false;
    // Outputs are stored last, because an output may be an input.
    for (size_t k = 0; k < self.outputs_.size(); ++k) {
      const int64_t size = sdk::itemsize(self.outputs_[k].type);
      char* const to = static_cast<char*>(outputs[k]) + i * size;
      const void* const from = memory.at(self.outputs_[k]);
      if (scalars.stream) {
        stream_copy(to, from, count * size);
      } else {
        std::memcpy(to, from, static_cast<size_t>(count * size));
      }
    }
  }
  return true;
}

void FusedTiles::run(mt_ctx& ctx, const mt_fused_args& args) const {
  if (direct_ && run_small(ctx, args)) return;
  Job job;
  job.inner_loop = direct_ ? &run_direct : &run_loop;
  job.scalars.self = this;
  job.num_inputs = static_cast<int>(inputs_.size());
  job.num_outputs = static_cast<int>(outputs_.size());
  sdk::TensorView views[kMaxOperands];
  const int64_t n = sdk::TensorView(args.operands[job.num_inputs]).numel();
  if (n == 0) return;
  bool line = true, streams = true;
  for (int k = 0; k < job.num_operands(); ++k) {
    const bool output = job.is_output(k);
    const int i = output ? k : k - job.num_outputs;
    const mt_tensor* tensor = args.operands[output ? job.num_inputs + i : i];
    const mt_dtype type = (output ? outputs_ : inputs_)[static_cast<size_t>(i)].type;
    views[k] = tensor;
    job.operands[k] = output ? make_output(tensor, type, type) : make_input(tensor, type, type);
    line = line && (tensor->flags & MT_TENSOR_CONTIGUOUS) != 0 && views[k].numel() == n;
    if (!output) continue;
    streams = streams && job.operands[k].convert == nullptr &&
              n * job.operands[k].itemsize >= kStreamBytes;
    for (int i = 0; i < job.num_inputs; ++i) {
      streams = streams && args.operands[i]->dl.data != tensor->dl.data;
    }
  }
  if (line) {
    job.stream = streams;
    job.loop_streams = streams && !direct_;
    for (int k = 0; k < job.num_operands(); ++k) {
      job.loop.set_stride(k, 0, job.operands[k].itemsize);
    }
    job.loop.set_line(n, job.num_operands());
  } else {
    set_loop(job.loop, views[0].shape(), std::span(views, static_cast<size_t>(job.num_operands())));
  }
  job.grain = std::max<int64_t>(kGrain / (cost_ + 2), kTile);
  run_job(ctx, job);
  if (job.refused.load()) {
    throw sdk::Error(MT_ERROR_VALUE, "[" + name_ + "] integer division by zero");
  }
}

int run(void* self, mt_ctx* ctx, const void* args) noexcept {
  return sdk::guarded(ctx, [&] {
    static_cast<const FusedTiles*>(self)->run(*ctx, *static_cast<const mt_fused_args*>(args));
  });
}

}  // namespace

void compile_tiles(const mt_fused_program& program, mt_kernel_entry& kernel) {
  if (program.num_inputs > kMaxInputs || program.num_outputs > kMaxOutputs) throw sdk::Declined{};
  sdk::give_kernel(program, std::make_unique<FusedTiles>(program), kernel);
  kernel.run = &run;
  kernel.size = sizeof(mt_kernel_entry);
  kernel.name = "fused_tiles";
  kernel.supports = nullptr;
}

void compile_fused(const mt_fused_program& program, mt_kernel_entry& kernel) {
  (sdk::has_rows(program) ? compile_rows : compile_tiles)(program, kernel);
}

}  // namespace mytorch::cpu
