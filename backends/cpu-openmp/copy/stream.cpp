#include "backends/cpu-openmp/copy/stream.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/copy/stream.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch {
namespace cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLine = 64;

// The bytes before the first whole line of `to`.
HWY_INLINE int64_t head(const void* to, int64_t bytes) {
  const int64_t over = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine);
  return std::min(bytes, over == 0 ? 0 : kLine - over);
}

void StreamCopy(void* to, const void* from, int64_t bytes) {
  uint8_t* t = static_cast<uint8_t*>(to);
  const uint8_t* f = static_cast<const uint8_t*>(from);
  const int64_t first = head(t, bytes);
  std::memcpy(t, f, static_cast<size_t>(first));
  t += first, f += first, bytes -= first;
  const hn::CappedTag<uint8_t, kLine> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (hn::MaxLanes(d) >= 16) {
    for (; bytes >= kLine; t += kLine, f += kLine, bytes -= kLine) {
      for (int64_t i = 0; i < kLine; i += lanes) hn::Stream(hn::LoadU(d, f + i), d, t + i);
    }
  }
  std::memcpy(t, f, static_cast<size_t>(bytes));
}

void StreamFill(void* to, const void* pattern, int64_t bytes) {
  uint8_t* t = static_cast<uint8_t*>(to);
  const uint8_t* line = static_cast<const uint8_t*>(pattern);
  const int64_t first = head(t, bytes);
  std::memcpy(t, line, static_cast<size_t>(first));
  t += first, bytes -= first;
  // Elements are aligned, so that lines begin with a whole one.
  const hn::CappedTag<uint8_t, kLine> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (hn::MaxLanes(d) >= 16) {
    const auto v = hn::LoadU(d, line);
    for (; bytes >= kLine; t += kLine, bytes -= kLine) {
      for (int64_t i = 0; i < kLine; i += lanes) hn::Stream(v, d, t + i);
    }
  }
  for (; bytes > 0; t += kLine, bytes -= kLine) {
    std::memcpy(t, line, static_cast<size_t>(std::min(bytes, kLine)));
  }
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

// Squares of the side that vectors have.
template <class T>
struct Square {
  static constexpr int64_t kSide = 8;
  static HWY_INLINE void Move(const char* from, int64_t from_stride, char* to, int64_t to_stride) {
    T block[kSide][kSide];
    for (int64_t r = 0; r < kSide; ++r) {
      T row[kSide];
      std::memcpy(row, from + r * from_stride, sizeof(row));
      for (int64_t c = 0; c < kSide; ++c) block[c][r] = row[c];
    }
    for (int64_t c = 0; c < kSide; ++c) std::memcpy(to + c * to_stride, block[c], sizeof(block[c]));
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
template <>
struct Square<uint32_t> {
  static constexpr int64_t kSide = 8;
  static HWY_INLINE void Move(const char* from, int64_t from_stride, char* to, int64_t to_stride) {
    const hn::CappedTag<uint32_t, 8> d;
    const hn::Repartition<uint64_t, decltype(d)> dw;
    using V = hn::VFromD<decltype(d)>;
    const auto load = [&](int64_t r) HWY_ATTR {
      return hn::LoadU(d, reinterpret_cast<const uint32_t*>(from + r * from_stride));
    };
    // Pairs, then fours, within 128 bits; at last the halves.
    V a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
      const V x = load(i), y = load(i + 1);
      a[i] = hn::InterleaveLower(d, x, y);
      a[i + 1] = hn::InterleaveUpper(d, x, y);
    }
    for (int i = 0; i < 8; i += 4) {
      for (int k = 0; k < 2; ++k) {
        const auto x = hn::BitCast(dw, a[i + k]), y = hn::BitCast(dw, a[i + k + 2]);
        b[i + 2 * k] = hn::BitCast(d, hn::InterleaveLower(dw, x, y));
        b[i + 2 * k + 1] = hn::BitCast(d, hn::InterleaveUpper(dw, x, y));
      }
    }
    for (int i = 0; i < 4; ++i) {
      hn::StoreU(hn::ConcatLowerLower(d, b[i + 4], b[i]), d,
                 reinterpret_cast<uint32_t*>(to + i * to_stride));
      hn::StoreU(hn::ConcatUpperUpper(d, b[i + 4], b[i]), d,
                 reinterpret_cast<uint32_t*>(to + (i + 4) * to_stride));
    }
  }
};
template <>
struct Square<uint64_t> {
  static constexpr int64_t kSide = 4;
  static HWY_INLINE void Move(const char* from, int64_t from_stride, char* to, int64_t to_stride) {
    const hn::CappedTag<uint64_t, 4> d;
    using V = hn::VFromD<decltype(d)>;
    V a[4];
    for (int i = 0; i < 4; i += 2) {
      const V x = hn::LoadU(d, reinterpret_cast<const uint64_t*>(from + i * from_stride));
      const V y = hn::LoadU(d, reinterpret_cast<const uint64_t*>(from + (i + 1) * from_stride));
      a[i] = hn::InterleaveLower(d, x, y);
      a[i + 1] = hn::InterleaveUpper(d, x, y);
    }
    for (int i = 0; i < 2; ++i) {
      hn::StoreU(hn::ConcatLowerLower(d, a[i + 2], a[i]), d,
                 reinterpret_cast<uint64_t*>(to + i * to_stride));
      hn::StoreU(hn::ConcatUpperUpper(d, a[i + 2], a[i]), d,
                 reinterpret_cast<uint64_t*>(to + (i + 2) * to_stride));
    }
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
    int64_t r = 0;
    for (; r + kSide <= rows; r += kSide) {
      Square<T>::Move(from + r * from_stride + c * kItem, from_stride,
                      to + c * to_stride + r * kItem, to_stride);
    }
    Plain<T>(from + r * from_stride + c * kItem, from_stride, to + c * to_stride + r * kItem,
             to_stride, rows - r, kSide);
  }
  Plain<T>(from + c * kItem, from_stride, to + c * to_stride, to_stride, rows, cols - c);
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

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace mytorch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu {
HWY_EXPORT(StreamCopy);
HWY_EXPORT(StreamFill);
HWY_EXPORT(Transpose);

void stream_copy(void* to, const void* from, int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(StreamCopy)(to, from, bytes);
}
void stream_fill(void* to, const void* pattern, int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(StreamFill)(to, pattern, bytes);
}
void stream_fence() { hwy::FlushStream(); }
void transpose(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows,
               int64_t cols, int64_t itemsize) {
  HWY_DYNAMIC_DISPATCH(Transpose)(from, from_stride, to, to_stride, rows, cols, itemsize);
}

}  // namespace mytorch::cpu
#endif
