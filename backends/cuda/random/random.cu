// Random fills. A thread draws a Philox block for four consecutive elements in logical row-major
// order, so that bits depend only on an element's index, and stores them at once if the operand is
// contiguous.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/philox.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/native_dropout.h"
#include "mytorch/abi_ops/normal_.h"
#include "mytorch/abi_ops/random_.h"
#include "mytorch/abi_ops/uniform_.h"
#include "mytorch/backend/philox.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Distributions: each maps the 32 bits of an element, and for 64-bit types those of a second draw,
// to its value.
template <class T>
struct Uniform {
  static constexpr bool kTwoDraws = std::is_same_v<T, double>;
  Wide<T> low, high;

  __device__ T operator()(const philox::Stream&, uint64_t, uint32_t bits, uint32_t more) const {
    Wide<T> u;
    if constexpr (kTwoDraws) {
      u = philox::uniform_of_bits<T>(uint64_t{bits} << 32 | more);
    } else {
      u = philox::uniform_of_bits<T>(bits);
    }
    const T value = convert<T>(philox::add(philox::mul(u, philox::add(high, -low)), low));
    return widen(value) < high ? value : convert<T>(low);
  }
};

template <class T>
struct Normal {
  static constexpr bool kTwoDraws = std::is_same_v<T, double>;
  Wide<T> mean, std;

  __device__ T operator()(const philox::Stream&, uint64_t, uint32_t bits, uint32_t more) const {
    Wide<T> z;
    if constexpr (kTwoDraws) {
      z = philox::normal_of_bits(uint64_t{bits} << 32 | more);
    } else {
      z = philox::normal_of_bits(bits);
    }
    return convert<T>(philox::add(philox::mul(z, std), mean));
  }
};

template <class T>
struct Integers {
  static constexpr bool kTwoDraws = false;  // further draws are rare: made when needed
  uint64_t from, range;

  __device__ T operator()(const philox::Stream& stream, uint64_t index, uint32_t bits,
                          uint32_t) const {
    return convert<T>(static_cast<int64_t>(from + philox::below(stream, index, range, bits)));
  }
};

template <class T, class Make>
__global__ void __launch_bounds__(256)
    fill_random(Strided<1> loop, bool contiguous, philox::Stream stream, Make make, T* out) {
  stream.start();
  const int64_t blocks = (loop.numel + 3) / 4;
  for (int64_t b = first_element(); b < blocks; b += grid_step()) {
    const uint4 first = stream.block(b);
    uint4 second{};
    if constexpr (Make::kTwoDraws) second = stream.block(b, 1);
    const uint32_t bits[4] = {first.x, first.y, first.z, first.w};
    const uint32_t more[4] = {second.x, second.y, second.z, second.w};
    Pack<T, 4> values;
#pragma unroll
    for (int k = 0; k < 4; ++k) values.at[k] = make(stream, 4 * b + k, bits[k], more[k]);
    if (contiguous && 4 * b + 4 <= loop.numel) {
      *reinterpret_cast<Pack<T, 4>*>(out + 4 * b) = values;
      continue;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (4 * b + k >= loop.numel) break;
      int64_t at[1];
      loop.offsets(4 * b + k, at);
      out[at[0]] = values.at[k];
    }
  }
}

Strided<1> in_order(const TensorView& tensor) {
  return make_strided<1>(tensor.shape(), {tensor}, sdk::Order::kRowMajor);
}
bool flat(const Strided<1>& loop) {
  return loop.ndim == 0 || (loop.ndim == 1 && loop.stride[0][0] == 1);
}

template <class T, class Make>
void fill(mt_ctx& ctx, const mt_tensor* self, const mt_random& generator, const Make& make,
          const char* name) {
  const TensorView out = self;
  if (out.numel() == 0) return;
  const Strided<1> loop = in_order(out);
  const bool contiguous = flat(loop) && aligned(out.raw(), sizeof(Pack<T, 4>));
  launch(ctx, name, fill_random<T, Make>, grid_for(ctx, (loop.numel + 3) / 4, 256), loop,
         contiguous, philox::Stream(generator), make, out.data<T>());
}

// Rounds the bounds of a fill to the element's type first.
template <class T, class Sdk>
Wide<T> rounded(double value) {
  return static_cast<Wide<T>>(sdk::convert<Sdk>(value));
}

void uniform_(mt_ctx& ctx, const mt_args_uniform_& args) {
  sdk::visit_floating(TensorView(args.self).dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = on_device<S>;
    fill<T>(ctx, args.self, args.generator,
            Uniform<T>{rounded<T, S>(args.from), rounded<T, S>(args.to)}, "uniform_");
  });
}

void normal_(mt_ctx& ctx, const mt_args_normal_& args) {
  sdk::visit_floating(TensorView(args.self).dtype(), [&](auto tag) {
    using T = on_device<typename decltype(tag)::type>;
    fill<T>(ctx, args.self, args.generator,
            Normal<T>{static_cast<Wide<T>>(args.mean), static_cast<Wide<T>>(args.std)}, "normal_");
  });
}

void random_(mt_ctx& ctx, const mt_args_random__from& args) {
  sdk::visit_dtype(TensorView(args.self).dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = on_device<S>;
    const uint64_t from = static_cast<uint64_t>(args.from);
    const uint64_t range = args.to.present != 0
                               ? static_cast<uint64_t>(args.to.value) - from
                               : static_cast<uint64_t>(sdk::philox::largest_random<S>()) - from + 1;
    fill<T>(ctx, args.self, args.generator, Integers<T>{from, range}, "random_");
  });
}

// ---- dropout

// An element is kept if its uniform number is below `keep`, that is, if the 24 bits of the number
// are below this value.
uint32_t kept_below(float keep) {
  return static_cast<uint32_t>(std::ceil(std::clamp(double{keep}, 0.0, 1.0) * 0x1p24));
}

template <class T>
__device__ __forceinline__ T dropped(T x, bool kept, double scale) {
  if constexpr (std::is_integral_v<T>) {
    const T own = kept ? x : T(0);
    return scale == 1 ? own : convert<T>(static_cast<double>(own) * scale);
  } else {
    // Like x * kept * scale: a dropped element keeps its sign, and a NaN stays.
    using W = Wide<T>;
    return convert<T>(philox::mul(widen(x), kept ? static_cast<W>(scale) : W(0)));
  }
}

// Contiguous operands, in pieces of kPiece elements with 16-byte accesses.
constexpr int kPiece = 8;

template <class T>
inline constexpr int kPart = kPack<T> < kPiece ? kPack<T> : kPiece;

template <class T>
__device__ __forceinline__ Pack<T, kPiece> load_piece(const T* from) {
  Pack<T, kPiece> all;
#pragma unroll
  for (int k = 0; k < kPiece; k += kPart<T>) {
    const auto part = *reinterpret_cast<const Pack<T, kPart<T>>*>(from + k);
#pragma unroll
    for (int i = 0; i < kPart<T>; ++i) all.at[k + i] = part.at[i];
  }
  return all;
}
template <class T>
__device__ __forceinline__ void store_piece(T* to, const Pack<T, kPiece>& all) {
#pragma unroll
  for (int k = 0; k < kPiece; k += kPart<T>) {
    Pack<T, kPart<T>> part;
#pragma unroll
    for (int i = 0; i < kPart<T>; ++i) part.at[i] = all.at[k + i];
    *reinterpret_cast<Pack<T, kPart<T>>*>(to + k) = part;
  }
}

// Either output is optional.

template <class T>
__global__ void __launch_bounds__(256)
    dropout_contiguous(int64_t pieces, philox::Stream stream, uint32_t below, double scale,
                       const T* x, T* y, bool* kept_at) {
  stream.start();
  for (int64_t i = first_element(); i < pieces; i += grid_step()) {
    Pack<T, kPiece> values;
    if (y != nullptr) values = load_piece(x + i * kPiece);
    uint32_t bits[kPiece];
#pragma unroll
    for (int b = 0; b < kPiece / 4; ++b) {
      const uint4 words = stream.block(i * (kPiece / 4) + b);
      bits[4 * b] = words.x;
      bits[4 * b + 1] = words.y;
      bits[4 * b + 2] = words.z;
      bits[4 * b + 3] = words.w;
    }
    Pack<bool, kPiece> kept;
#pragma unroll
    for (int k = 0; k < kPiece; ++k) {
      kept.at[k] = bits[k] >> 8 < below;
      if (y != nullptr) values.at[k] = dropped(values.at[k], kept.at[k], scale);
    }
    if (y != nullptr) store_piece(y + i * kPiece, values);
    if (kept_at != nullptr) store_piece(kept_at + i * kPiece, kept);
  }
}

// Any strides, from element `first` on.
template <class T>
__global__ void __launch_bounds__(256)
    dropout_elements(int64_t first, Strided<1> in, Strided<1> out, Strided<1> mask,
                     philox::Stream stream, uint32_t below, double scale, const T* x, T* y,
                     bool* kept_at) {
  stream.start();
  for (int64_t b = first / 4 + first_element(); b < (in.numel + 3) / 4; b += grid_step()) {
    const uint4 words = stream.block(b);
    const uint32_t bits[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int64_t i = 4 * b + k;
      if (i >= in.numel) break;
      const bool kept = bits[k] >> 8 < below;
      int64_t at[1];
      if (y != nullptr) {
        in.offsets(i, at);
        const T value = x[at[0]];
        out.offsets(i, at);
        y[at[0]] = dropped(value, kept, scale);
      }
      if (kept_at != nullptr) {
        mask.offsets(i, at);
        kept_at[at[0]] = kept;
      }
    }
  }
}

void native_dropout(mt_ctx& ctx, const mt_args_native_dropout& args) {
  const TensorView input = args.input;
  const TensorView output = args.output;
  const TensorView mask = args.mask;
  if (input.numel() == 0 || (!output && !mask)) return;
  // Outside of training, all elements are kept.
  const bool train = args.train.present == 0 || args.train.value != 0;
  const uint32_t below = kept_below(train ? static_cast<float>(1 - args.p) : 1.0F);
  const double scale = !train ? 1 : args.p == 1 ? 0 : 1 / (1 - args.p);
  const Strided<1> in = in_order(input);
  const Strided<1> out = in_order(output ? output : input);
  const Strided<1> places = in_order(mask ? mask : input);
  const philox::Stream stream(args.generator);
  visit_type(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = static_cast<const T*>(input.raw());
    T* const y = output ? output.data<T>() : nullptr;
    bool* const kept_at = mask ? mask.data<bool>() : nullptr;
    const auto whole = [](const TensorView& of) {
      return !of || aligned(of.raw(), sizeof(Pack<T, kPart<T>>));
    };
    const bool contiguous = flat(in) && flat(out) && flat(places) && whole(input) &&
                            whole(output) && (!mask || aligned(mask.raw(), kPiece));
    const int64_t pieces = contiguous ? in.numel / kPiece : 0;
    if (pieces != 0) {
      launch(ctx, "native_dropout", dropout_contiguous<T>, grid_for(ctx, pieces, 256), pieces,
             stream, below, scale, x, y, kept_at);
    }
    const int64_t left = in.numel - pieces * kPiece;
    if (left == 0) return;
    launch(ctx, "native_dropout", dropout_elements<T>, grid_for(ctx, (left + 3) / 4, 256),
           pieces * kPiece, in, out, places, stream, below, scale, x, y, kept_at);
  });
}

}  // namespace

void register_random(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&uniform_>("philox", kTakes));
  kernels.push_back(sdk::kernel<&normal_>("philox", kTakes));
  kernels.push_back(sdk::kernel<&random_>("philox", kTakes));
  kernels.push_back(sdk::kernel<&native_dropout>("philox", kTakes));
}

}  // namespace mytorch::cuda
