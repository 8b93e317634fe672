// States of reductions, and their combination across the threads of a block; follows node_ops.cuh.
// The components c0, c1, c2 are in the order of mytorch/abi.h. Values are pushed with their index
// among the reduced elements.

template <class V>
FN V lowest() {
  if constexpr (same<V, float>) {
    return -static_cast<float>(1e300 * 1e10);
  } else if constexpr (same<V, double>) {
    return -(1e300 * 1e300);
  } else {
    return sizeof(V) == 8 ? V(-0x7fffffffffffffffLL - 1) : V(-0x7fffffff - 1);
  }
}
template <class V>
FN V highest() {
  if constexpr (is_real<V>) {
    return -lowest<V>();
  } else {
    return ~lowest<V>();
  }
}
template <class V>
struct SumFold {
  V c0;
  FN_MEMBER void clear() { c0 = 0; }
  FN_MEMBER void push(V x, i64) { c0 = node::add(c0, x); }
  FN_MEMBER void merge(const SumFold& o) { c0 = node::add(c0, o.c0); }
};

template <class V>
struct ProdFold {
  V c0;
  FN_MEMBER void clear() { c0 = 1; }
  FN_MEMBER void push(V x, i64) { c0 = node::mul(c0, x); }
  FN_MEMBER void merge(const ProdFold& o) { c0 = node::mul(c0, o.c0); }
};

// NaN is better than every number.
template <bool largest, class V>
FN bool better(V x, V best) {
  if (best != best) return false;
  return x != x || (largest ? x > best : x < best);
}

template <class V, bool largest>
struct BestFold {
  V c0;
  FN_MEMBER void clear() { c0 = largest ? lowest<V>() : highest<V>(); }
  FN_MEMBER void push(V x, i64) { c0 = better<largest>(x, c0) ? x : c0; }
  FN_MEMBER void merge(const BestFold& o) { push(o.c0, 0); }
};

// The first of the best elements; an index of -1 means that nothing was pushed.
template <class V, bool largest>
struct BestIndexFold {
  i64 c0;
  V c1;
  FN_MEMBER void clear() {
    c0 = -1;
    c1 = largest ? lowest<V>() : highest<V>();
  }
  FN_MEMBER void push(V x, i64 index) {
    const bool takes = c0 < 0 || better<largest>(x, c1) || (!better<largest>(c1, x) && index < c0);
    c0 = takes ? index : c0;
    c1 = takes ? x : c1;
  }
  FN_MEMBER void merge(const BestIndexFold& o) {
    if (o.c0 >= 0) push(o.c1, o.c0);
  }
};

template <class V, bool all>
struct LogicFold {
  u32 c0;
  FN_MEMBER void clear() { c0 = all; }
  FN_MEMBER void push(bool x, i64) { c0 = all ? (c0 && x) : (c0 || x); }
  FN_MEMBER void merge(const LogicFold& o) { push(o.c0 != 0, 0); }
};

// Count, mean and the sum of squared deviations (Welford, 1962), merged as by Chan et al. (1979).
// `off` is the distance of the mean from the first value: a mean that is large beside the spread
// would lose what each value changes of it.
template <class V>
struct WelfordFold {
  V c0, off, c2, first;
  FN_MEMBER void clear() { c0 = off = c2 = first = 0; }
  FN_MEMBER V mean() const { return first + off; }
  FN_MEMBER void push(V x, i64) {
    if (c0 == 0) first = x;
    c0 += 1;
    const V value = x - first;
    const V delta = value - off;
    off += node::div(delta, c0);
    c2 += delta * (value - off);
  }
  FN_MEMBER void merge(const WelfordFold& o) {
    if (o.c0 == 0) return;
    if (c0 == 0) {
      *this = o;
      return;
    }
    const V count = c0 + o.c0;
    const V delta = (o.first - first) + (o.off - off);
    const V share = o.c0 / count;
    off += delta * share;
    c2 += o.c2 + delta * delta * (c0 * share);
    c0 = count;
  }
};

// The maximum and the sum of exp(x - maximum); if the maximum is infinite, how often it occurs.
template <class V>
struct LogSumExpFold {
  V c0, c1;
  FN_MEMBER void clear() {
    c0 = lowest<V>();
    c1 = 0;
  }
  // One exponential and no branch: the threads of a warp meet their maxima at different elements.
  FN_MEMBER void add(V x, V sum) {
    const bool above = x > c0;
    const V share = x == c0 ? V(1) : node::exp(above ? c0 - x : x - c0);  // of NaN, NaN
    c1 = above ? c1 * share + sum : c1 + sum * share;
    c0 = above || x != x ? x : c0;
  }
  FN_MEMBER void push(V x, i64) { add(x, V(1)); }
  FN_MEMBER void merge(const LogSumExpFold& o) { add(o.c0, o.c1); }
};

// Pushes several values, where the order of the reduction is free.
template <int N, class S, class V>
FN void push_run(S& s, const V (&x)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) s.push(x[k], 0);
}

// Returns e^x for x <= 0 with an error of about (1 + |x|) 1e-7, which is small beside the sum of
// such numbers that contains e^0.
FN float falling_exp(float x) { return __expf(x); }
FN double falling_exp(double x) { return node::exp(x); }
// Returns the larger number; of a NaN and a number, the number.
FN float larger(float a, float b) { return ::fmaxf(a, b); }
FN double larger(double a, double b) { return ::fmax(a, b); }

// The sum is scaled once, to the largest of the values; then each costs an exponential alone. The
// maximum passes over NaN, which the sum keeps.
template <int N, class V>
FN void push_run(LogSumExpFold<V>& s, const V (&x)[N]) {
  V most = s.c0;
#pragma unroll
  for (int k = 0; k < N; ++k) most = larger(x[k], most);
  if (N == 1 || !(node::abs(most) < highest<V>())) {
#pragma unroll
    for (int k = 0; k < N; ++k) s.push(x[k], 0);
    return;
  }
  V sum = s.c1 * node::exp(s.c0 - most);
#pragma unroll
  for (int k = 0; k < N; ++k) sum += falling_exp(x[k] - most);
  s.c0 = most;
  s.c1 = sum;
}

// The host launches all reductions with at most 256 threads, a power of two in each direction, and
// at least 32 in total.
constexpr int kThreads = 256;

template <class S>
FN S from_below(const S& s, int delta, int width) {
  static_assert(sizeof(S) % 4 == 0, "states are moved by words");
  u32 words[sizeof(S) / 4];
  memcpy(words, &s, sizeof(S));
#pragma unroll
  for (int k = 0; k < static_cast<int>(sizeof(S) / 4); ++k) {
    words[k] = __shfl_down_sync(0xffffffffu, words[k], delta, width);
  }
  S other;
  memcpy(&other, words, sizeof(S));
  return other;
}

template <int N, class S>
FN void join_lanes(S (&s)[N]) {
#pragma unroll
  for (int h = N / 2; h > 0; h /= 2) {
#pragma unroll
    for (int k = 0; k < h; ++k) s[k].merge(s[k + h]);
  }
}

// Loads a state that another block has stored, bypassing the L1 cache.
template <class S>
FN S read_state(const S* from) {
  u32 words[sizeof(S) / 4];
#pragma unroll
  for (int k = 0; k < static_cast<int>(sizeof(S) / 4); ++k) {
    words[k] = __ldcg(reinterpret_cast<const u32*>(from) + k);
  }
  S s;
  memcpy(&s, words, sizeof(S));
  return s;
}

// Returns whether this block is the last of those with its blockIdx.x to arrive here. The stores of
// the others are then visible. The counter is 0 before and after.
FN bool is_last(u32* counters) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    last = atomicInc(counters + blockIdx.x, gridDim.y - 1) == gridDim.y - 1;
  }
  __syncthreads();
  __threadfence();
  return last;
}

// Combines along threadIdx.x; thread 0 of each row gets the result. All threads of the block take
// part.
template <class S>
FN void join_x(S& s) {
  __shared__ S storage[kThreads / 32];
  const int width = blockDim.x < 32 ? blockDim.x : 32;
  for (int d = width / 2; d > 0; d /= 2) s.merge(from_below(s, d, width));
  if (blockDim.x <= 32) return;
  const int lane = threadIdx.x & 31;
  const int warps = blockDim.x / 32;
  S* const mine = storage + threadIdx.y * warps;
  if (lane == 0) mine[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  if (lane < warps) s = mine[lane];
  for (int d = warps / 2; d > 0; d /= 2) s.merge(from_below(s, d, 32));
}

// Combines along threadIdx.y; row 0 gets the results.
template <int N, class S>
FN void join_y(S (&s)[N]) {
  __shared__ S storage[kThreads * N];
  const int at = (threadIdx.y * blockDim.x + threadIdx.x) * N;
  for (int h = blockDim.y / 2; h > 0; h /= 2) {
    if (threadIdx.y >= h && threadIdx.y < 2 * h) {
#pragma unroll
      for (int k = 0; k < N; ++k) storage[at + k] = s[k];
    }
    __syncthreads();
    if (threadIdx.y < h) {
#pragma unroll
      for (int k = 0; k < N; ++k) s[k].merge(storage[at + h * blockDim.x * N + k]);
    }
    __syncthreads();
  }
}
