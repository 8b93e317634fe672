// The kernels of attention: operands are staged in parallel, then threads take blocks of rows
// (forward), or heads of keys and chunks of their blocks (backward).
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "backends/cpu-openmp/attention/blocks.h"
#include "backends/cpu-openmp/attention/few.h"
#include "backends/cpu-openmp/common/index_range.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/attention_backward.h"
#include "mytorch/abi_ops/attention_forward.h"
#include "mytorch/abi_ops/attention_paged.h"
#include "mytorch/backend.h"
#include "mytorch/backend/philox.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Each item of a parallel loop that stages operands has at least this many elements.
constexpr int64_t kStagedElements = 1 << 15;
// Longer sequences count as this long, so that sums of positions do not overflow.
constexpr int64_t kFarthest = int64_t{1} << 48;

HeadRows head_rows(const TensorView& x) {
  if (!x) return {};
  const auto stride = [&](int d) { return x.ndim() > d && x.size(d) != 1 ? x.stride(d) : 0; };
  return {x.raw(), x.dtype(), stride(0), stride(1), stride(2), stride(3)};
}

HeadRows slopes_of(const TensorView& x) {
  return {x.raw(), x.dtype(), x.ndim() == 2 ? x.stride(0) : 0, x.stride(-1), 0, 0};
}

template <class Args>
AttentionJob job_of(const Args& args) {
  const TensorView q = args.query, k = args.key, v = args.value, slopes = args.slopes;
  AttentionJob job{};
  job.batch = q.size(0);
  job.heads = q.size(1);
  job.key_heads = k.size(1);
  job.rows = q.size(2);
  job.keys = k.size(2);
  job.width = q.size(3);
  job.value_width = v.size(3);
  job.query = head_rows(q);
  job.key = head_rows(k);
  job.value = head_rows(v);
  job.mask = head_rows(args.attn_mask);
  if (slopes) job.slopes = slopes_of(slopes);
  job.left = args.left;
  job.right = args.right;
  job.diagonal = args.diagonal;
  job.softcap = static_cast<float>(args.softcap);
  job.scale = static_cast<float>(args.scale);
  job.dropout_p = static_cast<float>(args.dropout_p);
  return job;
}

template <class Args>
const char* supports(const Args& args) {
  if (sdk::is_dtype<double>(TensorView(args.query).dtype())) return "computes in float32";
  if (TensorView(args.query).size(-1) == 0) return "only for a positive width";
  return nullptr;
}

// Calls body(item, thread) for items [0, count), in order of their start. Each thread takes the
// next item when it is done with one, because items differ in their work.
template <class F>
void for_each_item(mt_ctx& ctx, int64_t count, F&& body) {
  std::atomic<int64_t> next{0};
  sdk::parallel_for(ctx, 0, std::max<int64_t>(1, ctx.num_threads), 1,
                    [&](int64_t begin, int64_t end) noexcept {
                      for (int64_t t = begin; t < end; ++t) {
                        while (true) {
                          const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
                          if (item >= count) break;
                          body(item, t);
                        }
                      }
                    });
}

// The functions for operands of a type.
const AttentionFns& fns_of(mt_dtype dtype) {
  const AttentionFns* of_pairs =
      sdk::is_dtype<sdk::BFloat16>(dtype) ? pair_attention_fns() : nullptr;
  return of_pairs != nullptr ? *of_pairs : *attention_fns();
}

// Stages the operands of a call in the memory of the context.
class Stage {
 public:
  Stage(mt_ctx& ctx, const AttentionFns& fns) : ctx_(ctx), fns_(fns) {}

  int64_t steps(int64_t n) const { return (n + fns_.depth - 1) / fns_.depth; }

  StagedRows rows(const HeadRows& x, int64_t batch, int64_t heads, int64_t n, int64_t width) {
    if (in_place(x, width)) {
      const int64_t depth = fns_.depth;
      return {static_cast<const float*>(x.data), x.batch / depth, x.head / depth, x.row / depth};
    }
    const int64_t step = steps(width);
    float* to = sdk::scratch<float>(ctx_, checked(batch * heads, n, step));
    const int64_t grain = 1 + kStagedElements / std::max<int64_t>(1, step);
    sdk::parallel_for(ctx_, 0, batch * heads * n, grain, [&](int64_t begin, int64_t end) noexcept {
      while (begin < end) {
        const int64_t head = begin / n, row = begin % n, count = std::min(n - row, end - begin);
        fns_.stage_rows(at(x, head / heads, head % heads, row), x.dtype, x.row, x.col, count, width,
                        to + begin * step);
        begin += count;
      }
    });
    return {to, heads * n * step, n * step, step};
  }

  // Panels whose lanes are rows.
  StagedPanels panels(const HeadRows& x, int64_t batch, int64_t heads, int64_t n, int64_t width) {
    const int64_t count = (n + fns_.panel - 1) / fns_.panel, size = fns_.panel * steps(width);
    float* to = sdk::scratch<float>(ctx_, checked(batch * heads, count, size));
    const int64_t grain = 1 + kStagedElements / std::max<int64_t>(1, size);
    sdk::parallel_for(
        ctx_, 0, batch * heads * count, grain, [&](int64_t begin, int64_t end) noexcept {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t head = i / count, row = i % count * fns_.panel;
            fns_.stage_panel(at(x, head / heads, head % heads, row), x.dtype, x.row, x.col, width,
                             std::min(fns_.panel, n - row), to + i * size);
          }
        });
    return {to, heads, count * size, size};
  }

  // Panels whose lanes are columns.
  StagedPanels sums(const HeadRows& x, int64_t batch, int64_t heads, int64_t n, int64_t width) {
    constexpr int64_t kRows = 256;  // of a piece
    const int64_t count = (width + fns_.panel - 1) / fns_.panel, size = fns_.panel * steps(n);
    float* to = sdk::scratch<float>(ctx_, checked(batch * heads, count, size));
    const int64_t pieces = (n + kRows - 1) / kRows;
    const int64_t grain = 1 + kStagedElements / std::max<int64_t>(1, std::min(n, kRows) * width);
    sdk::parallel_for(
        ctx_, 0, batch * heads * pieces, grain, [&](int64_t begin, int64_t end) noexcept {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t head = i / pieces, row = i % pieces * kRows;
            const char* from = static_cast<const char*>(at(x, head / heads, head % heads, row));
            for (int64_t p = 0; p < count; ++p) {
              const int64_t col = p * fns_.panel;
              fns_.stage_panel(from + col * x.col * sdk::itemsize(x.dtype), x.dtype, x.col, x.row,
                               std::min(kRows, n - row), std::min(fns_.panel, width - col),
                               to + (head * count + p) * size + steps(row) * fns_.panel);
            }
          }
        });
    return {to, heads, count * size, size};
  }

  static const void* at(const HeadRows& x, int64_t batch, int64_t head, int64_t row) {
    return static_cast<const char*>(x.data) +
           (batch * x.batch + head * x.head + row * x.row) * sdk::itemsize(x.dtype);
  }
  static int64_t checked(int64_t a, int64_t b, int64_t c) {
    return sdk::checked_mul(sdk::checked_mul(a, b), c);
  }

 private:
  // Whether rows are factors already.
  bool in_place(const HeadRows& x, int64_t width) const {
    if (x.col != 1 && width != 1) return false;
    if (fns_.depth == 1) return sdk::is_dtype<float>(x.dtype);
    const auto whole = [&](int64_t n) { return n % fns_.depth == 0; };
    return whole(width) && whole(x.batch) && whole(x.head) && whole(x.row) &&
           reinterpret_cast<uintptr_t>(x.data) % sizeof(float) == 0;
  }

  mt_ctx& ctx_;
  const AttentionFns& fns_;
};

// The results without keys: every row sees nothing.
void fill_empty(const AttentionJob& job) {
  const std::vector<float> zeros(static_cast<size_t>(job.value_width));
  const HeadRows& lse = job.logsumexp;
  for (int64_t i = 0; i < job.batch * job.heads * job.rows; ++i) {
    const int64_t b = i / job.rows / job.heads, h = i / job.rows % job.heads, row = i % job.rows;
    store_row(zeros.data(), job.output, b, h, row, job.value_width);
    static_cast<float*>(lse.data)[b * lse.batch + h * lse.head + row * lse.row] =
        -std::numeric_limits<float>::infinity();
  }
}

// Attention of few rows: bound by the memory of the keys, which are read in place. Threads share
// the keys of a head if there are few heads.
void attend_few(mt_ctx& ctx, const AttentionJob& job, const KeyPages* pages) {
  const FewFns& fns = *few_fns();
  const int64_t threads = std::max<int64_t>(1, ctx.num_threads);
  int64_t most_keys = job.keys;
  for (int64_t b = 0; pages != nullptr && b < job.batch; ++b) {
    most_keys = std::max(most_keys, std::min(pages->lengths[b], pages->slots * pages->columns));
  }
  const int64_t pieces = (job.rows + kFewRows - 1) / kFewRows;
  const int64_t items = job.batch * job.key_heads * pieces;
  int64_t ranges = (4 * threads + items - 1) / items;
  const int64_t blocks = std::max<int64_t>(1, (most_keys + kFewKeys - 1) / kFewKeys);
  ranges = std::clamp<int64_t>(blocks / 4, 1, ranges);
  const int64_t range = (blocks + ranges - 1) / ranges * kFewKeys;
  const int64_t size = partial_size(fns, job.value_width), rows = job.batch * job.heads * job.rows;
  float* partial = sdk::scratch<float>(ctx, Stage::checked(rows, ranges, size));
  const int64_t room_size = padded_to(fns.few_size(job.width, job.value_width), 16);
  float* room = sdk::scratch<float>(ctx, sdk::checked_mul(room_size, threads));
  const auto of_sequence = [&](int64_t b) {
    AttentionJob one = job;
    if (pages != nullptr) {
      one.keys = std::min(pages->lengths[b], pages->slots * pages->columns);
      one.diagonal = pages->lengths[b] - job.rows;
    }
    return one;
  };
  for_each_item(ctx, items * ranges, [&](int64_t item, int64_t thread) {
    const int64_t r = item % ranges, piece = item / ranges % pieces, head = item / ranges / pieces;
    const int64_t b = head / job.key_heads, first = piece * kFewRows;
    const AttentionJob one = of_sequence(b);
    fns.few(one, pages, b, head % job.key_heads, first, std::min(kFewRows, job.rows - first),
            r * range, std::min((r + 1) * range, one.keys), room + thread * room_size,
            partial + r * size, ranges * size);
  });
  sdk::parallel_for(ctx, 0, rows, 64, [&](int64_t begin, int64_t end) noexcept {
    for (int64_t i = begin; i < end; ++i) {
      fns.combine(job, i / job.rows / job.heads, i / job.rows % job.heads, i % job.rows, ranges,
                  partial + i * ranges * size);
    }
  });
}

void attention_forward(mt_ctx& ctx, const mt_args_attention_forward& args) {
  AttentionJob job = job_of(args);
  job.output = head_rows(args.output);
  job.logsumexp = head_rows(args.logsumexp);
  if (job.dropout_p != 0) {
    const sdk::philox::Stream stream(args.generator);
    job.seed = stream.seed;
    job.call = stream.call;
    const TensorView draw = args.draw;
    draw.data<int64_t>()[0] = static_cast<int64_t>(stream.seed);
    draw.data<int64_t>()[draw.stride(0)] = static_cast<int64_t>(stream.call);
  }
  if (job.batch * job.heads * job.rows == 0) return;
  if (job.keys == 0) return fill_empty(job);
  if (job.rows <= kFewRows && job.dropout_p == 0) return attend_few(ctx, job, nullptr);
  const AttentionFns& fns = fns_of(job.query.dtype);
  Stage stage(ctx, fns);
  StagedHeads staged;
  staged.query = stage.rows(job.query, job.batch, job.heads, job.rows, job.width);
  staged.key_panels = stage.panels(job.key, job.batch, job.key_heads, job.keys, job.width);
  staged.value_sums = stage.sums(job.value, job.batch, job.key_heads, job.keys, job.value_width);
  const int64_t size = padded_to(fns.forward_size(job.value_width), 16);
  float* room =
      sdk::scratch<float>(ctx, sdk::checked_mul(size, std::max<int64_t>(1, ctx.num_threads)));
  const int64_t blocks = (job.rows + fns.row_block - 1) / fns.row_block;
  const int64_t heads = job.batch * job.heads;
  for_each_item(ctx, heads * blocks, [&](int64_t item, int64_t thread) {
    // The last rows first: with a causal band they see the most keys.
    const int64_t head = item / blocks, block = blocks - 1 - item % blocks;
    const int64_t first = block * job.rows / blocks, end = (block + 1) * job.rows / blocks;
    fns.forward(job, staged, head / job.heads, head % job.heads, first, end - first,
                room + thread * size);
  });
}

// Returns where the gradient of a float mask goes, or nothing if it is not wanted.
TensorView wanted_mask(const mt_args_attention_backward& args) {
  const TensorView mask = args.attn_mask;
  if (!mask || sdk::is_dtype<bool>(mask.dtype())) return TensorView(nullptr);
  return sdk::wanted(args.output_mask, 3, args.grad_mask);
}

void store_mask_gradient(const AttentionJob& job, const TensorView& to, int64_t chunks) {
  const HeadRows out = head_rows(to);
  const int64_t rows = to.size(2), width = to.size(3);
  float* sums = static_cast<float*>(job.mask_sums.data);
  for (int64_t i = 0; i < to.size(0) * to.size(1) * rows; ++i) {
    float* row = sums + i * width;
    if (job.mask_chunk != 0) {
      for (int64_t c = 1; c < chunks; ++c) row[0] += row[c * job.mask_chunk];
    }
    store_row(row, out, i / rows / to.size(1), i / rows % to.size(1), i % rows, width);
  }
}

// The gradients that are wanted, and the draw of the forward pass.
AttentionJob backward_job(const mt_args_attention_backward& args) {
  AttentionJob job = job_of(args);
  const auto gradient = [&](int64_t i, const mt_tensor* to) {
    return head_rows(sdk::wanted(args.output_mask, i, to));
  };
  job.grad_query = gradient(0, args.grad_query);
  job.grad_key = gradient(1, args.grad_key);
  job.grad_value = gradient(2, args.grad_value);
  if (job.dropout_p != 0) {
    const TensorView draw = args.draw;
    job.seed = static_cast<uint64_t>(draw.data<int64_t>()[0]);
    job.call = static_cast<uint64_t>(draw.data<int64_t>()[draw.stride(0)]);
  }
  return job;
}

// Stages the operands that the wanted gradients take.
StagedHeads stage_operands(Stage& stage, const AttentionJob& job, const HeadRows& grad_output) {
  StagedHeads staged;
  staged.query = stage.rows(job.query, job.batch, job.heads, job.rows, job.width);
  staged.grad_output = stage.rows(grad_output, job.batch, job.heads, job.rows, job.value_width);
  staged.key_panels = stage.panels(job.key, job.batch, job.key_heads, job.keys, job.width);
  staged.value_panels =
      stage.panels(job.value, job.batch, job.key_heads, job.keys, job.value_width);
  if (job.grad_key.data != nullptr) {
    staged.query_sums = stage.sums(job.query, job.batch, job.heads, job.rows, job.width);
  }
  if (job.grad_query.data != nullptr) {
    staged.key_sums = stage.sums(job.key, job.batch, job.key_heads, job.keys, job.width);
  }
  if (job.grad_value.data != nullptr) {
    staged.grad_output_sums =
        stage.sums(grad_output, job.batch, job.heads, job.rows, job.value_width);
  }
  return staged;
}

// Returns the numbers of the rows, (batch, head, row), without gaps.
float* stage_numbers(mt_ctx& ctx, const AttentionJob& job, const TensorView& x) {
  const HeadRows of{x.raw(), x.dtype(), 0, x.stride(0), x.stride(1), x.stride(2)};
  const int64_t heads = job.batch * job.heads;
  float* to = sdk::scratch<float>(ctx, sdk::checked_mul(heads, job.rows));
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t b = h / job.heads;
    attention_fns()->stage_rows(
        static_cast<const float*>(of.data) + b * of.head + h % job.heads * of.row, of.dtype, 0,
        of.col, 1, job.rows, to + h * job.rows);
  }
  return to;
}

// Returns what is subtracted from the gradients of a row's weights: the sum of their products with
// the weights, less the gradient of logsumexp.
float* row_deltas(mt_ctx& ctx, const AttentionJob& job, const AttentionFns& fns,
                  const mt_args_attention_backward& args) {
  const HeadRows grad_output = head_rows(args.grad_output), output = head_rows(args.output);
  const int64_t rows = sdk::checked_mul(job.batch * job.heads, job.rows);
  float* deltas = sdk::scratch<float>(ctx, rows);
  const float* more =
      args.grad_logsumexp != nullptr ? stage_numbers(ctx, job, args.grad_logsumexp) : nullptr;
  sdk::parallel_for(ctx, 0, rows, 512, [&](int64_t begin, int64_t end) noexcept {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / job.rows / job.heads, h = i / job.rows % job.heads, row = i % job.rows;
      deltas[i] =
          fns.row_dot(Stage::at(grad_output, b, h, row), grad_output.dtype, grad_output.col,
                      Stage::at(output, b, h, row), output.dtype, output.col, job.value_width) -
          (more != nullptr ? more[i] : 0.0f);
    }
  });
  return deltas;
}

// How threads share the work: items of one key head, or of all of them, and of a chunk of the keys.
struct BackwardShares {
  bool joins_heads;
  int64_t items;
  int64_t chunks;
};

// Threads share the keys of a head if there are fewer heads than threads, or if the last heads
// would leave threads idle. Each chunk of keys sums grad_query on its own, so that the order of
// additions does not depend on the threads' speed.
BackwardShares share_backward(const AttentionJob& job, const AttentionFns& fns,
                              const TensorView& grad_mask, int64_t threads) {
  // Heads that share elements of the mask follow one another in a thread.
  const bool joins_heads = grad_mask && ((grad_mask.size(0) == 1 && job.batch > 1) ||
                                         (grad_mask.size(1) == 1 && job.key_heads > 1));
  const int64_t parallel_heads = joins_heads ? 1 : job.batch * job.key_heads;
  const int64_t key_blocks = (job.keys + fns.backward_keys - 1) / fns.backward_keys;
  const bool balanced = parallel_heads >= 4 * threads || parallel_heads % threads == 0;
  const int64_t chunks = std::max<int64_t>(1, std::min(balanced ? 1 : threads, key_blocks));
  return {joins_heads, parallel_heads * chunks, chunks};
}

// Sets where the gradient of the mask is summed.
void make_mask_sums(mt_ctx& ctx, const TensorView& grad_mask, int64_t chunks, AttentionJob* job) {
  const auto size = [&](int d) { return grad_mask.size(d); };
  const auto stride = [&](int d, int64_t step) { return size(d) == 1 ? 0 : step; };
  const int64_t plane = Stage::checked(size(2), size(3), 1);
  const int64_t count = Stage::checked(size(0), size(1), plane);
  job->mask_chunk = size(3) == 1 ? count : 0;
  const int64_t copies = size(3) == 1 ? chunks : 1;
  float* sums = sdk::scratch<float>(ctx, sdk::checked_mul(count, copies));
  std::fill(sums, sums + count * copies, 0.0f);
  job->mask_sums = {sums,
                    sdk::dtype_of<float>,
                    stride(0, size(1) * plane),
                    stride(1, plane),
                    stride(2, size(3)),
                    stride(3, 1)};
}

// Adds up the sums of the chunks, and stores the gradient of the queries.
void store_query_gradient(mt_ctx& ctx, const AttentionJob& job, const AttentionFns& fns,
                          const StagedHeads& staged, int64_t padded, int64_t chunks) {
  const int64_t rows = job.batch * job.heads * job.rows;
  sdk::parallel_for(ctx, 0, rows, 1 + kStagedElements / padded,
                    [&](int64_t begin, int64_t end) noexcept {
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t head = i / job.rows;
                        float* row = staged.grad_query + i * padded;
                        fns.sum_scaled(row, rows * padded, chunks, job.scale, padded, row);
                        store_row(row, job.grad_query, head / job.heads, head % job.heads,
                                  i % job.rows, job.width);
                      }
                    });
}

void attention_backward(mt_ctx& ctx, const mt_args_attention_backward& args) {
  AttentionJob job = backward_job(args);
  const AttentionFns& fns = fns_of(job.query.dtype);
  Stage stage(ctx, fns);
  StagedHeads staged = stage_operands(stage, job, head_rows(args.grad_output));
  job.logsumexp = {stage_numbers(ctx, job, args.logsumexp), {}, 0, 0, 0, 0};
  staged.delta = row_deltas(ctx, job, fns, args);

  const int64_t threads = std::max<int64_t>(1, ctx.num_threads);
  const TensorView grad_mask = wanted_mask(args);
  const BackwardShares shares = share_backward(job, fns, grad_mask, threads);
  if (grad_mask) make_mask_sums(ctx, grad_mask, shares.chunks, &job);
  const int64_t padded = padded_to(job.width, fns.lanes);
  if (job.grad_query.data != nullptr) {
    const int64_t sums = sdk::checked_mul(job.batch * job.heads * job.rows * padded, shares.chunks);
    staged.grad_query = sdk::scratch<float>(ctx, sums);
    sdk::parallel_for(ctx, 0, sums, kStagedElements, [&](int64_t begin, int64_t end) noexcept {
      std::fill(staged.grad_query + begin, staged.grad_query + end, 0.0f);
    });
  }
  const int64_t size = padded_to(fns.backward_size(job.width, job.value_width), 16);
  float* room = sdk::scratch<float>(ctx, sdk::checked_mul(size, threads));
  for_each_item(ctx, shares.items, [&](int64_t item, int64_t thread) {
    const int64_t first = item / shares.chunks;
    const int64_t end = shares.joins_heads ? job.batch * job.key_heads : first + 1;
    for (int64_t head = first; head < end; ++head) {
      fns.backward(job, staged, head / job.key_heads, head % job.key_heads, item % shares.chunks,
                   shares.chunks, room + thread * size);
    }
  });
  if (grad_mask) store_mask_gradient(job, grad_mask, shares.chunks);
  if (job.grad_query.data == nullptr) return;
  store_query_gradient(ctx, job, fns, staged, padded, shares.chunks);
}

const char* paged_supports(const mt_args_attention_paged& args) { return supports(args); }

void attention_paged(mt_ctx& ctx, const mt_args_attention_paged& args) {
  const TensorView q = args.query, k = args.key_pages, v = args.value_pages;
  const TensorView table = args.block_table, lengths = args.lengths, slopes = args.slopes;
  AttentionJob job{};
  job.batch = q.size(0);
  job.heads = q.size(1);
  job.key_heads = k.size(2);
  job.rows = q.size(2);
  job.width = q.size(3);
  job.value_width = v.size(3);
  job.query = head_rows(q);
  // (page, slot, head, column) as (batch, row, head, column)
  const auto pages_of = [](const TensorView& x) {
    HeadRows rows = head_rows(x);
    std::swap(rows.head, rows.row);
    return rows;
  };
  job.key = pages_of(k);
  job.value = pages_of(v);
  if (slopes) job.slopes = slopes_of(slopes);
  job.left = args.left;
  job.right = args.right;
  job.softcap = static_cast<float>(args.softcap);
  job.scale = static_cast<float>(args.scale);
  job.output = head_rows(args.output);
  job.logsumexp = head_rows(args.logsumexp);
  if (job.batch * job.heads * job.rows == 0) return;

  const int64_t columns = table.size(1), slots = k.size(1);
  const auto integer = [](const TensorView& x, int64_t offset) -> int64_t {
    return sdk::is_dtype<int32_t>(x.dtype()) ? static_cast<const int32_t*>(x.raw())[offset]
                                             : static_cast<const int64_t*>(x.raw())[offset];
  };
  int64_t* numbers = sdk::scratch<int64_t>(ctx, Stage::checked(job.batch, columns + 1, 1));
  int64_t* entries = numbers + job.batch;
  for (int64_t b = 0; b < job.batch; ++b) {
    numbers[b] = std::clamp(integer(lengths, b * lengths.stride(0)), -kFarthest, kFarthest);
    for (int64_t c = 0; c < columns; ++c) {
      int64_t& page = entries[b * columns + c];
      page = 0;
      if (slots == 0 || c * slots >= numbers[b]) continue;  // not read
      page = integer(table, b * table.stride(0) + c * table.stride(1));
      if (!in_range(page, k.size(0))) fail_index("attention_paged", page, 0, k.size(0));
    }
  }
  const KeyPages pages{slots, columns, entries, numbers};
  attend_few(ctx, job, &pages);
}

}  // namespace

void register_attention(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES;
  kernels.push_back(
      sdk::kernel<&attention_forward, &supports<mt_args_attention_forward>>("blocks", kTakes));
  kernels.push_back(
      sdk::kernel<&attention_backward, &supports<mt_args_attention_backward>>("blocks", kTakes));
  kernels.push_back(sdk::kernel<&attention_paged, &paged_supports>("pages", kTakes));
}

}  // namespace mytorch::cpu
