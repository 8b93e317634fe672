// attention_forward of 16-bit types on compute capability 9.0.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "backends/cuda/attention/calls_sm90.h"
#include "backends/cuda/attention/forward_sm90.cuh"
#include "backends/cuda/common/counters.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/attention_forward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;
using Args = mt_args_attention_forward;

constexpr int32_t kPriority = 1;  // before cuDNN, which has 0

using Widths = std::integer_sequence<int, 32, 64, 96, 128, 256>;

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

const char* supports(const Args& args) {
  if (const char* reason = hopper::refusal(args)) return reason;
  const TensorView query = args.query, value = args.value;
  if (value.size(3) != query.size(3) || !hopper::with_width(Widths(), query.size(3), [](auto) {})) {
    return "it takes heads of width 32, 64, 96, 128 or 256, the same for values";
  }
  if (const char* reason = hopper::refusal_of_bits(args)) return reason;
  return hopper::refusal_of_device(*args.query);
}

template <class S, hopper::BitsAre kBits>
void run(mt_ctx& ctx, const Args& args) {
  const TensorView query = args.query, key = args.key, value = args.value, out = args.output;
  hopper::Forward p{};
  hopper::describe(args, p);
  p.out = {out.raw(), out.stride(0), out.stride(1), out.stride(2)};
  p.logsumexp = TensorView(args.logsumexp).template data<float>();
  p.row_tiles = (p.queries + S::kRows - 1) / S::kRows;
  p.pairs = static_cast<int>(query.size(0)) * p.heads;
  const Properties& device = properties(ctx.device.index);
  // Half of the L2 cache, because the queries, and the end of the previous section, pass through.
  const auto head_bytes = static_cast<int64_t>(p.keys) * S::kWidth * 4;
  const int64_t cached = std::max<int64_t>(1, static_cast<int64_t>(device.l2 / 2) / head_bytes);
  p.section = static_cast<int>(std::min<int64_t>(p.pairs, cached * p.group));
  p.counters = counters_of(ctx);

  const int padded = (p.keys + S::kKeys - 1) / S::kKeys * S::kKeys;
  if constexpr (kBits == hopper::BitsAre::kMask) {
    p.bits = hopper::mask_bits(ctx, args.attn_mask, false, p.keys, padded);
  } else if constexpr (kBits == hopper::BitsAre::kDropout) {
    const hopper::Dropout dropout{args.dropout_p, query.size(0), p.heads, p.queries, p.keys};
    p.bits = hopper::new_dropout_bits(ctx, dropout, args.generator, args.draw, padded);
  }

  using T = typename S::T;
  const CUtensorMap of_query = hopper::map_of<T>(query, S::kWidth, S::kRows, S::kChunk);
  const CUtensorMap of_key = hopper::map_of<T>(key, S::kWidth, S::kKeys, S::kChunk);
  const CUtensorMap of_value = hopper::map_of<T>(value, S::kWidth, S::kKeys, S::kChunk);
  const auto kernel = hopper::attention_forward_sm90<S, kBits>;
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
  hopper::with_width(Widths(), query.size(3), [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    hopper::with_type(query.dtype(), [&](auto type) {
      hopper::with_bits(
          args, [&](auto bits) { run<FastestShape<decltype(type), kWidth>, bits()>(ctx, args); });
    });
  });
}

}  // namespace

void register_attention_sm90(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&forward, &supports>("sm90", MT_TAKES_STRIDED, kPriority));
}

}  // namespace mytorch::cuda
