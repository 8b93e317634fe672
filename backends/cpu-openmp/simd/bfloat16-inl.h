// AVX-512 BF16: products of pairs of bfloat16, summed in float32, and conversions to pairs. A pair
// lies in a uint32, its first number in the low half.
//
// These are for processors with has_bfloat16_pairs() only (instruction_set.h), which Highway's
// target AVX3 does not imply. They are assembly because a function with intrinsics of another set
// than its caller's cannot be inlined into it. Numbers below 2^-126 count as zero.
#if defined(MYTORCH_SIMD_BFLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_BFLOAT16_INL_H_
#undef MYTORCH_SIMD_BFLOAT16_INL_H_
#else
#define MYTORCH_SIMD_BFLOAT16_INL_H_
#endif

#include "backends/cpu-openmp/simd/highway.h"

#undef MYTORCH_BFLOAT16_PAIRS
#if HWY_TARGET == HWY_AVX3
#define MYTORCH_BFLOAT16_PAIRS 1
#else
#define MYTORCH_BFLOAT16_PAIRS 0
#endif

#if MYTORCH_BFLOAT16_PAIRS
HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::Vec512<float>;
using Pairs = hn::Vec512<uint32_t>;

// sum + a.second * b.second + a.first * b.first
HWY_INLINE Floats AddPairs(Pairs a, Pairs b, Floats sum) {
  asm("vdpbf16ps %1, %2, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}

// Rounds neighbours: {low[0], low[1]}, {low[2], low[3]}, ..., {high[0], high[1]}, ...
HWY_INLINE Pairs PairNeighbours(Floats low, Floats high) {
  Pairs pairs;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(pairs.raw) : "v"(low.raw), "v"(high.raw));
  return pairs;
}

// {first[0], second[0]}, {first[1], second[1]}, ..., of what PairNeighbours(first, second) returns.
HWY_INLINE Pairs Interleave(Pairs neighbours) {
  const hn::Full512<uint32_t> d;
  // Elements i and i + 16 of 16 bits.
  const Pairs index = hn::Add(hn::Mul(hn::Iota(d, 0), hn::Set(d, 0x10001)), hn::Set(d, 0x100000));
  return Pairs{_mm512_permutexvar_epi16(index.raw, neighbours.raw)};
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MYTORCH_BFLOAT16_PAIRS

#endif  // include guard
