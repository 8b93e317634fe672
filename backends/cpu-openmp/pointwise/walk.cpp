// The ways to walk over operands that are not simply dense.
#include <algorithm>
#include <cstring>

#include "backends/cpu-openmp/copy/stream.h"
#include "backends/cpu-openmp/pointwise/job.h"

namespace mytorch::cpu {
namespace {

// Where a span reads and writes: pointers by the span's own numbering, inputs and outputs apart.
struct Pointers {
  const void* inputs[kMaxInputs];
  void* outputs[kMaxOutputs];
};

struct Tiles {
  alignas(64) char of[kMaxOperands][kTile * 8];
};

void call(Job& job, const Pointers& at, int64_t n) {
  if (!job.span(at.inputs, at.outputs, job.scalars, n)) {
    job.refused.store(true, std::memory_order_relaxed);
  }
}

void set(Job& job, Pointers& at, int k, void* pointer) {
  if (job.is_output(k)) {
    at.outputs[k] = pointer;
  } else {
    at.inputs[k - job.num_outputs] = pointer;
  }
}

// Absent inputs read ones, whatever their type: nobody looks at what comes of them.
void set_absent(Job& job, Pointers& at, Tiles& tiles) {
  for (int k = 0; k < job.num_operands(); ++k) {
    if (job.operands[k].data != nullptr) continue;
    if (!job.is_output(k)) std::memset(tiles.of[k], 1, sizeof(tiles.of[k]));
    set(job, at, k, job.is_output(k) ? nullptr : tiles.of[k]);
  }
}

void store(const Job& job, const Operand& operand, const void* tile, char* to, int64_t stride,
           int64_t n) {
  if (job.stream && operand.convert == nullptr && stride == operand.itemsize) {
    stream_copy(to, tile, n * operand.itemsize);
  } else {
    store_run(operand, tile, to, stride, n);
  }
}

}  // namespace

void run_rows(Job& job, int64_t begin, int64_t end) {
  const int count = job.num_operands();
  Tiles tiles;
  Pointers at;
  set_absent(job, at, tiles);
  bool direct[kMaxOperands];
  bool all_direct = true;
  const char* repeated[kMaxOperands] = {};  // the element that a tile is filled with
  for (int k = 0; k < count; ++k) {
    const Operand& operand = job.operands[k];
    direct[k] = operand.convert == nullptr && job.loop.inner_stride(k) == operand.itemsize &&
                !(job.stream && job.is_output(k));
    all_direct = all_direct && (direct[k] || operand.data == nullptr);
  }
  Cursor cursor(job.loop, count, begin);
  while (begin < end) {
    const int64_t row = std::min(end - begin, cursor.left());
    const int64_t n = all_direct ? row : std::min(row, kTile);
    for (int k = 0; k < count; ++k) {
      const Operand& operand = job.operands[k];
      if (operand.data == nullptr) continue;
      char* from = operand.data + cursor.offset(k);
      set(job, at, k, direct[k] ? from : tiles.of[k]);
      if (direct[k] || job.is_output(k)) continue;
      const int64_t stride = job.loop.inner_stride(k);
      if (stride != 0) {
        load_run(operand, from, stride, n, tiles.of[k]);
      } else if (repeated[k] != from) {
        // The whole of what this row or a later one may ask for.
        load_run(operand, from, 0, std::min({kTile, job.loop.inner_size(), end - begin}),
                 tiles.of[k]);
        repeated[k] = from;
      }
    }
    call(job, at, n);
    for (int k = 0; k < job.num_outputs; ++k) {
      const Operand& operand = job.operands[k];
      if (operand.data == nullptr || direct[k]) continue;
      store(job, operand, tiles.of[k], operand.data + cursor.offset(k), job.loop.inner_stride(k),
            n);
    }
    cursor.advance(n);
    begin += n;
  }
  if (job.stream) stream_fence();
}

void run_tiles(Job& job, int64_t begin, int64_t end) {
  const int count = job.num_operands();
  Tiles tiles;
  Pointers at;
  set_absent(job, at, tiles);
  bool dense[kMaxOperands];
  for (int k = 0; k < count; ++k) {
    dense[k] = job.loop.is_dense(k, job.operands[k].itemsize);
  }
  alignas(64) char raw[kTile * 8];
  while (begin < end) {
    const int64_t n = std::min(end - begin, kTile);
    for (int k = 0; k < count; ++k) {
      const Operand& operand = job.operands[k];
      if (operand.data == nullptr) continue;
      char* linear = operand.data + begin * operand.itemsize;
      if (dense[k] && operand.convert == nullptr) {
        set(job, at, k, linear);
        continue;
      }
      set(job, at, k, tiles.of[k]);
      if (job.is_output(k)) continue;
      if (dense[k]) {
        load_run(operand, linear, operand.itemsize, n, tiles.of[k]);
        continue;
      }
      char* to = operand.convert == nullptr ? tiles.of[k] : raw;
      Cursor cursor(job.loop, count, begin);
      for (int64_t i = 0; i < n;) {
        const int64_t run = std::min(n - i, cursor.left());
        gather_run(operand.data + cursor.offset(k), job.loop.inner_stride(k), run, operand.itemsize,
                   to + i * operand.itemsize);
        cursor.advance(run);
        i += run;
      }
      if (operand.convert != nullptr) convert_run(operand, raw, tiles.of[k], n);
    }
    call(job, at, n);
    for (int k = 0; k < job.num_outputs; ++k) {
      const Operand& operand = job.operands[k];
      if (operand.data == nullptr || at.outputs[k] != tiles.of[k]) continue;
      if (dense[k]) {
        store_run(operand, tiles.of[k], operand.data + begin * operand.itemsize, operand.itemsize,
                  n);
        continue;
      }
      const char* from = tiles.of[k];
      if (operand.convert != nullptr) {
        convert_run(operand, tiles.of[k], raw, n);
        from = raw;
      }
      Cursor cursor(job.loop, count, begin);
      for (int64_t i = 0; i < n;) {
        const int64_t run = std::min(n - i, cursor.left());
        scatter_run(from + i * operand.itemsize, operand.data + cursor.offset(k),
                    job.loop.inner_stride(k), run, operand.itemsize);
        cursor.advance(run);
        i += run;
      }
    }
    begin += n;
  }
}

// ---- blocks

namespace {

constexpr int64_t kBlockRows = 32;   // along `across`
constexpr int64_t kBlockCols = 128;  // along the last dimension

int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

struct BlockTiles {
  alignas(64) char of[kMaxInputs][kBlockRows * kBlockCols * 8];
};

}  // namespace

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
  const int64_t rows = loop.size(across), cols = loop.inner_size();
  const int64_t row_blocks = pieces(rows, kBlockRows), col_blocks = pieces(cols, kBlockCols);
  Tiles tiles;
  BlockTiles blocks;
  Pointers at;
  set_absent(job, at, tiles);
  for (; begin < end; ++begin) {
    const int64_t c0 = begin % col_blocks * kBlockCols;
    const int64_t r0 = begin / col_blocks % row_blocks * kBlockRows;
    const int64_t c = std::min(kBlockCols, cols - c0), r = std::min(kBlockRows, rows - r0);
    // Where the other dimensions stand.
    int64_t rest = begin / col_blocks / row_blocks;
    int64_t offsets[kMaxOperands];
    for (int k = 0; k < count; ++k) {
      offsets[k] = c0 * loop.stride(k, last) + r0 * loop.stride(k, across);
    }
    for (int d = last - 1; d >= 0; --d) {
      if (d == across) continue;
      for (int k = 0; k < count; ++k) offsets[k] += rest % loop.size(d) * loop.stride(k, d);
      rest /= loop.size(d);
    }
    const auto turned = [&](int k) {
      return loop.stride(k, across) == job.operands[k].itemsize &&
             loop.stride(k, last) != job.operands[k].itemsize;
    };
    for (int k = job.num_outputs; k < count; ++k) {
      const Operand& operand = job.operands[k];
      if (operand.data == nullptr || !turned(k)) continue;
      transpose(operand.data + offsets[k], loop.stride(k, last), blocks.of[k - job.num_outputs],
                kBlockCols * operand.itemsize, c, r, operand.itemsize);
    }
    for (int64_t i = 0; i < r; ++i) {
      const auto row_of = [&](int k) {
        return job.operands[k].data + offsets[k] + i * loop.stride(k, across);
      };
      const auto direct = [&](int k) {
        return job.operands[k].convert == nullptr &&
               loop.stride(k, last) == job.operands[k].itemsize &&
               !(job.stream && job.is_output(k));
      };
      for (int k = 0; k < count; ++k) {
        const Operand& operand = job.operands[k];
        if (operand.data == nullptr) continue;
        char* pointer = tiles.of[k];
        if (direct(k)) {
          pointer = row_of(k);
        } else if (!job.is_output(k) && turned(k)) {
          char* row = blocks.of[k - job.num_outputs] + i * kBlockCols * operand.itemsize;
          if (operand.convert == nullptr) {
            pointer = row;
          } else {
            convert_run(operand, row, pointer, c);
          }
        } else if (!job.is_output(k)) {
          load_run(operand, row_of(k), loop.stride(k, last), c, pointer);
        }
        set(job, at, k, pointer);
      }
      call(job, at, c);
      for (int k = 0; k < job.num_outputs; ++k) {
        if (job.operands[k].data == nullptr || direct(k)) continue;
        store(job, job.operands[k], tiles.of[k], row_of(k), loop.stride(k, last), c);
      }
    }
  }
  if (job.stream) stream_fence();
}

}  // namespace mytorch::cpu
