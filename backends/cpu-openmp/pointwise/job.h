// A call on its way through the driver: operands described, the loop over them built.
#pragma once

#include <atomic>

#include "backends/cpu-openmp/common/loop.h"
#include "backends/cpu-openmp/pointwise/span.h"
#include "backends/cpu-openmp/pointwise/stage.h"

namespace mytorch::cpu {

struct Job {
  Span span = nullptr;
  Scalars scalars;
  int num_inputs = 0;
  int num_outputs = 0;
  // Outputs first: they decide the order of the loop. An operand with data == NULL is absent.
  Operand operands[kMaxOperands];
  Loop loop;
  int64_t grain = kTile;  // elements worth a thread
  // Results are to go past the caches: the span does it where it can (Scalars::stream), or they
  // are computed in tiles that are then copied.
  bool stream = false;
  bool span_streams = false;         // the span heeds Scalars::stream and ::rows
  bool moves = false;                // the span's output is its input
  int64_t tile = kTile;              // elements that run_tiles takes at once, at most kTile
  std::atomic<bool> refused{false};  // an integer division by zero

  int num_operands() const { return num_inputs + num_outputs; }
  bool is_output(int k) const { return k < num_outputs; }
  // Among the operands as a span numbers them, inputs first.
  int place(int k) const { return is_output(k) ? num_inputs + k : k - num_outputs; }
  bool is_absent(int k) const { return operands[k].data == nullptr; }
  // Whether the span heeds Scalars::rows.
  bool takes_rows() const { return span_streams && !scalars.stream && num_inputs > 1; }
  // Whether rows of the loop can be read or written by the span where they lie.
  bool is_direct(int k) const {
    return operands[k].convert == nullptr && loop.inner_stride(k) == operands[k].itemsize &&
           !(is_output(k) && stream && !scalars.stream);
  }
  // Whether the element that a row repeats can be read by the span where it lies.
  bool is_single(int k) const {
    return !is_output(k) && !is_absent(k) && operands[k].convert == nullptr &&
           loop.inner_stride(k) == 0 && takes_rows();
  }
};

// Runs the job on the context's threads.
void run_job(mt_ctx& ctx, Job& job);

// ---- the ways to do it

// Where a span reads and writes: pointers by the span's own numbering, inputs and outputs apart.
struct Pointers {
  const void* inputs[kMaxInputs];
  void* outputs[kMaxOutputs];

  void set(const Job& job, int k, void* pointer) {
    if (job.is_output(k)) {
      outputs[k] = pointer;
    } else {
      inputs[k - job.num_outputs] = pointer;
    }
  }
};

// A tile for each operand.
struct Tiles {
  alignas(64) char of[kMaxOperands][kTile * 8];

  // Absent inputs read ones, whatever their type: nobody looks at what comes of them.
  void set_absent(const Job& job, Pointers& at);
};

void call_span(Job& job, const Scalars& scalars, const Pointers& at, int64_t n);
// Stores n <= kTile elements of an output that lie in a tile.
void store_tile(const Job& job, const Operand& operand, const void* tile, char* to, int64_t stride,
                int64_t n);

// Elements [begin, end) in the loop's order, by rows: an operand that a row holds as spans want it
// is read or written in place.
void run_rows(Job& job, int64_t begin, int64_t end);
// The same for short rows: tiles span several of them.
void run_tiles(Job& job, int64_t begin, int64_t end);

// The dimension along which some input is contiguous where the loop's last one is far apart, or -1.
int transposed_dim(const Job& job);
// Blocks over the last dimension and `across`.
int64_t num_blocks(const Job& job, int across);
void run_blocks(Job& job, int across, int64_t begin, int64_t end);

// Small inputs that repeat along an outer dimension (a bias) are written out a few times, so that
// short rows become long ones. False, with nothing done, where that is not the case.
bool run_repeated(mt_ctx& ctx, Job& job);

// Gathers elements [begin, begin + n) of one operand of a loop, in its order, without conversion.
void gather(const Loop& loop, int operand, const Operand& from, int64_t begin, int64_t n, void* to);

}  // namespace mytorch::cpu
