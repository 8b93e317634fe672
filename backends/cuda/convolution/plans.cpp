#include "backends/cuda/convolution/plans.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/settings.h"
#include "backends/cuda/runtime/timing.h"

namespace mytorch::cuda {
namespace {

constexpr int64_t kMostWorkspace = int64_t{1} << 30;
constexpr size_t kMostPlans = 512;
constexpr size_t kMostTimed = 32;  // plans per shape

// Returns whether an engine is deterministic and as precise as the types. float32 on tensor cores
// is TF32.
bool acceptable(const Descriptor& config, cudnnDataType_t type) {
  const auto notes = numerical_notes(config);
  if (!notes) return false;
  for (const cudnnBackendNumericalNote_t note : *notes) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return false;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        if (type == CUDNN_DATA_FLOAT && !tf32_allowed()) return false;
        break;
      default:
        break;
    }
  }
  return true;
}

// Adds usable plans of the library in its order, which is deterministic, until there are `most`.
void add_proposals(cudnnHandle_t handle, const Descriptor& graph, cudnnDataType_t type, size_t most,
                   std::vector<ConvolutionPlan>& plans) {
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& config : proposed_engines(graph, mode)) {
      if (plans.size() >= most) return;
      if (!acceptable(config, type)) continue;
      std::optional<ExecutionPlan> made = execution_plan(handle, config);
      if (made && made->workspace <= kMostWorkspace) {
        plans.push_back({nullptr, std::move(made->plan), made->workspace});
      }
    }
  }
}

// MYTORCH_CUDA_CONVOLUTION=first: use the first proposal, untimed.
bool timing_allowed() {
  static const bool allowed = [] {
    const char* text = std::getenv("MYTORCH_CUDA_CONVOLUTION");
    return text == nullptr || std::strcmp(text, "first") != 0;
  }();
  return allowed;
}

// The fastest proposal for a shape, as found by the first thread that timed it.
std::optional<size_t> known_best(const ConvolutionKey& key, std::optional<size_t> found) {
  static std::mutex mutex;
  static auto* const best = new std::unordered_map<ConvolutionKey, size_t, PlanKeyHash>;
  const std::lock_guard lock(mutex);
  if (found) return best->emplace(key, *found).first->second;
  const auto it = best->find(key);
  return it == best->end() ? std::nullopt : std::optional<size_t>(it->second);
}

// `operands` are set, except for `workspace`.
ConvolutionPlan make_plan(mt_ctx& ctx, cudnnHandle_t handle, const Convolution& call,
                          const ConvolutionKey& key, std::span<const OwnKernel* const> own,
                          const std::optional<Descriptor>& graph, Operands operands) {
  const cudnnDataType_t type = cudnn_type_of(call.result().dtype());
  const size_t rank = static_cast<size_t>(call.rank);
  const bool timed = rank == 0 && timing_allowed() && is_large(call);
  std::optional<size_t> best = timed ? known_best(key, std::nullopt) : rank;
  const bool can_be_timed = timed && !best && !is_captured(ctx);
  std::vector<ConvolutionPlan> plans;
  for (const OwnKernel* kernel : own) {
    plans.push_back({kernel, std::nullopt, kernel->workspace(ctx, call)});
  }
  const size_t most = best ? *best + 1 : can_be_timed ? kMostTimed : 1;
  if (graph) add_proposals(handle, *graph, type, most, plans);
  if (can_be_timed && plans.size() > 1) {
    int64_t workspace = 0;
    for (const ConvolutionPlan& plan : plans) workspace = std::max(workspace, plan.workspace);
    operands.workspace =
        workspace == 0 ? nullptr : scratch_bytes(ctx, static_cast<size_t>(workspace));
    best = known_best(key, fastest(ctx, plans.size(), [&](size_t i) {
                        return plans[i].run(ctx, handle, call, operands);
                      }));
  }
  const size_t chosen = best.value_or(0);
  if (chosen >= plans.size()) return {};
  ConvolutionPlan plan = std::move(plans[chosen]);
  plan.final = !timed || best || can_be_timed;
  return plan;
}

std::unordered_map<ConvolutionKey, ConvolutionPlan, PlanKeyHash>& plans() {
  thread_local std::unordered_map<ConvolutionKey, ConvolutionPlan, PlanKeyHash> own;
  return own;
}

}  // namespace

bool ConvolutionPlan::run(mt_ctx& ctx, cudnnHandle_t handle, const Convolution& call,
                          const Operands& operands) const {
  if (own != nullptr) return own->run(ctx, call, operands.data, operands.workspace);
  return operands.run(handle, *plan);
}

int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 16;
  return static_cast<int64_t>(address & -address);
}

ConvolutionKey key_of(const mt_ctx& ctx, const Convolution& call, bool channels_last,
                      const std::array<int64_t, 3>& alignment) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  ConvolutionKey key;
  size_t i = 0;
  const auto put = [&](int64_t word) { key.words[i++] = word; };
  put(static_cast<int64_t>(sdk::dtype_key(call.result().dtype())) << 16 | ctx.device.index);
  put(static_cast<int64_t>(call.computed) << 8 | g.dims << 1 | (channels_last ? 1 : 0));
  put(call.rank);
  put(g.batch);
  put(g.groups);
  put(g.in_channels);
  put(g.out_channels);
  for (int d = 0; d < 3; ++d) {
    put(g.input[d]);
    put(g.output[d]);
    put(g.kernel[d]);
    put(g.stride[d]);
    put(g.padding[d]);
    put(g.dilation[d]);
  }
  for (const int64_t word : alignment) put(word);
  return key;
}

bool is_large(const Convolution& call) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  int64_t terms = call.weight.numel() * g.batch;
  for (const int64_t size : g.output) terms *= size;
  return terms >= int64_t{1} << 24;
}

const ConvolutionPlan* known_plan(const mt_ctx& ctx, const ConvolutionKey& key) {
  const auto found = plans().find(key);
  const bool known = found != plans().end() && (found->second.final || is_captured(ctx));
  return known ? &found->second : nullptr;
}

const ConvolutionPlan& choose_plan(mt_ctx& ctx, cudnnHandle_t handle, const Convolution& call,
                                   const ConvolutionKey& key, const Operands& operands,
                                   std::span<const OwnKernel* const> own,
                                   const std::function<std::optional<Descriptor>()>& graph) {
  std::optional<Descriptor> made;
  ConvolutionPlan plan;
  try {
    made = graph();
    if (made || !own.empty()) plan = make_plan(ctx, handle, call, key, own, made, operands);
  } catch (const sdk::Error& error) {
    // A size or attribute that the library does not support is the same as having no engine.
    if (error.status() != MT_ERROR_INTERNAL) throw;
  }
  if (plans().size() >= kMostPlans) plans().clear();
  return plans().insert_or_assign(key, std::move(plan)).first->second;
}

}  // namespace mytorch::cuda
