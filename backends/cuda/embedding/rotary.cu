// Rotary position embedding. A thread rotates a pack of pairs: it reads both halves before it
// writes them, so that the output may be the input.
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/rotary_embedding.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kThreads = 256;

// A table of cosines or sines, of the input's type or its compute type.
struct Angles {
  const void* data;
  int64_t row, col;  // strides
  bool wide;

  Angles(const TensorView& x, mt_dtype dtype)
      : data(x.raw()),
        row(x.stride(0)),
        col(x.stride(1)),
        wide(!sdk::same_dtype(x.dtype(), dtype)) {}
#ifdef __CUDACC__
  template <class T, int kPairs>
  __device__ __forceinline__ void load(int64_t r, int64_t i, Wide<T> (&to)[kPairs]) const {
    if (is_half<T> && wide) {
      load_as<Wide<T>>(r, i, to);
    } else {
      load_as<T>(r, i, to);
    }
  }

 private:
  template <class From, class W, int kPairs>
  __device__ __forceinline__ void load_as(int64_t r, int64_t i, W (&to)[kPairs]) const {
    const From* const from = static_cast<const From*>(data) + r * row + i * col;
    if constexpr (kPairs == 1) {
      to[0] = widen(*from);
    } else {
      const auto pack = *reinterpret_cast<const Pack<From, kPairs>*>(from);
#pragma unroll
      for (int k = 0; k < kPairs; ++k) to[k] = widen(pack.at[k]);
    }
  }
#endif
};

struct Rotation {
  Strided<3> rows;  // of the input and the output; the row of the tables, or its position's offset
  Angles cos, sin;
  int64_t from_step, to_step;  // strides within a row
  uint32_t rotated, packs;     // packs of pairs of a row, and with those of copied elements
  int pairs;
  const void* positions;  // or NULL
  uint32_t positions_key;
  bool inverse;
};

template <class T, int kPairs>
__device__ __forceinline__ Pack<T, kPairs> load(const T* from) {
  if constexpr (kPairs == 1) {
    return {*from};
  } else {
    return *reinterpret_cast<const Pack<T, kPairs>*>(from);
  }
}
template <class T, int kPairs>
__device__ __forceinline__ void store(T* to, const Pack<T, kPairs>& pack) {
  if constexpr (kPairs == 1) {
    *to = pack.at[0];
  } else {
    *reinterpret_cast<Pack<T, kPairs>*>(to) = pack;
  }
}

template <class T, int kPairs, bool kNeighbors>
__global__ void __launch_bounds__(kThreads) rotate(const __grid_constant__ Rotation rotation,
                                                   int64_t count, const T* x, T* y, Faults faults) {
  using W = Wide<T>;
  const Rotation& r = rotation;
  for (int64_t item = first_element(); item < count; item += grid_step()) {
    const int64_t row = item / r.packs;
    const auto pack = static_cast<uint32_t>(item - row * r.packs);
    int64_t at[3];
    r.rows.offsets(row, at);
    const T* const from = x + at[0];
    T* const to = y + at[1];
    if (pack >= r.rotated) {  // elements that are not rotated
      const int64_t i = 2 * int64_t{r.pairs} + int64_t{pack - r.rotated} * kPairs;
      store(to + i * r.to_step, load<T, kPairs>(from + i * r.from_step));
      continue;
    }
    int64_t place = at[2];
    if (r.positions != nullptr) {
      place = load_index(r.positions, place, r.positions_key);
      if (!faults.check(place)) place = 0;
    }
    const int64_t i = int64_t{pack} * kPairs;
    const int64_t first = kNeighbors ? 2 * i : i;
    const int64_t second = kNeighbors ? 2 * i + kPairs : i + r.pairs;
    Pack<T, kPairs> both[2] = {load<T, kPairs>(from + first * r.from_step),
                               load<T, kPairs>(from + second * r.from_step)};
    W c[kPairs], s[kPairs];
    r.cos.template load<T>(place, i, c);
    r.sin.template load<T>(place, i, s);
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      const int one = 2 * k, other = 2 * k + 1;  // of the elements of both packs, in order
      T& a = kNeighbors ? both[one / kPairs].at[one % kPairs] : both[0].at[k];
      T& b = kNeighbors ? both[other / kPairs].at[other % kPairs] : both[1].at[k];
      const W u = widen(a), v = widen(b), sine = r.inverse ? -s[k] : s[k];
      a = convert<T>(u * c[k] - v * sine);
      b = convert<T>(v * c[k] + u * sine);
    }
    store(to + first * r.to_step, both[0]);
    store(to + second * r.to_step, both[1]);
  }
}

// Whether all runs of `pairs` elements of the rows and the tables are whole packs.
bool in_packs(const Rotation& r, int64_t width, const TensorView& self, const TensorView& out) {
  const int64_t pairs = 16 / self.itemsize();
  bool whole = r.pairs % pairs == 0 && width % pairs == 0 && r.from_step == 1 && r.to_step == 1 &&
               aligned(self.raw()) && aligned(out.raw());
  for (const Angles& each : {r.cos, r.sin}) {
    whole = whole && each.col == 1 && each.row % pairs == 0 && aligned(each.data, 32);
  }
  for (int d = 0; d < r.rows.ndim; ++d) {
    whole = whole && r.rows.stride[d][0] % pairs == 0 && r.rows.stride[d][1] % pairs == 0;
  }
  return whole;
}

void rotary_embedding(mt_ctx& ctx, const mt_args_rotary_embedding& args) {
  static const uint32_t site = fault_site("rotary_embedding");
  const TensorView self = args.self, out = args.out, cos = args.cos, sin = args.sin;
  const TensorView positions = args.positions;
  if (self.numel() == 0) return;
  if (cos.is_host() || sin.is_host() || (positions && positions.is_host()) ||
      !sdk::same_dtype(cos.dtype(), sin.dtype())) {
    throw sdk::Declined{};
  }
  const int64_t width = self.size(-1);
  const size_t lead = static_cast<size_t>(self.ndim()) - 1;
  std::vector<int64_t> places(lead, 0);  // strides of the rows of the tables, or of positions
  places[lead - 1] = positions ? positions.stride(-1) : 1;
  if (positions && positions.ndim() == 2) places[0] = positions.stride(0);
  Rotation r{
      .rows = Strided<3>(
          sdk::StridedLoop<3>(self.shape().first(lead),
                              {self.get()->dl.strides, out.get()->dl.strides, places.data()})),
      .cos = Angles(cos, self.dtype()),
      .sin = Angles(sin, self.dtype()),
      .from_step = self.stride(-1),
      .to_step = out.stride(-1),
      .rotated = 0,
      .packs = 0,
      .pairs = static_cast<int>(cos.size(1)),
      .positions = positions ? positions.raw() : nullptr,
      .positions_key = positions ? sdk::dtype_key(positions.dtype()) : 0,
      .inverse = args.inverse != 0,
  };
  const Faults faults = faults_of(ctx, site, 0, cos.size(0));
  visit_floating(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto start = [&](auto pairs) {
      constexpr int kPairs = decltype(pairs)::value;
      r.rotated = static_cast<uint32_t>(r.pairs / kPairs);
      const bool copies = self.raw() != out.raw();
      r.packs =
          r.rotated + (copies ? static_cast<uint32_t>((width - 2 * int64_t{r.pairs}) / kPairs) : 0);
      const int64_t count = r.rows.numel * r.packs;
      if (count == 0) return;
      const auto kernel =
          args.interleaved != 0 ? rotate<T, kPairs, true> : rotate<T, kPairs, false>;
      launch(ctx, "rotary_embedding", kernel, grid_for(ctx, count, kThreads), r, count,
             static_cast<const T*>(self.raw()), out.data<T>(), faults);
    };
    if (in_packs(r, width, self, out)) {
      start(std::integral_constant<int, kPack<T>>{});
    } else {
      start(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace

void register_rotary(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&rotary_embedding>("packs", MT_TAKES_STRIDED | MT_TAKES_ALIAS));
}

}  // namespace mytorch::cuda
