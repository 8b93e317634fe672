// Programs compiled at run time, composed of the inner loops of single nodes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/cpu-openmp/pointwise/programs.h"
#include "mytorch/abi.h"

namespace mytorch::cpu {

// A pointwise program that computes some nodes of a program in one dtype.
class TileProgram {
 public:
  // `roots` become the outputs. Nodes "state" and "count" become inputs; their offset is the
  // component or kCountLeaf. Throws Declined if a node has no inner loop.
  TileProgram(const mt_program& program, mt_dtype compute,
              std::span<const mt_program_output> roots);
  TileProgram(const TileProgram&) = delete;

  const PointwiseProgram& program() const { return program_; }

 private:
  // A value is an input, or a tile of this program.
  struct Place {
    bool input;
    int index;
  };
  struct Step {
    InnerLoop inner_loop;
    Place args[3];
    int arity;
    int result;  // tile
    bool wraps;  // to the 8 or 16 bits of the dtype
  };
  struct Copy {
    int input, tile;
    bool logical;
  };
  struct Constant {
    int tile;
    Number value;
    int scalar;  // the index of a scalar argument, or -1 for `value`
    bool logical;
  };

  int64_t itemsize(bool logical) const { return logical ? 1 : kComputeBytes[compute_type_]; }
  static bool run(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                  int64_t n);
  bool run_tile(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                char* tiles, int64_t n) const;

  PointwiseProgram program_{};
  mt_dtype compute_;
  ComputeType compute_type_;
  std::vector<OperandField> inputs_;
  std::vector<OperandField> outputs_;
  std::vector<ScalarField> scalars_;
  std::vector<Constant> constants_;
  std::vector<Step> steps_;
  std::vector<Copy> copies_;  // of inputs that are outputs, too, which another output may overwrite
  std::vector<Place> roots_;
  int num_tiles_ = 0;
};

// The backend's compile function for programs.
void compile(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> types,
             mt_kernel_entry& kernel);

// For programs with a fold; defined in reduce/.
void compile_reduce(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel);

}  // namespace mytorch::cpu
