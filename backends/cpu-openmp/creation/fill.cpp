// fill_: a value of any dtype into a tensor of any dtype and strides.
#include <algorithm>
#include <cstring>

#include "backends/cpu-openmp/common/loop.h"
#include "backends/cpu-openmp/common/stage.h"
#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/fill_.h"
#include "mytorch/backend/kernel.h"
#include "mytorch/backend/parallel.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kGrainBytes = 256 * 1024;

void fill(mt_ctx& ctx, const mt_args_fill_& args) {
  const sdk::TensorView to(args.self);
  const int64_t n = to.numel();
  if (n == 0) return;
  const int64_t itemsize = to.itemsize();
  const StagedOperand value = make_input(args.value, to.dtype(), to.dtype());
  // A cache line of the value, which contains whole elements.
  alignas(64) char line[64];
  load_run(value, value.data, 0, 64 / itemsize, line);

  Loop loop;
  set_loop(loop, to.shape(), {&to, 1});
  const bool contiguous = loop.is_contiguous(0, itemsize);
  const bool stream = contiguous && n * itemsize >= kStreamBytes;
  char* data = to.data<char>();
  sdk::parallel_for(ctx, 0, n, kGrainBytes / itemsize, [&](int64_t begin, int64_t end) noexcept {
    if (stream) {
      copy_fns()->stream_fill(data + begin * itemsize, line, (end - begin) * itemsize);
      stream_fence();
      return;
    }
    if (contiguous) {
      repeat(line, itemsize, end - begin, data + begin * itemsize);
      return;
    }
    Cursor cursor(loop, begin);
    alignas(64) char tile[kTile * 8];
    const int64_t stride = loop.inner_stride(0);
    const int64_t width = std::min(loop.inner_size(), kTile);
    if (stride != itemsize) repeat(line, itemsize, width, tile);
    while (begin < end) {
      int64_t run = std::min(cursor.left(), end - begin);
      char* at = data + cursor.offset(0);
      if (stride == itemsize) {
        repeat(line, itemsize, run, at);
      } else {
        run = std::min(run, width);
        scatter_run(tile, at, stride, run, itemsize);
      }
      cursor.advance(run);
      begin += run;
    }
  });
}

}  // namespace

void register_fill(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&fill>(
      "vector_fill", MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES));
}

}  // namespace mytorch::cpu
