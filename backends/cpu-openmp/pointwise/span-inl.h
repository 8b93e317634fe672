// What generated spans are written with: loads and stores of each node type, and the loop.
#if defined(MYTORCH_CPU_SPAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_CPU_SPAN_INL_H_
#undef MYTORCH_CPU_SPAN_INL_H_
#else
#define MYTORCH_CPU_SPAN_INL_H_
#endif

#include <cstring>
#include <type_traits>
#include <utility>

#include "backends/cpu-openmp/pointwise/span.h"
#include "backends/cpu-openmp/simd/highway.h"

// The body of a loop: inlined at each call, and compiled for the target at hand.
#ifndef MYTORCH_STEP
#define MYTORCH_STEP HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace mytorch {
namespace cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace simd::HWY_NAMESPACE;  // NOLINT: the node functions

template <class T>
HWY_INLINE T NumberOf(const Number& number) {
  if constexpr (std::is_same_v<T, float>) {
    return number.f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return number.f64;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    return number.i32;
  } else {
    return number.i64;
  }
}

template <class D>
HWY_INLINE hn::VFromD<D> ScalarNode(D d, const Scalars& scalars, int index) {
  return hn::Set(d, NumberOf<hn::TFromD<D>>(scalars.value[index]));
}

template <class D>
HWY_INLINE hn::VFromD<D> ConstNode(D d, double value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

// Bytes that are zero or not, as a mask.
template <class D>
HWY_INLINE hn::Mask<D> LoadMask(D d, const uint8_t* from) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Not(hn::Eq(hn::Set(d, hn::TFromD<D>(from[0] != 0)), hn::Zero(d)));
#else
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const auto bytes = hn::PromoteTo(d32, hn::LoadU(d8, from));
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::RebindMask(d, hn::Gt(bytes, hn::Zero(d32)));
  } else {
    const hn::Rebind<int64_t, D> d64;
    return hn::RebindMask(d, hn::Gt(hn::PromoteTo(d64, bytes), hn::Zero(d64)));
  }
#endif
}

template <class D>
HWY_INLINE void StoreMask(D d, hn::Mask<D> mask, uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = hn::AllTrue(d, mask);
#else
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint8_t, D> d8;
  constexpr int kTop = sizeof(hn::TFromD<D>) * 8 - 1;
  const auto bits = hn::BitCast(du, hn::VecFromMask(d, mask));
  hn::StoreU(hn::TruncateTo(d8, hn::ShiftRight<kTop>(bits)), d8, to);
#endif
}

template <class D>
HWY_INLINE hn::VFromD<D> LoadNode(D d, const hn::TFromD<D>* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE void StoreNode(D d, hn::VFromD<D> v, hn::TFromD<D>* to) {
  hn::StoreU(v, d, to);
}

// Whether a lane of an integer divisor is zero; floats divide by anything.
template <class D, class V>
HWY_INLINE bool RefusesDivisor(D d, V divisor) {
  if constexpr (is_float<D>) {
    return false;
  } else {
    return AnyZero(d, divisor);
  }
}

template <class D, class V>
HWY_INLINE V NotNode(D d, V a, const Scalars& scalars) {
  return hn::Xor(a, hn::Set(d, static_cast<hn::TFromD<D>>(scalars.not_mask)));
}

// Room for the last elements of an operand, which do not fill a vector. They are computed before
// all others, with those before them: an output may be one of the inputs, and its old values are
// gone later. What comes of them is kept here until the end. Fewer elements than a vector has are
// padded with ones, which no operation minds: zeros would be refused as divisors.
template <class P, size_t kCount>
struct TailRoom {
  using Value = std::remove_const_t<P>;
  alignas(64) Value values[kCount];

  TailRoom() {}  // NOLINT: uninitialized on purpose

  // For the last vector of `n` elements at `from`.
  HWY_INLINE P* take(P* from, int64_t n, int64_t lanes) {
    if constexpr (std::is_const_v<P>) {
      if (HWY_LIKELY(n >= lanes)) return from + n - lanes;
      for (size_t i = 0; i < kCount; ++i) values[i] = Value(1);
      std::memcpy(values, from, static_cast<size_t>(n) * sizeof(Value));
    }
    return values;
  }
  HWY_INLINE void give_back(P* to, int64_t n, int64_t lanes) {
    if constexpr (!std::is_const_v<P>) {
      if (to == nullptr) return;
      if (HWY_LIKELY(n >= lanes)) {
        std::memcpy(to + n - lanes, values, static_cast<size_t>(lanes) * sizeof(Value));
      } else {
        std::memcpy(to, values, static_cast<size_t>(n) * sizeof(Value));
      }
    }
  }
};

// An output that is stored past the caches.
template <class T>
struct Past {
  T* to;
};
template <class D>
HWY_INLINE void StoreNode(D d, hn::VFromD<D> v, Past<hn::TFromD<D>> past) {
  hn::Stream(v, d, past.to);
}

template <class P>
HWY_INLINE auto PastOutput(P* p) {
  if constexpr (std::is_const_v<P>) {
    return p;
  } else {
    return Past<P>{p};
  }
}

// How many elements lie before the first whole line of the outputs, which are the pointers to what
// is not const; `n` where they share none.
template <class... P>
HWY_INLINE int64_t BeforeLine(int64_t n, P*... p) {
  int64_t before = -1;
  const auto look = [&]<class T>(T* pointer) {
    if (std::is_const_v<T> || pointer == nullptr) return;
    constexpr uintptr_t kLine = 64;
    const uintptr_t missing = (kLine - reinterpret_cast<uintptr_t>(pointer) % kLine) % kLine;
    const int64_t here = static_cast<int64_t>(missing / sizeof(T));
    before = before < 0 || before == here ? here : n;
  };
  (look(p), ...);
  return before < 0 ? n : HWY_MIN(before, n);
}

// Without vector instructions nothing is gained by loops for special cases: the plainest serves
// all.
inline constexpr bool kVectors = HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR;

// Where a row of an operand begins, and how far the loop goes on in it: not at all, if one element
// counts for the whole row, of which the room then has as many as a turn of the loop takes.
template <class P>
struct Stretch {
  P* at;
  int64_t by;
};
template <class P, size_t kCount>
HWY_INLINE Stretch<P> StretchOf(P* p, TailRoom<P, kCount>& room, int64_t turn, bool single) {
  if constexpr (std::is_const_v<P>) {
    if (single) {
      for (size_t i = 0; i < kCount; ++i) room.values[i] = *p;
      return {room.values, 0};
    }
  }
  return {p, turn};
}

template <class P>
HWY_INLINE P* NextRow(P* p, int64_t by) {
  using Byte = std::conditional_t<std::is_const_v<P>, const char, char>;
  return reinterpret_cast<P*>(reinterpret_cast<Byte*>(p) + by);
}

// As ForSpan, for one row after the other. Little may happen between short rows, so their parts are
// as many for each: the rest, a single vector, turns of two.
template <class D, class F, size_t... kIndex, class... P>
HWY_INLINE void ForRows(D d, int64_t n, const SpanRows& rows, F&& step,
                        std::index_sequence<kIndex...>, P*... p) {
  constexpr size_t kMax = hn::MaxLanes(D());
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t turn = kVectors ? 2 * lanes : lanes;
  const int64_t rest = n & (lanes - 1), turns = n & -turn;
  const bool one = kVectors && (n & lanes) != 0;
  [&](TailRoom<P, 2 * kMax>&&... room) MYTORCH_STEP {
    [&](TailRoom<P, kMax>&&... last) MYTORCH_STEP {
      for (int64_t row = rows.count;;) {
        [&](Stretch<P>... s) MYTORCH_STEP {
          for (bool tail = rest != 0, more = tail || one; more;
               more = std::exchange(tail, false) && one) {
            step((s.by == 0 ? s.at : tail ? last.take(p, n, lanes) : p + turns)...);
          }
          for (int64_t i = 0; i < turns; i += turn) {
            step(s.at...);
            if constexpr (kVectors) step((s.at + lanes)...);
            ((s.at += s.by), ...);
          }
        }(StretchOf(p, room, turn, (rows.single >> kIndex & 1) != 0)...);
        if (rest != 0) (last.give_back(p, n, lanes), ...);
        if (--row == 0) return;
        ((p = NextRow(p, rows.by[kIndex])), ...);
      }
    }(TailRoom<P, kMax>()...);
  }(TailRoom<P, 2 * kMax>()...);
}

// Calls step(pointers...) for each vector of `n` elements; what is left passes through padded room.
// `P` is const for inputs. `kUnroll` copies of the body hide the loop's own instructions; programs
// that are long enough without get one. With kStreams, whole lines of the outputs are stored past
// the caches where the scalars ask for it: step(...) then gets an output as a Past. These programs
// also take rows.
template <int kUnroll, bool kStreams, class D, class F, class... P>
HWY_INLINE void ForSpan(D d, int64_t n, const Scalars& scalars, F&& step, P*... p) {
  constexpr size_t kMax = hn::MaxLanes(D());
  constexpr int64_t kLine = 64 / sizeof(hn::TFromD<D>);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  bool streams = kStreams && kVectors && HWY_UNLIKELY(scalars.stream);
  int64_t end = n;
  if constexpr (kStreams && (int{std::is_const_v<P>} + ...) > 1) {
    if (HWY_UNLIKELY(scalars.rows != nullptr)) {
      ForRows(d, n, *scalars.rows, step, std::index_sequence_for<P...>(), p...);
      return;
    }
  }
  if constexpr (kStreams && kVectors) {
    if (streams) end = BeforeLine(n, p...);
  }
  for (int64_t i = 0;;) {
    const int64_t count = end - i, rest = count & (lanes - 1);
    [&](TailRoom<P, kMax>&&... last) MYTORCH_STEP {
      const int64_t begin = i, stop = end - rest;
      if constexpr (kUnroll > 1 && kVectors) {
        if (HWY_UNLIKELY(rest != 0)) step(last.take(p + begin, count, lanes)...);
        for (; i + 2 * lanes <= stop; i += 2 * lanes) {
          step((p + i)...);
          step((p + i + lanes)...);
        }
        if (i < stop) step((p + i)...);
      } else {
        // A long body stands here only once.
        for (bool tail = rest != 0; tail || i < stop; i += std::exchange(tail, false) ? 0 : lanes) {
          step((HWY_UNLIKELY(tail) ? last.take(p + begin, count, lanes) : p + i)...);
        }
      }
      if (HWY_UNLIKELY(rest != 0))
        (last.give_back(p == nullptr ? nullptr : p + begin, count, lanes), ...);
    }(TailRoom<P, kMax>()...);
    if (HWY_LIKELY(!streams)) return;
    if constexpr (kStreams && kVectors) {
      const int64_t lines = end + (n - end) / kLine * kLine;
      for (i = end; i < lines; i += lanes) step(PastOutput(p + i)...);
    }
    streams = false;
    end = n;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace mytorch
HWY_AFTER_NAMESPACE();

#endif  // include guard
