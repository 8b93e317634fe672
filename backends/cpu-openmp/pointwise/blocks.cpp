// Operands of which one is contiguous along another dimension than the others: in blocks, in which
// that one is transposed.
#include <algorithm>

#include "backends/cpu-openmp/copy/stream.h"
#include "backends/cpu-openmp/pointwise/job.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kBlockRows = 32;  // along `across`
constexpr int64_t kBlockCols = 64;  // along the last dimension
constexpr int64_t kSlice = 8;       // columns that are transposed at once
constexpr int64_t kLine = 64;
// What is smaller lies in the caches; fetching it would only cost.
constexpr int64_t kFetchBytes = int64_t{1} << 20;
// A dimension smaller than this is not worth a block.
constexpr int64_t kSmall = 8;

int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

struct BlockTiles {
  alignas(64) char of[kMaxInputs][kBlockRows * kBlockCols * 8];
};

struct Block {
  int64_t rows, cols;
  int64_t offsets[kMaxOperands];
};

// Rows first: the transposed operand is read along its memory, a few lines of many of its rows,
// which the prefetchers do not follow, hence fetch().
Block block_at(const Job& job, int across, int64_t number) {
  const Loop& loop = job.loop;
  const int last = loop.ndim() - 1;
  const int64_t row_blocks = pieces(loop.size(across), kBlockRows);
  const int64_t col_blocks = pieces(loop.inner_size(), kBlockCols);
  const int64_t r0 = number % row_blocks * kBlockRows;
  number /= row_blocks;
  const int64_t c0 = number % col_blocks * kBlockCols;
  number /= col_blocks;
  Block block;
  block.rows = std::min(kBlockRows, loop.size(across) - r0);
  block.cols = std::min(kBlockCols, loop.inner_size() - c0);
  for (int k = 0; k < job.num_operands(); ++k) {
    block.offsets[k] = c0 * loop.stride(k, last) + r0 * loop.stride(k, across);
  }
  for (int d = last - 1; d >= 0; --d) {
    if (d == across) continue;
    for (int k = 0; k < job.num_operands(); ++k) {
      block.offsets[k] += number % loop.size(d) * loop.stride(k, d);
    }
    number /= loop.size(d);
  }
  return block;
}

// Into the L2 cache: rows far apart often share their place in the L1 cache.
void fetch(const char* from, int64_t stride, int64_t rows, int64_t bytes) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + r * stride + i, 0, 2);
  }
}

// How a block's rows of an operand are reached.
enum class Way { kAbsent, kDirect, kTurned, kTile };

Way way_of(const Job& job, int k, int across) {
  if (job.is_absent(k)) return Way::kAbsent;
  const int64_t itemsize = job.operands[k].itemsize;
  const int64_t col = job.loop.inner_stride(k), row = job.loop.stride(k, across);
  if (!job.is_output(k) && row == itemsize && col != itemsize && col != 0) return Way::kTurned;
  return job.is_direct(k) ? Way::kDirect : Way::kTile;
}

}  // namespace

int transposed_dim(const Job& job) {
  const Loop& loop = job.loop;
  const int last = loop.ndim() - 1;
  if (loop.inner_size() < kSmall) return -1;
  for (int k = job.num_outputs; k < job.num_operands(); ++k) {
    const int64_t itemsize = job.operands[k].itemsize;
    const int64_t inner = loop.stride(k, last);
    if (job.is_absent(k) || inner == itemsize || inner == 0) continue;
    for (int d = 0; d < last; ++d) {
      if (loop.stride(k, d) == itemsize && loop.size(d) >= kSmall) return d;
    }
  }
  return -1;
}

int64_t num_blocks(const Job& job, int across) {
  const int64_t rows = job.loop.size(across);
  const int64_t cols = job.loop.inner_size();
  const int64_t outer = job.loop.numel() / (rows * cols);
  return outer * pieces(rows, kBlockRows) * pieces(cols, kBlockCols);
}

void run_blocks(Job& job, int across, int64_t begin, int64_t end) {
  const Loop& loop = job.loop;
  const int count = job.num_operands();
  const int last = loop.ndim() - 1;
  Tiles tiles;
  BlockTiles blocks;
  Pointers at;
  tiles.set_absent(job, at);
  Way ways[kMaxOperands];
  for (int k = 0; k < count; ++k) ways[k] = way_of(job, k, across);
  // A copy needs no span between the block and the output.
  const bool moves = job.moves && loop.inner_stride(0) == job.operands[0].itemsize &&
                     ways[1] == Way::kTurned && job.operands[1].convert == nullptr;
  const bool fetches = loop.numel() * job.operands[0].itemsize >= kFetchBytes;
  const int64_t slice = fetches ? kSlice : kBlockCols;
  Block block = block_at(job, across, begin);
  for (; begin < end; ++begin) {
    const bool more = fetches && begin + 1 < end;
    const Block next = begin + 1 < end ? block_at(job, across, begin + 1) : block;
    const int64_t next_rows = more ? next.rows : 0, next_cols = more ? next.cols : 0;
    for (int k = job.num_outputs; k < count; ++k) {
      if (ways[k] != Way::kTurned) continue;
      const Operand& operand = job.operands[k];
      const int64_t stride = loop.stride(k, last), itemsize = operand.itemsize;
      const char* from = operand.data + block.offsets[k];
      const char* coming = operand.data + next.offsets[k];
      char* to = blocks.of[k - job.num_outputs];
      for (int64_t c = 0; c < block.cols; c += slice) {
        fetch(coming + c * stride, stride, std::min(slice, next_cols - c), next_rows * itemsize);
        transpose(from + c * stride, stride, to + c * itemsize, kBlockCols * itemsize,
                  std::min(slice, block.cols - c), block.rows, itemsize);
      }
    }
    if (moves) {
      const int64_t itemsize = job.operands[0].itemsize;
      move_rows(job.operands[0].data + block.offsets[0], loop.stride(0, across), blocks.of[0],
                kBlockCols * itemsize, block.rows, block.cols * itemsize, job.stream);
      block = next;
      continue;
    }
    for (int64_t i = 0; i < block.rows; ++i) {
      for (int k = 0; k < count; ++k) {
        if (ways[k] == Way::kAbsent) continue;
        const Operand& operand = job.operands[k];
        const int64_t stride = loop.stride(k, across);
        char* pointer = operand.data + block.offsets[k] + i * stride;
        if (ways[k] == Way::kTurned) {
          pointer = blocks.of[k - job.num_outputs] + i * kBlockCols * operand.itemsize;
          if (operand.convert != nullptr) {
            convert_run(operand, pointer, tiles.of[k], block.cols);
            pointer = tiles.of[k];
          }
        } else if (ways[k] == Way::kTile) {
          if (!job.is_output(k)) {
            load_run(operand, pointer, loop.stride(k, last), block.cols, tiles.of[k]);
          }
          pointer = tiles.of[k];
        } else if (!job.is_output(k) && i < next_rows) {
          fetch(operand.data + next.offsets[k] + i * stride, 0, 1, next_cols * operand.itemsize);
        }
        at.set(job, k, pointer);
      }
      call_span(job, job.scalars, at, block.cols);
      for (int k = 0; k < job.num_outputs; ++k) {
        if (ways[k] != Way::kTile) continue;
        store_tile(job, job.operands[k], tiles.of[k],
                   job.operands[k].data + block.offsets[k] + i * loop.stride(k, across),
                   loop.stride(k, last), block.cols);
      }
    }
    block = next;
  }
}

}  // namespace mytorch::cpu
