// Programs that were not known ahead of time, put together from the spans of single nodes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/cpu-openmp/pointwise/programs.h"
#include "mytorch/abi.h"

namespace mytorch::cpu {

// The pointwise program that computes some nodes of another for one computation type.
class TileProgram {
 public:
  // `roots` become the outputs, with the offsets and types given. Nodes "state" and "count" become
  // inputs: Slot::offset is the component, or kCountLeaf. Throws Declined for what no span
  // computes.
  TileProgram(const mt_program& program, mt_dtype compute,
              std::span<const mt_program_output> roots);
  TileProgram(const TileProgram&) = delete;

  const PointwiseProgram& program() const { return program_; }

 private:
  // A value lies with an input, or in a tile of this program's own.
  struct Place {
    bool input;
    int index;
  };
  struct Step {
    Span span;
    Place args[3];
    int arity;
    int result;  // tile
    bool wraps;  // to the 8 or 16 bits computed in
  };
  struct Constant {
    int tile;
    Number value;
    int scalar;  // or the index of a scalar argument
    bool logical;
  };

  static bool run(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                  int64_t n);
  bool run_tile(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                char* tiles, int64_t n) const;

  PointwiseProgram program_{};
  mt_dtype compute_;
  Lane lane_;
  std::vector<Slot> inputs_;
  std::vector<Slot> outputs_;
  std::vector<ScalarSlot> scalars_;
  std::vector<Constant> constants_;
  std::vector<Step> steps_;
  std::vector<Place> roots_;
  int num_tiles_ = 0;
};

// The entry of the backend.
void compile(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> types,
             mt_kernel_entry& kernel);

// reduce/: programs with a fold.
void compile_reduce(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel);

}  // namespace mytorch::cpu
