#include "backends/cpu-openmp/common/gather_rows.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu-openmp/common/stream.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/common/gather_rows.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_INLINE void Fill(T value, int64_t n, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto v = hn::Set(d, value);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    hn::StoreU(v, d, to + i);
    hn::StoreU(v, d, to + i + lanes);
    hn::StoreU(v, d, to + i + 2 * lanes);
    hn::StoreU(v, d, to + i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) hn::StoreU(v, d, to + i);
  for (; i < n; ++i) to[i] = value;
}

// Repeats neighboring elements a few times each: one vector of elements gives `cols` vectors of
// results, each by one table lookup. Returns the number of completed rows.
constexpr int64_t kFewColumns = 8;
template <class T>
HWY_INLINE int64_t ExpandNeighbours(const T* from, int64_t rows, int64_t cols, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  using I = hwy::MakeSigned<T>;
  const hn::Rebind<I, decltype(d)> di;
  constexpr size_t kMax = hn::MaxLanes(d);
  alignas(64) I places[kFewColumns * kMax];
  for (int64_t i = 0, lane = 0; lane < lanes; ++lane) {
    for (int64_t c = 0; c < cols; ++c) places[i++] = static_cast<I>(lane);
  }
  int64_t r = 0;
  for (; r + lanes <= rows; r += lanes, to += cols * lanes) {
    const auto v = hn::LoadU(d, from + r);
    for (int64_t c = 0; c < cols; ++c) {
      const auto index = hn::IndicesFromVec(d, hn::Load(di, places + c * lanes));
      hn::StoreU(hn::TableLookupLanes(v, index), d, to + c * lanes);
    }
  }
  return r;
}

// Repeats one element for each row. Stores whole vectors, whose excess the next row overwrites, and
// stores the last rows exactly.
template <class T>
void Expand(const char* from, int64_t row_stride, int64_t rows, int64_t cols, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (sizeof(T) == 4 && hn::MaxLanes(d) > 1) {
    if (row_stride == sizeof(T) && cols < kFewColumns && rows >= 4 * lanes) {
      const int64_t done = ExpandNeighbours(reinterpret_cast<const T*>(from), rows, cols, to);
      from += done * row_stride, to += done * cols, rows -= done;
    }
  }
  const int64_t wide = (cols + lanes - 1) / lanes * lanes;
  const int64_t exact = std::min(rows, (wide - cols + cols - 1) / cols);
  T value;
  for (; rows > exact; --rows, from += row_stride, to += cols) {
    std::memcpy(&value, from, sizeof(T));
    const auto v = hn::Set(d, value);
    for (int64_t c = 0; c < cols; c += lanes) hn::StoreU(v, d, to + c);
  }
  for (; rows > 0; --rows, from += row_stride, to += cols) {
    std::memcpy(&value, from, sizeof(T));
    Fill(value, cols, to);
  }
}

// Copies contiguous rows in the same way. The excess elements that it reads belong to a later row.
template <class T>
void Pack(const char* from, int64_t row_stride, int64_t rows, int64_t cols, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kItem = static_cast<int64_t>(sizeof(T));
  const int64_t wide = (cols + lanes - 1) / lanes * lanes;
  int64_t exact = (wide - cols + cols - 1) / cols;
  if (wide != cols) {
    exact = row_stride > 0 ? std::max(exact, (wide - cols) * kItem / row_stride + 1) : rows;
  }
  exact = std::min(rows, exact);
  for (; rows > exact; --rows, from += row_stride, to += cols) {
    for (int64_t c = 0; c < cols; c += lanes) {
      hn::StoreU(hn::LoadU(d, reinterpret_cast<const T*>(from) + c), d, to + c);
    }
  }
  for (; rows > 0; --rows, from += row_stride, to += cols) {
    std::memcpy(to, from, static_cast<size_t>(cols * kItem));
  }
}

template <class T>
void GatherRowsOf(const char* from, int64_t row_stride, int64_t col_stride, int64_t rows,
                  int64_t cols, T* to) {
  constexpr int64_t kItem = static_cast<int64_t>(sizeof(T));
  if (col_stride == 0) return Expand(from, row_stride, rows, cols, to);
  if (col_stride == kItem) return Pack(from, row_stride, rows, cols, to);
  for (; rows > 0; --rows, from += row_stride, to += cols) {
    for (int64_t c = 0; c < cols; ++c) std::memcpy(to + c, from + c * col_stride, sizeof(T));
  }
}

void GatherRows(const void* from, int64_t row_stride, int64_t col_stride, int64_t rows,
                int64_t cols, int64_t itemsize, void* to) {
  const char* f = static_cast<const char*>(from);
  switch (itemsize) {
    case 1:
      return GatherRowsOf(f, row_stride, col_stride, rows, cols, static_cast<uint8_t*>(to));
    case 2:
      return GatherRowsOf(f, row_stride, col_stride, rows, cols, static_cast<uint16_t*>(to));
    case 4:
      return GatherRowsOf(f, row_stride, col_stride, rows, cols, static_cast<uint32_t*>(to));
    default:
      return GatherRowsOf(f, row_stride, col_stride, rows, cols, static_cast<uint64_t*>(to));
  }
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu {
HWY_EXPORT(GatherRows);
void gather_rows(const void* from, int64_t row_stride, int64_t col_stride, int64_t rows,
                 int64_t cols, int64_t itemsize, void* to) {
  if (row_stride == itemsize && col_stride != itemsize && col_stride != 0) {
    copy_fns()->transpose(from, col_stride, to, cols * itemsize, cols, rows, itemsize);
    return;
  }
  HWY_DYNAMIC_DISPATCH(GatherRows)(from, row_stride, col_stride, rows, cols, itemsize, to);
}
}  // namespace mytorch::cpu
#endif
