// Staging: bringing a few hundred elements of an operand into a contiguous tile of the type that
// spans take, and back.
#pragma once

#include <cstdint>

#include "backends/cpu-openmp/simd/convert.h"
#include "mytorch/abi.h"

namespace mytorch::cpu {

inline constexpr int64_t kTile = 1024;  // elements; an operand's tile is 8 KiB at most

struct Operand {
  char* data = nullptr;
  int64_t itemsize = 0;       // in memory
  int64_t tile_itemsize = 0;  // in tiles
  simd::ConvertFn convert =
      nullptr;  // from memory to tiles, of an output the other way; NULL: none
  // A second step after `convert`: what is computed in 8 or 16 bits passes through that type on the
  // way to its tile, and integers on the way back. NULL: one is enough.
  simd::ConvertFn then = nullptr;
};

// An operand of a computation in `compute`, whose tiles have type `tile`.
Operand make_input(const mt_tensor* tensor, mt_dtype compute, mt_dtype tile);
Operand make_output(const mt_tensor* tensor, mt_dtype compute, mt_dtype tile);

// From memory's type to the tile's, or back; both contiguous.
void convert_run(const Operand& operand, const void* from, void* to, int64_t n);
// Loads n <= kTile elements that lie `stride` bytes apart.
void load_run(const Operand& operand, const char* from, int64_t stride, int64_t n, void* tile);
void store_run(const Operand& operand, const void* tile, char* to, int64_t stride, int64_t n);
// The same without conversion: elements of the operand's own type.
void gather_run(const char* from, int64_t stride, int64_t n, int64_t itemsize, void* to);
void scatter_run(const void* from, char* to, int64_t stride, int64_t n, int64_t itemsize);
// Fills n elements of a tile with the one at `value`.
void repeat(const void* value, int64_t itemsize, int64_t n, void* to);

}  // namespace mytorch::cpu
