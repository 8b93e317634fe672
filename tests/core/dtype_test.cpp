// Dtypes and numbers: promotion, names and the 16-bit floats.
#include "mytorch/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "mytorch/scalar.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

constexpr ScalarType type(int i) { return static_cast<ScalarType>(i); }

// ATen's table (c10/core/ScalarType.h), in the order of ScalarType.
constexpr ScalarType kPromoted[kNumScalarTypes][kNumScalarTypes] = {
#define B1 kBool
#define U1 kUInt8
#define I1 kInt8
#define I2 kInt16
#define I4 kInt32
#define I8 kInt64
#define F2 kFloat16
#define BF kBFloat16
#define F4 kFloat32
#define F8 kFloat64
#define C8 kComplex64
#define CX kComplex128
    {B1, U1, I1, I2, I4, I8, F2, BF, F4, F8, C8, CX},
    {U1, U1, I2, I2, I4, I8, F2, BF, F4, F8, C8, CX},
    {I1, I2, I1, I2, I4, I8, F2, BF, F4, F8, C8, CX},
    {I2, I2, I2, I2, I4, I8, F2, BF, F4, F8, C8, CX},
    {I4, I4, I4, I4, I4, I8, F2, BF, F4, F8, C8, CX},
    {I8, I8, I8, I8, I8, I8, F2, BF, F4, F8, C8, CX},
    {F2, F2, F2, F2, F2, F2, F2, F4, F4, F8, C8, CX},
    {BF, BF, BF, BF, BF, BF, F4, BF, F4, F8, C8, CX},
    {F4, F4, F4, F4, F4, F4, F4, F4, F4, F8, C8, CX},
    {F8, F8, F8, F8, F8, F8, F8, F8, F8, F8, CX, CX},
    {C8, C8, C8, C8, C8, C8, C8, C8, C8, CX, C8, CX},
    {CX, CX, CX, CX, CX, CX, CX, CX, CX, CX, CX, CX},
#undef B1
#undef U1
#undef I1
#undef I2
#undef I4
#undef I8
#undef F2
#undef BF
#undef F4
#undef F8
#undef C8
#undef CX
};

TEST(DtypeTest, PromotesLikeATen) {
  for (int a = 0; a < kNumScalarTypes; ++a) {
    for (int b = 0; b < kNumScalarTypes; ++b) {
      EXPECT_EQ(promote_types(type(a), type(b)), kPromoted[a][b])
          << dtype_name(type(a)) << " with " << dtype_name(type(b));
    }
  }
}

TEST(DtypeTest, RoundTripsThroughTheContract) {
  for (int i = 0; i < kNumScalarTypes; ++i) {
    EXPECT_EQ(from_abi(to_abi(type(i))), type(i));
    EXPECT_EQ(dtype_from_name(dtype_name(type(i))), type(i));
    EXPECT_EQ(element_size(type(i)), to_abi(type(i)).bits / 8);
    EXPECT_EQ(is_floating_point(type(i)),
              std::string(dtype_name(type(i))).find("float") != std::string::npos);
    EXPECT_EQ(is_complex(type(i)),
              std::string(dtype_name(type(i))).find("complex") != std::string::npos);
    EXPECT_EQ(is_integral(type(i), true), !is_floating_point(type(i)) && !is_complex(type(i)));
  }
  EXPECT_FALSE(is_integral(kBool));
  expect_error(ErrorCode::kType, {"[dtype]", "code 5", "32 bits"}, [] {
    from_abi({MT_COMPLEX, 32, 1});
  });
  expect_error(ErrorCode::kType, {"4 lanes"}, [] { from_abi({MT_FLOAT, 32, 4}); });
  expect_error(ErrorCode::kType, {"0 bits"}, [] { from_abi({}); });
  expect_error(ErrorCode::kType, {"'float'", "float32", "bool"}, [] { dtype_from_name("float"); });
}

TEST(DtypeTest, CanCastNeverNarrowsTheCategory) {
  for (int from = 0; from < kNumScalarTypes; ++from) {
    for (int to = 0; to < kNumScalarTypes; ++to) {
      auto category = [](ScalarType t) {
        return t == kBool ? 0 : is_complex(t) ? 3 : is_floating_point(t) ? 2 : 1;
      };
      EXPECT_EQ(can_cast(type(from), type(to)), category(type(from)) <= category(type(to)));
    }
  }
}

TEST(DtypeTest, TypesOfCpp) {
  EXPECT_EQ(scalar_type_of<bool>(), kBool);
  EXPECT_EQ(scalar_type_of<long>(), kInt64);       // NOLINT: both 64-bit integers
  EXPECT_EQ(scalar_type_of<long long>(), kInt64);  // NOLINT
  EXPECT_EQ(scalar_type_of<Half>(), kFloat16);
  EXPECT_EQ(scalar_type_of<double>(), kFloat64);
}

TEST(HalfTest, EveryValueSurvivesFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Half half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Half(value))));
    } else {
      ASSERT_EQ(Half(value).bits, bits);
    }
  }
}

TEST(HalfTest, RoundsToTheNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    Half low, high;
    low.bits = static_cast<uint16_t>(bits);
    high.bits = static_cast<uint16_t>(bits + 1);
    const float above = bits == 0x7bff ? 65536.0f : static_cast<float>(high);
    const float middle = (static_cast<float>(low) + above) / 2;
    ASSERT_EQ(Half(middle).bits, bits + (bits & 1));
    ASSERT_EQ(Half(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(Half(std::nextafter(middle, 1e9f)).bits, bits + 1);
    ASSERT_EQ(Half(-middle).bits, 0x8000 | (bits + (bits & 1)));
  }
  EXPECT_EQ(Half(std::numeric_limits<float>::max()).bits, 0x7c00);
  EXPECT_EQ(Half(0x1p-26f).bits, 0);
}

TEST(BFloat16Test, RoundsToTheNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    BFloat16 exact;
    exact.bits = static_cast<uint16_t>(bits);
    ASSERT_EQ(BFloat16(static_cast<float>(exact)).bits, bits);
    const float middle = std::bit_cast<float>(bits << 16 | 0x8000);
    ASSERT_EQ(BFloat16(middle).bits, bits + (bits & 1));
    ASSERT_EQ(BFloat16(std::nextafter(middle, INFINITY)).bits, bits + 1);
  }
  // A NaN stays NaN even if all its payload bits are truncated.
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001)))));
}

TEST(ScalarTest, HasTheCategoryOfItsType) {
  EXPECT_TRUE(Scalar(true).is_bool());
  EXPECT_TRUE(Scalar(3).is_int());
  EXPECT_TRUE(Scalar(uint8_t{3}).is_int());
  EXPECT_TRUE(Scalar('a').is_int());
  EXPECT_TRUE(Scalar(1.5f).is_float());
  EXPECT_TRUE(Scalar().is_int());
  EXPECT_EQ(Scalar(true).type(), kBool);
  EXPECT_EQ(Scalar(3).type(), kInt64);
  EXPECT_EQ(Scalar(1.5).type(), kFloat32);  // the default float type
}

TEST(ScalarTest, ConvertsAndComparesByValue) {
  EXPECT_EQ(Scalar(-2.75).to_int(), -2);
  EXPECT_EQ(Scalar(7).to_double(), 7.0);
  EXPECT_TRUE(Scalar(0.5).to_bool());
  EXPECT_FALSE(Scalar(0).to_bool());
  const int64_t large = (int64_t{1} << 62) + 1;
  EXPECT_EQ(Scalar(large).to_int(), large);  // not representable as a double
  EXPECT_EQ(Scalar(2), Scalar(2.0));
  EXPECT_EQ(Scalar(true), Scalar(1));
  EXPECT_FALSE(Scalar(2) == Scalar(2.5));
  EXPECT_FALSE(Scalar(NAN) == Scalar(NAN));
  EXPECT_EQ(Scalar(Scalar(2.5).abi()), Scalar(2.5));
}

TEST(ScalarTest, IsPrintedAsItsNumber) {
  std::ostringstream text;
  text << Scalar(true) << ' ' << Scalar(-3) << ' ' << Scalar(0.5) << ' ' << Scalar::complex(1, -2);
  EXPECT_EQ(text.str(), "true -3 0.5 (1,-2)");
}

}  // namespace
}  // namespace mytorch
