// Compares the prelude's functions, compiled for the host, with the reference: every node operation
// in every compute type, on special and on random values. Needs no GPU.
#include "backends/reference/node_ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/reference/interpreter.h"
#include "cuda/nodes.h"
#include "mytorch/backend/dtype.h"
#include "tests/backends/cuda/programs/host_device.h"
#include "tests/core/random_seed.h"

thread_local Index threadIdx, blockIdx, blockDim, gridDim;
void meet(bool) {}
uint32_t& exchange(unsigned) {
  static uint32_t place;
  return place;
}

namespace device {
#include "backends/cuda/programs/prelude.cuh"
// On the device, the hardware converts the 16-bit floats.
float to_float(f16 x) { return float(mytorch::sdk::Half::from_bits(x.bits)); }
float to_float(bf16 x) { return float(mytorch::sdk::BFloat16::from_bits(x.bits)); }
void round_to(f16& to, float x) { to.bits = mytorch::sdk::Half(x).bits; }
void round_to(bf16& to, float x) { to.bits = mytorch::sdk::BFloat16(x).bits; }
#include "backends/cuda/programs/node_ops.cuh"
// Follow it.
#include "backends/cuda/programs/folds.cuh"
#include "backends/cuda/programs/operands.cuh"
}  // namespace device

namespace mytorch {
namespace {

namespace node = device::node;
using reference::Operands;
using reference::real;
using reference::whole;

// C: the prelude's type; V: the type of its values; T: the SDK's type.
template <class C_, class T_>
struct Types {
  using C = C_;
  using T = T_;
  using V = device::Value<C_>;
};

template <class V>
struct Function {
  const char* name;
  int arity;
  V (*values)(V, V);    // arithmetic
  bool (*tests)(V, V);  // comparisons
};

#define ONE(name)                                                \
  {                                                              \
#name, 1, [](V a, V) -> V { return node::name(a); }, nullptr \
  }
#define EACH(name) ONE(name),
#define TWO(name)                                                     \
  {                                                                   \
#name, 2, [](V a, V b) -> V { return node::name(a, b); }, nullptr \
  }
#define TEST_OF(name)                                                    \
  {                                                                      \
#name, 2, nullptr, [](V a, V b) -> bool { return node::name(a, b); } \
  }

template <class Tag>
std::vector<Function<typename Tag::V>> functions() {
  using V = typename Tag::V;
  using C = typename Tag::C;
  std::vector<Function<V>> all = {TWO(add),
                                  TWO(sub),
                                  TWO(mul),
                                  TWO(div),
                                  TWO(floor_divide),
                                  TWO(trunc_divide),
                                  TWO(remainder),
                                  TWO(fmod),
                                  TWO(pow),
                                  TWO(maximum),
                                  TWO(minimum),
                                  TWO(atan2),
                                  MYTORCH_ELEMENTARY(EACH) TEST_OF(eq),
                                  TEST_OF(ne),
                                  TEST_OF(lt),
                                  TEST_OF(le),
                                  TEST_OF(gt),
                                  TEST_OF(ge),
                                  {"isnan", 1, nullptr, [](V a, V) { return node::isnan(a); }}};
  if constexpr (!device::is_real<V>) {
    const std::vector<Function<V>> bits = {
        TEST_OF(logical_and),
        TEST_OF(logical_or),
        TEST_OF(logical_xor),
        {"logical_not", 1, nullptr, [](V a, V) { return node::logical_not(a); }},
        TWO(bitwise_and),
        TWO(bitwise_or),
        TWO(bitwise_xor),
        {"bitwise_not", 1, [](V a, V) -> V { return node::bitwise_not<C>(a); }, nullptr},
        {"bitwise_left_shift", 2, [](V a, V b) -> V { return node::bitwise_left_shift<C>(a, b); },
         nullptr},
        {"bitwise_right_shift", 2, [](V a, V b) -> V { return node::bitwise_right_shift<C>(a, b); },
         nullptr}};
    all.insert(all.end(), bits.begin(), bits.end());
  }
  return all;
}
#undef ONE
#undef TWO
#undef TEST_OF

template <class Tag>
std::vector<typename Tag::V> samples() {
  using V = typename Tag::V;
  using T = typename Tag::T;
  std::vector<V> values;
  std::mt19937_64 random(1);
  if constexpr (device::is_real<V>) {
    using Limits = std::numeric_limits<V>;
    for (const double x : {0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 0.1, 1e-5, 88.0, 100.0, 1e6}) {
      values.push_back(static_cast<V>(x));
      values.push_back(static_cast<V>(-x));
    }
    for (const V x : {Limits::infinity(), Limits::max(), Limits::min(), Limits::min() / 2,
                      Limits::denorm_min()}) {
      values.push_back(x);
      values.push_back(-x);
    }
    values.push_back(Limits::quiet_NaN());
    std::normal_distribution<double> normal;
    for (int i = 0; i < 60; ++i) values.push_back(static_cast<V>(normal(random) * 4));
  } else {
    for (int x = -9; x <= 9; ++x) values.push_back(device::wrap<typename Tag::C>(V(x)));
    for (const int x : {31, 32, 63, 64, 65, 127, -128}) {
      values.push_back(device::wrap<typename Tag::C>(V(x)));
    }
    if constexpr (!std::is_same_v<T, bool>) {
      values.push_back(static_cast<V>(std::numeric_limits<T>::max()));
      values.push_back(static_cast<V>(std::numeric_limits<T>::min()));
      for (int i = 0; i < 40; ++i) values.push_back(static_cast<V>(static_cast<T>(random())));
    } else {
      values = {0, 1};
    }
  }
  return values;
}

bool integer_division(const std::string& name) {
  return name == "div" || name == "floor_divide" || name == "trunc_divide" || name == "remainder" ||
         name == "fmod";
}

template <class Tag>
void check_all() {
  using V = typename Tag::V;
  constexpr bool kReal = device::is_real<V>;
  const mt_dtype compute = sdk::dtype_of<typename Tag::T>;
  const std::vector<V> values = samples<Tag>();
  for (const Function<V>& f : functions<Tag>()) {
    const reference::NodeOp* ref = reference::find_node_op(f.name, kReal);
    ASSERT_NE(ref, nullptr) << f.name;
    ASSERT_EQ(ref->arity, f.arity) << f.name;
    int wrong = 0;
    for (const V a : values) {
      for (const V b : f.arity == 2 ? values : std::vector<V>{V(1)}) {
        if (!kReal && integer_division(f.name) && b == 0) continue;  // an error on the host
        const auto value = [](V x) {
          if constexpr (kReal) {
            return real(x);
          } else {
            return whole(x);
          }
        };
        const reference::Value want = ref->run({value(a), value(b), whole(0), compute, f.name});
        const auto note = [&](auto got, auto expected) {
          if (++wrong <= 3) {
            ADD_FAILURE() << sdk::dtype_name(compute) << " " << f.name << "(" << +a << ", " << +b
                          << ") is " << +got << ", not " << +expected;
          }
        };
        if (f.tests != nullptr) {
          if (f.tests(a, b) != (want.i != 0)) note(f.tests(a, b), want.i);
          continue;
        }
        const V got = device::wrap<typename Tag::C>(f.values(a, b));
        if constexpr (kReal) {
          const V expected = static_cast<V>(want.f);
          const bool same = std::isnan(expected) ? std::isnan(got) : got == expected;
          // Inexact functions may differ from the host's library in the last bits.
          const double bound = 1e-6 * (sizeof(V) == 8 ? 1e-7 : 1) * std::abs(want.f) +
                               static_cast<double>(std::numeric_limits<V>::min());
          if (!same && !(std::abs(static_cast<double>(got) - want.f) <= bound)) note(got, expected);
        } else {
          if (got != static_cast<V>(reference::wrap(want.i, compute))) {
            note(got, reference::wrap(want.i, compute));
          }
        }
      }
    }
  }
}

TEST(NodeOps, OfFloat32) { check_all<Types<device::f32, float>>(); }
TEST(NodeOps, OfFloat64) { check_all<Types<device::f64, double>>(); }
TEST(NodeOps, OfBfloat16) { check_all<Types<device::bf16, sdk::BFloat16>>(); }
TEST(NodeOps, OfInt64) { check_all<Types<device::i64, int64_t>>(); }
TEST(NodeOps, OfInt32) { check_all<Types<device::i32, int32_t>>(); }
TEST(NodeOps, OfInt16) { check_all<Types<device::i16, int16_t>>(); }
TEST(NodeOps, OfInt8) { check_all<Types<device::i8, int8_t>>(); }
TEST(NodeOps, OfUint8) { check_all<Types<device::u8, uint8_t>>(); }
TEST(NodeOps, OfBool) { check_all<Types<device::b8, bool>>(); }

// ---- conversions

template <class To, class ToSdk, class From, class FromSdk>
void check_convert(const std::vector<double>& values) {
  for (const double x : values) {
    const FromSdk from = sdk::convert<FromSdk>(x);
    From element;
    static_assert(sizeof(From) == sizeof(FromSdk));
    std::memcpy(&element, &from, sizeof(from));
    const To got = device::convert<To>(element);
    const ToSdk want = sdk::convert<ToSdk>(from);
    EXPECT_EQ(std::memcmp(&got, &want, sizeof(got)), 0)
        << x << " from " << sdk::dtype_name(sdk::dtype_of<FromSdk>) << " to "
        << sdk::dtype_name(sdk::dtype_of<ToSdk>);
  }
}
template <class From, class FromSdk>
void check_from() {
  const std::vector<double> values = {0,    1,    -1,   2.5,    -2.5, 255, 256,  65535,
                                      -129, 1e10, 3e18, -1e300, 1e30, 0.1, 1e-9, INFINITY};
  check_convert<device::b8, bool, From, FromSdk>(values);
  check_convert<device::u8, uint8_t, From, FromSdk>(values);
  check_convert<device::i8, int8_t, From, FromSdk>(values);
  check_convert<device::i16, int16_t, From, FromSdk>(values);
  check_convert<device::i32, int32_t, From, FromSdk>(values);
  check_convert<device::i64, int64_t, From, FromSdk>(values);
  check_convert<device::f16, sdk::Half, From, FromSdk>(values);
  check_convert<device::bf16, sdk::BFloat16, From, FromSdk>(values);
  check_convert<float, float, From, FromSdk>(values);
  check_convert<double, double, From, FromSdk>(values);
}

TEST(Conversions, MatchTheSdk) {
  check_from<device::b8, bool>();
  check_from<device::u8, uint8_t>();
  check_from<device::i8, int8_t>();
  check_from<device::i16, int16_t>();
  check_from<device::i32, int32_t>();
  check_from<device::f16, sdk::Half>();
  check_from<device::bf16, sdk::BFloat16>();
  check_from<float, float>();
  check_from<double, double>();
}

// ---- folds: two parts, merged

template <class S, class V>
S folded(const std::vector<V>& values, size_t cut) {
  S first;
  S second;
  first.clear();
  second.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    (i % cut == 0 ? first : second).push(values[i], static_cast<device::i64>(i));
  }
  second.merge(first);
  return second;
}

TEST(Folds, ArgmaxAndArgminTakeTheFirstOfEqualElements) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  struct Case {
    std::vector<float> values;
    int64_t largest;
    int64_t smallest;
  };
  for (const Case& c : std::vector<Case>{{{1, 3, 3, 2}, 1, 0},
                                         {{-inf, -inf, -inf}, 0, 0},
                                         {{inf, inf}, 0, 0},
                                         {{1, nan, 5, nan}, 1, 1},
                                         {{nan, nan, nan}, 0, 0},
                                         {{4, 2, 2, 7, 7}, 3, 1}}) {
    for (const size_t cut : {1, 2, 3}) {
      EXPECT_EQ((folded<device::BestIndexFold<float, true>>(c.values, cut).c0), c.largest);
      EXPECT_EQ((folded<device::BestIndexFold<float, false>>(c.values, cut).c0), c.smallest);
    }
  }
}

TEST(Folds, MaxAndMinPropagateNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(
      std::isnan(folded<device::BestFold<float, true>>(std::vector<float>{1, nan, 2}, 2).c0));
  EXPECT_TRUE(
      std::isnan(folded<device::BestFold<float, false>>(std::vector<float>{nan, 1, 2}, 2).c0));
  EXPECT_EQ((folded<device::BestFold<int, false>>(std::vector<int>{3, -5, 2}, 2).c0), -5);
  EXPECT_EQ((folded<device::BestFold<device::i64, true>>(std::vector<device::i64>{-3, -5}, 2).c0),
            -3);
}

TEST(Folds, WelfordMatchesTwoPasses) {
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(std::sin(i) + 10);
  const auto s = folded<device::WelfordFold<double>>(values, 3);
  double mean = 0;
  for (const double x : values) mean += x / 100;
  double m2 = 0;
  for (const double x : values) m2 += (x - mean) * (x - mean);
  EXPECT_EQ(s.c0, 100);
  EXPECT_NEAR(s.mean(), mean, 1e-12);
  EXPECT_NEAR(s.c2, m2, 1e-10);
}

TEST(Folds, LogSumExpCountsInfinities) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto s =
      folded<device::LogSumExpFold<double>>(std::vector<double>{1, 700, 3, 700, -inf}, 2);
  EXPECT_EQ(s.c0, 700);
  EXPECT_NEAR(s.c1, 2, 1e-12);
  const auto none = folded<device::LogSumExpFold<double>>(std::vector<double>{-inf, -inf, -inf}, 2);
  EXPECT_EQ(none.c0, -inf);
  EXPECT_EQ(none.c1, 3);
  const auto infinite = folded<device::LogSumExpFold<double>>(std::vector<double>{inf, 1, inf}, 2);
  EXPECT_EQ(infinite.c0, inf);
  EXPECT_EQ(infinite.c1, 2);
  const auto nan =
      folded<device::LogSumExpFold<double>>(std::vector<double>{1, std::nan(""), inf}, 2);
  EXPECT_TRUE(std::isnan(nan.c0) && std::isnan(nan.c1));
}

// Fused programs of the default mode divide by it.
TEST(QuickDivision, IsWithinTwoUnitsOfTheQuotient) {
  const uint64_t seed = testing::random_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> special = {0,       1,       infinity,  std::nanf(""),
                                FLT_MAX, FLT_MIN, 0x1p-149f, 0x1p-127f};
  for (int exponent = -126; exponent < 128; ++exponent) {
    for (const float factor : {1.0f, 1.5f, 0x1.fffffep0f}) {
      special.push_back(std::ldexp(factor, exponent));
    }
  }
  std::vector<std::pair<float, float>> cases;
  for (const float a : special) {
    for (const float b : special) {
      for (const float x : {a, -a}) {
        cases.emplace_back(x, b);
        cases.emplace_back(x, -b);
      }
    }
  }
  for (int i = 0; i < 1000000; ++i) {
    const auto bits = random();
    cases.emplace_back(std::bit_cast<float>(static_cast<uint32_t>(bits)),
                       std::bit_cast<float>(static_cast<uint32_t>(bits >> 32)));
  }
  for (const auto& [a, b] : cases) {
    const float found = node::quick_div(a, b), quotient = a / b;
    if (std::isnan(quotient)) {
      ASSERT_TRUE(std::isnan(found)) << a << " / " << b;
    } else if (std::isinf(quotient) || quotient == 0) {
      // A quotient within 2 ulp of the largest number, or of the smallest, may be rounded to it.
      const double real = static_cast<double>(a) / b;
      const bool near = std::isfinite(real) && real != 0;
      ASSERT_TRUE(found == quotient || (near && std::abs(found - real) <= 1e-6 * std::abs(real)) ||
                  (near && std::abs(found) <= 0x1p-148f))
          << a << " / " << b << " is " << found;
      ASSERT_EQ(std::signbit(found), std::signbit(quotient)) << a << " / " << b;
    } else {
      const float step = std::nextafter(std::abs(quotient), infinity) - std::abs(quotient);
      const bool near_largest = std::isinf(found) && std::abs(quotient) >= 0x1.fffff8p127f;
      ASSERT_TRUE(near_largest || std::abs(static_cast<double>(found) - quotient) <= 2.0 * step)
          << a << " / " << b << " is " << found << ", not " << quotient;
    }
  }
}

}  // namespace
}  // namespace mytorch
