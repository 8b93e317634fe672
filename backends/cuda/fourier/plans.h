// cuFFT's plans by shape. A plan belongs to one call at a time, which lends it its stream and its
// work area; the last plans used are kept for other calls, of any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cuda/common/plan_key.h"
#include "backends/cuda/fourier/library.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {

// The transforms of `batch` contiguous arrays of `sizes`, at most three, one after the other.
class FourierPlan {
 public:
  FourierPlan(const mt_ctx& ctx, cufftType type, std::span<const int64_t> sizes, int64_t batch);
  ~FourierPlan();
  FourierPlan(const FourierPlan&) = delete;
  FourierPlan& operator=(const FourierPlan&) = delete;

  // Queues the transform. `forward` is for complex to complex.
  void run(mt_ctx& ctx, void* from, void* to, bool forward) const;

 private:
  PlanKey<8> key_;
  cufftHandle handle_ = 0;
  size_t workspace_ = 0;
};

}  // namespace mytorch::cuda
