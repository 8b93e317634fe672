// The parts of generated inner loops: loads and stores of each node type, and the loop.
#if defined(MYTORCH_CPU_INNER_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_CPU_INNER_LOOP_INL_H_
#undef MYTORCH_CPU_INNER_LOOP_INL_H_
#else
#define MYTORCH_CPU_INNER_LOOP_INL_H_
#endif

#include <cstring>
#include <type_traits>
#include <utility>

#include "backends/cpu-openmp/pointwise/inner_loop.h"
#include "backends/cpu-openmp/simd/highway.h"

// Attributes of a loop body: inlined at each call, and compiled for the current target.
#ifndef MYTORCH_STEP
#define MYTORCH_STEP HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
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

// Converts bytes, zero or nonzero, to a mask.
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

// Returns whether any lane of an integer divisor is zero. Floats may be divided by anything.
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

// Holds the last elements of an operand, which do not fill a vector. They are computed first,
// together with the elements before them, because an output may be one of the inputs, whose old
// values are overwritten later. The results stay here until the end. If there are fewer elements
// than a vector has, the rest is filled with ones, which every operation accepts; zeros would be
// rejected as divisors.
template <class P, size_t kCount>
struct TailRoom {
  using Value = std::remove_const_t<P>;
  alignas(64) Value values[kCount];

  TailRoom() {}  // NOLINT: intentionally uninitialized

  // Returns the last vector of the `n` elements at `from`.
  HWY_INLINE P* take(P* from, int64_t n, int64_t lanes) {
    if constexpr (std::is_const_v<P>) {
      if (HWY_LIKELY(n >= lanes)) return from + n - lanes;
      for (size_t i = 0; i < kCount; ++i) values[i] = Value(1);
      std::memcpy(values, from, static_cast<size_t>(n) * sizeof(Value));
    }
    return values;
  }
  // Stores the results of take()'s vector.
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

// An output written with non-temporal stores.
template <class T>
struct NonTemporal {
  T* to;
};
template <class D>
HWY_INLINE void StoreNode(D d, hn::VFromD<D> v, NonTemporal<hn::TFromD<D>> output) {
  hn::Stream(v, d, output.to);
}

template <class P>
HWY_INLINE auto NonTemporalOutput(P* p) {
  if constexpr (std::is_const_v<P>) {
    return p;
  } else {
    return NonTemporal<P>{p};
  }
}

// Returns the number of elements before the first whole cache line of the outputs (the pointers
// that are not const), or `n` if the outputs' lines are not aligned to each other.
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

// Without vector instructions, loops for special cases are not faster.
inline constexpr bool kVectors = HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR;

// An operand of a run. It is passed by value, so that the compiler keeps it in registers; its
// TailRoom is separate.
template <class P, size_t kCount>
struct RunOperand {
  P* p;
  TailRoom<P, kCount>* room;
};
template <class P, size_t kCount>
HWY_INLINE RunOperand<P, kCount> OperandOfRun(P* p, TailRoom<P, kCount>&& room) {
  return {p, &room};
}

// Returns p + n. Unwanted outputs are null, from which pointers have no offsets.
template <class P>
HWY_INLINE P* Ahead(P* p, int64_t n) {
  return reinterpret_cast<P*>(reinterpret_cast<intptr_t>(p) + n * static_cast<int64_t>(sizeof(P)));
}

// Calls step(pointers...) for each vector of elements [begin, end): the tail first, then the
// others.
template <int kUnroll, class D, class F, class... P, size_t... kCount>
HWY_INLINE void RunVectors(D d, int64_t begin, int64_t end, F&& step, RunOperand<P, kCount>... o) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t count = end - begin, rest = count & (lanes - 1), stop = end - rest;
  int64_t i = begin;
  if constexpr (kUnroll > 1 && kVectors) {
    if (HWY_UNLIKELY(rest != 0)) step(o.room->take(Ahead(o.p, begin), count, lanes)...);
    for (; i + 2 * lanes <= stop; i += 2 * lanes) {
      step(Ahead(o.p, i)...);
      step(Ahead(o.p, i + lanes)...);
    }
    if (i < stop) step(Ahead(o.p, i)...);
  } else {
    // A long body is instantiated only here.
    for (bool tail = rest != 0; tail || i < stop; i += std::exchange(tail, false) ? 0 : lanes) {
      step((HWY_UNLIKELY(tail) ? o.room->take(Ahead(o.p, begin), count, lanes) : Ahead(o.p, i))...);
    }
  }
  if (HWY_UNLIKELY(rest != 0)) {
    (o.room->give_back(o.p == nullptr ? nullptr : o.p + begin, count, lanes), ...);
  }
}

// Calls step(pointers...) for the whole cache lines in [begin, end), with outputs as NonTemporal.
// Returns the end of the last line.
template <class D, class F, class... P>
HWY_INLINE int64_t RunLines(D d, int64_t begin, int64_t end, F&& step, P*... p) {
  constexpr int64_t kLine = 64 / sizeof(hn::TFromD<D>);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t lines = begin + (end - begin) / kLine * kLine;
  for (int64_t i = begin; i < lines; i += lanes) step(NonTemporalOutput(Ahead(p, i))...);
  return lines;
}

// An operand of a run of rows. If one element is broadcast along the row, the loop reads copies of
// it, enough for one iteration, and does not advance.
template <class P, size_t kMax>
struct RowOperand {
  P* row;
  int64_t next;  // bytes to the next row
  bool broadcasts;
  TailRoom<P, kMax>* tail;
  TailRoom<P, 2 * kMax>* copies;
  P* at = nullptr;  // of the current iteration
  int64_t by = 0;   // elements to the next iteration

  HWY_INLINE void begin_row(int64_t turn) {
    at = row;
    by = turn;
    if constexpr (std::is_const_v<P>) {
      if (broadcasts) {
        for (size_t i = 0; i < 2 * kMax; ++i) copies->values[i] = *row;
        at = copies->values;
        by = 0;
      }
    }
  }
  HWY_INLINE void next_row() {
    row = reinterpret_cast<P*>(reinterpret_cast<intptr_t>(row) + next);  // as Ahead(), in bytes
  }
};
template <class P, size_t kMax>
HWY_INLINE RowOperand<P, kMax> OperandOfRows(P* p, const InnerRows& rows, size_t index,
                                             TailRoom<P, kMax>&& tail,
                                             TailRoom<P, 2 * kMax>&& copies) {
  return {p, rows.by[index], (rows.single >> index & 1) != 0, &tail, &copies};
}

// Computes one row of n elements. Short rows allow little overhead between them, so every row is
// split in the same way: the tail, a single vector, iterations of two.
template <class D, class F, class... P, size_t... kMax>
HWY_INLINE void RunRow(D d, int64_t n, F&& step, RowOperand<P, kMax>... o) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t turn = kVectors ? 2 * lanes : lanes;
  const int64_t rest = n & (lanes - 1), turns = n & -turn;
  const bool one = kVectors && (n & lanes) != 0;
  (o.begin_row(turn), ...);
  for (bool tail = rest != 0, more = tail || one; more; more = std::exchange(tail, false) && one) {
    step((o.by == 0 ? o.at : tail ? o.tail->take(o.row, n, lanes) : Ahead(o.row, turns))...);
  }
  for (int64_t i = 0; i < turns; i += turn) {
    step(o.at...);
    if constexpr (kVectors) step(Ahead(o.at, lanes)...);
    ((o.at = Ahead(o.at, o.by)), ...);
  }
  if (rest != 0) (o.tail->give_back(o.row, n, lanes), ...);
}

// Like ForEachVector, for one row of n elements after another.
template <class D, class F, class... P, size_t... kMax>
HWY_INLINE void RunRows(D d, int64_t n, int64_t rows, F&& step, RowOperand<P, kMax>... o) {
  for (;;) {
    RunRow(d, n, step, o...);
    if (--rows == 0) return;
    (o.next_row(), ...);
  }
}
template <class D, class F, size_t... kIndex, class... P>
HWY_INLINE void ForEachRow(D d, int64_t n, const InnerRows& rows, F&& step,
                           std::index_sequence<kIndex...>, P*... p) {
  constexpr size_t kMax = hn::MaxLanes(D());
  RunRows(d, n, rows.count, step,
          OperandOfRows(p, rows, kIndex, TailRoom<P, kMax>(), TailRoom<P, 2 * kMax>())...);
}

// Calls step(pointers...) for each vector of `n` elements; `P` is const for inputs. `kUnroll`
// copies of the body hide the loop's own instructions; longer programs need only one. With
// kStreams, whole cache lines of the outputs are stored non-temporally if the scalars request it:
// step(...) then gets an output as a NonTemporal. These programs also accept rows.
template <int kUnroll, bool kStreams, class D, class F, class... P>
HWY_INLINE void ForEachVector(D d, int64_t n, const Scalars& scalars, F&& step, P*... p) {
  constexpr size_t kMax = hn::MaxLanes(D());
  if constexpr (kStreams && (int{std::is_const_v<P>} + ...) > 1) {
    if (HWY_UNLIKELY(scalars.rows != nullptr)) {
      ForEachRow(d, n, *scalars.rows, step, std::index_sequence_for<P...>(), p...);
      return;
    }
  }
  // With non-temporal stores there are two runs: before the first whole line, and after the last
  // one.
  bool streams = kStreams && kVectors && HWY_UNLIKELY(scalars.stream);
  int64_t begin = 0, end = n;
  if constexpr (kStreams && kVectors) {
    if (streams) end = BeforeLine(n, p...);
  }
  for (;;) {
    RunVectors<kUnroll>(d, begin, end, step, OperandOfRun(p, TailRoom<P, kMax>())...);
    if (HWY_LIKELY(!streams)) return;
    if constexpr (kStreams && kVectors) begin = RunLines(d, end, n, step, p...);
    streams = false;
    end = n;
  }
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
