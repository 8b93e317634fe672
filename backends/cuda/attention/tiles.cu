// attention_forward and attention_backward by tiles: float32, and calls of 16-bit types that the
// library and the kernel of compute capability 9.0 decline.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backends/cuda/attention/tiles.cuh"
#include "backends/cuda/common/move.h"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/attention_backward.h"
#include "mytorch/abi_ops/attention_forward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;
using tiles::MaskType;
using tiles::TileCall;
using tiles::TileOperand;
using Forward = mt_args_attention_forward;
using Backward = mt_args_attention_backward;

constexpr int64_t kLongest = 1 << 29;  // keeps positions plus bounds of the band within int
constexpr int64_t kMostBlocks = int64_t{1} << 31;
constexpr int64_t kMostWidth = 128;
constexpr int32_t kPriority = -1;  // after cuDNN

// Whether rows are without gaps and aligned to 16 bytes.
bool is_whole(const TensorView& x) {
  if (!aligned(x.raw()) || x.stride(3) != 1) return false;
  for (int d = 0; d < 3; ++d) {
    if (x.size(d) != 1 && x.stride(d) * x.itemsize() % 16 != 0) return false;
  }
  return true;
}

// Calls f(type, width) with constants that hold the call.
template <class F>
void with_shape(const TensorView& query, const TensorView& value, F&& f) {
  const auto with_type = [&](auto type) {
    const int64_t width = std::max(query.size(3), value.size(3));
    if (width <= 32) return f(type, std::integral_constant<int, 32>());
    if (width <= 64) return f(type, std::integral_constant<int, 64>());
    f(type, std::integral_constant<int, 128>());
  };
  if (sdk::is_dtype<float>(query.dtype())) return with_type(sdk::TypeTag<float>());
  if (sdk::is_dtype<sdk::Half>(query.dtype())) return with_type(sdk::TypeTag<__half>());
  with_type(sdk::TypeTag<__nv_bfloat16>());
}

template <class Args>
const char* common_refusal(const Args& args) {
  const TensorView query = args.query, key = args.key, value = args.value;
  const mt_dtype dtype = query.dtype();
  if (!sdk::is_dtype<sdk::BFloat16>(dtype) && !sdk::is_dtype<sdk::Half>(dtype) &&
      !sdk::is_dtype<float>(dtype)) {
    return "it takes float32, bfloat16 and float16 only";
  }
  if (query.numel() == 0 || key.numel() == 0 || value.numel() == 0) return "an operand is empty";
  const int64_t width = query.size(3), value_width = value.size(3);
  if (width % 8 != 0 || value_width % 8 != 0 || std::max(width, value_width) > kMostWidth) {
    return "it takes head widths up to 128 that are multiples of 8";
  }
  if (std::max(query.size(2), key.size(2)) > kLongest) return "a sequence is longer than 2^29";
  const int64_t tiles = (std::max(query.size(2), key.size(2)) + 31) / 32;
  if (query.size(0) * query.size(1) >= kMostBlocks / tiles) return "there are too many rows";
  if (properties(args.query->dl.device.index).major < 8) return "it needs compute capability 8.0";
  return nullptr;
}

constexpr const char* kTooLarge = "its tiles exceed the shared memory of a block";

bool fits(const mt_tensor* query, size_t bytes) {
  return bytes <= properties(query->dl.device.index).shared;
}

const char* forward_supports(const Forward& args) {
  if (const char* reason = common_refusal(args)) return reason;
  if (!is_whole(args.output)) return "the output's rows are not aligned to 16 bytes";
  if (!TensorView(args.logsumexp).is_contiguous()) return "logsumexp is not contiguous";
  size_t bytes = 0;
  with_shape(args.query, args.value, [&](auto type, auto width) {
    bytes = tiles::kForwardShared<typename decltype(type)::type, width()>;
  });
  return fits(args.query, bytes) ? nullptr : kTooLarge;
}

bool wants_mask(const Backward& args) {
  return args.attn_mask != nullptr && !sdk::is_bool(TensorView(args.attn_mask).dtype()) &&
         sdk::wanted(args.output_mask, 3, args.grad_mask) != nullptr;
}

const char* backward_supports(const Backward& args) {
  if (const char* reason = common_refusal(args)) return reason;
  const mt_tensor* const gradients[] = {args.grad_query, args.grad_key, args.grad_value};
  for (int i = 0; i < 3; ++i) {
    const mt_tensor* const gradient = sdk::wanted(args.output_mask, i, gradients[i]);
    if (gradient != nullptr && !is_whole(gradient)) {
      return "a gradient's rows are not aligned to 16 bytes";
    }
  }
  size_t bytes = 0;
  with_shape(args.query, args.value, [&](auto type, auto width) {
    bytes = tiles::kBackwardShared<typename decltype(type)::type, width()>;
  });
  if (!fits(args.query, bytes)) return kTooLarge;
  if (!wants_mask(args)) return nullptr;
  const TensorView mask = args.grad_mask;
  if (!mask.is_contiguous()) return "the mask's gradient is not contiguous";
  if (mask.size(0) * mask.size(1) * ((mask.size(2) + 63) / 64) >=
      kMostBlocks / ((mask.size(3) + 31) / 32)) {
    return "the mask is too large";
  }
  return nullptr;
}

TileOperand operand_of(const TensorView& x) {
  return {x.raw(), x.stride(0), x.stride(1), x.stride(2), static_cast<int>(x.size(3))};
}

// An operand that is read, or a copy of it with whole rows.
TileOperand whole_operand(mt_ctx& ctx, const TensorView& x) {
  if (is_whole(x)) return operand_of(x);
  const ContiguousScratch copy(ctx, x, x.dtype());
  move(ctx, x, copy.view());
  return operand_of(copy.view());
}

template <class Args>
TileCall call_of(mt_ctx& ctx, const Args& args) {
  const TensorView query = args.query, key = args.key;
  const auto bound = [](int64_t x) { return static_cast<int>(std::clamp(x, -kLongest, kLongest)); };
  TileCall p{};
  p.query = whole_operand(ctx, query);
  p.key = whole_operand(ctx, key);
  p.value = whole_operand(ctx, args.value);
  p.batch = static_cast<int>(query.size(0));
  p.heads = static_cast<int>(query.size(1));
  p.group = static_cast<int>(query.size(1) / key.size(1));
  p.queries = static_cast<int>(query.size(2));
  p.keys = static_cast<int>(key.size(2));
  p.first = bound(args.left < 0 ? -kLongest : args.diagonal - args.left);
  p.last = bound(args.right < 0 ? kLongest : args.diagonal + args.right);
  p.diagonal = args.diagonal;
  p.scale = static_cast<float>(args.scale);
  p.softcap = static_cast<float>(args.softcap);
  if (args.slopes != nullptr) {
    const TensorView slopes = args.slopes;
    p.slopes = slopes.data<float>();
    p.slope_batch = slopes.ndim() == 2 ? slopes.stride(0) : 0;
    p.slope_head = slopes.stride(slopes.ndim() - 1);
  }
  if (args.attn_mask != nullptr) {
    const TensorView mask = args.attn_mask;
    p.mask = mask.raw();
    p.mask_type = sdk::is_bool(mask.dtype()) ? MaskType::kBool : MaskType::kAdded;
    for (int d = 0; d < 4; ++d) {
      p.mask_size[d] = static_cast<int>(mask.size(d));
      p.mask_stride[d] = mask.size(d) == 1 ? 0 : mask.stride(d);
    }
    const size_t pair = 2 * static_cast<size_t>(mask.itemsize());
    p.mask_pairs = p.keys % 2 == 0 && p.mask_stride[3] == 1 && p.mask_stride[2] % 2 == 0 &&
                   p.mask_stride[1] % 2 == 0 && p.mask_stride[0] % 2 == 0 &&
                   reinterpret_cast<uintptr_t>(p.mask) % pair == 0;
  }
  p.drops = args.dropout_p != 0;
  const float keep = static_cast<float>(1 - args.dropout_p);
  p.limit = static_cast<uint32_t>(std::ceil(static_cast<double>(keep) * 0x1p24));
  p.kept = args.dropout_p == 1 ? 0.0F : static_cast<float>(1 / (1 - args.dropout_p));
  return p;
}

void launch_blocks(mt_ctx& ctx, const char* name, void (*kernel)(TileCall), int64_t blocks,
                   size_t shared, const TileCall& p) {
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(blocks));
  grid.threads = dim3(tiles::kThreads);
  grid.shared = shared;
  allow_shared(ctx, reinterpret_cast<const void*>(kernel), shared);
  launch(ctx, name, kernel, grid, p);
}

int64_t tiles_of(int64_t n, int64_t each) { return (n + each - 1) / each; }

void forward(mt_ctx& ctx, const Forward& args) {
  TileCall p = call_of(ctx, args);
  p.output = operand_of(args.output);
  p.logsumexp = TensorView(args.logsumexp).data<float>();
  if (p.drops) {
    const TensorView draw = args.draw;
    p.random = philox::Stream(args.generator);
    Grid one;
    one.blocks = one.threads = dim3(1);
    launch(ctx, "attention_draw", tiles::write_draw, one, p, draw.data<int64_t>(), draw.stride(0));
  }
  with_shape(args.query, args.value, [&](auto type, auto width) {
    using T = typename decltype(type)::type;
    launch_blocks(ctx, "attention_forward", tiles::attention_forward<T, width()>,
                  tiles_of(p.queries, tiles::kOwned) * p.batch * p.heads,
                  tiles::kForwardShared<T, width()>, p);
  });
}

void backward(mt_ctx& ctx, const Backward& args) {
  TileCall p = call_of(ctx, args);
  p.output = whole_operand(ctx, args.output);
  p.logsumexp = static_cast<float*>(contiguous_data(ctx, args.logsumexp));
  p.grad_output = whole_operand(ctx, args.grad_output);
  if (p.drops) {
    const TensorView draw = args.draw;
    if (draw.stride(0) != 1) throw sdk::Declined{};
    p.draw = draw.data<int64_t>();
  }
  const auto wanted = [&](int64_t i, const mt_tensor* gradient) {
    gradient = sdk::wanted(args.output_mask, i, gradient);
    return gradient != nullptr ? operand_of(gradient) : TileOperand{};
  };
  p.grad_query = wanted(0, args.grad_query);
  p.grad_key = wanted(1, args.grad_key);
  p.grad_value = wanted(2, args.grad_value);
  const int64_t pairs = int64_t{p.batch} * p.heads, rows = pairs * p.queries;
  auto* const shift = scratch<float>(ctx, rows);
  auto* const delta = scratch<float>(ctx, rows);
  p.row_shift = shift;
  p.row_delta = delta;
  const TensorView sums = args.grad_logsumexp;
  const auto stride = [&](int d) { return sums ? sums.stride(d) : int64_t{0}; };

  with_shape(args.query, args.value, [&](auto type, auto width) {
    using T = typename decltype(type)::type;
    constexpr size_t kShared = tiles::kBackwardShared<T, width()>;
    launch(ctx, "attention_rows", tiles::prepare_rows<T>, grid_for(ctx, rows * 32, tiles::kThreads),
           p, sums ? sums.data<float>() : nullptr, stride(0), stride(1), stride(2), shift, delta);
    if (p.grad_query.data != nullptr) {
      launch_blocks(ctx, "attention_backward", tiles::query_gradient<T, width()>,
                    tiles_of(p.queries, tiles::kOwned) * pairs, kShared, p);
    }
    if (p.grad_key.data != nullptr || p.grad_value.data != nullptr) {
      launch_blocks(ctx, "attention_backward", tiles::key_gradient<T, width()>,
                    tiles_of(p.keys, tiles::kOwned) * pairs / p.group, kShared, p);
    }
    if (wants_mask(args)) {
      p.grad_mask = TensorView(args.grad_mask).raw();
      launch_blocks(ctx, "attention_backward", tiles::mask_gradient<T, width()>,
                    tiles_of(p.mask_size[3], tiles::kBackwardStreamed) *
                        tiles_of(p.mask_size[2], tiles::kOwned) * p.mask_size[1] * p.mask_size[0],
                    kShared, p);
    }
  });
}

}  // namespace

void register_attention_tiles(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&forward, &forward_supports>("tiles", MT_TAKES_STRIDED, kPriority));
  kernels.push_back(
      sdk::kernel<&backward, &backward_supports>("tiles", MT_TAKES_STRIDED, kPriority));
}

}  // namespace mytorch::cuda
