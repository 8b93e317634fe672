// attention_backward of 16-bit types on compute capability 9.0.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "backends/cuda/attention/backward_sm90.cuh"
#include "backends/cuda/attention/calls_sm90.h"
#include "backends/cuda/common/counters.h"
#include "backends/cuda/common/move.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/attention_backward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;
using Args = mt_args_attention_backward;

constexpr int32_t kPriority = 1;  // before cuDNN, which has 0

using Widths = std::integer_sequence<int, 32, 64, 96, 128>;

// The shape for each width that was measured to be fastest: queries of a tile, and how many tiles
// and parts of their gradients are in shared memory.
template <class T, int kWidth>
struct FastestShape;
template <class T>
struct FastestShape<T, 32> : hopper::BackwardShape<T, 32, 128, 3, 2> {};
template <class T>
struct FastestShape<T, 64> : hopper::BackwardShape<T, 64, 128, 2, 1> {};
template <class T>
struct FastestShape<T, 96> : hopper::BackwardShape<T, 96, 64, 3, 2> {};
template <class T>
struct FastestShape<T, 128> : hopper::BackwardShape<T, 128, 64, 2, 2> {};

const char* supports(const Args& args) {
  if (const char* reason = hopper::refusal(args)) return reason;
  const TensorView query = args.query, value = args.value;
  if (value.size(3) != query.size(3) || !hopper::with_width(Widths(), query.size(3), [](auto) {})) {
    return "it takes heads of width 32, 64, 96 or 128, the same for values";
  }
  if (const char* reason = hopper::refusal_of_bits(args)) return reason;
  if (args.dropout_p != 0 && TensorView(args.draw).stride(0) != 1) return "draw is not contiguous";
  if (!TensorView(args.logsumexp).is<float>()) return "logsumexp is not float32";
  const mt_tensor* const gradients[] = {args.grad_query, args.grad_key, args.grad_value};
  for (int i = 0; i < 3; ++i) {
    const mt_tensor* const gradient = sdk::wanted(args.output_mask, i, gradients[i]);
    if (gradient != nullptr && !hopper::is_aligned(gradient)) {
      return "a gradient's rows are not aligned to 16 bytes";
    }
  }
  return hopper::refusal_of_device(*args.query);
}

hopper::RowsIn rows_in(const TensorView& x) {
  return {x.raw(), x.stride(0), x.stride(1), x.stride(2)};
}
hopper::RowsOut rows_out(const mt_tensor* x) {
  if (x == nullptr) return {};
  const TensorView view = x;
  return {view.raw(), view.stride(0), view.stride(1), view.stride(2)};
}

template <class S, hopper::BitsAre kBits>
void run(mt_ctx& ctx, const Args& args) {
  using T = typename S::T;
  const TensorView query = args.query, key = args.key;
  const TensorView given = args.grad_output;
  const ContiguousScratch copy(ctx, given, given.dtype());
  if (!hopper::is_aligned(given)) move(ctx, given, copy.view());
  const TensorView grad = hopper::is_aligned(given) ? given : copy.view();

  hopper::Backward p{};
  hopper::describe(args, p);
  p.grad_query = rows_out(sdk::wanted(args.output_mask, 0, args.grad_query));
  p.grad_key = rows_out(sdk::wanted(args.output_mask, 1, args.grad_key));
  p.grad_value = rows_out(sdk::wanted(args.output_mask, 2, args.grad_value));
  p.row_tiles = (p.queries + S::kRows - 1) / S::kRows;
  p.key_tiles = (p.keys + S::kKeys - 1) / S::kKeys;
  p.pairs = static_cast<int>(key.size(0) * key.size(1));
  const Properties& device = properties(ctx.device.index);
  // Measured: a quarter as many heads as thread blocks, and half of that if all blocks of keys take
  // equally long. Of short sequences, so many that at most a quarter of a head's blocks of keys are
  // at work, if what these read and add to fits in half of the L2 cache.
  const bool is_full = p.first <= -p.queries && p.last >= p.keys;
  const int64_t head_bytes = int64_t{p.queries} * p.group * S::kWidth * 8;
  const int64_t apart = device.multiprocessors / std::max(1, p.key_tiles / 4);
  const int64_t heads =
      std::max<int64_t>({1, device.multiprocessors / (is_full ? 8 : 4),
                         std::min(apart, static_cast<int64_t>(device.l2 / 2) / head_bytes)});
  p.section = static_cast<int>(std::min<int64_t>(p.pairs, heads));
  p.counters = counters_of(ctx);
  const int64_t tiles = int64_t{p.pairs} * p.group * p.row_tiles;
  auto* const rows = scratch<float>(ctx, tiles * 2 * S::kRows);
  p.rows = rows;
  p.sums = scratch<float>(ctx, tiles * S::kRows * S::kWidth);
  p.turns = scratch<uint32_t>(ctx, tiles);

  const int padded = p.row_tiles * S::kRows;
  if constexpr (kBits == hopper::BitsAre::kMask) {
    p.bits = hopper::mask_bits(ctx, args.attn_mask, true, p.queries, padded);
  } else if constexpr (kBits == hopper::BitsAre::kDropout) {
    const hopper::Dropout dropout{args.dropout_p, query.size(0), p.heads, p.queries, p.keys};
    p.bits = hopper::same_dropout_bits(ctx, dropout, args.draw, padded);
  }

  hopper::Prepare q{};
  q.output = rows_in(args.output);
  q.grad_output = rows_in(grad);
  q.logsumexp = static_cast<const float*>(contiguous_data(ctx, args.logsumexp));
  if (args.grad_logsumexp != nullptr) {
    const TensorView sums = args.grad_logsumexp;
    q.grad_logsumexp = sums.template data<float>();
    q.grad_batch = sums.stride(0);
    q.grad_head = sums.stride(1);
    q.grad_row = sums.stride(2);
  }
  q.rows = rows;
  // Whether the first or the last keys are seen by no query.
  const int last_key = (p.key_tiles - 1) * S::kKeys;
  const bool gaps = last_key - p.last > p.queries - 1 || std::min(S::kKeys, p.keys) - 1 < p.first;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(tiles + (gaps ? p.key_tiles * p.pairs : 0)));
  grid.threads = dim3(256);
  launch(ctx, "attention_rows", hopper::prepare_backward<S>, grid, p, q);

  const auto kernel = hopper::attention_backward_sm90<S, kBits>;
  const CUtensorMap of_query = hopper::map_of<T>(query, S::kWidth, S::kRows, S::kChunk);
  const CUtensorMap of_key = hopper::map_of<T>(key, S::kWidth, S::kKeys, S::kChunk);
  const CUtensorMap of_value = hopper::map_of<T>(args.value, S::kWidth, S::kKeys, S::kChunk);
  const CUtensorMap of_grad = hopper::map_of<T>(grad, S::kWidth, S::kRows, S::kChunk);
  grid.blocks = dim3(static_cast<unsigned>(
      std::min<int64_t>(device.multiprocessors, int64_t{p.key_tiles} * p.pairs)));
  grid.threads = dim3(S::kThreads);
  grid.shared = hopper::kBackwardShared<S>;
  allow_shared(ctx, reinterpret_cast<const void*>(kernel), grid.shared);
  launch(ctx, "attention_backward", kernel, grid, of_query, of_key, of_value, of_grad, p);
  if (p.grad_query.data == nullptr) return;
  Grid finish;
  finish.blocks = dim3(static_cast<unsigned>(tiles));
  finish.threads = dim3(256);
  launch(ctx, "attention_backward", hopper::finish_backward<S>, finish, p);
}

void backward(mt_ctx& ctx, const Args& args) {
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

void register_attention_backward_sm90(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&backward, &supports>("sm90", MT_TAKES_STRIDED, kPriority));
}

}  // namespace mytorch::cuda
