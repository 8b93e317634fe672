// cat copies each tensor into its part of the output. nonzero counts the elements of fixed chunks
// of the row-major order, which gives the first output row of each chunk.
#include "mytorch/abi_ops/cat.h"

#include <algorithm>
#include <array>

#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/indexing/indexing.h"
#include "mytorch/abi_ops/nonzero.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

void cat(mt_ctx& ctx, const mt_args_cat& args) {
  const TensorView out = args.out;
  const int dim = static_cast<int>(args.dim < 0 ? args.dim + out.ndim() : args.dim);
  int64_t begin = 0;
  for (int64_t i = 0; i < args.tensors.size; ++i) {
    const TensorView tensor = args.tensors.data[i];
    // Empty 1-dim tensors are skipped.
    if (tensor.ndim() != out.ndim()) continue;
    const int64_t size = tensor.size(dim);
    if (tensor.numel() != 0) {
      mt_tensor part = *out.get();
      part.dl.shape = tensor.get()->dl.shape;
      part.dl.data = out.data<char>() + begin * out.stride(dim) * out.itemsize();
      part.dl.byte_offset = 0;
      part.flags = 0;
      move(ctx, tensor, &part);
    }
    begin += size;
  }
}

constexpr int64_t kChunk = 65536;

void nonzero(mt_ctx& ctx, const mt_args_nonzero& args) {
  const TensorView self = args.self;
  const int ndim = self.ndim();
  const auto loop = sdk::make_loop<1>(self.shape(), {self}, sdk::Order::kRowMajor);
  const int64_t chunks = (loop.numel() + kChunk - 1) / kChunk;
  int64_t* counts = sdk::scratch<int64_t>(ctx, chunks);
  sdk::visit_dtype(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* data = self.data<const T>();
    const int64_t stride = loop.inner_stride(0);
    sdk::parallel_for(ctx, 0, chunks, 1, [&](int64_t first, int64_t last) noexcept {
      for (int64_t c = first; c < last; ++c) {
        int64_t count = 0;
        loop.for_each_run(c * kChunk, std::min((c + 1) * kChunk, loop.numel()),
                          [&](const std::array<int64_t, 1>& at, int64_t n) {
                            const T* x = data + at[0];
                            for (int64_t i = 0; i < n; ++i) {
                              count += sdk::convert<bool>(x[i * stride]) ? 1 : 0;
                            }
                          });
        counts[c] = count;
      }
    });
    int64_t total = 0;
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t count = counts[c];
      counts[c] = total;
      total += count;
    }
    const int64_t shape[] = {total, ndim};
    const TensorView out = ctx.make_output(&ctx, 0, shape, 2);
    if (!out) throw sdk::Error(MT_ERROR_OUT_OF_MEMORY, "[nonzero] no memory for the output");
    if (ndim == 0 || total == 0) return;
    int64_t* rows = out.data<int64_t>();
    const int64_t row_stride = out.stride(0), col_stride = out.stride(1);
    sdk::parallel_for(ctx, 0, chunks, 1, [&](int64_t first, int64_t last) noexcept {
      int64_t index[sdk::kMaxDims];
      for (int64_t c = first; c < last; ++c) {
        int64_t* row = rows + counts[c] * row_stride;
        int64_t rest = c * kChunk;
        for (int d = ndim - 1; d >= 0; --d) {
          index[d] = rest % self.size(d);
          rest /= self.size(d);
        }
        loop.for_each_run(c * kChunk, std::min((c + 1) * kChunk, loop.numel()),
                          [&](const std::array<int64_t, 1>& at, int64_t n) {
                            const T* x = data + at[0];
                            for (int64_t i = 0; i < n; ++i) {
                              if (sdk::convert<bool>(x[i * stride])) {
                                for (int d = 0; d < ndim; ++d) row[d * col_stride] = index[d];
                                row += row_stride;
                              }
                              for (int d = ndim - 1; d >= 0; --d) {
                                if (++index[d] < self.size(d)) break;
                                index[d] = 0;
                              }
                            }
                          });
      }
    });
  });
}

}  // namespace

void register_cat(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&cat>("blocks", MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
  kernels.push_back(sdk::kernel<&nonzero>("two_passes", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
