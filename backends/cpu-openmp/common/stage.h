// Staging: loading a few hundred elements of an operand into a contiguous tile of the compute type,
// and storing tiles.
#pragma once

#include <cstdint>

#include "backends/cpu-openmp/simd/convert.h"
#include "mytorch/abi.h"

namespace mytorch::cpu {

inline constexpr int64_t kTile = 1024;  // elements; a tile has at most 8 KiB

struct StagedOperand {
  char* data = nullptr;
  int64_t itemsize = 0;       // in memory
  int64_t tile_itemsize = 0;  // in tiles
  // From memory to tiles, or from tiles to memory for outputs; NULL if the types are equal.
  simd::ConvertFn convert = nullptr;
  // A second conversion after `convert`, or NULL: inputs of a computation in 8 or 16 bits, and its
  // integer outputs, pass through that type.
  simd::ConvertFn then = nullptr;
};

// Return an operand of a computation in `compute` whose tiles have type `tile`.
StagedOperand make_input(const mt_tensor* tensor, mt_dtype compute, mt_dtype tile);
StagedOperand make_output(const mt_tensor* tensor, mt_dtype compute, mt_dtype tile);

// Converts n contiguous elements from memory's type to the tile's, or back for outputs.
void convert_run(const StagedOperand& operand, const void* from, void* to, int64_t n);
// Loads n <= kTile elements, `stride` bytes apart, into a tile.
void load_run(const StagedOperand& operand, const char* from, int64_t stride, int64_t n,
              void* tile);
// Stores n <= kTile elements of a tile, `stride` bytes apart.
void store_run(const StagedOperand& operand, const void* tile, char* to, int64_t stride, int64_t n);
// Like load_run and store_run, without conversion.
void gather_run(const char* from, int64_t stride, int64_t n, int64_t itemsize, void* to);
void scatter_run(const void* from, char* to, int64_t stride, int64_t n, int64_t itemsize);
// Fills `to` with n copies of the element at `value`.
void repeat(const void* value, int64_t itemsize, int64_t n, void* to);

}  // namespace mytorch::cpu
