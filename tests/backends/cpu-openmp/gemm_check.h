// Helpers for the tests of the matrix product: a host, matrices with any strides, and the
// comparison of one product with its definition.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cpu-openmp/gemm/gemm.h"

namespace mytorch::cpu::gemm_test {

// ---- a host -----------------------------------------------------------------------------------

// The context of a call. Pieces run on real threads. Scratch memory initially holds NaN, to reveal
// reads of uninitialized memory, and ends in a guard that kernels must not write.
class Host {
 public:
  explicit Host(int threads) {
    ctx_.size = sizeof(ctx_);
    ctx_.device = {MT_DEVICE_CPU, 0};
    ctx_.num_threads = threads;
    ctx_.stream = this;
    ctx_.parallel_for = parallel_for;
    ctx_.scratch = scratch;
    ctx_.set_error = [](mt_ctx* ctx, int, const char* message) { self(ctx).error = message; };
  }

  mt_ctx* ctx() { return &ctx_; }

  bool guards_intact() const {
    for (const auto& block : blocks_) {
      for (size_t i = 0; i < kGuard; ++i) {
        if (block.memory[block.offset + block.bytes + i] != kGuardByte) return false;
      }
    }
    return true;
  }

  bool out_of_memory = false;
  bool one_piece = false;  // run every loop as one piece on the caller's thread
  std::string error;
  std::atomic<int> pieces{0};
  int64_t scratch_calls() const { return static_cast<int64_t>(blocks_.size()); }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr unsigned char kGuardByte = 0xA5;
  struct Block {
    std::unique_ptr<unsigned char[]> memory;
    size_t offset, bytes;
  };

  static Host& self(mt_ctx* ctx) { return *static_cast<Host*>(ctx->stream); }

  static void parallel_for(mt_ctx* ctx, int64_t begin, int64_t end, int64_t grain, mt_range_fn body,
                           void* user) {
    Host& host = self(ctx);
    const int64_t most = std::max<int64_t>(1, (end - begin) / grain);
    const int64_t pieces = host.one_piece ? 1 : std::min<int64_t>(ctx->num_threads, most);
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t b = begin + (end - begin) * i / pieces;
      const int64_t e = begin + (end - begin) * (i + 1) / pieces;
      ++host.pieces;
      if (pieces == 1) {
        body(user, b, e);
      } else {
        threads.emplace_back([=] { body(user, b, e); });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  static void* scratch(mt_ctx* ctx, size_t bytes) {
    Host& host = self(ctx);
    if (host.out_of_memory) return nullptr;
    Block block;
    block.memory.reset(new unsigned char[bytes + 64 + kGuard]);
    block.bytes = bytes;
    const auto address = reinterpret_cast<uintptr_t>(block.memory.get());
    block.offset = (64 - address % 64) % 64;
    std::memset(block.memory.get(), 0xFF, block.offset + bytes);  // NaN in every format
    std::memset(block.memory.get() + block.offset + bytes, kGuardByte, kGuard);
    host.blocks_.push_back(std::move(block));
    return host.blocks_.back().memory.get() + host.blocks_.back().offset;
  }

  mt_ctx ctx_{};
  std::vector<Block> blocks_;
};

// ---- element types ----------------------------------------------------------------------------

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

inline double to_double(Brain x) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16));
}
inline double to_double(Half x) {
  const double sign = (x.bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (x.bits >> 10) & 31;
  const int fraction = x.bits & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(1024 + fraction, exponent - 25);
}
template <class T>
inline double to_double(T x) {
  return static_cast<double>(x);
}

// Rounds to nearest, ties to even, by a search over all 2^16 values, which shares no code with the
// tested conversion.
template <class T>
T nearest(double value) {
  if (std::isnan(value)) return T{0x7FFF};
  uint16_t low = 0, high = std::is_same_v<T, Half> ? 0x7C00 : 0x7F80;  // ordered magnitudes
  const double magnitude = std::fabs(value);
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (to_double(T{middle}) <= magnitude ? low : high) = middle;
  }
  const double below = to_double(T{low});
  // For rounding, infinity stands for the value one step beyond the largest finite one.
  const double above = std::isinf(to_double(T{high}))
                           ? below + (below - to_double(T{static_cast<uint16_t>(low - 1)}))
                           : to_double(T{high});
  const double middle = (below + above) / 2;
  const bool up = magnitude > middle || (magnitude == middle && (low & 1) != 0);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  return T{static_cast<uint16_t>(sign | (up ? high : low))};
}

template <class Exact, class T>
Exact exact(T x) {
  if constexpr (std::is_same_v<Exact, double>) {
    return to_double(x);
  } else {
    return static_cast<Exact>(x);  // modulo 2^64, as the sums wrap
  }
}

template <class T>
struct Traits;
#define MYTORCH_TRAITS(TYPE, CODE)                                     \
  template <>                                                          \
  struct Traits<TYPE> {                                                \
    static constexpr mt_dtype dtype = {CODE, 8 * sizeof(TYPE), 1};     \
    static constexpr bool integer = CODE == MT_INT || CODE == MT_UINT; \
  }
MYTORCH_TRAITS(float, MT_FLOAT);
MYTORCH_TRAITS(double, MT_FLOAT);
MYTORCH_TRAITS(Half, MT_FLOAT);
MYTORCH_TRAITS(Brain, MT_BFLOAT);
MYTORCH_TRAITS(int8_t, MT_INT);
MYTORCH_TRAITS(uint8_t, MT_UINT);
MYTORCH_TRAITS(int16_t, MT_INT);
MYTORCH_TRAITS(int32_t, MT_INT);
MYTORCH_TRAITS(int64_t, MT_INT);
#undef MYTORCH_TRAITS

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-52 - 1.0; }  // [-1, 1)

 private:
  uint64_t state_;
};

template <class T>
T random_value(Random& random) {
  if constexpr (Traits<T>::integer) {
    return static_cast<T>(random.next());  // the full range, so that sums wrap
  } else if constexpr (sizeof(T) == 2) {
    return nearest<T>(random.unit());
  } else {
    return static_cast<T>(random.unit());
  }
}

// ---- a matrix with any strides ----------------------------------------------------------------

enum class Layout { row_major, col_major, padded_rows, padded_cols, gaps, reversed };
inline constexpr Layout kLayouts[] = {Layout::row_major,   Layout::col_major, Layout::padded_rows,
                                      Layout::padded_cols, Layout::gaps,      Layout::reversed};
inline const char* layout_name(Layout layout) {
  static constexpr const char* kNames[] = {"row_major",   "col_major", "padded_rows",
                                           "padded_cols", "gaps",      "reversed"};
  return kNames[static_cast<int>(layout)];
}

// `batch` matrices in a buffer that ends at their last element, so that AddressSanitizer detects
// any access past it. Elements between the matrices hold a pattern that must not change.
template <class T>
struct Tensor3 {
  int64_t batch, rows, cols;
  int64_t row_stride, col_stride, batch_stride;
  std::vector<T> buffer;
  int64_t origin = 0;

  Tensor3(int64_t batch_, int64_t rows_, int64_t cols_, Layout layout)
      : batch(batch_), rows(rows_), cols(cols_) {
    switch (layout) {
      case Layout::row_major:
        row_stride = cols, col_stride = 1;
        break;
      case Layout::col_major:
        row_stride = 1, col_stride = rows;
        break;
      case Layout::padded_rows:
        row_stride = cols + 3, col_stride = 1;
        break;
      case Layout::padded_cols:
        row_stride = 1, col_stride = rows + 5;
        break;
      case Layout::gaps:
        row_stride = 2 * cols + 1, col_stride = 2;
        break;
      case Layout::reversed:
        row_stride = -(cols + 1), col_stride = 1;
        break;
    }
    const int64_t row_span = std::abs(row_stride) * std::max<int64_t>(0, rows - 1);
    const int64_t span = row_span + col_stride * std::max<int64_t>(0, cols - 1) + 1;
    batch_stride = span;
    if (row_stride < 0) origin = row_span;
    if (rows > 0 && cols > 0) buffer.resize(static_cast<size_t>(span * batch));
  }

  int64_t index(int64_t g, int64_t i, int64_t j) const {
    return origin + g * batch_stride + i * row_stride + j * col_stride;
  }
  T& at(int64_t g, int64_t i, int64_t j) { return buffer[static_cast<size_t>(index(g, i, j))]; }
  const T& at(int64_t g, int64_t i, int64_t j) const {
    return buffer[static_cast<size_t>(index(g, i, j))];
  }
  T* data() { return buffer.empty() ? nullptr : buffer.data() + origin; }
};

template <class T>
Tensor3<T> random_tensor(int64_t batch, int64_t rows, int64_t cols, Layout layout, uint64_t seed) {
  Tensor3<T> tensor(batch, rows, cols, layout);
  Random random(seed);
  for (T& value : tensor.buffer) value = random_value<T>(random);
  return tensor;
}

// ---- one case ---------------------------------------------------------------------------------

struct Case {
  int64_t m, n, k;
  Layout a = Layout::row_major, b = Layout::row_major, c = Layout::row_major;
  int64_t batch = 1;
  bool accumulate = false;
  bool bias = false;
  bool relu = false;
  int threads = 1;
  double alpha = 1;  // of floating-point types
};

inline std::string describe(const Case& x) {
  return std::to_string(x.m) + "x" + std::to_string(x.n) + "x" + std::to_string(x.k) + " batch " +
         std::to_string(x.batch) + " layouts " + layout_name(x.a) + " " + layout_name(x.b) + " " +
         layout_name(x.c) + (x.accumulate ? " accumulate" : "") + (x.bias ? " bias" : "") +
         (x.relu ? " relu" : "") + " alpha " + std::to_string(x.alpha) + " threads " +
         std::to_string(x.threads);
}

template <class T>
bool equal_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
GemmProblem problem_of(const Case& x, Tensor3<T>& a, Tensor3<T>& b, Tensor3<T>& c) {
  GemmProblem p{};
  p.dtype = Traits<T>::dtype;
  p.m = x.m;
  p.n = x.n;
  p.k = x.k;
  p.a = {a.data(), a.row_stride, a.col_stride};
  p.b = {b.data(), b.row_stride, b.col_stride};
  p.c = {c.data(), c.row_stride, c.col_stride};
  p.batch = x.batch;
  p.a_batch_stride = a.batch_stride;
  p.b_batch_stride = b.batch_stride;
  p.c_batch_stride = c.batch_stride;
  p.accumulate = x.accumulate;
  p.alpha = x.alpha;
  p.activation = x.relu ? GemmProblem::relu : GemmProblem::none;
  return p;
}

template <class T>
void check(const Case& x) {
  SCOPED_TRACE(describe(x));
  Tensor3<T> a = random_tensor<T>(x.batch, x.m, x.k, x.a, 1);
  Tensor3<T> b = random_tensor<T>(x.batch, x.k, x.n, x.b, 2);
  Tensor3<T> c = random_tensor<T>(x.batch, x.m, x.n, x.c, 3);
  const Tensor3<T> before = c;
  constexpr int64_t kBiasStride = 2;
  Tensor3<T> bias = random_tensor<T>(1, x.n * kBiasStride, 1, Layout::row_major, 4);

  Host host(x.threads);
  GemmProblem p = problem_of(x, a, b, c);
  if (x.bias) {
    p.bias = bias.data();
    p.bias_stride = kBiasStride;
  }
  ASSERT_EQ(gemm(host.ctx(), p), MT_OK) << host.error;
  EXPECT_TRUE(host.guards_intact());

  // Exact copies of the rows of A and the columns of B.
  using Exact = std::conditional_t<Traits<T>::integer, uint64_t, double>;
  std::vector<Exact> rows, columns;
  for (int64_t g = 0; g < x.batch; ++g) {
    for (int64_t i = 0; i < x.m; ++i) {
      for (int64_t q = 0; q < x.k; ++q) rows.push_back(exact<Exact>(a.at(g, i, q)));
    }
    for (int64_t j = 0; j < x.n; ++j) {
      for (int64_t q = 0; q < x.k; ++q) columns.push_back(exact<Exact>(b.at(g, q, j)));
    }
  }

  // Memory between the elements of C must not change.
  std::vector<bool> written(c.buffer.size());
  int wrong = 0;
  for (int64_t g = 0; g < x.batch; ++g) {
    for (int64_t i = 0; i < x.m; ++i) {
      for (int64_t j = 0; j < x.n; ++j) {
        written[static_cast<size_t>(c.index(g, i, j))] = true;
        const T got = c.at(g, i, j);
        const Exact* row = rows.data() + (g * x.m + i) * x.k;
        const Exact* column = columns.data() + (g * x.n + j) * x.k;
        const T* bias_at = x.bias ? bias.data() + j * kBiasStride : nullptr;
        if constexpr (Traits<T>::integer) {
          uint64_t sum = x.accumulate ? static_cast<uint64_t>(before.at(g, i, j)) : 0;
          for (int64_t q = 0; q < x.k; ++q) sum += row[q] * column[q];
          if (bias_at != nullptr) sum += static_cast<uint64_t>(*bias_at);
          if (got != static_cast<T>(sum) && ++wrong < 5) {
            ADD_FAILURE() << "at " << g << "," << i << "," << j << ": " << +got << " for "
                          << +static_cast<T>(sum);
          }
        } else {
          double sum = x.accumulate ? to_double(before.at(g, i, j)) : 0;
          double magnitude = std::fabs(sum);
          for (int64_t q = 0; q < x.k; ++q) {
            const double product = x.alpha * row[q] * column[q];
            sum += product;
            magnitude += std::fabs(product);
          }
          if (bias_at != nullptr) {
            sum += to_double(*bias_at);
            magnitude += std::fabs(to_double(*bias_at));
          }
          if (x.relu) sum = std::max(sum, 0.0);
          // The error bound of a sum in any order, in the type of the arithmetic, plus one
          // rounding.
          const double unit = sizeof(T) == 8 ? 0x1p-53 : 0x1p-24;
          const double last = std::is_same_v<T, Brain>  ? 0x1p-8
                              : std::is_same_v<T, Half> ? 0x1p-11
                                                        : 0;
          const double bound = static_cast<double>(x.k + 4) * unit * magnitude * 1.01 +
                               std::fabs(sum) * last +
                               (std::is_same_v<T, Half> ? 0x1p-25 : 0x1p-1000);
          const double error = std::fabs(to_double(got) - sum);
          if (!(error <= bound) && ++wrong < 5) {
            ADD_FAILURE() << "at " << g << "," << i << "," << j << ": " << to_double(got) << " for "
                          << sum << ", off by " << error << " of " << bound;
          }
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0);
  for (size_t e = 0; e < c.buffer.size(); ++e) {
    if (!written[e] && !equal_bits(c.buffer[e], before.buffer[e])) {
      ADD_FAILURE() << "wrote outside of C, element " << e;
      break;
    }
  }
}

}  // namespace mytorch::cpu::gemm_test
