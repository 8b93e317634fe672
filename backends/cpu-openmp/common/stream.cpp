#include "backends/cpu-openmp/common/stream.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/common/stream.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLine = 64;

// Processes `bytes` bytes of `to` in three parts: edge(begin, end) before the first whole cache
// line and after the last one, and non-temporal stores of vector(begin) between them.
template <class Edge, class F>
HWY_INLINE void StreamLines(uint8_t* to, int64_t bytes, Edge&& edge, F&& vector) {
  const hn::CappedTag<uint8_t, kLine> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t over = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine);
  int64_t i = std::min(bytes, over == 0 ? 0 : kLine - over);
  if (i > 0) edge(int64_t{0}, i);
  if constexpr (hn::MaxLanes(d) >= 16) {
    for (; i + kLine <= bytes; i += kLine) {
      for (int64_t k = i; k < i + kLine; k += lanes) hn::Stream(vector(d, k), d, to + k);
    }
  }
  if (i < bytes) edge(i, bytes);
}

void MoveRows(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t rows,
              int64_t bytes, bool stream) {
  uint8_t* t = static_cast<uint8_t*>(to);
  const uint8_t* f = static_cast<const uint8_t*>(from);
  for (; rows > 0; --rows, t += to_stride, f += from_stride) {
    const auto copy = [&](int64_t begin, int64_t end) {
      std::memcpy(t + begin, f + begin, static_cast<size_t>(end - begin));
    };
    if (stream) {
      StreamLines(t, bytes, copy, [&](auto d, int64_t i) HWY_ATTR { return hn::LoadU(d, f + i); });
    } else {
      copy(0, bytes);
    }
  }
}

void StreamFill(void* to, const void* pattern, int64_t bytes) {
  uint8_t* t = static_cast<uint8_t*>(to);
  const uint8_t* line = static_cast<const uint8_t*>(pattern);
  // Elements are aligned, so cache lines begin with a whole element.
  const auto fill = [&](int64_t begin, int64_t end) {
    for (; begin < end; begin += kLine) {
      std::memcpy(t + begin, line, static_cast<size_t>(std::min(end - begin, kLine)));
    }
  };
  StreamLines(t, bytes, fill, [&](auto d, int64_t) HWY_ATTR { return hn::LoadU(d, line); });
}

// ---- transposes
template <class T>
HWY_INLINE void Plain(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                      int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = reinterpret_cast<const T*>(from + r * from_stride);
    for (int64_t c = 0; c < cols; ++c) {
      reinterpret_cast<T*>(to + c * to_stride)[r] = row[c];
    }
  }
}

// Transposes squares whose side is a vector. With kPart, stores only the first `width` elements of
// each row. Loops are unrolled by hand, because compilers keep arrays of vectors in memory.
template <class T>
struct Square {
  static constexpr int64_t kSide = 8;
  template <bool kPart>
  static HWY_INLINE void Move(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                              int64_t width) {
    T block[kSide][kSide];
    for (int64_t r = 0; r < kSide; ++r) {
      T row[kSide];
      std::memcpy(row, from + r * from_stride, sizeof(row));
      for (int64_t c = 0; c < kSide; ++c) block[c][r] = row[c];
    }
    const int64_t count = kPart ? width : kSide;
    for (int64_t c = 0; c < count; ++c) std::memcpy(to + c * to_stride, block[c], sizeof(block[c]));
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
template <>
struct Square<uint32_t> {
  static constexpr int64_t kSide = 8;
  template <bool kPart>
  static HWY_INLINE void Move(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                              int64_t width) {
    const hn::CappedTag<uint32_t, 8> d;
    const hn::Repartition<uint64_t, decltype(d)> dw;
    using V = hn::VFromD<decltype(d)>;
    const auto load = [&](int64_t r) HWY_ATTR {
      return hn::LoadU(d, reinterpret_cast<const uint32_t*>(from + r * from_stride));
    };
    const auto low = [&](V x, V y) HWY_ATTR {
      return hn::BitCast(d, hn::InterleaveLower(dw, hn::BitCast(dw, x), hn::BitCast(dw, y)));
    };
    const auto high = [&](V x, V y) HWY_ATTR {
      return hn::BitCast(d, hn::InterleaveUpper(dw, hn::BitCast(dw, x), hn::BitCast(dw, y)));
    };
    const auto store = [&](int64_t c, V v) HWY_ATTR {
      if (kPart && c >= width) return;
      hn::StoreU(v, d, reinterpret_cast<uint32_t*>(to + c * to_stride));
    };
    // Interleaves pairs of rows, then fours, within 128 bits, and the halves last.
    const V r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
    const V p0 = hn::InterleaveLower(d, r0, r1), p1 = hn::InterleaveUpper(d, r0, r1);
    const V p2 = hn::InterleaveLower(d, r2, r3), p3 = hn::InterleaveUpper(d, r2, r3);
    const V f0 = low(p0, p2), f1 = high(p0, p2), f2 = low(p1, p3), f3 = high(p1, p3);
    const V r4 = load(4), r5 = load(5), r6 = load(6), r7 = load(7);
    const V p4 = hn::InterleaveLower(d, r4, r5), p5 = hn::InterleaveUpper(d, r4, r5);
    const V p6 = hn::InterleaveLower(d, r6, r7), p7 = hn::InterleaveUpper(d, r6, r7);
    const V f4 = low(p4, p6), f5 = high(p4, p6), f6 = low(p5, p7), f7 = high(p5, p7);
    store(0, hn::ConcatLowerLower(d, f4, f0));
    store(1, hn::ConcatLowerLower(d, f5, f1));
    store(2, hn::ConcatLowerLower(d, f6, f2));
    store(3, hn::ConcatLowerLower(d, f7, f3));
    store(4, hn::ConcatUpperUpper(d, f4, f0));
    store(5, hn::ConcatUpperUpper(d, f5, f1));
    store(6, hn::ConcatUpperUpper(d, f6, f2));
    store(7, hn::ConcatUpperUpper(d, f7, f3));
  }
};
template <>
struct Square<uint64_t> {
  static constexpr int64_t kSide = 4;
  template <bool kPart>
  static HWY_INLINE void Move(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                              int64_t width) {
    const hn::CappedTag<uint64_t, 4> d;
    using V = hn::VFromD<decltype(d)>;
    const auto load = [&](int64_t r) HWY_ATTR {
      return hn::LoadU(d, reinterpret_cast<const uint64_t*>(from + r * from_stride));
    };
    const auto store = [&](int64_t c, V v) HWY_ATTR {
      if (kPart && c >= width) return;
      hn::StoreU(v, d, reinterpret_cast<uint64_t*>(to + c * to_stride));
    };
    const V r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
    const V p0 = hn::InterleaveLower(d, r0, r1), p1 = hn::InterleaveUpper(d, r0, r1);
    const V p2 = hn::InterleaveLower(d, r2, r3), p3 = hn::InterleaveUpper(d, r2, r3);
    store(0, hn::ConcatLowerLower(d, p2, p0));
    store(1, hn::ConcatLowerLower(d, p3, p1));
    store(2, hn::ConcatUpperUpper(d, p2, p0));
    store(3, hn::ConcatUpperUpper(d, p3, p1));
  }
};
template <>
struct Square<uint16_t> {
  static constexpr int64_t kSide = 8;
  template <bool kPart>
  static HWY_INLINE void Move(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                              int64_t width) {
    const hn::CappedTag<uint16_t, 8> d;
    const hn::Repartition<uint32_t, decltype(d)> dw;
    const hn::Repartition<uint64_t, decltype(d)> dq;
    using V = hn::VFromD<decltype(d)>;
    const auto load = [&](int64_t r) HWY_ATTR {
      return hn::LoadU(d, reinterpret_cast<const uint16_t*>(from + r * from_stride));
    };
    const auto by4 = [&](bool upper, V x, V y) HWY_ATTR {
      const auto a = hn::BitCast(dw, x), b = hn::BitCast(dw, y);
      return hn::BitCast(d, upper ? hn::InterleaveUpper(dw, a, b) : hn::InterleaveLower(dw, a, b));
    };
    const auto store = [&](int64_t c, V x, V y) HWY_ATTR {
      const auto a = hn::BitCast(dq, x), b = hn::BitCast(dq, y);
      if (!kPart || c < width) {
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dq, a, b)), d,
                   reinterpret_cast<uint16_t*>(to + c * to_stride));
      }
      if (!kPart || c + 1 < width) {
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dq, a, b)), d,
                   reinterpret_cast<uint16_t*>(to + (c + 1) * to_stride));
      }
    };
    const V r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
    const V r4 = load(4), r5 = load(5), r6 = load(6), r7 = load(7);
    const V p0 = hn::InterleaveLower(d, r0, r1), p1 = hn::InterleaveUpper(d, r0, r1);
    const V p2 = hn::InterleaveLower(d, r2, r3), p3 = hn::InterleaveUpper(d, r2, r3);
    const V p4 = hn::InterleaveLower(d, r4, r5), p5 = hn::InterleaveUpper(d, r4, r5);
    const V p6 = hn::InterleaveLower(d, r6, r7), p7 = hn::InterleaveUpper(d, r6, r7);
    store(0, by4(false, p0, p2), by4(false, p4, p6));
    store(2, by4(true, p0, p2), by4(true, p4, p6));
    store(4, by4(false, p1, p3), by4(false, p5, p7));
    store(6, by4(true, p1, p3), by4(true, p5, p7));
  }
};
#endif

template <class T>
HWY_INLINE void TransposeOf(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                            int64_t rows, int64_t cols) {
  constexpr int64_t kSide = Square<T>::kSide;
  constexpr int64_t kItem = static_cast<int64_t>(sizeof(T));
  int64_t c = 0;
  for (; c + kSide <= cols; c += kSide) {
    const char* f = from + c * kItem;
    char* t = to + c * to_stride;
    int64_t r = 0;
    for (; r + kSide <= rows; r += kSide) {
      Square<T>::template Move<false>(f + r * from_stride, from_stride, t + r * kItem, to_stride,
                                      kSide);
    }
    Plain<T>(f + r * from_stride, from_stride, t + r * kItem, to_stride, rows - r, kSide);
  }
  if (c == cols) return;
  // The excess that a square reads must belong to a later row.
  const int64_t width = cols - c;
  const int64_t beyond = (kSide - width) * kItem;
  const char* f = from + c * kItem;
  char* t = to + c * to_stride;
  int64_t r = 0;
  for (; r + kSide <= rows && beyond <= (rows - r - kSide) * from_stride; r += kSide) {
    Square<T>::template Move<true>(f + r * from_stride, from_stride, t + r * kItem, to_stride,
                                   width);
  }
  Plain<T>(f + r * from_stride, from_stride, t + r * kItem, to_stride, rows - r, width);
}

void Transpose(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows,
               int64_t cols, int64_t itemsize) {
  const char* f = static_cast<const char*>(from);
  char* t = static_cast<char*>(to);
  switch (itemsize) {
    case 1:
      return TransposeOf<uint8_t>(f, from_stride, t, to_stride, rows, cols);
    case 2:
      return TransposeOf<uint16_t>(f, from_stride, t, to_stride, rows, cols);
    case 4:
      return TransposeOf<uint32_t>(f, from_stride, t, to_stride, rows, cols);
    default:
      return TransposeOf<uint64_t>(f, from_stride, t, to_stride, rows, cols);
  }
}

const CopyFns* CopyTable() {
  static constexpr CopyFns table = {MoveRows, StreamFill, Transpose};
  return &table;
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu, copy_fns, CopyTable)

#if HWY_ONCE
void mytorch::cpu::stream_fence() { hwy::FlushStream(); }
#endif
