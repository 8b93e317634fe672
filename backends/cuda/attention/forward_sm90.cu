// attention_forward of 16-bit types on compute capability 9.0.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/attention/forward_sm90.cuh"
#include "backends/cuda/common/counters.h"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/driver.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/attention_forward.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;
using Args = mt_args_attention_forward;

constexpr int64_t kLongest = 1 << 29;  // keeps positions plus bounds of the band within int
constexpr int64_t kPack = 8;           // elements of 16 bytes
constexpr int32_t kPriority = 1;       // before cuDNN, which has 0

// Calls f(width) with the width as a constant, or returns false if no kernel has it.
template <class F>
bool with_width(int64_t width, F&& f) {
  switch (width) {
    case 32:
      return f(std::integral_constant<int, 32>()), true;
    case 64:
      return f(std::integral_constant<int, 64>()), true;
    case 96:
      return f(std::integral_constant<int, 96>()), true;
    case 128:
      return f(std::integral_constant<int, 128>()), true;
    case 256:
      return f(std::integral_constant<int, 256>()), true;
    default:
      return false;
  }
}

// The shape for each width that was measured to be fastest: warpgroups, keys per block, blocks of
// keys in shared memory, and whether warpgroups take turns.
template <class T, int kWidth>
struct FastestShape;
template <class T>
struct FastestShape<T, 32> : hopper::Shape<T, 32, 3, 128, 4, true> {};
template <class T>
struct FastestShape<T, 64> : hopper::Shape<T, 64, 3, 128, 2, true> {};
template <class T>
struct FastestShape<T, 96> : hopper::Shape<T, 96, 2, 160, 2, true> {};
template <class T>
struct FastestShape<T, 128> : hopper::Shape<T, 128, 2, 128, 2, false> {};
template <class T>
struct FastestShape<T, 256> : hopper::Shape<T, 256, 2, 64, 2, true> {};

// Whether packs of 16 bytes along the rows are aligned, and no dimension is broadcast or reversed.
bool is_aligned(const TensorView& x) {
  if (reinterpret_cast<uintptr_t>(x.raw()) % 16 != 0 || x.stride(3) != 1) return false;
  for (int d = 0; d < 3; ++d) {
    if (x.size(d) == 1) continue;
    if (x.stride(d) <= 0 || x.stride(d) % kPack != 0 || x.stride(d) >= int64_t{1} << 39) {
      return false;
    }
  }
  return true;
}

const char* supports(const Args& args) {
  const TensorView query = args.query, key = args.key, value = args.value;
  const mt_dtype dtype = query.dtype();
  if (!sdk::is_dtype<sdk::BFloat16>(dtype) && !sdk::is_dtype<sdk::Half>(dtype)) {
    return "it takes bfloat16 and float16 only";
  }
  const Properties& device = properties(args.query->dl.device.index);
  if (device.major != 9 || device.minor != 0) return "it needs compute capability 9.0";
  if (query.numel() == 0 || key.numel() == 0) return "an operand is empty";
  if (value.size(3) != query.size(3) || !with_width(query.size(3), [](auto) {})) {
    return "it takes heads of width 32, 64, 96, 128 or 256, the same for values";
  }
  if (args.attn_mask != nullptr) return "it takes no mask";
  if (args.slopes != nullptr) return "it takes no slopes";
  if (args.softcap != 0) return "it takes no softcap";
  if (args.dropout_p != 0) return "it has no dropout";
  if (!(args.scale > 0)) return "it needs a positive scale";
  if (std::max(query.size(2), key.size(2)) > kLongest) return "a sequence is longer than 2^29";
  if (query.size(0) * query.size(1) > kLongest / ((query.size(2) + 63) / 64)) {
    return "there are too many rows";
  }
  if (!is_aligned(query) || !is_aligned(key) || !is_aligned(value) || !is_aligned(args.output)) {
    return "it needs rows aligned to 16 bytes, and none that are broadcast";
  }
  return nullptr;
}

// The map of a tensor (batch, heads, rows, width) for boxes of `rows` rows of a head. Rows are
// divided into chunks, because a swizzled box is at most 128 bytes wide. Rows past the end are 0.
template <class T>
CUtensorMap map_of(const TensorView& x, int width, int rows, int chunk) {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                   const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    Encode found;
    find_driver_function("cuTensorMapEncodeTiled", &found);
    return found;
  }();
  const auto size = [&](int d) { return static_cast<cuuint64_t>(x.size(d)); };
  const auto bytes = [&](int d) {
    return static_cast<cuuint64_t>(x.size(d) == 1 ? width : x.stride(d)) * 2;
  };
  const auto columns = static_cast<cuuint32_t>(chunk),
             parts = static_cast<cuuint32_t>(width / chunk);
  const cuuint64_t sizes[] = {columns, size(2), parts, size(1), size(0)};
  const cuuint64_t strides[] = {bytes(2), columns * cuuint64_t{2}, bytes(1), bytes(0)};
  const cuuint32_t box[] = {columns, static_cast<cuuint32_t>(rows), parts, 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map,
             std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             5, x.raw(), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             chunk == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw sdk::Declined{};
  return map;
}

template <class S>
void run(mt_ctx& ctx, const Args& args) {
  const TensorView query = args.query, key = args.key, value = args.value, out = args.output;
  const auto bound = [](int64_t x) { return static_cast<int>(std::clamp(x, -kLongest, kLongest)); };
  hopper::Forward p{};
  p.out = out.raw();
  p.out_batch = out.stride(0);
  p.out_head = out.stride(1);
  p.out_row = out.stride(2);
  p.logsumexp = TensorView(args.logsumexp).template data<float>();
  p.heads = static_cast<int>(query.size(1));
  p.queries = static_cast<int>(query.size(2));
  p.keys = static_cast<int>(key.size(2));
  p.group = static_cast<int>(query.size(1) / key.size(1));
  p.first = bound(args.left < 0 ? -kLongest : args.diagonal - args.left);
  p.last = bound(args.right < 0 ? kLongest : args.diagonal + args.right);
  p.scale = static_cast<float>(args.scale);
  p.scale_log2 = static_cast<float>(args.scale * 1.4426950408889634);
  p.row_tiles = (p.queries + S::kRows - 1) / S::kRows;
  p.pairs = static_cast<int>(query.size(0)) * p.heads;
  const Properties& device = properties(ctx.device.index);
  // Half of the L2 cache, because the queries, and the end of the previous section, pass through.
  const auto head_bytes = static_cast<int64_t>(p.keys) * S::kWidth * 4;
  const int64_t cached = std::max<int64_t>(1, static_cast<int64_t>(device.l2 / 2) / head_bytes);
  p.section = static_cast<int>(std::min<int64_t>(p.pairs, cached * p.group));
  p.counters = counters_of(ctx);

  using T = typename S::T;
  const CUtensorMap of_query = map_of<T>(query, S::kWidth, S::kRows, S::kChunk);
  const CUtensorMap of_key = map_of<T>(key, S::kWidth, S::kKeys, S::kChunk);
  const CUtensorMap of_value = map_of<T>(value, S::kWidth, S::kKeys, S::kChunk);
  const auto kernel = hopper::attention_forward_sm90<S>;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(
      std::min<int64_t>(device.multiprocessors, static_cast<int64_t>(p.row_tiles) * p.pairs)));
  grid.threads = dim3(S::kThreads);
  grid.shared = hopper::kSharedBytes<S>;
  allow_shared(ctx, reinterpret_cast<const void*>(kernel), grid.shared);
  launch(ctx, "attention_forward", kernel, grid, of_query, of_key, of_value, p);
}

void forward(mt_ctx& ctx, const Args& args) {
  const TensorView query = args.query;
  with_width(query.size(3), [&](auto width) {
    if (sdk::is_dtype<sdk::Half>(query.dtype())) {
      run<FastestShape<__half, width()>>(ctx, args);
    } else {
      run<FastestShape<__nv_bfloat16, width()>>(ctx, args);
    }
  });
}

}  // namespace

void register_attention_sm90(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&forward, &supports>("sm90", MT_TAKES_STRIDED, kPriority));
}

}  // namespace mytorch::cuda
