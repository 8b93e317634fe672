#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/pointwise/job.h"
#include "mytorch/backend/parallel.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kLine = 16;      // elements; 64 bytes of most types
constexpr int64_t kRow = 2048;     // the minimum length of a repeated row
constexpr int64_t kMaxRow = 8192;  // the length up to which rows consist of whole lines
constexpr int64_t kFineRow = 512;  // rows of whole lines of this length are not repeated

bool is_number(const Loop& loop, int k) {
  for (int d = 0; d < loop.ndim(); ++d) {
    if (loop.stride(k, d) != 0) return false;
  }
  return true;
}

// Returns whether the dimensions from `first` on can be merged.
bool joins(const Loop& loop, int k, int first) {
  for (int d = first; d + 1 < loop.ndim(); ++d) {
    if (loop.stride(k, d) != loop.stride(k, d + 1) * loop.size(d + 1)) return false;
  }
  return true;
}

bool repeats(const Loop& loop, int k, int first) {
  for (int d = 0; d < first; ++d) {
    if (loop.stride(k, d) != 0) return false;
  }
  return true;
}

// Returns the first dimension of the block that some inputs repeat and that all others can merge
// with the preceding dimension, or -1.
int repeated_block(const Job& job, uint32_t* repeated) {
  const Loop& loop = job.loop;
  int64_t size = 1;
  for (int s = loop.ndim() - 1; s >= 1; --s) {
    size *= loop.size(s);
    if (size > kMaxRow) return -1;
    bool fits = true;
    *repeated = 0;
    for (int k = 0; k < job.num_operands(); ++k) {
      if (job.is_absent(k) || is_number(loop, k)) continue;
      if (!job.is_output(k) && repeats(loop, k, s)) {
        *repeated |= uint32_t{1} << k;
      } else if (!joins(loop, k, s - 1)) {
        fits = false;
      }
    }
    if (fits && *repeated != 0) return s;
  }
  return -1;
}

// Stores the operand's first `block` elements, converted to the compute type and repeated, as `row`
// elements.
void write_out(const Loop& loop, int k, const StagedOperand& operand, int64_t block, int64_t row,
               char* to) {
  alignas(64) char raw[kTile * 8];
  const int64_t itemsize = operand.tile_itemsize;
  for (int64_t i = 0; i < block; i += kTile) {
    const int64_t n = std::min(block - i, kTile);
    if (operand.convert == nullptr) {
      gather(loop, k, operand, i, n, to + i * itemsize);
    } else {
      gather(loop, k, operand, i, n, raw);
      convert_run(operand, raw, to + i * itemsize, n);
    }
  }
  for (int64_t done = block; done < row;) {
    const int64_t n = std::min(done, row - done);
    std::memcpy(to + done * itemsize, to, static_cast<size_t>(n * itemsize));
    done += n;
  }
}

}  // namespace

bool run_repeated(mt_ctx& ctx, Job& job) {
  uint32_t repeated = 0;
  const int first = repeated_block(job, &repeated);
  if (first < 0) return false;
  const Loop loop = job.loop;
  const int last = loop.ndim() - 1;
  int64_t block = 1;
  for (int d = first; d <= last; ++d) block *= loop.size(d);
  if (block >= kFineRow && block % kLine == 0 && first == last) return false;
  const int64_t whole = std::lcm(block, kLine);
  const int64_t unit = whole <= kMaxRow ? whole : block;
  const int64_t row = unit * std::max<int64_t>(1, kRow / unit);
  const int64_t joined = block * loop.size(first - 1);
  if (joined < 4 * row) return false;

  const int count = job.num_operands();
  const auto is_repeated = [&](int k) { return (repeated >> k & 1) != 0; };
  char* memory = sdk::scratch<char>(ctx, std::popcount(repeated) * row * 8);
  for (int k = job.num_outputs; k < count; ++k) {
    if (!is_repeated(k)) continue;
    StagedOperand& operand = job.operands[k];
    write_out(loop, k, operand, block, row, memory);
    const int64_t itemsize = operand.tile_itemsize;
    operand = {memory, itemsize, itemsize, nullptr, nullptr};
    memory += row * 8;
  }
  // Runs a loop over the outer dimensions, rows, and elements of a row: first the whole rows, then
  // the remainder of each run of rows.
  int64_t shape[sdk::kMaxDims];
  int64_t strides[kMaxOperands][sdk::kMaxDims];
  const int64_t* pointers[kMaxOperands];
  for (int k = 0; k < count; ++k) pointers[k] = strides[k];
  const auto run = [&](int64_t rows, int64_t elements) {
    const size_t dims = static_cast<size_t>(first) + 1;
    for (int d = 0; d < first - 1; ++d) shape[d] = loop.size(d);
    shape[first - 1] = rows;
    shape[first] = elements;
    for (int k = 0; k < count; ++k) {
      for (int d = 0; d < first - 1; ++d) strides[k][d] = loop.stride(k, d);
      const int64_t inner = job.is_absent(k) ? 0
                            : is_repeated(k) ? job.operands[k].itemsize
                                             : loop.inner_stride(k);
      strides[k][first - 1] = is_repeated(k) ? 0 : inner * row;
      strides[k][first] = inner;
    }
    job.loop.collapse({shape, dims}, std::span(pointers, static_cast<size_t>(count)),
                      sdk::Order::kRowMajor);
    const int64_t n = job.loop.numel();
    sdk::parallel_for(ctx, 0, (n + kTile - 1) / kTile, std::max<int64_t>(1, job.grain / kTile),
                      [&](int64_t begin, int64_t end) noexcept {
                        run_rows(job, begin * kTile, std::min(end * kTile, n));
                        if (job.stream) stream_fence();
                      });
  };
  const int64_t rows = joined / row, rest = joined % row;
  run(rows, row);
  if (rest > 0) {
    for (int k = 0; k < count; ++k) {
      if (!job.is_absent(k) && !is_repeated(k)) {
        job.operands[k].data += rows * row * loop.inner_stride(k);
      }
    }
    run(1, rest);
  }
  return true;
}

}  // namespace mytorch::cpu
