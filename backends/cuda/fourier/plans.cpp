#if __has_include(<cufft.h>)

#include "backends/cuda/fourier/plans.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/fourier.h"

namespace mytorch::cuda {
namespace {

// How many plans that no call uses are kept. Each may hold tables in device memory.
constexpr size_t kFreePlans = 64;

struct FreePlan {
  PlanKey<8> key;
  cufftHandle handle;
  size_t workspace;
  std::vector<uint64_t> graphs;
};

// Never destroyed: at exit the driver may be gone first.
struct FreePlans {
  FreePlans() { at_end_of_graph(&forget_graph); }

  bool is_replayed(const FreePlan& plan) const {
    return std::any_of(plan.graphs.begin(), plan.graphs.end(),
                       [this](uint64_t graph) { return graphs.contains(graph); });
  }

  // Takes out the plans that were used longest ago, beyond kFreePlans that no graph replays.
  std::list<FreePlan> take_excess() {
    std::list<FreePlan> excess;
    if (plans.size() <= kFreePlans) return excess;
    size_t kept = 0;
    for (auto plan = plans.begin(); plan != plans.end();) {
      const auto next = std::next(plan);
      if (!is_replayed(*plan) && ++kept > kFreePlans) excess.splice(excess.end(), plans, plan);
      plan = next;
    }
    return excess;
  }

  static void forget_graph(uint64_t graph);

  std::mutex mutex;
  std::list<FreePlan> plans;  // the last one used is the first
  std::set<uint64_t> graphs;  // that replay plans
};
FreePlans& free_plans() {
  static auto* const plans = new FreePlans;
  return *plans;
}

void FreePlans::forget_graph(uint64_t graph) {
  FreePlans& free = free_plans();
  const std::scoped_lock lock(free.mutex);
  free.graphs.erase(graph);
}

// Making a plan may allocate memory, which a capture allows only if asked.
class RelaxedCapture {
 public:
  RelaxedCapture() { CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// cuFFT transforms lengths with a larger prime factor by Bluestein's algorithm.
constexpr int64_t kLargestFactor = 127;

// Making a plan of Bluestein's algorithm waits for the whole device, which breaks every capture of
// the process, whatever the thread, its mode and its stream.
void check_can_make(const mt_ctx& ctx, std::span<const int64_t> sizes) {
  if (internal::captures.load(std::memory_order_relaxed) == 0 && !is_captured(ctx)) return;
  for (const int64_t size : sizes) {
    if (sdk::largest_factor(size) <= kLargestFactor) continue;
    throw sdk::Error(MT_ERROR_UNSUPPORTED,
                     "cuFFT cannot plan transforms of " + std::to_string(size) +
                         " points, which has a prime factor above " +
                         std::to_string(kLargestFactor) +
                         ", while a graph is captured: "
                         "transform an array of the same shape once before the capture");
  }
}

}  // namespace

FourierPlan::FourierPlan(const mt_ctx& ctx, cufftType type, std::span<const int64_t> sizes,
                         int64_t batch) {
  use_device(ctx);
  key_.words = {ctx.device.index, static_cast<int64_t>(type), batch};
  std::copy(sizes.begin(), sizes.end(), key_.words.begin() + 3);
  acquire(ctx, sizes, {}, {});
}

// The last word is that of no plan of contiguous arrays, which have at most three sizes.
FourierPlan::FourierPlan(const mt_ctx& ctx, cufftType type, int64_t size, int64_t batch,
                         FourierLines from, FourierLines to) {
  use_device(ctx);
  key_.words = {
      ctx.device.index, static_cast<int64_t>(type), batch, size, from.point, from.line, to.point,
      to.line};
  acquire(ctx, {&size, 1}, from, to);
}

void FourierPlan::acquire(const mt_ctx& ctx, std::span<const int64_t> sizes, FourierLines from,
                          FourierLines to) {
  FreePlans& free = free_plans();
  {
    const std::scoped_lock lock(free.mutex);
    const auto found = std::find_if(free.plans.begin(), free.plans.end(),
                                    [&](const FreePlan& plan) { return plan.key == key_; });
    if (found != free.plans.end()) {
      handle_ = found->handle;
      workspace_ = found->workspace;
      graphs_ = std::move(found->graphs);
      free.plans.erase(found);
      return;
    }
  }
  check_can_make(ctx, sizes);
  const RelaxedCapture relaxed;
  long long int n[3] = {};
  std::copy(sizes.begin(), sizes.end(), n);
  check(fourier().cufftCreate(&handle_), "cufftCreate");
  try {
    check(fourier().cufftSetAutoAllocation(handle_, 0), "cufftSetAutoAllocation");
    // Of one dimension, the library reads only whether the sizes of the memory are given.
    long long int* const memory = from.point > 0 ? n : nullptr;
    check(fourier().cufftMakePlanMany64(
              handle_, static_cast<int>(sizes.size()), n, memory, from.point, from.line, memory,
              to.point, to.line, static_cast<cufftType>(key_.words[1]), key_.words[2], &workspace_),
          "cufftMakePlanMany64");
    // Otherwise the first transform may read tables that are not on the device yet: the library
    // fills them by the default stream, for which our streams do not wait.
    CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  } catch (...) {
    fourier().cufftDestroy(handle_);
    throw;
  }
}

FourierPlan::~FourierPlan() {
  FreePlans& free = free_plans();
  std::list<FreePlan> excess;
  {
    const std::scoped_lock lock(free.mutex);
    free.plans.push_front({key_, handle_, workspace_, std::move(graphs_)});
    excess = free.take_excess();
  }
  // Without the lock: destroying a plan may wait for the device.
  for (const FreePlan& plan : excess) fourier().cufftDestroy(plan.handle);
}

void FourierPlan::run(mt_ctx& ctx, void* from, void* to, bool forward) {
  if (const uint64_t graph = any_capture_of(ctx); graph != 0) {
    FreePlans& free = free_plans();
    const std::scoped_lock lock(free.mutex);
    free.graphs.insert(graph);
    std::erase_if(graphs_, [&](uint64_t each) { return !free.graphs.contains(each); });
    if (graphs_.empty() || graphs_.back() != graph) graphs_.push_back(graph);
  }
  const Fourier& f = fourier();
  check(f.cufftSetStream(handle_, stream_of(ctx)), "cufftSetStream");
  void* const work = scratch_bytes(ctx, std::max<size_t>(workspace_, 1));
  check(f.cufftSetWorkArea(handle_, work), "cufftSetWorkArea");
  const int direction = forward ? CUFFT_FORWARD : CUFFT_INVERSE;
  using C = cufftComplex;
  using Z = cufftDoubleComplex;
  switch (static_cast<cufftType>(key_.words[1])) {
    case CUFFT_C2C:
      check(f.cufftExecC2C(handle_, static_cast<C*>(from), static_cast<C*>(to), direction),
            "cufftExecC2C");
      break;
    case CUFFT_R2C:
      check(f.cufftExecR2C(handle_, static_cast<float*>(from), static_cast<C*>(to)),
            "cufftExecR2C");
      break;
    case CUFFT_C2R:
      check(f.cufftExecC2R(handle_, static_cast<C*>(from), static_cast<float*>(to)),
            "cufftExecC2R");
      break;
    case CUFFT_Z2Z:
      check(f.cufftExecZ2Z(handle_, static_cast<Z*>(from), static_cast<Z*>(to), direction),
            "cufftExecZ2Z");
      break;
    case CUFFT_D2Z:
      check(f.cufftExecD2Z(handle_, static_cast<double*>(from), static_cast<Z*>(to)),
            "cufftExecD2Z");
      break;
    case CUFFT_Z2D:
      check(f.cufftExecZ2D(handle_, static_cast<Z*>(from), static_cast<double*>(to)),
            "cufftExecZ2D");
      break;
  }
  if (synchronous) queued(ctx, "cuFFT");
}

}  // namespace mytorch::cuda

#endif  // cufft_absent.cpp otherwise
