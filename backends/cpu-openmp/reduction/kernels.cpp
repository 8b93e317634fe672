// The kernels of the reduce operators, and the division of a reduction among threads.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu-openmp/pointwise/compile.h"
#include "backends/cpu-openmp/pointwise/compute_type.h"
#include "backends/cpu-openmp/reduction/reduction.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/parallel.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kGrain = 64 * 1024;  // the minimum number of elements of a thread
constexpr int64_t kPiece = 64 * 1024;  // reduced elements of a piece, if reductions are split
constexpr int64_t kMaxPieces = 32;     // few, so that pieces are long
constexpr int64_t kMaxPieceStates = 64 * 1024;  // of all pieces, because storing states has a cost
// With fewer outputs than this, the reduced elements are split. This does not depend on the number
// of threads, so neither do results.
constexpr int64_t kFewGroups = 16;

struct Room {
  alignas(64) char bytes[kMaxComponents][kMaxStates * 8];
  States states() {
    States states;
    for (int k = 0; k < kMaxComponents; ++k) states.component[k] = bytes[k];
    return states;
  }
};

// The same reduction in double. It runs for sums that float32 cannot hold, which are rare.
class Wide {
 public:
  Wide(const ReduceProgram& program, const void* args) : program_(program), args_(args) {}

  Reduction& job() {
    if (!job_) job_.emplace(program_, sdk::dtype_of<double>, args_);
    return *job_;
  }
  // Computes the outputs again whose states, of n outputs from `begin` on, are lost.
  void repair(const States& states, int64_t begin, int64_t n) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t end = j;
      while (end < n && Reduction::lost(states, end)) ++end;
      while (j < end) {
        const int64_t count = job().group(begin + j, begin + end);
        States some{};
        some.component[0] = static_cast<double*>(states.component[0]) + j;
        job().fold(some, begin + j, count, 0, job().reduced());
        job().finish(some, begin + j, count);
        j += count;
      }
    }
  }

 private:
  const ReduceProgram& program_;
  const void* args_;
  std::optional<Reduction> job_;
};

void run_whole(mt_ctx& ctx, Reduction& job, const ReduceProgram& program, const void* args) {
  const int64_t unit = job.unit();
  const int64_t work = std::max<int64_t>(unit * job.reduced(), 1);
  sdk::parallel_for(ctx, 0, job.kept() / unit, std::max<int64_t>(1, kGrain / work),
                    [&](int64_t begin, int64_t end) noexcept {
                      Room room;
                      const States states = room.states();
                      Wide wide(program, args);
                      begin *= unit;
                      end *= unit;
                      while (begin < end) {
                        const int64_t n = job.group(begin, end);
                        job.fold(states, begin, n, 0, job.reduced());
                        job.finish(states, begin, n);
                        if (job.narrow()) wide.repair(states, begin, n);
                        begin += n;
                      }
                    });
}

void run_split(mt_ctx& ctx, Reduction& job, Wide& wide, int64_t pieces) {
  const int64_t kept = job.kept();
  const int64_t length = (job.reduced() + pieces - 1) / pieces;
  // The order is components, pieces, outputs.
  char* memory = sdk::scratch<char>(ctx, pieces * kept * kMaxComponents * 8);
  const auto states_of = [&](int64_t piece, int64_t begin) {
    States states;
    for (int k = 0; k < kMaxComponents; ++k) {
      const int64_t itemsize = sdk::itemsize(job.fns().types[k]);
      states.component[k] = memory + (k * pieces + piece) * kept * 8 + begin * itemsize;
    }
    return states;
  };
  sdk::parallel_for(ctx, 0, pieces, 1, [&](int64_t first, int64_t last) noexcept {
    for (int64_t p = first; p < last; ++p) {
      for (int64_t begin = 0; begin < kept;) {
        const int64_t n = job.group(begin, kept);
        job.fold(states_of(p, begin), begin, n, std::min(p * length, job.reduced()),
                 std::min((p + 1) * length, job.reduced()));
        begin += n;
      }
    }
  });
  // Merges neighbors first, because the error of a sum grows with the depth of the tree.
  for (int64_t width = 1; width < pieces; width *= 2) {
    for (int64_t p = 0; p + width < pieces; p += 2 * width) {
      job.fns().merge(states_of(p, 0), states_of(p + width, 0), kept);
    }
  }
  const States states = states_of(0, 0);
  for (int64_t j = 0; job.narrow() && j < kept; ++j) {
    if (Reduction::lost(states, j)) return run_split(ctx, wide.job(), wide, pieces);
  }
  job.finish(states, 0, kept);
}

// Reduces all of a small contiguous tensor without building a Reduction. Returns false for other
// calls.
bool run_small(const ReduceProgram& program, mt_dtype compute, const void* args) {
  constexpr int64_t kSmall = 32 * 1024;
  const mt_tensor* x = sdk::tensor_at(args, program.input);
  if (program.step != nullptr || program.end != nullptr || program.num_outputs != 1 ||
      (x->flags & MT_TENSOR_CONTIGUOUS) == 0 || !sdk::same_dtype(x->dl.dtype, compute)) {
    return false;
  }
  const int32_t ndim = x->dl.ndim;
  bool all = program.dim_field == MT_DIM_ALL || ndim == 1;
  if (program.dim_field == MT_DIM_LIST && !all) {
    const auto list = sdk::field_at<mt_int_list>(args, program.dim_offset);
    all = list.data == nullptr || list.size == 0;
  }
  const int64_t n = sdk::TensorView(x).numel();
  const FoldFns* fns = find_fold(program.fold, compute_type_of(compute));
  const mt_tensor* out = sdk::tensor_at(args, program.outputs[0].offset);
  if (!all || n > kSmall || fns == nullptr || out == nullptr ||
      !sdk::same_dtype(fns->input, x->dl.dtype)) {
    return false;
  }
  int64_t room[kMaxComponents];
  const States states{{room, room + 1, room + 2}};
  fns->reset(states, 1);
  fns->along(states, 0, sdk::TensorView(x).raw(), n, 0);
  const int component = program.outputs[0].component;
  void* to = sdk::TensorView(out).raw();
  if (sdk::is_dtype<double>(fns->types[component]) && sdk::is_dtype<float>(out->dl.dtype)) {
    *static_cast<float*>(to) =
        static_cast<float>(*static_cast<double*>(states.component[component]));
    return true;
  }
  const auto convert = simd::get_convert(fns->types[component], out->dl.dtype);
  if (convert == nullptr) return false;
  convert(states.component[component], to, 1);
  return true;
}

}  // namespace

int run_reduce_program(mt_ctx* ctx, const ReduceProgram& program, const char* base,
                       const void* args) noexcept {
  const mt_dtype compute = static_cast<const mt_args_header*>(args)->compute;
  return sdk::guarded(ctx, [&] {
    if (run_small(program, compute, args)) return;
    Reduction job(program, compute, args);
    if (job.kept() == 0) return;
    // The outputs that are folded together: at most a row of them.
    const int64_t each = job.across() ? std::min(job.group(0, job.kept()), kStates) : 1;
    const int64_t groups = (job.kept() + each - 1) / each;
    const int64_t per_piece = std::max<int64_t>(1, kPiece / each);
    const int64_t pieces = std::min({job.reduced() / per_piece, kMaxPieces,
                                     std::max<int64_t>(kMaxPieceStates / job.kept(), 1)});
    if (groups < kFewGroups && pieces > 1) {
      Wide wide(program, args);
      run_split(*ctx, job, wide, pieces);
    } else {
      run_whole(*ctx, job, program, args);
    }
    if (job.refused()) {
      throw sdk::Error(MT_ERROR_VALUE, "[" + std::string(base) + "] integer division by zero");
    }
  });
}

int run_reduce(void* self, mt_ctx* ctx, const void* args) noexcept {
  const ReduceOp& op = *static_cast<const ReduceOp*>(self);
  const auto& header = *static_cast<const mt_args_header*>(args);
  if (header.variant >= static_cast<uint32_t>(op.num_variants)) return MT_DECLINED;
  return run_reduce_program(ctx, op.variants[header.variant], op.base, args);
}

void register_reduce(KernelEntries& kernels) {
  for (const ReduceOp& op : programs().reduce) {
    mt_kernel_entry kernel{};
    kernel.size = sizeof(kernel);
    kernel.op = op.name;
    kernel.hash = op.hash;
    kernel.name = "vector_fold";
    kernel.flags = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES;
    kernel.run = &run_reduce;
    kernel.self = const_cast<ReduceOp*>(&op);
    kernels.push_back(kernel);
  }
}

// ---- programs compiled at run time

namespace {

Fold fold_named(std::string_view name) {
  constexpr std::string_view kNames[] = {"sum",    "prod", "max", "min",     "argmax",
                                         "argmin", "all",  "any", "welford", "logsumexp"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Fold>(i);
  }
  throw sdk::Declined{};
}

struct CompiledReduce {
  std::string base;
  std::unique_ptr<TileProgram> step;
  std::unique_ptr<TileProgram> end;
  std::vector<ReduceOutput> outputs;
  ReduceProgram program{};
};

int run_compiled(void* self, mt_ctx* ctx, const void* args) noexcept {
  const auto& compiled = *static_cast<const CompiledReduce*>(self);
  return run_reduce_program(ctx, compiled.program, compiled.base.c_str(), args);
}

}  // namespace

void compile_reduce(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel) {
  auto made = std::make_unique<CompiledReduce>();
  const std::string_view name = program.name;
  made->base = std::string(name.substr(0, name.find('.')));
  ReduceProgram& reduce = made->program;
  reduce.fold = fold_named(program.fold);
  reduce.dim_field = program.dim_field;
  reduce.dim_offset = program.dim_offset;
  if (find_fold(reduce.fold, compute_type_of(compute)) == nullptr) throw sdk::Declined{};

  // There is one input. If it is folded unchanged, there is no step.
  const mt_node* input = nullptr;
  for (int32_t i = 0; i < program.num_nodes; ++i) {
    const mt_node& node = program.nodes[i];
    if (std::string_view(node.op) != "input") continue;
    if (input != nullptr || node.type != MT_TYPE_COMPUTE) throw sdk::Declined{};
    input = &node;
  }
  if (input == nullptr) throw sdk::Declined{};
  reduce.input = input->offset;
  const mt_node& step = program.nodes[program.step];
  const bool logic = reduce.fold == Fold::kAll || reduce.fold == Fold::kAny;
  const bool plain = &step == input || (logic && std::string_view(step.op) == "cast" &&
                                        &program.nodes[step.a[0]] == input);
  if (!plain) {
    const mt_program_output root[] = {{program.step, 0}};
    made->step = std::make_unique<TileProgram>(program, compute, root);
    reduce.step = &made->step->program();
    if (reduce.step->num_inputs != 1) throw sdk::Declined{};
  }
  std::vector<mt_program_output> computed;
  for (int32_t i = 0; i < program.num_outputs; ++i) {
    const mt_program_output& output = program.outputs[i];
    const mt_node& node = program.nodes[output.node];
    const bool state = std::string_view(node.op) == "state";
    if (!state) computed.push_back(output);
    made->outputs.push_back({output.offset, node.type, state ? node.component : -1});
  }
  if (!computed.empty()) {
    made->end = std::make_unique<TileProgram>(program, compute, computed);
    reduce.end = &made->end->program();
  }
  reduce.outputs = made->outputs.data();
  reduce.num_outputs = static_cast<int32_t>(made->outputs.size());
  kernel.run = &run_compiled;
  kernel.self = made.release();
}

}  // namespace mytorch::cpu
