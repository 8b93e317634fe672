// What the forward and the backward kernel of compute capability 9.0 take from a call.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "backends/cuda/attention/bits.cuh"
#include "backends/cuda/runtime/driver.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda::hopper {

constexpr int64_t kLongest = 1 << 29;  // keeps positions plus bounds of the band within int

// Whether packs of 16 bytes along the rows are aligned, and no dimension is broadcast or reversed.
inline bool is_aligned(const sdk::TensorView& x) {
  constexpr int64_t kPack = 8;  // elements of 16 bytes
  if (reinterpret_cast<uintptr_t>(x.raw()) % 16 != 0 || x.stride(3) != 1) return false;
  for (int d = 0; d < 3; ++d) {
    if (x.size(d) == 1) continue;
    if (x.stride(d) <= 0 || x.stride(d) % kPack != 0 || x.stride(d) >= int64_t{1} << 39) {
      return false;
    }
  }
  return true;
}

// Returns why neither kernel takes a call, or NULL. Without masks and dropout.
template <class Args>
const char* refusal(const Args& args) {
  const sdk::TensorView query = args.query, key = args.key, value = args.value;
  const mt_dtype dtype = query.dtype();
  if (!sdk::is_dtype<sdk::BFloat16>(dtype) && !sdk::is_dtype<sdk::Half>(dtype)) {
    return "it takes bfloat16 and float16 only";
  }
  if (query.numel() == 0 || key.numel() == 0) return "an operand is empty";
  if (args.slopes != nullptr) return "it takes no slopes";
  if (args.softcap != 0) return "it takes no softcap";
  if (!(args.scale > 0)) return "it needs a positive scale";
  if (std::max(query.size(2), key.size(2)) > kLongest) return "a sequence is longer than 2^29";
  const int64_t longest = std::max(query.size(2), key.size(2));
  if (query.size(0) * query.size(1) > kLongest / ((longest + 63) / 64)) {
    return "there are too many rows";
  }
  if (!is_aligned(query) || !is_aligned(key) || !is_aligned(value) || !is_aligned(args.output)) {
    return "it needs rows aligned to 16 bytes, and none that are broadcast";
  }
  return nullptr;
}

inline const char* refusal_of_device(const mt_tensor& x) {
  const Properties& device = properties(x.dl.device.index);
  return device.major == 9 && device.minor == 0 ? nullptr : "it needs compute capability 9.0";
}

// Row i sees the keys i + first <= j <= i + last.
struct Band {
  int first, last;

  template <class Args>
  explicit Band(const Args& args) {
    const auto bound = [](int64_t x) {
      return static_cast<int>(std::clamp(x, -kLongest, kLongest));
    };
    first = bound(args.left < 0 ? -kLongest : args.diagonal - args.left);
    last = bound(args.right < 0 ? kLongest : args.diagonal + args.right);
  }
};

// Sets what the parameters of both kernels have in common.
template <class Parameters, class Args>
void describe(const Args& args, Parameters& p) {
  const sdk::TensorView query = args.query, key = args.key;
  const Band band(args);
  p.heads = static_cast<int>(query.size(1));
  p.queries = static_cast<int>(query.size(2));
  p.keys = static_cast<int>(key.size(2));
  p.group = static_cast<int>(query.size(1) / key.size(1));
  p.first = band.first;
  p.last = band.last;
  p.scale = static_cast<float>(args.scale);
  p.scale_log2 = static_cast<float>(args.scale * 1.4426950408889634);
  p.kept = args.dropout_p == 1 ? 0.0F : static_cast<float>(1 / (1 - args.dropout_p));
}

// Calls f(width) with the width as a constant if it is one of kWidths, and returns whether it is.
template <int... kWidths, class F>
bool with_width(std::integer_sequence<int, kWidths...> /*widths*/, int64_t width, F&& f) {
  return ((width == kWidths && (f(std::integral_constant<int, kWidths>()), true)) || ...);
}

// Calls f(T()) with the device's type of a 16-bit dtype.
template <class F>
void with_type(mt_dtype dtype, F&& f) {
  if (sdk::is_dtype<sdk::Half>(dtype)) {
    f(__half());
  } else {
    f(__nv_bfloat16());
  }
}

// The map of a tensor (batch, heads, rows, width) for boxes of `rows` rows of a head. Rows are
// divided into chunks, because a swizzled box is at most 128 bytes wide. Rows past the end are 0.
template <class T>
CUtensorMap map_of(const sdk::TensorView& x, int width, int rows, int chunk) {
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

// ---- bits (bits.cuh). Rows are keys if `of_keys`, and a row has `padded` columns.

constexpr int64_t kMostBits = int64_t{1} << 31;  // of dropout, 256 MiB

Bits mask_bits(mt_ctx& ctx, const sdk::TensorView& mask, bool of_keys, int columns, int padded);

struct Dropout {
  double p;
  int64_t batch, heads;
  int queries, keys;
};
// Bits of keys, whose seed and call are written to `drawn`.
Bits new_dropout_bits(mt_ctx& ctx, const Dropout& dropout, const mt_random& random,
                      const sdk::TensorView& drawn, int padded);
// The same bits as those of queries.
Bits same_dropout_bits(mt_ctx& ctx, const Dropout& dropout, const sdk::TensorView& drawn,
                       int padded);

// Returns why no bits stand for the mask and the dropout of a call, or NULL.
template <class Args>
const char* refusal_of_bits(const Args& args) {
  const bool drops = args.dropout_p != 0;
  if (args.attn_mask != nullptr) {
    if (!sdk::is_bool(sdk::TensorView(args.attn_mask).dtype())) return "it takes no additive mask";
    if (drops) return "it takes no mask together with dropout";
  }
  const sdk::TensorView logsumexp = args.logsumexp;
  if (drops && logsumexp.numel() > kMostBits / args.key->dl.shape[2]) {
    return "its dropout would take more than 256 MiB";
  }
  return nullptr;
}

// Calls f(what the bits of the call are) with a constant.
template <class Args, class F>
void with_bits(const Args& args, F&& f) {
  if (args.attn_mask != nullptr) return f(std::integral_constant<BitsAre, BitsAre::kMask>());
  if (args.dropout_p != 0) return f(std::integral_constant<BitsAre, BitsAre::kDropout>());
  f(std::integral_constant<BitsAre, BitsAre::kNone>());
}

}  // namespace mytorch::cuda::hopper
