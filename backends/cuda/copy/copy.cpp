// copy_: selects the kernel for a copy.
#include "backends/cuda/copy/copy.h"

#include <array>
#include <cstdint>

#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/copy_.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/kernel.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cuda {
namespace {

// Returns the largest power of two, up to 16, that divides all addresses, strides and the run
// length in bytes; the itemsize if there are no contiguous runs.
int64_t common_width(const CopyLoop& loop, int64_t itemsize, const void* to, const void* from) {
  const int inner = loop.ndim() - 1;
  if (inner < 0 || loop.stride(0, inner) != 1 || loop.stride(1, inner) != 1) return itemsize;
  uint64_t bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | 16;
  bits |= static_cast<uint64_t>(loop.inner_size() * itemsize);
  for (int d = 0; d < inner; ++d) {
    for (int k = 0; k < 2; ++k) bits |= static_cast<uint64_t>(loop.stride(k, d) * itemsize);
  }
  return static_cast<int64_t>(bits & (~bits + 1));
}

// Returns the same loop over elements of `width` bytes.
CopyLoop widened(const CopyLoop& loop, int64_t itemsize, int64_t width) {
  std::array<int64_t, sdk::kMaxDims> shape;
  std::array<int64_t, sdk::kMaxDims> strides[2];
  const int inner = loop.ndim() - 1;
  for (int d = 0; d <= inner; ++d) {
    shape[d] = d == inner ? loop.shape()[d] * itemsize / width : loop.shape()[d];
    for (int k = 0; k < 2; ++k) {
      strides[k][d] = d == inner ? 1 : loop.stride(k, d) * itemsize / width;
    }
  }
  return CopyLoop({shape.data(), static_cast<size_t>(inner + 1)},
                  {strides[0].data(), strides[1].data()});
}

void copy_entry(mt_ctx& ctx, const mt_args_copy_& args) { copy(ctx, args.self, args.src); }

}  // namespace

void copy(mt_ctx& ctx, const mt_tensor* to_tensor, const mt_tensor* from_tensor) {
  const sdk::TensorView to(to_tensor), from(from_tensor);
  if (to.numel() == 0) return;
  const bool same = sdk::same_dtype(to.dtype(), from.dtype());
  if (from.is_host()) {
    sdk::visit_dtype(to.dtype(), [&](auto tag) {
      const auto value = sdk::scalar_value<typename decltype(tag)::type>(from_tensor);
      fill(ctx, to_tensor, &value);
    });
    return;
  }
  const CopyLoop loop = sdk::make_loop<2>(to.shape(), {to, from});
  const bool contiguous = loop.is_contiguous(0) && loop.is_contiguous(1);
  const int64_t itemsize = to.itemsize();
  if (contiguous && same) {
    if (to.raw() == from.raw()) return;
    use_device(ctx);
    CUDA(cudaMemcpyAsync(to.raw(), from.raw(), static_cast<size_t>(loop.numel() * itemsize),
                         cudaMemcpyDeviceToDevice, stream_of(ctx)));
    queued(ctx, "cudaMemcpyAsync");
  } else if (contiguous) {
    convert_contiguous(ctx, loop.numel(), to.dtype(), to.raw(), from.dtype(), from.raw());
  } else if (!copy_transposed(ctx, loop, to.dtype(), to.raw(), from.dtype(), from.raw())) {
    if (!same) {
      convert_strided(ctx, loop, to.dtype(), to.raw(), from.dtype(), from.raw());
    } else if (const int64_t width = common_width(loop, itemsize, to.raw(), from.raw());
               width > itemsize) {
      move_strided(ctx, widened(loop, itemsize, width), width, to.raw(), from.raw());
    } else {
      move_strided(ctx, loop, itemsize, to.raw(), from.raw());
    }
  }
}

void register_copy(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&copy_entry>(
      "copy", MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS));
}

}  // namespace mytorch::cuda
