// Loops over operands that are not all contiguous.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "backends/cpu-openmp/common/gather_rows.h"
#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/pointwise/job.h"
#include "mytorch/backend/parallel.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kLine = 64;
// Rows shorter than these are gathered into tiles: in general; if the inner loop can access all
// operands in place; if one call of the inner loop can also process many rows.
constexpr int64_t kShortRow = 128;
constexpr int64_t kShortDirectRow = 96;
constexpr int64_t kShortLoopRow = 56;
// Rows that do not consist of whole lines are stored non-temporally if they have at least this many
// bytes.
constexpr int64_t kLongRow = 16 * 1024;

// Returns whether every output is contiguous in the loop's order and of the compute type.
bool has_plain_outputs(const Job& job) {
  for (int k = 0; k < job.num_outputs; ++k) {
    const StagedOperand& output = job.operands[k];
    if (output.data != nullptr &&
        (output.convert != nullptr || !job.loop.is_contiguous(k, output.itemsize))) {
      return false;
    }
  }
  return true;
}

bool has_direct_rows(const Job& job) {
  for (int k = 0; k < job.num_operands(); ++k) {
    if (job.is_absent(k) || !(job.is_direct(k) || job.is_single(k))) return false;
  }
  return true;
}

bool has_whole_rows(const Job& job) {
  const Loop& loop = job.loop;
  for (int k = 0; k < job.num_outputs; ++k) {
    const int64_t bytes = loop.inner_size() * job.operands[k].itemsize;
    if (bytes < kLongRow && bytes % kLine != 0) return false;
  }
  return true;
}

// Returns whether all tiles of an input are equal, because they repeat one row.
bool has_equal_tiles(const Job& job, int k) {
  for (int d = 0; d + 1 < job.loop.ndim(); ++d) {
    if (job.loop.stride(k, d) != 0) return false;
  }
  return job.tile % job.loop.inner_size() == 0;
}

// Returns the number of elements of a tile. If possible, it consists of whole rows and whole lines
// of 4-byte elements; else of whole rows, unless two tiles would share a line of non-temporal
// stores.
int64_t tile_of(const Job& job) {
  const int64_t row = job.loop.inner_size();
  const int64_t unit = std::lcm(row, kLine / 4);
  if (unit <= kTile) return kTile / unit * unit;
  return row <= kTile && !job.stream ? kTile / row * row : kTile;
}

}  // namespace

void Tiles::set_absent(const Job& job, Pointers& at) {
  for (int k = 0; k < job.num_operands(); ++k) {
    if (!job.is_absent(k)) continue;
    if (!job.is_output(k)) std::memset(of[k], 1, sizeof(of[k]));
    at.set(job, k, job.is_output(k) ? nullptr : of[k]);
  }
}

void call_inner_loop(Job& job, const Scalars& scalars, const Pointers& at, int64_t n) {
  if (!job.inner_loop(at.inputs, at.outputs, scalars, n)) {
    job.refused.store(true, std::memory_order_relaxed);
  }
}

void store_tile(const Job& job, const StagedOperand& operand, const void* tile, char* to,
                int64_t stride, int64_t n) {
  if (!job.stream || stride != operand.itemsize) {
    store_run(operand, tile, to, stride, n);
  } else if (operand.convert == nullptr) {
    stream_copy(to, tile, n * operand.itemsize);
  } else {
    alignas(64) char raw[kTile * 8];
    convert_run(operand, tile, raw, n);
    stream_copy(to, raw, n * operand.itemsize);
  }
}

void gather(const Loop& loop, int operand, const StagedOperand& from, int64_t begin, int64_t n,
            void* to) {
  char* at = static_cast<char*>(to);
  const int last = loop.ndim() - 1;
  const int64_t inner = loop.stride(operand, last);
  for (Cursor cursor(loop, operand, operand + 1, begin); n > 0;) {
    const char* x = from.data + cursor.offset(operand);
    const int64_t rows = std::min(cursor.rows_left(), n / loop.size(last));
    int64_t count;
    if (rows > 1) {
      count = rows * loop.size(last);
      gather_rows(x, loop.stride(operand, last - 1), inner, rows, loop.size(last), from.itemsize,
                  at);
      cursor.advance_rows(rows);
    } else {
      count = std::min(cursor.left(), n);
      gather_run(x, inner, count, from.itemsize, at);
      cursor.advance(count);
    }
    at += count * from.itemsize;
    n -= count;
  }
}

namespace {

// Runs the inner loop in place on `rows` rows of n elements, with a single call if the scalars have
// `rows`.
void run_direct(Job& job, const Scalars& scalars, InnerRows& inner_rows, const Cursor& cursor,
                int64_t rows, int64_t n) {
  const int outer = std::max(job.loop.ndim() - 2, 0);
  Pointers at;
  for (int k = 0; k < job.num_operands(); ++k) {
    at.set(job, k, job.operands[k].data + cursor.offset(k));
    inner_rows.by[job.place(k)] = job.loop.stride(k, outer);
  }
  if (scalars.rows != nullptr) {
    inner_rows.count = rows;
    return call_inner_loop(job, scalars, at, n);
  }
  for (;;) {
    call_inner_loop(job, scalars, at, n);
    if (--rows == 0) return;
    for (int i = 0; i < job.num_inputs; ++i) {
      at.inputs[i] = static_cast<const char*>(at.inputs[i]) + inner_rows.by[i];
    }
    for (int i = 0; i < job.num_outputs; ++i) {
      at.outputs[i] = static_cast<char*>(at.outputs[i]) + inner_rows.by[job.num_inputs + i];
    }
  }
}

}  // namespace

void run_rows(Job& job, int64_t begin, int64_t end) {
  const int count = job.num_operands();
  Tiles tiles;
  Pointers at;
  tiles.set_absent(job, at);
  Scalars scalars = job.scalars;
  InnerRows inner_rows;
  bool direct[kMaxOperands];
  bool all_direct = true;
  const char* repeated[kMaxOperands] = {};  // the element that fills the tile
  for (int k = 0; k < count; ++k) {
    direct[k] = job.is_direct(k) || job.is_single(k);
    if (job.is_single(k)) inner_rows.single |= uint32_t{1} << job.place(k);
    all_direct = all_direct && direct[k] && !job.is_absent(k);
  }
  // A row without broadcast elements does not need `rows`.
  if (job.takes_rows() && (job.loop.ndim() > 1 || inner_rows.single != 0))
    scalars.rows = &inner_rows;
  const int64_t inner = job.loop.inner_size();
  Cursor cursor(job.loop, begin);
  while (begin < end) {
    if (all_direct) {
      const int64_t rows = std::min(cursor.rows_left(), (end - begin) / inner);
      const int64_t n = rows > 0 ? inner : std::min(end - begin, cursor.left());
      run_direct(job, scalars, inner_rows, cursor, std::max<int64_t>(rows, 1), n);
      rows > 0 ? cursor.advance_rows(rows) : cursor.advance(n);
      begin += std::max<int64_t>(rows, 1) * n;
      continue;
    }
    const int64_t n = std::min({end - begin, cursor.left(), kTile});
    for (int k = 0; k < count; ++k) {
      const StagedOperand& operand = job.operands[k];
      if (operand.data == nullptr) continue;
      char* from = operand.data + cursor.offset(k);
      at.set(job, k, direct[k] ? from : tiles.of[k]);
      if (direct[k] || job.is_output(k)) continue;
      const int64_t stride = job.loop.inner_stride(k);
      if (stride != 0) {
        load_run(operand, from, stride, n, tiles.of[k]);
      } else if (repeated[k] != from) {
        // Filled for the longest run that this row or a later one needs.
        load_run(operand, from, 0, std::min({kTile, inner, end - begin}), tiles.of[k]);
        repeated[k] = from;
      }
    }
    call_inner_loop(job, scalars, at, n);
    for (int k = 0; k < job.num_outputs; ++k) {
      const StagedOperand& operand = job.operands[k];
      if (operand.data == nullptr || direct[k]) continue;
      store_tile(job, operand, tiles.of[k], operand.data + cursor.offset(k),
                 job.loop.inner_stride(k), n);
    }
    cursor.advance(n);
    begin += n;
  }
}

void run_tiles(Job& job, int64_t begin, int64_t end) {
  const int count = job.num_operands();
  Tiles tiles;
  Pointers at;
  tiles.set_absent(job, at);
  bool contiguous[kMaxOperands], direct[kMaxOperands], fixed[kMaxOperands];
  for (int k = 0; k < count; ++k) {
    contiguous[k] = job.loop.is_contiguous(k, job.operands[k].itemsize);
    direct[k] = contiguous[k] && job.is_direct(k);
    fixed[k] = !job.is_output(k) && has_equal_tiles(job, k);
  }
  const int64_t first = begin;
  alignas(64) char raw[kTile * 8];
  while (begin < end) {
    const int64_t n = std::min(end - begin, job.tile);
    for (int k = 0; k < count; ++k) {
      const StagedOperand& operand = job.operands[k];
      if (operand.data == nullptr) continue;
      char* linear = operand.data + begin * operand.itemsize;
      at.set(job, k, direct[k] ? linear : tiles.of[k]);
      if (direct[k] || job.is_output(k) || (fixed[k] && begin != first)) continue;
      if (contiguous[k]) {
        load_run(operand, linear, operand.itemsize, n, tiles.of[k]);
      } else if (operand.convert == nullptr) {
        gather(job.loop, k, operand, begin, n, tiles.of[k]);
      } else {
        gather(job.loop, k, operand, begin, n, raw);
        convert_run(operand, raw, tiles.of[k], n);
      }
    }
    call_inner_loop(job, job.scalars, at, n);
    for (int k = 0; k < job.num_outputs; ++k) {
      const StagedOperand& operand = job.operands[k];
      if (operand.data == nullptr || direct[k]) continue;
      if (contiguous[k]) {
        store_tile(job, operand, tiles.of[k], operand.data + begin * operand.itemsize,
                   operand.itemsize, n);
        continue;
      }
      const char* from = tiles.of[k];
      if (operand.convert != nullptr) {
        convert_run(operand, tiles.of[k], raw, n);
        from = raw;
      }
      Cursor cursor(job.loop, k, k + 1, begin);
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

void run_job(mt_ctx& ctx, Job& job) {
  job.scalars.stream = job.stream && job.loop_streams && has_plain_outputs(job);
  const int64_t n = job.loop.numel();
  const auto run = [&](int64_t units, int64_t grain, auto&& piece) {
    sdk::parallel_for(ctx, 0, units, std::max<int64_t>(1, grain),
                      [&](int64_t begin, int64_t end) noexcept {
                        piece(begin, end);
                        if (job.stream) stream_fence();
                      });
  };
  if (const int across = transposed_dim(job); across >= 0) {
    const int64_t blocks = num_blocks(job, across);
    run(blocks, job.grain * blocks / n,
        [&](int64_t begin, int64_t end) { run_blocks(job, across, begin, end); });
    return;
  }
  if (run_repeated(ctx, job)) return;
  const int64_t inner = job.loop.inner_size();
  const int64_t shortest = !has_direct_rows(job) ? kShortRow
                           : job.takes_rows()    ? kShortLoopRow
                                                 : kShortDirectRow;
  const bool rows =
      job.loop.ndim() == 1 || (inner >= shortest && (!job.stream || has_whole_rows(job)));
  job.tile = rows ? kTile : tile_of(job);
  run((n + job.tile - 1) / job.tile, job.grain / job.tile, [&](int64_t begin, int64_t end) {
    (rows ? run_rows : run_tiles)(job, begin * job.tile, std::min(end * job.tile, n));
  });
}

}  // namespace mytorch::cpu
