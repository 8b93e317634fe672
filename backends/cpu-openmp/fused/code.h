// The calls of a fused program as steps over tiles: runs of a few hundred elements that stay in the
// first-level cache. A step calls the inner loop of a record, the one that runs eager calls, or
// converts one tile.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu-openmp/common/stage.h"
#include "backends/cpu-openmp/pointwise/compile.h"
#include "backends/cpu-openmp/pointwise/inner_loop.h"
#include "mytorch/abi_fused.h"
#include "mytorch/backend/dtype.h"

namespace mytorch::cpu {

// Where values lie: operands of the program, tiles, single elements of a row, and the elements of a
// whole row.
struct Place {
  enum Kind : uint8_t { kInput, kTile, kSlot, kRow };
  Kind kind = kTile;
  int index = -1;
  mt_dtype type{};  // a compute type, or bool, whose elements are bytes
};

struct Step {
  // A conversion; an inner loop of a record; the check of an index; the elements of a table that
  // indices select; the places of elements in their row.
  enum Kind : uint8_t { kConvert, kLoop, kBound, kLoad, kPosition };
  Kind kind = kConvert;
  InnerLoop loop = nullptr;
  std::shared_ptr<const InnerLoop> code;  // keeps a loop of machine code
  std::shared_ptr<const float[]> given;   // and the numbers that it is given
  simd::ConvertFn convert = nullptr, then = nullptr;
  std::vector<Place> inputs;
  std::vector<Place> results;  // an index of -1: not wanted
  Scalars scalars;
  const char* name = "";         // of kBound: the operator that the error names
  int64_t size = 0, number = 0;  // and its dimension
  int table = -1;                // of kLoad: the number of the operand
  // Of kLoop in float32: what it computes; the fields of `body` tell which operand is which.
  const mt_program* program = nullptr;
  const PointwiseProgram* body = nullptr;
};
// The operands, and the results, of a step.
inline constexpr size_t kMaxPlaces = 16;

// A tile whose elements are all the same: a number, or the element of a slot.
struct Constant {
  int tile;
  mt_dtype type;
  Number value;
  int slot = -1;
};

inline constexpr int64_t kMaxWidth = 1024;
inline constexpr mt_dtype kBoolType = sdk::dtype_of<bool>;
// Returns the type of tiles with values of a dtype.
mt_dtype tile_type(mt_dtype dtype);

// Builds steps. Throws Declined for what they cannot hold.
class TileCode {
 public:
  explicit TileCode(const mt_fused_program& program);

  // Where the steps that follow go, and whether they compute single elements, in slots.
  std::vector<Step>* steps = nullptr;
  bool in_slots = false;

  // Appends a call that is not a reduction.
  void add_call(const mt_fused_call& call);
  // Returns the inputs of a loop for a call, whose operands are told by their fields.
  std::vector<Place> inputs_of(const PointwiseProgram& body, const mt_fused_call& call);
  // Returns a value as an operand of `compute`, or as a bool, in a place of its tile's type.
  Place as_type(int32_t value, mt_dtype compute, int32_t type);
  // Appends conversions of an operand to `through` and then to `to`.
  Place converted(const Place& from, mt_dtype through, mt_dtype to);
  // Returns where an output is stored from: its place or, if that is an operand, a copy, because
  // another output may overwrite the operand first.
  Place output(int32_t value);
  // Sets a value to a result that was computed in some place.
  void set_value(int32_t value, const Place& from);
  Place new_place(mt_dtype type);
  // Appends a call of an inner loop for those inputs; `numbers` are the call's scalars, of the
  // program's nodes. Returns the results: an index of -1 for those that are not wanted.
  std::vector<Place> add_loop(const PointwiseProgram& body, const mt_fused_call& call,
                              std::vector<Place> inputs, const std::vector<bool>& wanted);
  const PointwiseProgram& program_of(const mt_fused_call& call);

  const mt_fused_value& value(int32_t at) const { return values_[static_cast<size_t>(at)]; }
  Place& place(int32_t at) { return places_[static_cast<size_t>(at)]; }
  // Forgets which slots have tiles, which are filled again in each stage.
  void begin_stage() { spread_.assign(values_.size(), -1); }

  std::deque<TileProgram> made;  // of records without an inner loop
  std::vector<Constant> constants;
  int num_tiles = 0;
  int num_slots = 0;
  int64_t cost = 0;

 private:
  Place constant(double value, mt_dtype compute, mt_dtype type);
  Step& add_step(Step::Kind kind, mt_dtype type);
  void add_bound(const mt_fused_call& call);
  void add_load(const mt_fused_call& call);

  const bool exact_;
  std::vector<mt_fused_value> values_;
  std::vector<Place> places_;
  std::vector<int> spread_;  // for each value in a slot, its tile in this stage, or -1
};

// Gives tiles that are not needed at the same time the same memory. `outputs` are needed after the
// last step. Tiles of constants keep theirs. Returns the number of tiles.
int reuse_tiles(std::vector<Step>& steps, std::vector<Constant>& constants,
                const std::vector<Place*>& outputs, int num_tiles);

// Drops the numbers that no step reads. `kept` says which tiles others read.
void drop_unused(std::vector<Constant>& constants, const std::vector<Step>& steps,
                 const std::vector<bool>& kept);

// A table, at the row of the step.
struct Table {
  const char* data = nullptr;
  int64_t inner = 0, stride = 0;  // in bytes: between elements of the row, and of the index
};

// An index that is out of range.
struct BadIndex {
  const Step* step = nullptr;  // NULL: none
  int64_t index = 0;
};

// The memory of the places of a thread.
struct Memory {
  const void* const* inputs = nullptr;  // at the elements of the step
  char* tiles = nullptr;
  int64_t tile_bytes = 0;
  char* slots = nullptr;  // 8 bytes each
  char* rows = nullptr;   // 8 bytes for each element
  int64_t row_bytes = 0;
  int64_t column = 0;             // the first element of the step
  const Table* tables = nullptr;  // of the inputs
  BadIndex* bad_index = nullptr;

  void* at(const Place& place) const {
    switch (place.kind) {
      case Place::kInput:
        return const_cast<void*>(inputs[place.index]);
      case Place::kTile:
        return tiles + place.index * tile_bytes;
      case Place::kSlot:
        return slots + place.index * 8;
      default:
        return rows + place.index * row_bytes + column * sdk::itemsize(place.type);
    }
  }
};
// Runs steps over n elements. Returns false after a bad index, or an integer division by zero.
bool run_steps(const std::vector<Step>& steps, const Memory& memory, int64_t n);
// Fills the tiles of constants that are numbers, or those of slots.
void fill_constants(std::span<const Constant> constants, bool slots, const Memory& memory,
                    int64_t width);

}  // namespace mytorch::cpu
