// attention_paged, and attention_forward of a few query rows.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/attention/decode_columns.cuh"
#include "backends/cuda/attention/decode_products.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/attention_forward.h"
#include "mytorch/abi_ops/attention_paged.h"

namespace mytorch::cuda {
namespace {

using decode::DecodeCall;
using sdk::TensorView;
using Paged = mt_args_attention_paged;
using Forward = mt_args_attention_forward;

constexpr int kMostWidth = 256;
constexpr int kMostSplits = 64;
constexpr int kLeastKeys = 256;  // per split
constexpr int kWaves = 2;        // of thread blocks: sequences may differ in length
constexpr int64_t kLongest = 1 << 29;
constexpr int64_t kMostBlocks = 65535;  // of a grid, in its second and third dimension
constexpr int64_t kMostRows = 64;       // of attention_forward, per key head
constexpr int64_t kMostQueries = 8;     // of attention_forward
constexpr int32_t kPriority = 2;        // before the kernels for many rows

const char* common_refusal(const TensorView& query, const TensorView& value, int64_t keys,
                           int64_t key_heads) {
  if (sdk::is_dtype<double>(query.dtype())) return "it takes no float64";
  if (query.numel() == 0 || value.size(3) == 0) return "an operand is empty";
  if (std::max(query.size(3), value.size(3)) > kMostWidth) return "a head is wider than 256";
  if (keys > kLongest) return "a sequence is longer than 2^29";
  if (query.size(0) > kMostBlocks || query.size(1) * query.size(2) > kMostBlocks ||
      query.size(0) * query.size(1) * query.size(2) > kLongest || key_heads > kMostBlocks) {
    return "there are too many rows";
  }
  return nullptr;
}

const char* paged_supports(const Paged& args) {
  const TensorView key = args.key_pages;
  if (key.size(0) == 0 || key.size(1) == 0) return "there are no pages";
  const int64_t pages = TensorView(args.block_table).size(1);
  if (pages > kLongest || key.size(1) > kLongest) return "a sequence is longer than 2^29";
  return common_refusal(args.query, args.value_pages, pages * key.size(1), key.size(2));
}

const char* forward_supports(const Forward& args) {
  const TensorView query = args.query, key = args.key;
  if (query.size(2) > kMostQueries ||
      query.size(2) * query.size(1) > kMostRows * std::max<int64_t>(key.size(1), 1)) {
    return "it takes up to 8 queries, and up to 64 rows per key head";
  }
  if (args.attn_mask != nullptr) return "it takes no mask";
  if (args.dropout_p != 0) return "it has no dropout";
  if (key.size(2) == 0) return "there are no keys";
  return common_refusal(query, args.value, key.size(2), key.size(1));
}

template <class T>
bool is_whole(const void* data, const int64_t (&stride)[4], int64_t width) {
  constexpr int64_t kEach = kPack<T>;
  return aligned(data) && stride[3] == 1 && width % kEach == 0 && stride[0] % kEach == 0 &&
         stride[1] % kEach == 0 && stride[2] % kEach == 0;
}

// Launches `kernel`, whose blocks compute `rows` rows in `shared` bytes of dynamic shared memory,
// and `merge` if it splits the keys.
void run(mt_ctx& ctx, DecodeCall& p, int64_t batch, int rows, int blocks_at_once, size_t shared,
         void (*kernel)(DecodeCall), void (*merge)(DecodeCall)) {
  const int64_t tiles = (p.rows + rows - 1) / rows, items = batch * p.key_heads * tiles;
  const int64_t at_once = int64_t{blocks_at_once} * properties(ctx.device.index).multiprocessors;
  const int64_t wanted = (kWaves * at_once + items - 1) / items;
  const int64_t most = std::max<int64_t>(1, int64_t{p.slots} * p.pages / kLeastKeys);
  p.splits = static_cast<int>(std::min({wanted, most, int64_t{kMostSplits}}));
  const int64_t all_rows = batch * p.key_heads * p.rows;
  if (p.splits > 1) p.partial = scratch<float>(ctx, all_rows * p.splits * (p.value_width + 2));
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(p.splits), static_cast<unsigned>(p.key_heads * tiles),
                     static_cast<unsigned>(batch));
  grid.threads = dim3(decode::kThreads);
  grid.shared = shared;
  launch(ctx, "attention_decode", kernel, grid, p);
  if (p.splits == 1) return;
  grid.shared = 0;
  grid.blocks = dim3(static_cast<unsigned>(all_rows));
  launch(ctx, "attention_merge", merge, grid, p);
}

template <class T>
void run_type(mt_ctx& ctx, DecodeCall& p, int64_t batch) {
  const bool whole = is_whole<T>(p.key, p.key_stride, p.width) &&
                     is_whole<T>(p.value, p.value_stride, p.value_width);
  const auto merge = decode::merge_splits<T>;
  if constexpr (is_half<T>) {
    if (whole && p.width == p.value_width && is_whole<T>(p.query, p.query_stride, p.width)) {
      const auto with_width = [&](auto width) {
        const auto with_tiles = [&](auto tiles) {
          const auto kernel = decode::decode_products<T, width(), tiles()>;
          constexpr size_t kShared = decode::kProductsShared<T, width()>;
          allow_shared(ctx, reinterpret_cast<const void*>(kernel), kShared);
          run(ctx, p, batch, 8 * tiles(), width() * tiles() <= 64 ? 3 : 2, kShared, kernel, merge);
        };
        if (p.rows <= 8) return with_tiles(std::integral_constant<int, 1>());
        with_tiles(std::integral_constant<int, 2>());
      };
      if (p.width == 64) return with_width(std::integral_constant<int, 64>());
      if (p.width == 128) return with_width(std::integral_constant<int, 128>());
    }
  }
  const auto with_lanes = [&](auto lanes) {
    if (!whole)
      return run(ctx, p, batch, 4, 4, 0, decode::decode_columns<T, lanes(), 4, false>, merge);
    if (p.rows == 1)
      return run(ctx, p, batch, 1, 8, 0, decode::decode_columns<T, lanes(), 1, true>, merge);
    run(ctx, p, batch, 8, 2, 0, decode::decode_columns<T, lanes(), 8, true>, merge);
  };
  if (std::max(p.width, p.value_width) <= 128) {
    with_lanes(std::integral_constant<int, 16>());
  } else {
    with_lanes(std::integral_constant<int, 32>());
  }
}

// Fills in what both records share, and launches.
void run_call(mt_ctx& ctx, DecodeCall& p, const TensorView& query, const TensorView& slopes,
              const TensorView& out, const TensorView& logsumexp) {
  p.query = query.raw();
  p.out = out.raw();
  p.logsumexp = logsumexp.data<float>();
  for (int d = 0; d < 4; ++d) {
    p.query_stride[d] = query.stride(d);
    p.out_stride[d] = out.stride(d);
    if (d < 3) p.sum_stride[d] = logsumexp.stride(d);
  }
  if (slopes) {
    p.slopes = slopes.data<float>();
    p.slope_stride[0] = slopes.ndim() == 2 ? slopes.stride(0) : 0;
    p.slope_stride[1] = slopes.stride(slopes.ndim() - 1);
  }
  p.group = static_cast<int>(query.size(1)) / p.key_heads;
  p.queries = static_cast<int>(query.size(2));
  p.rows = p.group * p.queries;
  p.width = static_cast<int>(query.size(3));
  p.value_width = static_cast<int>(out.size(3));
  if (sdk::is_dtype<sdk::Half>(query.dtype())) return run_type<__half>(ctx, p, query.size(0));
  if (sdk::is_dtype<sdk::BFloat16>(query.dtype())) {
    return run_type<__nv_bfloat16>(ctx, p, query.size(0));
  }
  run_type<float>(ctx, p, query.size(0));
}

void paged(mt_ctx& ctx, const Paged& args) {
  static const uint32_t site = fault_site("attention_paged");
  const TensorView key = args.key_pages, value = args.value_pages;
  const TensorView table = args.block_table, lengths = args.lengths;
  DecodeCall p{};
  p.key = key.raw();
  p.value = value.raw();
  p.table = table.raw();
  p.lengths = lengths.raw();
  for (int d = 0; d < 4; ++d) {
    p.key_stride[d] = key.stride(d);
    p.value_stride[d] = value.stride(d);
  }
  p.table_stride[0] = table.stride(0);
  p.table_stride[1] = table.stride(1);
  p.length_stride = lengths.stride(0);
  p.table_type = sdk::dtype_key(table.dtype());
  p.length_type = sdk::dtype_key(lengths.dtype());
  p.slots = static_cast<int>(key.size(1));
  p.pages = static_cast<int>(table.size(1));
  p.key_heads = static_cast<int>(key.size(2));
  p.left = args.left;
  p.right = args.right;
  p.softcap = static_cast<float>(args.softcap);
  p.scale = static_cast<float>(args.scale);
  p.faults = faults_of(ctx, site, 0, key.size(0));
  run_call(ctx, p, args.query, args.slopes, args.output, args.logsumexp);
}

void forward(mt_ctx& ctx, const Forward& args) {
  const TensorView key = args.key, value = args.value;
  DecodeCall p{};
  p.key = key.raw();
  p.value = value.raw();
  constexpr int kOrder[] = {0, 2, 1, 3};  // page, slot, head, column
  for (int d = 0; d < 4; ++d) {
    p.key_stride[d] = key.stride(kOrder[d]);
    p.value_stride[d] = value.stride(kOrder[d]);
  }
  p.slots = static_cast<int>(key.size(2));
  p.pages = 1;
  p.key_heads = static_cast<int>(key.size(1));
  p.diagonal = args.diagonal;
  p.left = args.left;
  p.right = args.right;
  p.softcap = static_cast<float>(args.softcap);
  p.scale = static_cast<float>(args.scale);
  run_call(ctx, p, args.query, args.slopes, args.output, args.logsumexp);
}

}  // namespace

void register_attention_decode(KernelEntries& kernels) {
  kernels.push_back(
      sdk::kernel<&paged, &paged_supports>("split", MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
  kernels.push_back(sdk::kernel<&forward, &forward_supports>("split", MT_TAKES_STRIDED, kPriority));
}

}  // namespace mytorch::cuda
