// Handles of cuDNN, and owned descriptors of its graph API.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <utility>

#include "mytorch/backend.h"

namespace mytorch::cuda {

void check(cudnnStatus_t status, const char* what);
#define CUDNN(call) check(call, #call)

// Returns this thread's handle for the context's device, set to its stream.
cudnnHandle_t cudnn_handle_of(const mt_ctx& ctx);

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

}  // namespace mytorch::cuda
