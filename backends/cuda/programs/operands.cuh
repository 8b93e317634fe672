// What generated kernels begin with and how they reach their operands; follows node_ops.cuh.

// Every kernel calls this first. If it was launched to overlap with the previous kernel of its
// stream (MYTORCH_CUDA_OVERLAP), it starts once all blocks of that kernel have started, and waits
// here for its end. The next kernel may then start likewise.
FN void begin() {
#if !defined(MYTORCH_PRELUDE_HOST) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A scalar parameter, padded to eight bytes so that the host can lay out the parameters.
template <class T>
struct alignas(8) Scalar {
  T value;
};

// The fault record of a kernel (backends/cuda/runtime/faults.h).
struct Faults {
  u32* fault;
  u64 site;
  FN_MEMBER void note() const { atomicCAS(fault, 0u, static_cast<u32>(site)); }
};

template <class T, int N>
struct alignas(N == 1 ? alignof(T) : sizeof(T) * N) Pack {
  T at[N];
};
template <int N, class T>
FN Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
// A streaming load (evict-first), for data that is read once and exceeds the caches.
template <int N, class T>
FN Pack<T, N> load_streaming(const T* from) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Pack<T, N>) == 16) {
    u32 words[4];
    asm("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
        : "l"(from));
    Pack<T, N> pack;
    memcpy(&pack, words, 16);
    return pack;
  }
#endif
  return load<N>(from);
}
template <int N, class T, class V>
FN void store(T* to, const V (&values)[N]) {
  if constexpr (is_half<T> && same<V, float> && N > 1) {
    Pack<u32, N / 2> pack;
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      pack.at[k] = round_two(T(), values[2 * k], values[2 * k + 1]);
    }
    *reinterpret_cast<Pack<u32, N / 2>*>(to) = pack;
  } else {
    Pack<T, N> pack;
#pragma unroll
    for (int k = 0; k < N; ++k) pack.at[k] = convert<T>(values[k]);
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  }
}

// Operands whose type is known only at run time. The codes of dtypes are those of
// backends/cuda/programs/program.h; code 0 is a scalar parameter.
#define FOR_EACH_TYPE(F) \
  F(1, b8) F(2, u8) F(3, i8) F(4, i16) F(5, i32) F(6, i64) F(7, f16) F(8, bf16) F(9, f32) F(10, f64)
template <class C>
FN_CALLED Value<C> any_input(u64 word, u32 code, i64 at) {
#define CASE(number, T) \
  case number:          \
    return input<C>(reinterpret_cast<const T*>(word)[at]);
  switch (code) { FOR_EACH_TYPE(CASE) }
#undef CASE
  Value<C> value;
  memcpy(&value, &word, sizeof(value));
  return value;
}
template <class V>
FN_CALLED void any_output(u64 word, u32 code, i64 at, V value) {
#define CASE(number, T)                                 \
  case number:                                          \
    reinterpret_cast<T*>(word)[at] = convert<T>(value); \
    break;
  switch (code) { FOR_EACH_TYPE(CASE) }
#undef CASE
}
#undef FOR_EACH_TYPE

// Division of numbers below 2^31 (backends/cuda/common/divisor.h); `high` holds the upper half of
// larger divisors.
struct Divisor {
  u32 by, factor, shift, high;
};

// A loop over N operands with D dimensions, innermost first; the last dimension needs no division.
// `wide`: indices and sizes may reach 2^31.
template <int N, int D, bool wide>
struct Strided {
  Divisor size[D];
  i64 stride[D][N];
};
template <bool wide, int N, int D>
FN void offsets(const Strided<N, D, wide>& loop, i64 i, i64 (&at)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) at[k] = 0;
  if constexpr (wide) {
    for (int d = 0; d < D; ++d) {
      const i64 by = static_cast<i64>(loop.size[d].high) << 32 | loop.size[d].by;
      const i64 outer = d + 1 < D ? i / by : 0;
      const i64 index = i - outer * by;
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += index * loop.stride[d][k];
      i = outer;
    }
  } else {
    u32 rest = static_cast<u32>(i);
#pragma unroll
    for (int d = 0; d < D; ++d) {
      const Divisor& size = loop.size[d];
      const u32 outer = d + 1 < D ? (__umulhi(rest, size.factor) + rest) >> size.shift : 0;
      const u32 index = rest - outer * size.by;
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += index * loop.stride[d][k];
      rest = outer;
    }
  }
}
