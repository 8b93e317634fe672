#include "backends/cuda/common/cudnn.h"

#include <string>
#include <vector>

#include "backends/cuda/common/handles.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw sdk::Error(status == CUDNN_STATUS_ALLOC_FAILED ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
                   std::string(what) + ": " + cudnnGetErrorString(status));
}

cudnnHandle_t cudnn_handle_of(const mt_ctx& ctx) {
  const auto handle = handle_for<cudnnHandle_t>(ctx.device.index, [] {
    cudnnHandle_t made;
    CUDNN(cudnnCreate(&made));
    return made;
  });
  CUDNN(cudnnSetStream(handle, stream_of(ctx)));
  return handle;
}

cudnnDataType_t cudnn_type_of(mt_dtype dtype) {
  switch (sdk::dtype_key(dtype)) {
    case sdk::dtype_key(sdk::dtype_of<double>):
      return CUDNN_DATA_DOUBLE;
    case sdk::dtype_key(sdk::dtype_of<float>):
      return CUDNN_DATA_FLOAT;
    case sdk::dtype_key(sdk::dtype_of<sdk::Half>):
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_BFLOAT16;
  }
}

std::vector<Descriptor> proposed_engines(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  std::vector<Descriptor> configs;
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!heuristic.finalize()) return configs;
  int64_t count = 0;
  if (cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                               nullptr) != CUDNN_STATUS_SUCCESS) {
    return configs;
  }
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(configs.back().get());
  }
  int64_t found = 0;
  if (count > 0 && cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &found,
                                            raw.data()) != CUDNN_STATUS_SUCCESS) {
    found = 0;
  }
  while (static_cast<int64_t>(configs.size()) > found) configs.pop_back();
  return configs;
}

std::optional<std::vector<cudnnBackendNumericalNote_t>> numerical_notes(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t to = engine.get();
  int64_t count = 0;
  if (cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                               &to) != CUDNN_STATUS_SUCCESS) {
    return std::nullopt;
  }
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  if (cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                               CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                               notes.data()) != CUDNN_STATUS_SUCCESS) {
    return std::nullopt;
  }
  notes.resize(static_cast<size_t>(count));
  return notes;
}

std::optional<ExecutionPlan> execution_plan(cudnnHandle_t handle, const Descriptor& config) {
  ExecutionPlan made{Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), 0};
  made.plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  made.plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (!made.plan.finalize()) return std::nullopt;
  int64_t count = 0;
  CUDNN(cudnnBackendGetAttribute(made.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &made.workspace));
  return made;
}

}  // namespace mytorch::cuda
