// A call of a reduction: its plan, and the steps of its execution.
#pragma once

#include <atomic>
#include <cmath>

#include "backends/cpu-openmp/common/loop.h"
#include "backends/cpu-openmp/common/stage.h"
#include "backends/cpu-openmp/reduction/fold.h"

namespace mytorch::cpu {

// The outputs that are computed from their states and stored together.
inline constexpr int64_t kStates = 512;

class Reduction {
 public:
  Reduction(const ReduceProgram& program, mt_dtype compute, const void* args);

  int64_t kept() const { return kept_.numel(); }
  int64_t reduced() const { return reduced_.numel(); }
  // Returns the number of outputs from `begin` on that fold() processes at once.
  int64_t group(int64_t begin, int64_t end) const;
  // Returns whether fold() reads across the outputs of a group instead of along the elements of one
  // output.
  bool across() const { return across_; }
  // Ranges of outputs consist of so many.
  int64_t unit() const { return pairs_ ? 2 : 1; }
  const FoldFns& fns() const { return *fns_; }

  // Folds the reduced elements [from, to) of outputs [begin, begin + n) into states 0 to n - 1,
  // which it resets first.
  void fold(const States& states, int64_t begin, int64_t n, int64_t from, int64_t to);
  // Computes and stores outputs [begin, begin + n) from their states.
  void finish(const States& states, int64_t begin, int64_t n);

  bool refused() const { return refused_.load(); }

  // Whether the values that are summed are computed in float32, and can be in double.
  bool narrow() const { return narrow_; }
  // Whether values that exceed the range of float32, such as squares, may be missing in the sum of
  // state j. In a sum of kLeast or more, those that vanished do not matter.
  static bool lost(const States& states, int64_t j) {
    constexpr double kLeast = 0x1p-100;
    const double sum = std::abs(static_cast<const double*>(states.component[0])[j]);
    return !(sum >= kLeast && std::isfinite(sum));
  }

 private:
  void set_fold();
  void fold_one(const States& states, int64_t j, const char* base, int64_t from, int64_t to);
  void fold_rows(const States& states, const char* base, int64_t n, int64_t from, int64_t to);
  void fold_narrow(const States& states, const char* x, int64_t rows, int64_t n, int64_t from);
  void finish_some(const States& states, int64_t begin, int64_t n);
  // Computes the folded values from a tile of the input.
  const void* step(char* tile, char* other, char* third, int64_t n);
  void store_output(int index, const void* tile, int64_t begin, int64_t n);

  const ReduceProgram& program_;
  const mt_dtype compute_;
  mt_dtype end_;  // the type that `end` computes in: double for states of double
  const FoldFns* fns_ = nullptr;
  mt_dtype staged_;  // the type of input tiles
  StagedOperand input_;
  simd::ConvertFn after_step_ = nullptr;
  Scalars step_scalars_;
  Scalars end_scalars_;
  bool across_ = false;
  bool each_ = false;  // contiguous rows, several of which are folded at once
  bool narrow_ = false;
  bool pairs_ = false;  // contiguous rows of two outputs in turns: the parts of complex numbers
  int64_t group_ = kStates;
  bool direct_ = false;  // the input can be folded in place
  Loop kept_;            // operand 0: the input, then the outputs
  Loop reduced_;         // operand 0: the input
  StagedOperand outputs_[kMaxOutputs];
  bool wanted_[kMaxOutputs] = {};
  std::atomic<bool> refused_{false};
};

// The kernel of the generated operators; `self` is a ReduceOp.
int run_reduce(void* self, mt_ctx* ctx, const void* args) noexcept;
int run_reduce_program(mt_ctx* ctx, const ReduceProgram& program, const char* base,
                       const void* args) noexcept;

}  // namespace mytorch::cpu
