// A call on its way through the driver: operands described, the loop over them built.
#pragma once

#include <atomic>

#include "backends/cpu-openmp/pointwise/loop.h"
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
  bool stream = false;  // store dense outputs past the caches
  int64_t cost = 1;
  std::atomic<bool> refused{false};  // an integer division by zero

  int num_operands() const { return num_inputs + num_outputs; }
  bool is_output(int k) const { return k < num_outputs; }
};

// Elements [begin, end) in the loop's order, by rows: an operand that a row holds as spans want it
// is read or written in place.
void run_rows(Job& job, int64_t begin, int64_t end);
// The same for short rows: tiles span several of them.
void run_tiles(Job& job, int64_t begin, int64_t end);
// Blocks over the last dimension and `across`, along which some input is contiguous instead.
int64_t num_blocks(const Job& job, int across);
void run_blocks(Job& job, int across, int64_t begin, int64_t end);

}  // namespace mytorch::cpu
