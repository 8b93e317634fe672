// copy_ between any strides and dtypes, with broadcasting. It is a pointwise loop whose inner loop
// moves bytes; contiguous copies of one dtype need no loop.
#include <algorithm>
#include <cstring>

#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/pointwise/job.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/copy_.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/kernel.h"
#include "mytorch/backend/parallel.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kGrainBytes = 256 * 1024;

template <int64_t kItemsize>
bool move_loop(const void* const* inputs, void* const* outputs, const Scalars& scalars, int64_t n) {
  if (scalars.stream) {
    stream_copy(outputs[0], inputs[0], n * kItemsize);
  } else if (outputs[0] != inputs[0]) {
    std::memcpy(outputs[0], inputs[0], static_cast<size_t>(n * kItemsize));
  }
  return true;
}

InnerLoop move_of(int64_t itemsize) {
  switch (itemsize) {
    case 1:
      return move_loop<1>;
    case 2:
      return move_loop<2>;
    case 4:
      return move_loop<4>;
    default:
      return move_loop<8>;
  }
}

void copy_bytes(mt_ctx& ctx, void* to, const void* from, int64_t bytes) {
  if (to == from) return;
  const bool stream = bytes >= kStreamBytes;
  sdk::parallel_for(ctx, 0, (bytes + 63) / 64, kGrainBytes / 64,
                    [&](int64_t begin, int64_t end) noexcept {
                      begin *= 64;
                      end = std::min(end * 64, bytes);
                      char* t = static_cast<char*>(to) + begin;
                      const char* f = static_cast<const char*>(from) + begin;
                      if (stream) {
                        stream_copy(t, f, end - begin);
                        stream_fence();
                      } else {
                        std::memcpy(t, f, static_cast<size_t>(end - begin));
                      }
                    });
}

void copy(mt_ctx& ctx, const mt_args_copy_& args) {
  const sdk::TensorView to(args.self), from(args.src);
  const int64_t n = to.numel();
  if (n == 0) return;
  const bool same = sdk::same_dtype(to.dtype(), from.dtype());
  if (same && sdk::same_shape(to, from) && to.is_contiguous() && from.is_contiguous()) {
    copy_bytes(ctx, to.raw(), from.raw(), n * to.itemsize());
    return;
  }
  Job job;
  job.inner_loop = move_of(to.itemsize());
  job.moves = true;
  job.num_outputs = job.num_inputs = 1;
  job.operands[0] = make_output(args.self, to.dtype(), to.dtype());
  job.operands[1] = make_input(args.src, to.dtype(), to.dtype());
  const sdk::TensorView views[] = {to, from};
  set_loop(job.loop, to.shape(), views);
  if (same && job.loop.is_contiguous(0, to.itemsize()) &&
      job.loop.is_contiguous(1, to.itemsize())) {
    copy_bytes(ctx, to.raw(), from.raw(), n * to.itemsize());
    return;
  }
  job.stream = n * to.itemsize() >= kStreamBytes;
  job.loop_streams = true;
  job.grain = kGrainBytes / to.itemsize();
  run_job(ctx, job);
}

}  // namespace

void register_copy(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&copy>("vector_copy", MT_TAKES_STRIDED | MT_TAKES_BROADCAST |
                                                          MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS));
}

}  // namespace mytorch::cpu
