// Random fills. Threads draw chunks of the row-major order in any order; an element's bits depend
// only on its index.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backends/cpu-openmp/common/row_major.h"
#include "backends/cpu-openmp/random/bits.h"
#include "backends/cpu-openmp/registry.h"
#include "backends/cpu-openmp/simd/convert.h"
#include "mytorch/abi_ops/native_dropout.h"
#include "mytorch/abi_ops/normal_.h"
#include "mytorch/abi_ops/random_.h"
#include "mytorch/abi_ops/uniform_.h"
#include "mytorch/backend.h"
#include "mytorch/backend/philox.h"

namespace mytorch::cpu {
namespace {

namespace philox = sdk::philox;
using sdk::TensorView;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

void draw(const philox::Stream& stream, int64_t first, int64_t n, uint32_t* bits) {
  random_fns()->bits32(stream.seed, stream.call, static_cast<uint64_t>(first) / 4, n, bits);
}
void draw(const philox::Stream& stream, int64_t first, int64_t n, uint64_t* bits) {
  random_fns()->bits64(stream.seed, stream.call, static_cast<uint64_t>(first) / 4, n, bits);
}

// kRandomChunk numbers from their bits.
void uniform_of_bits(const uint32_t* bits, float low, float high, float* out) {
  random_fns()->uniform_float(bits, low, high, out);
}
void uniform_of_bits(const uint64_t* bits, double low, double high, double* out) {
  random_fns()->uniform_double(bits, low, high, out);
}
void normal_of_bits(const uint32_t* bits, float mean, float std, float* out) {
  random_fns()->normal_float(bits, mean, std, out);
}
void normal_of_bits(const uint64_t* bits, double mean, double std, double* out) {
  random_fns()->normal_double(bits, mean, std, out);
}

// Calls body(first, n) for chunks of the elements.
template <class F>
void for_each_chunk(mt_ctx& ctx, int64_t numel, F&& body) {
  const int64_t chunks = (numel + kRandomChunk - 1) / kRandomChunk;
  sdk::parallel_for(ctx, 0, chunks, 8, [&](int64_t begin, int64_t end) noexcept {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t first = c * kRandomChunk;
      body(first, std::min(kRandomChunk, numel - first));
    }
  });
}

// Fills `self` by make(first, n, out), which computes elements [first, first + n); `out` has room
// for a whole chunk.
template <class T, class F>
void fill(mt_ctx& ctx, const TensorView& self, F&& make) {
  const auto loop = sdk::make_loop<1>(self.shape(), {self}, sdk::Order::kRowMajor);
  T* data = self.data<T>();
  const bool contiguous = loop.is_contiguous(0);
  for_each_chunk(ctx, loop.numel(), [&](int64_t first, int64_t n) {
    if (contiguous && n == kRandomChunk) return make(first, n, data + first);
    alignas(64) T values[kRandomChunk];
    make(first, n, values);
    pair_elements(loop, data, first, n, values, [](T& to, const T& value) { to = value; });
  });
}

void uniform_(mt_ctx& ctx, const mt_args_uniform_& args) {
  const philox::Stream stream(args.generator);
  sdk::visit_floating(TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const W low = static_cast<W>(sdk::convert<T>(args.from));
    const W high = static_cast<W>(sdk::convert<T>(args.to));
    fill<T>(ctx, args.self, [&](int64_t first, int64_t n, T* out) {
      alignas(64) BitsOf<T> bits[kRandomChunk];
      draw(stream, first, n, bits);
      if constexpr (std::is_same_v<T, W>) {
        uniform_of_bits(bits, low, high, out);
      } else {
        for (int64_t i = 0; i < n; ++i) {
          const W u = philox::uniform_of_bits<T>(bits[i]);
          const T value = sdk::convert<T>(philox::mul(u, high - low) + low);
          out[i] = static_cast<W>(value) < high ? value : sdk::convert<T>(low);
        }
      }
    });
  });
}

void normal_(mt_ctx& ctx, const mt_args_normal_& args) {
  const philox::Stream stream(args.generator);
  sdk::visit_floating(TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const W mean = static_cast<W>(args.mean);
    const W std = static_cast<W>(args.std);
    const simd::ConvertFn narrow = simd::get_convert(sdk::dtype_of<W>, sdk::dtype_of<T>);
    fill<T>(ctx, args.self, [&](int64_t first, int64_t n, T* out) {
      alignas(64) BitsOf<W> bits[kRandomChunk];
      draw(stream, first, n, bits);
      if constexpr (std::is_same_v<T, W>) {
        normal_of_bits(bits, mean, std, out);
      } else {
        alignas(64) W values[kRandomChunk];
        normal_of_bits(bits, mean, std, values);
        narrow(values, out, n);
      }
    });
  });
}

// Lemire's multiplication of the first draw; the few rejected elements are drawn by the definition.
void random_(mt_ctx& ctx, const mt_args_random__from& args) {
  const philox::Stream stream(args.generator);
  sdk::visit_dtype(TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const uint64_t from = static_cast<uint64_t>(args.from);
    const uint64_t range = args.to.present != 0
                               ? static_cast<uint64_t>(args.to.value) - from
                               : static_cast<uint64_t>(philox::largest_random<T>()) - from + 1;
    const auto number = [&](uint64_t below) {
      return sdk::convert<T>(static_cast<int64_t>(from + below));
    };
    if (range != 0 && range <= uint64_t{1} << 32) {
      const uint32_t rejected = static_cast<uint32_t>((uint64_t{1} << 32) % range);
      fill<T>(ctx, args.self, [&](int64_t first, int64_t n, T* out) {
        alignas(64) uint32_t bits[kRandomChunk];
        draw(stream, first, n, bits);
        for (int64_t i = 0; i < n; ++i) {
          const uint64_t product = uint64_t{bits[i]} * range;
          out[i] = number(static_cast<uint32_t>(product) >= rejected
                              ? product >> 32
                              : philox::below(stream, first + i, range));
        }
      });
      return;
    }
    const uint64_t rejected = range == 0 ? 0 : (0 - range) % range;
    fill<T>(ctx, args.self, [&](int64_t first, int64_t n, T* out) {
      alignas(64) uint64_t bits[kRandomChunk];
      draw(stream, first, n, bits);
      for (int64_t i = 0; i < n; ++i) {
        if (range == 0) {
          out[i] = number(bits[i]);
        } else if (bits[i] * range >= rejected) {
          out[i] = number(
              static_cast<uint64_t>((static_cast<unsigned __int128>(bits[i]) * range) >> 64));
        } else {
          out[i] = number(philox::below(stream, first + i, range));
        }
      }
    });
  });
}

// ---- dropout

template <class T>
T dropped(T x, bool kept, double scale) {
  if constexpr (std::is_integral_v<T>) {
    return sdk::convert<T>(static_cast<double>(kept ? x : T(0)) * scale);
  } else {
    using W = sdk::Widened<T>;
    return sdk::convert<T>(static_cast<W>(x) * (kept ? W(1) : W(0)) * static_cast<W>(scale));
  }
}

void native_dropout(mt_ctx& ctx, const mt_args_native_dropout& args) {
  const TensorView input = args.input;
  const TensorView output = args.output;
  const TensorView mask = args.mask;
  const bool train = args.train.present == 0 || args.train.value != 0;
  // Outside of training, elements are kept unchanged.
  const float keep = train ? static_cast<float>(1 - args.p) : 2.0f;
  const double scale = !train ? 1 : args.p == 1 ? 0 : 1 / (1 - args.p);
  const philox::Stream stream(args.generator);
  const auto order = sdk::Order::kRowMajor;
  const auto in_loop = sdk::make_loop<1>(input.shape(), {input}, order);
  const auto out_loop = sdk::make_loop<1>(input.shape(), {output ? output : input}, order);
  const auto mask_loop = sdk::make_loop<1>(input.shape(), {mask ? mask : input}, order);
  const bool in_place =
      input.is<float>() && in_loop.is_contiguous(0) && out_loop.is_contiguous(0) && train;
  sdk::visit_dtype(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_chunk(ctx, in_loop.numel(), [&](int64_t first, int64_t n) {
      alignas(64) uint32_t bits[kRandomChunk];
      alignas(64) uint8_t kept[kRandomChunk];
      draw(stream, first, n, bits);
      const bool fast = in_place && output;
      random_fns()->dropout(bits, keep, n, fast ? input.data<const float>() + first : nullptr,
                            static_cast<float>(scale),
                            fast ? output.data<float>() + first : nullptr, kept);
      if (output && !fast) {
        alignas(64) T values[kRandomChunk];
        pair_elements(in_loop, input.data<const T>(), first, n, values,
                      [](const T& from, T& value) { value = from; });
        if (train) {
          for (int64_t i = 0; i < n; ++i) values[i] = dropped(values[i], kept[i] != 0, scale);
        }
        pair_elements(out_loop, output.data<T>(), first, n, values,
                      [](T& to, const T& value) { to = value; });
      }
      if (mask && mask_loop.is_contiguous(0)) {
        std::memcpy(mask.data<uint8_t>() + first, kept, static_cast<size_t>(n));
      } else if (mask) {
        pair_elements(mask_loop, mask.data<uint8_t>(), first, n, kept,
                      [](uint8_t& to, uint8_t value) { to = value; });
      }
    });
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

}  // namespace mytorch::cpu
