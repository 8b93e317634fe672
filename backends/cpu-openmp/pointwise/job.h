// A pointwise call in the driver: its operands, the loop over them, and the functions that run it.
#pragma once

#include <atomic>

#include "backends/cpu-openmp/common/loop.h"
#include "backends/cpu-openmp/common/stage.h"
#include "backends/cpu-openmp/pointwise/inner_loop.h"

namespace mytorch::cpu {

struct Job {
  InnerLoop inner_loop = nullptr;
  Scalars scalars;
  int num_inputs = 0;
  int num_outputs = 0;
  // Outputs come first, because they determine the order of the loop. An absent operand has no
  // data.
  StagedOperand operands[kMaxOperands];
  Loop loop;
  int64_t grain = kTile;  // the minimum number of elements of a thread
  // Stores results non-temporally: the inner loop does so if it can (Scalars::stream); otherwise
  // tiles of results are copied.
  bool stream = false;
  bool loop_streams = false;         // the inner loop uses Scalars::stream and ::rows
  bool moves = false;                // the inner loop copies its input
  int64_t tile = kTile;              // elements of a step of run_tiles, at most kTile
  std::atomic<bool> refused{false};  // because of an integer division by zero

  int num_operands() const { return num_inputs + num_outputs; }
  bool is_output(int k) const { return k < num_outputs; }
  // Returns the operand's number in InnerRows, which has inputs first.
  int place(int k) const { return is_output(k) ? num_inputs + k : k - num_outputs; }
  bool is_absent(int k) const { return operands[k].data == nullptr; }
  // Returns whether the inner loop accepts Scalars::rows.
  bool takes_rows() const { return loop_streams && !scalars.stream && num_inputs > 1; }
  // Returns whether the inner loop can access the operand's rows in place.
  bool is_direct(int k) const {
    return operands[k].convert == nullptr && loop.inner_stride(k) == operands[k].itemsize &&
           !(is_output(k) && stream && !scalars.stream);
  }
  // Returns whether the inner loop can read in place the element that the operand broadcasts along
  // a row.
  bool is_single(int k) const {
    return !is_output(k) && !is_absent(k) && operands[k].convert == nullptr &&
           loop.inner_stride(k) == 0 && takes_rows();
  }
};

// Runs the job on the context's threads.
void run_job(mt_ctx& ctx, Job& job);

// ---- the functions that run a job

// The pointers that an inner loop takes.
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

  // Makes absent inputs read ones of any type; their results are unused.
  void set_absent(const Job& job, Pointers& at);
};

void call_inner_loop(Job& job, const Scalars& scalars, const Pointers& at, int64_t n);
// Stores n <= kTile elements of an output from its tile.
void store_tile(const Job& job, const StagedOperand& operand, const void* tile, char* to,
                int64_t stride, int64_t n);

// Computes elements [begin, end) in the loop's order row by row. Operands whose rows suit the inner
// loop are accessed in place.
void run_rows(Job& job, int64_t begin, int64_t end);
// Like run_rows, for short rows: a tile contains several of them.
void run_tiles(Job& job, int64_t begin, int64_t end);

// Returns a dimension along which an input is contiguous that is not contiguous along the loop's
// last dimension, or -1.
int transposed_dim(const Job& job);
// Runs blocks of the last dimension and `across`.
int64_t num_blocks(const Job& job, int across);
void run_blocks(Job& job, int across, int64_t begin, int64_t end);

// Repeats small inputs that are broadcast along an outer dimension (a bias) a few times in scratch
// memory, so that short rows become long ones. Returns false, without doing anything, if there are
// no such inputs.
bool run_repeated(mt_ctx& ctx, Job& job);

// Gathers elements [begin, begin + n) of an operand in the loop's order, without conversion.
void gather(const Loop& loop, int operand, const StagedOperand& from, int64_t begin, int64_t n,
            void* to);

}  // namespace mytorch::cpu
