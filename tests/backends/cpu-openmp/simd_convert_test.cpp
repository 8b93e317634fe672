// Every pair of element types against a scalar reference, on every instruction set of this CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu-openmp/simd/convert.h"
#include "hwy/targets.h"

namespace mytorch::simd {
namespace {

constexpr mt_dtype kTypes[] = {
    {MT_BOOL, 8, 1}, {MT_UINT, 8, 1},   {MT_INT, 8, 1},     {MT_INT, 16, 1},   {MT_INT, 32, 1},
    {MT_INT, 64, 1}, {MT_FLOAT, 16, 1}, {MT_BFLOAT, 16, 1}, {MT_FLOAT, 32, 1}, {MT_FLOAT, 64, 1}};
enum { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };
const char* const kNames[] = {"bool",  "uint8",   "int8",     "int16",   "int32",
                              "int64", "float16", "bfloat16", "float32", "float64"};

bool is_float(int type) { return type >= kF16; }

// The value of an element: exact in long double for every type.
long double value_of(int type, const void* at) {
  const auto read = [at]<typename T>(T x) {
    std::memcpy(&x, at, sizeof x);
    return x;
  };
  switch (type) {
    case kBool:
      return read(uint8_t{}) != 0;
    case kU8:
      return read(uint8_t{});
    case kI8:
      return read(int8_t{});
    case kI16:
      return read(int16_t{});
    case kI32:
      return read(int32_t{});
    case kI64:
      return read(int64_t{});
    case kF32:
      return read(float{});
    case kF64:
      return read(double{});
    default:
      break;
  }
  // 16 bits: decodes sign, exponent and mantissa by the format's definition.
  const uint16_t bits = read(uint16_t{});
  const int digits = type == kF16 ? 10 : 7;
  const int max_exponent = type == kF16 ? 31 : 255;
  const int exponent = (bits & 0x7fff) >> digits;
  const int mantissa = bits & ((1 << digits) - 1);
  const int bias = max_exponent / 2;
  long double magnitude;
  if (exponent == max_exponent) {
    magnitude = mantissa ? std::numeric_limits<long double>::quiet_NaN()
                         : std::numeric_limits<long double>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<long double>(mantissa), 1 - bias - digits);
  } else {
    magnitude =
        std::ldexp(static_cast<long double>(mantissa + (1 << digits)), exponent - bias - digits);
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Rounds to `digits` bits, ties to even, with the smallest exponent and the largest of the format.
long double round_to(long double x, int digits, int min_exponent, int max_exponent) {
  if (!std::isfinite(x) || x == 0) return x;
  int exponent;
  std::frexp(x, &exponent);
  const int unit = std::max(exponent, min_exponent) - digits;
  const long double r = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  if (std::fabs(r) >= std::ldexp(1.0L, max_exponent)) {
    return std::copysign(std::numeric_limits<long double>::infinity(), x);
  }
  return r;
}

int64_t truncate(long double x, int bits) {
  const long double limit = std::ldexp(1.0L, bits - 1);
  if (!(x >= -limit && x < limit)) return bits == 32 ? INT32_MIN : INT64_MIN;
  return static_cast<int64_t>(x);
}

// Returns the value of `x`, an element of type `from`, after conversion.
long double expected(int from, int to, long double x) {
  const auto to_int = [from, x](int bits) {
    return is_float(from) ? truncate(x, bits) : static_cast<int64_t>(x);
  };
  switch (to) {
    case kBool:
      return x != 0;
    case kU8:
      return static_cast<uint8_t>(to_int(64));
    case kI8:
      return static_cast<int8_t>(to_int(32));
    case kI16:
      return static_cast<int16_t>(to_int(32));
    case kI32:
      return static_cast<int32_t>(to_int(32));
    case kI64:
      return to_int(64);
    case kF32:
      return round_to(x, 24, -125, 128);
    case kF64:
      return round_to(x, 53, -1021, 1024);
    case kF16:
      return round_to(round_to(x, 24, -125, 128), 11, -13, 16);
    default:
      return round_to(round_to(x, 24, -125, 128), 8, -125, 128);
  }
}

template <typename T>
void append(std::vector<char>* bytes, T x) {
  const size_t at = bytes->size();
  bytes->resize(at + sizeof x);
  std::memcpy(bytes->data() + at, &x, sizeof x);
}

template <typename T>
void append_floats(std::vector<char>* bytes) {
  using Limits = std::numeric_limits<T>;
  for (double x : {0.0,
                   0.5,
                   1.0,
                   1.5,
                   2.5,
                   3.7,
                   100.9,
                   127.5,
                   128.0,
                   255.9,
                   256.0,
                   300.0,
                   32767.9,
                   65503.9,
                   65504.0,
                   65519.9,
                   65520.0,
                   65536.0,
                   2147483520.0,
                   2147483648.0,
                   3e9,
                   9.2233714871e18,
                   9.2233720368547758e18,
                   1e20,
                   3.38e38,
                   3.3961775292304e38,
                   5.9604644775390625e-8,
                   2.98023223876953125e-8,
                   2.9802326e-8,
                   8.94069671630859375e-8,
                   6.0975551605224609375e-5,
                   6.103515625e-5,
                   1e-40,
                   1e-45,
                   1.00048828125,
                   1.00146484375,
                   1.00390625,
                   1.01171875}) {
    append(bytes, static_cast<T>(x));
    append(bytes, static_cast<T>(-x));
  }
  for (T x : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN(),
              Limits::max(), Limits::min(), Limits::denorm_min()}) {
    append(bytes, x);
  }
}

// Every value of the small types; special and random values of the others.
std::vector<char> inputs(int type) {
  std::vector<char> bytes;
  uint64_t state = 1;
  const auto random = [&state] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return state ^ (state >> 31);
  };
  switch (type) {
    case kBool:
    case kU8:
    case kI8:
      for (int i = 0; i < 256; ++i) append(&bytes, static_cast<uint8_t>(i));
      break;
    case kI16:
    case kF16:
    case kBF16:
      for (int i = 0; i < 65536; ++i) append(&bytes, static_cast<uint16_t>(i));
      break;
    case kI32:
      for (int32_t x : {0, 1, -1, 127, 128, 255, 256, -129, 65504, 65520, 16777217, 16777219,
                        -16777217, INT32_MAX, INT32_MIN, 65519}) {
        append(&bytes, x);
      }
      for (int i = 0; i < 5000; ++i) append(&bytes, static_cast<int32_t>(random() >> (i % 32)));
      break;
    case kI64:
      for (int64_t x :
           {int64_t{0}, int64_t{1}, int64_t{-1}, INT64_MAX, INT64_MIN, int64_t{1} << 32,
            (int64_t{1} << 53) + 1, (int64_t{1} << 24) + 1,
            // rounded wrongly if converted through double
            (int64_t{1} << 54) + (int64_t{1} << 30) + 1, int64_t{-256}, int64_t{1} << 40}) {
        append(&bytes, x);
      }
      for (int i = 0; i < 5000; ++i) append(&bytes, static_cast<int64_t>(random()) >> (i % 64));
      break;
    case kF32:
      append_floats<float>(&bytes);
      for (int i = 0; i < 20000; ++i) append(&bytes, static_cast<uint32_t>(random()));
      // around the range of float16, where ties are common
      for (int i = 0; i < 20000; ++i) {
        append(&bytes, static_cast<uint32_t>(0x32000000 + (random() % 0x16000000 & ~0xfffull)));
      }
      break;
    default:
      append_floats<double>(&bytes);
      for (int i = 0; i < 20000; ++i) append(&bytes, random());
      for (int i = 0; i < 5000; ++i) append(&bytes, static_cast<double>(random() >> 3) * 0x1p-50);
  }
  return bytes;
}

class SimdConvert : public ::testing::TestWithParam<std::tuple<int64_t, int, int>> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(std::get<0>(GetParam())); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  const int from = std::get<1>(GetParam());
  const int to = std::get<2>(GetParam());
  const size_t in_size = kTypes[from].bits / 8;
  const size_t out_size = kTypes[to].bits / 8;
};
INSTANTIATE_TEST_SUITE_P(
    Targets, SimdConvert,
    ::testing::Combine(::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                       ::testing::Range(int{kBool}, kF64 + 1),
                       ::testing::Range(int{kBool}, kF64 + 1)),
    [](const auto& info) {
      return std::string(hwy::TargetName(std::get<0>(info.param))) + "_" +
             kNames[std::get<1>(info.param)] + "_to_" + kNames[std::get<2>(info.param)];
    });

TEST_P(SimdConvert, AgreesWithTheScalarReference) {
  const std::vector<char> in = inputs(from);
  const int64_t n = static_cast<int64_t>(in.size() / in_size);
  std::vector<char> out(n * out_size);
  const ConvertFn convert = get_convert(kTypes[from], kTypes[to]);
  ASSERT_NE(convert, nullptr);
  convert(in.data(), out.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    const long double x = value_of(from, &in[i * in_size]);
    const long double got = value_of(to, &out[i * out_size]);
    const long double want = expected(from, to, x);
    const bool same = std::isnan(want) ? std::isnan(got)
                                       : got == want && (!is_float(from) || !is_float(to) ||
                                                         std::signbit(got) == std::signbit(want));
    ASSERT_TRUE(same) << "element " << i << ": " << x << " gives " << got << ", expected " << want;
    if (to == kBool) {
      ASSERT_LE(static_cast<uint8_t>(out[i]), 1);
    }
  }
}

// Lengths around those of vectors and of the internal block.
TEST_P(SimdConvert, NothingIsWrittenAfterTheEnd) {
  const int64_t most = 1030;
  std::vector<char> ones(most);
  for (int64_t i = 0; i < most; ++i) ones[i] = i % 3 != 0;
  std::vector<char> in(most * in_size);
  get_convert(kTypes[kBool], kTypes[from])(ones.data(), in.data(), most);
  for (int64_t n : {0, 1, 3, 7, 8, 15, 16, 17, 33, 511, 512, 513, 1029}) {
    std::vector<char> out(most * out_size, 0x55);
    get_convert(kTypes[from], kTypes[to])(in.data(), out.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(value_of(to, &out[i * out_size]), i % 3 != 0) << i << " of " << n;
    }
    for (size_t i = n * out_size; i < out.size(); ++i) ASSERT_EQ(out[i], 0x55) << n;
  }
}

TEST(SimdConversions, ComplexNumbersHaveNone) {
  EXPECT_EQ(get_convert({MT_COMPLEX, 64, 1}, kTypes[kF32]), nullptr);
}

TEST(SimdConversions, UnknownTypesHaveNone) {
  EXPECT_EQ(get_convert(kTypes[kF32], {MT_UINT, 16, 1}), nullptr);
}

}  // namespace
}  // namespace mytorch::simd
