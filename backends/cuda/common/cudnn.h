// cuDNN's handles, owned descriptors of its graph API, and the engines that it proposes for a
// graph.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

void check(cudnnStatus_t status, const char* what);
#define CUDNN(call) check(call, #call)

// Returns this thread's handle for the context's device, set to its stream.
cudnnHandle_t cudnn_handle_of(const mt_ctx& ctx);

cudnnDataType_t cudnn_type_of(mt_dtype dtype);

// An owned descriptor.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    CUDNN(cudnnBackendCreateDescriptor(type, &it_));
  }
  Descriptor(Descriptor&& other) noexcept : it_(std::exchange(other.it_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(it_, other.it_);
    return *this;
  }
  ~Descriptor() {
    if (it_ != nullptr) cudnnBackendDestroyDescriptor(it_);
  }
  cudnnBackendDescriptor_t get() const { return it_; }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values) {
    CUDNN(cudnnBackendSetAttribute(it_, name, type, count, values));
  }
  void set(cudnnBackendAttributeName_t name, int64_t value) {
    set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.it_);
  }
  // Returns false if the library does not support the attributes.
  bool finalize() { return cudnnBackendFinalize(it_) == CUDNN_STATUS_SUCCESS; }

 private:
  cudnnBackendDescriptor_t it_ = nullptr;
};

// Returns the configurations of engines that one heuristic mode proposes for a graph, best first.
std::vector<Descriptor> proposed_engines(const Descriptor& graph, cudnnBackendHeurMode_t mode);

// Returns the numerical notes of a configuration's engine, or nothing if the library has none.
std::optional<std::vector<cudnnBackendNumericalNote_t>> numerical_notes(const Descriptor& config);

// An execution plan and the bytes of its workspace.
struct ExecutionPlan {
  Descriptor plan;
  int64_t workspace;
};
// Returns nothing if the engine cannot run.
std::optional<ExecutionPlan> execution_plan(cudnnHandle_t handle, const Descriptor& config);

}  // namespace mytorch::cuda
