// cuFFT's plans by shape. A plan belongs to one call at a time, which lends it its stream and its
// work area; the last plans used are kept for other calls, of any thread. A plan whose tables a
// graph reads is kept as long as the graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/cuda/common/plan_key.h"
#include "backends/cuda/fourier/library.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// Where the points of many lines lie: the elements from a point to the next, and from a line to the
// next.
struct FourierLines {
  int64_t point = 0, line = 0;
};

// The transforms of `batch` contiguous arrays of `sizes`, at most three, one after the other; or of
// `batch` lines of one size at the given places.
class FourierPlan {
 public:
  FourierPlan(const mt_ctx& ctx, cufftType type, std::span<const int64_t> sizes, int64_t batch);
  FourierPlan(const mt_ctx& ctx, cufftType type, int64_t size, int64_t batch, FourierLines from,
              FourierLines to);
  ~FourierPlan();
  FourierPlan(const FourierPlan&) = delete;
  FourierPlan& operator=(const FourierPlan&) = delete;

  // Queues the transform. `forward` is for complex to complex.
  void run(mt_ctx& ctx, void* from, void* to, bool forward);

 private:
  // Takes the plan of `key_`, or makes it, with strides if `from` has any.
  void acquire(const mt_ctx& ctx, std::span<const int64_t> sizes, FourierLines from,
               FourierLines to);

  PlanKey<8> key_;
  cufftHandle handle_ = 0;
  size_t workspace_ = 0;
  std::vector<uint64_t> graphs_;  // that captured it
};

}  // namespace mytorch::cuda
