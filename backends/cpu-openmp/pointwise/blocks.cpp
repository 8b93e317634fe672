// Runs loops in which one operand is contiguous along another dimension than the others, in blocks
// in which that operand is transposed.
#include <algorithm>

#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/pointwise/job.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kBlockRows = 32;  // along `across`
constexpr int64_t kRowBytes = 512;  // along the last dimension: long enough for the inner loop
constexpr int64_t kSlice = 8;       // columns transposed at once
constexpr int64_t kLine = 64;
// Smaller operands are in the caches, so prefetching only costs time.
constexpr int64_t kFetchBytes = int64_t{1} << 20;
// The minimum size of a dimension of a block.
constexpr int64_t kSmall = 8;

int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

struct BlockTiles {
  alignas(64) char of[kMaxInputs][kBlockRows * kRowBytes];
};

// Returns the number of columns of a block: as many as the widest input has elements in kRowBytes.
int64_t block_cols(const Job& job) {
  int64_t itemsize = 1;
  for (int k = job.num_outputs; k < job.num_operands(); ++k) {
    if (!job.is_absent(k)) itemsize = std::max(itemsize, job.operands[k].itemsize);
  }
  return kRowBytes / itemsize;
}

struct Block {
  int64_t rows, cols;
  int64_t offsets[kMaxOperands];
};

// Blocks follow each other along `across`, so that the transposed operand is read in memory order.
// Each block reads a few lines of many rows, which hardware prefetchers do not follow; hence
// fetch().
Block block_at(const Job& job, int across, int64_t cols, int64_t number) {
  const Loop& loop = job.loop;
  const int last = loop.ndim() - 1;
  const int64_t row_blocks = pieces(loop.size(across), kBlockRows);
  const int64_t col_blocks = pieces(loop.inner_size(), cols);
  const int64_t r0 = number % row_blocks * kBlockRows;
  number /= row_blocks;
  const int64_t c0 = number % col_blocks * cols;
  number /= col_blocks;
  Block block;
  block.rows = std::min(kBlockRows, loop.size(across) - r0);
  block.cols = std::min(cols, loop.inner_size() - c0);
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

// Prefetches rows into the L2 cache, because rows far apart often share a set of the L1 cache.
void fetch(const char* from, int64_t stride, int64_t rows, int64_t bytes) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + r * stride + i, 0, 2);
  }
}

// How the inner loop accesses an operand's rows of a block.
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
  return outer * pieces(rows, kBlockRows) * pieces(cols, block_cols(job));
}

void run_blocks(Job& job, int across, int64_t begin, int64_t end) {
  const Loop& loop = job.loop;
  const int count = job.num_operands();
  const int last = loop.ndim() - 1;
  const int64_t width = block_cols(job);
  Tiles tiles;
  BlockTiles blocks;
  Pointers at;
  tiles.set_absent(job, at);
  Way ways[kMaxOperands];
  bool staged = false;  // an operand is converted or passes through a tile
  for (int k = 0; k < count; ++k) {
    ways[k] = way_of(job, k, across);
    staged = staged || ways[k] == Way::kTile ||
             (ways[k] == Way::kTurned && job.operands[k].convert != nullptr);
  }
  // A copy moves the block to the output and needs no inner loop.
  const bool moves = job.moves && loop.inner_stride(0) == job.operands[0].itemsize &&
                     ways[1] == Way::kTurned && job.operands[1].convert == nullptr;
  const bool fetches = loop.numel() * job.operands[0].itemsize >= kFetchBytes;
  const int64_t slice = fetches ? kSlice : width;
  Block block = block_at(job, across, width, begin);
  for (; begin < end; ++begin) {
    const bool more = fetches && begin + 1 < end;
    const Block next = begin + 1 < end ? block_at(job, across, width, begin + 1) : block;
    const int64_t next_rows = more ? next.rows : 0, next_cols = more ? next.cols : 0;
    char* row[kMaxOperands];
    int64_t step[kMaxOperands];  // from a row to the next
    for (int k = 0; k < count; ++k) {
      if (ways[k] == Way::kAbsent) continue;
      const StagedOperand& operand = job.operands[k];
      const int64_t stride = loop.stride(k, last), itemsize = operand.itemsize;
      row[k] = operand.data + block.offsets[k];
      step[k] = loop.stride(k, across);
      if (ways[k] != Way::kTurned) continue;
      const char* from = row[k];
      const char* coming = operand.data + next.offsets[k];
      row[k] = blocks.of[k - job.num_outputs];
      step[k] = width * itemsize;
      for (int64_t c = 0; c < block.cols; c += slice) {
        fetch(coming + c * stride, stride, std::min(slice, next_cols - c), next_rows * itemsize);
        copy_fns()->transpose(from + c * stride, stride, row[k] + c * itemsize, step[k],
                              std::min(slice, block.cols - c), block.rows, itemsize);
      }
    }
    if (moves) {
      copy_fns()->move_rows(row[0], step[0], row[1], step[1], block.rows,
                            block.cols * job.operands[0].itemsize, job.stream);
      block = next;
      continue;
    }
    for (int64_t i = 0; i < block.rows; ++i) {
      for (int k = 0; k < count; ++k) {
        if (ways[k] == Way::kAbsent) continue;
        at.set(job, k, ways[k] == Way::kTile ? tiles.of[k] : row[k]);
        if (ways[k] == Way::kDirect && !job.is_output(k) && i < next_rows) {
          const StagedOperand& operand = job.operands[k];
          fetch(operand.data + next.offsets[k] + i * step[k], 0, 1, next_cols * operand.itemsize);
        }
      }
      for (int k = job.num_outputs; staged && k < count; ++k) {
        const StagedOperand& operand = job.operands[k];
        if (ways[k] == Way::kTile) {
          load_run(operand, row[k], loop.stride(k, last), block.cols, tiles.of[k]);
        } else if (ways[k] == Way::kTurned && operand.convert != nullptr) {
          convert_run(operand, row[k], tiles.of[k], block.cols);
          at.set(job, k, tiles.of[k]);
        }
      }
      call_inner_loop(job, job.scalars, at, block.cols);
      for (int k = 0; staged && k < job.num_outputs; ++k) {
        if (ways[k] != Way::kTile) continue;
        store_tile(job, job.operands[k], tiles.of[k], row[k], loop.stride(k, last), block.cols);
      }
      for (int k = 0; k < count; ++k) {
        if (ways[k] != Way::kAbsent) row[k] += step[k];
      }
    }
    block = next;
  }
}

}  // namespace mytorch::cpu
