// cat: up to kParts tensors in one launch if all are contiguous and of one dtype; otherwise one
// copy for each tensor.
#include <algorithm>
#include <vector>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/copy/copy.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/cat.h"
#include "mytorch/backend/kernel.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kParts = 64;
constexpr int kCatThreads = 256;

// Tensors as rows of words. `begin` is the offset of a part's words in a row of the output.
struct Parts {
  const void* from[kParts];
  Divisor length[kParts];
  uint32_t words[kParts];
  int64_t begin[kParts];
  int64_t row;
};

// blockIdx.y is the part.
template <class T>
__global__ void __launch_bounds__(kCatThreads)
    cat_parts(const __grid_constant__ Parts parts, T* to) {
  const int part = blockIdx.y;
  const Divisor length = parts.length[part];
  const T* from = static_cast<const T*>(parts.from[part]);
  T* target = to + parts.begin[part];
  for (int64_t i = first_element(); i < parts.words[part]; i += grid_step()) {
    const uint32_t row = length.divide(static_cast<uint32_t>(i));
    target[row * parts.row + (i - row * length.by)] = from[i];
  }
}

struct Piece {
  TensorView tensor;
  int64_t begin;  // along the dimension
};

// `inner` is the stride of the dimension in bytes.
template <class T>
void cat_as(mt_ctx& ctx, const std::vector<Piece>& pieces, int dim, int64_t inner, int64_t row,
            void* out) {
  constexpr int64_t kBytes = sizeof(T);
  for (size_t first = 0; first < pieces.size(); first += kParts) {
    const size_t count = std::min<size_t>(kParts, pieces.size() - first);
    Parts parts{};
    parts.row = row / kBytes;
    uint32_t most = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto& [tensor, begin] = pieces[first + i];
      parts.from[i] = tensor.raw();
      parts.length[i] = Divisor(static_cast<uint32_t>(tensor.size(dim) * inner / kBytes));
      parts.words[i] = static_cast<uint32_t>(tensor.numel() * tensor.itemsize() / kBytes);
      parts.begin[i] = begin * inner / kBytes;
      most = std::max(most, parts.words[i]);
    }
    Grid grid = grid_for(ctx, most, kCatThreads, 4);
    grid.blocks.y = static_cast<unsigned>(count);
    launch(ctx, "cat_parts", cat_parts<T>, grid, parts, static_cast<T*>(out));
  }
}

bool cat_contiguous(mt_ctx& ctx, const std::vector<Piece>& pieces, int dim, const TensorView& out) {
  if (!out.is_contiguous()) return false;
  int64_t inner = out.itemsize();
  for (int d = dim + 1; d < out.ndim(); ++d) inner *= out.size(d);
  // Finds the largest power of two that divides all addresses and lengths.
  uint64_t bits = reinterpret_cast<uintptr_t>(out.raw()) | 16;
  for (const auto& [tensor, begin] : pieces) {
    if (!sdk::same_dtype(tensor.dtype(), out.dtype()) || !tensor.is_contiguous()) return false;
    if (tensor.numel() * tensor.itemsize() >= kMaxPart) return false;
    bits |= reinterpret_cast<uintptr_t>(tensor.raw());
    bits |= static_cast<uint64_t>(tensor.size(dim) * inner) | static_cast<uint64_t>(begin * inner);
  }
  const int64_t row = out.size(dim) * inner;
  bits |= static_cast<uint64_t>(row);
  const int64_t width = static_cast<int64_t>(bits & (~bits + 1));
  if (width == 16) {
    cat_as<uint4>(ctx, pieces, dim, inner, row, out.raw());
  } else {
    sdk::visit_itemsize(width, [&](auto tag) {
      cat_as<typename decltype(tag)::type>(ctx, pieces, dim, inner, row, out.raw());
    });
  }
  return true;
}

void cat(mt_ctx& ctx, const mt_args_cat& args) {
  const TensorView out = args.out;
  const int dim = sdk::wrap_dim(args.dim, out.ndim());
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (int64_t i = 0; i < args.tensors.size; ++i) {
    const TensorView tensor = args.tensors.data[i];
    // Empty 1-dim tensors are skipped.
    if (tensor.ndim() != out.ndim()) continue;
    if (tensor.numel() != 0) pieces.push_back({tensor, begin});
    begin += tensor.size(dim);
  }
  if (pieces.empty() || cat_contiguous(ctx, pieces, dim, out)) return;
  for (const auto& [tensor, at] : pieces) {
    mt_tensor part = *out.get();
    part.dl.shape = tensor.get()->dl.shape;
    part.dl.data = out.data<char>() + at * out.stride(dim) * out.itemsize();
    part.dl.byte_offset = 0;
    part.flags = 0;
    copy(ctx, &part, tensor.get());
  }
}

}  // namespace

void register_cat(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&cat>("rows", MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
}

}  // namespace mytorch::cuda
