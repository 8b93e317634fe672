// The SDK for kernel authors: types, operands, loops, tables, and the definition of random numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "mytorch/backend.h"
#include "mytorch/backend/library.h"
#include "mytorch/backend/philox.h"
#include "tests/backends/reference/fake_host.h"

extern "C" void mytorch_in_no_library();

namespace mytorch::testing {
namespace {

// ---- types ----

TEST(DtypeTest, EveryHalfSurvivesFloat) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const sdk::Half half = sdk::Half::from_bits(static_cast<uint16_t>(bits));
    const float value = static_cast<float>(half);
    const bool nan = (bits & 0x7C00u) == 0x7C00u && (bits & 0x3FFu) != 0;
    ASSERT_EQ(std::isnan(value), nan);
    // Conversion makes a signalling NaN quiet.
    ASSERT_EQ(sdk::Half(value).bits, nan ? bits | 0x200u : bits);
    // Returns the value by the format's definition.
    if (!nan && (bits & 0x7C00u) != 0x7C00u) {
      const int exponent = static_cast<int>(bits >> 10 & 31);
      const double mantissa = (exponent != 0 ? 1024 : 0) + static_cast<double>(bits & 1023);
      const double expected = std::ldexp(mantissa, std::max(exponent, 1) - 25);
      ASSERT_EQ(std::abs(value), expected);
      ASSERT_EQ(std::signbit(value), (bits >> 15) != 0);
    }
  }
}

TEST(DtypeTest, HalfRoundsToTheNearestTiesToEven) {
  // Tests values just below, at and just above the midpoint of every two neighbors.
  for (uint32_t bits = 0; bits < 0x7C00u; ++bits) {
    const float low = static_cast<float>(sdk::Half::from_bits(static_cast<uint16_t>(bits)));
    const float high =
        bits == 0x7BFFu ? 65536.0f
                        : static_cast<float>(sdk::Half::from_bits(static_cast<uint16_t>(bits + 1)));
    const float middle = (low + high) / 2;
    ASSERT_EQ(sdk::Half(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(sdk::Half(middle).bits, bits + (bits & 1));
    ASSERT_EQ(sdk::Half(std::nextafter(middle, 1e9f)).bits, bits + 1);
    ASSERT_EQ(sdk::Half(-middle).bits, 0x8000u | (bits + (bits & 1)));
  }
}

TEST(DtypeTest, BFloat16) {
  for (uint32_t bits = 0; bits < 0x7F80u; ++bits) {
    const float low = static_cast<float>(sdk::BFloat16::from_bits(static_cast<uint16_t>(bits)));
    const float middle = std::bit_cast<float>(bits << 16 | 0x8000u);
    ASSERT_EQ(sdk::BFloat16(low).bits, bits);
    ASSERT_EQ(sdk::BFloat16(middle).bits, bits + (bits & 1));
    ASSERT_EQ(sdk::BFloat16(std::nextafter(middle, INFINITY)).bits, bits + 1);
  }
  // A NaN stays a NaN even if all its payload bits are truncated.
  EXPECT_TRUE(std::isnan(static_cast<float>(sdk::BFloat16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(DtypeTest, VisitAndNames) {
  const std::pair<mt_dtype, const char*> all[] = {
      {{MT_BOOL, 8, 1}, "bool"},      {{MT_UINT, 8, 1}, "uint8"},
      {{MT_INT, 8, 1}, "int8"},       {{MT_INT, 16, 1}, "int16"},
      {{MT_INT, 32, 1}, "int32"},     {{MT_INT, 64, 1}, "int64"},
      {{MT_FLOAT, 16, 1}, "float16"}, {{MT_BFLOAT, 16, 1}, "bfloat16"},
      {{MT_FLOAT, 32, 1}, "float32"}, {{MT_FLOAT, 64, 1}, "float64"}};
  for (const auto& [dtype, name] : all) {
    EXPECT_STREQ(sdk::dtype_name(dtype), name);
    const auto visited = sdk::visit_dtype(dtype, [](auto tag) {
      using T = typename decltype(tag)::type;
      return std::pair(sdk::dtype_of<T>, sizeof(T));
    });
    EXPECT_TRUE(sdk::same_dtype(visited.first, dtype)) << name;
    EXPECT_EQ(static_cast<int64_t>(visited.second), sdk::itemsize(dtype)) << name;
  }
  EXPECT_THROW(sdk::visit_dtype(mt_dtype{MT_COMPLEX, 64, 1}, [](auto) {}), sdk::Error);
  EXPECT_THROW(sdk::visit_floating(sdk::dtype_of<int32_t>, [](auto) {}), sdk::Error);
  EXPECT_EQ(sdk::visit_floating(sdk::dtype_of<float>, [](auto) { return 3; }), 3);
}

TEST(DtypeTest, WrappingSumsKeepTheLowBits) {
  EXPECT_EQ(sdk::wrapping_add(INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(sdk::wrapping_add(INT64_MIN, INT64_MIN), 0);
  EXPECT_EQ(sdk::wrapping_add<uint8_t>(200, 100), 44);
  EXPECT_EQ(sdk::wrapping_add<int8_t>(-128, -1), 127);
  EXPECT_EQ(sdk::wrapping_add(true, true), true);
  EXPECT_EQ(sdk::wrapping_add(0.5f, 1.5f), 2.0f);
}

TEST(DtypeTest, ConversionsNeverOverflow) {
  EXPECT_EQ(sdk::convert<uint8_t>(-1.0f), 255);
  EXPECT_EQ(sdk::convert<int64_t>(std::nan("")), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(sdk::convert<int64_t>(0x1p63), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(sdk::convert<int64_t>(-0x1p63), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(sdk::convert<int32_t>(INFINITY), 0);
  EXPECT_EQ(sdk::convert<bool>(sdk::Half(0x1p-24f)), true);
  EXPECT_EQ(static_cast<float>(sdk::convert<sdk::Half>(int64_t{70000})), INFINITY);
}

// ---- operands ----

TEST(TensorViewTest, Contiguous) {
  const TestTensor contiguous = TestTensor::empty(sdk::dtype_of<float>, {2, 3});
  EXPECT_TRUE(contiguous.view().is_contiguous());
  EXPECT_FALSE(contiguous.reversed().view().is_contiguous());
  EXPECT_TRUE(contiguous.as_strided({2, 1, 3}, {3, 77, 1}).view().is_contiguous());
  EXPECT_FALSE(contiguous.as_strided({2, 2}, {3, 1}).view().is_contiguous());
  EXPECT_TRUE(contiguous.as_strided({2, 0}, {5, 5}).view().is_contiguous());
  EXPECT_FALSE(contiguous.as_strided({3}, {0}).view().is_contiguous());
  EXPECT_TRUE(contiguous.as_strided({}, {}).view().is_contiguous());
  EXPECT_EQ(contiguous.view().size(-1), 3);
  EXPECT_EQ(contiguous.view().stride(-2), 3);
  EXPECT_EQ(contiguous.view().numel(), 6);
  EXPECT_FALSE(sdk::TensorView());
  EXPECT_EQ(sdk::shape_text(contiguous.view().shape()), "(2, 3)");
  EXPECT_EQ(sdk::shape_text(contiguous.as_strided({3}, {1}).view().shape()), "(3,)");
}

TEST(ScalarTest, KindsAndAbsence) {
  EXPECT_EQ(sdk::to<int64_t>(scalar(2.9)), 2);
  EXPECT_EQ(sdk::to<double>(scalar(3)), 3);
  EXPECT_EQ(sdk::to<float>(mt_scalar{}, 7.0f), 7.0f);
  mt_scalar truth{};
  truth.kind = MT_SCALAR_BOOL;
  truth.v.i = 1;
  EXPECT_EQ(sdk::to<double>(truth), 1);
  EXPECT_EQ(sdk::scalar_value<double>(TestTensor::host<sdk::Half>(sdk::Half(0.5f))), 0.5);
  EXPECT_EQ(sdk::scalar_value<int64_t>(TestTensor::host<bool>(true)), 1);
  EXPECT_FALSE(sdk::to_optional(mt_optional_int{5, 0}).has_value());
  EXPECT_EQ(sdk::to_optional(mt_optional_int{5, 1}), 5);
}

// ---- strided iteration ----

using Offsets2 = std::array<int64_t, 2>;

// Returns all offsets that a loop visits over [0, numel), in pieces of `piece`.
template <int N>
std::vector<std::array<int64_t, N>> visit(const sdk::StridedLoop<N>& loop, int64_t piece) {
  std::vector<std::array<int64_t, N>> seen;
  for (int64_t b = 0; b < loop.numel(); b += piece) {
    loop.for_each_run(b, std::min(b + piece, loop.numel()),
                      [&](std::array<int64_t, N> at, int64_t n) {
                        EXPECT_GE(n, 1);
                        for (int64_t i = 0; i < n; ++i) {
                          seen.push_back(at);
                          for (int k = 0; k < N; ++k) at[k] += loop.inner_stride(k);
                        }
                      });
  }
  return seen;
}

struct Layout {
  const char* name;
  Shape strides;
};
const Shape kShape = {2, 3, 1, 4, 5};
constexpr int64_t kNumel = 120;
const Layout kLayouts[] = {
    {"Contiguous", {60, 20, 20, 5, 1}}, {"Reversed", {1, 2, 6, 6, 24}},
    {"Broadcast", {60, 20, 1, 0, 1}},   {"PaddedRows", {100, 30, 9, 6, 1}},
    {"Negative", {60, -20, 3, 5, -1}},  {"OneElement", {0, 0, 0, 0, 0}},
};

// Each pair of layouts as the two operands of a loop of kShape.
class StridedLoopLayouts : public ::testing::TestWithParam<std::tuple<Layout, Layout>> {
 protected:
  const Shape& a() const { return std::get<0>(GetParam()).strides; }
  const Shape& b() const { return std::get<1>(GetParam()).strides; }
  sdk::StridedLoop<2> loop(sdk::Order order) const {
    return sdk::StridedLoop<2>(kShape, {a().data(), b().data()}, order);
  }
  // Returns the offsets of both operands in row-major order, by the definition.
  std::vector<Offsets2> expected() const {
    std::vector<Offsets2> all;
    for (int64_t i = 0; i < kNumel; ++i) {
      int64_t rest = i;
      Offsets2 at{};
      for (size_t d = kShape.size(); d-- > 0;) {
        at[0] += rest % kShape[d] * a()[d];
        at[1] += rest % kShape[d] * b()[d];
        rest /= kShape[d];
      }
      all.push_back(at);
    }
    return all;
  }
};

TEST_P(StridedLoopLayouts, RowMajorRunsVisitElementsInOrder) {
  for (const int64_t piece : {1, 7, 120}) {
    EXPECT_EQ(visit(loop(sdk::Order::kRowMajor), piece), expected());
  }
}

TEST_P(StridedLoopLayouts, MemoryOrderVisitsTheSameElements) {
  auto sorted = expected();
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t piece : {1, 7, 120}) {
    auto seen = visit(loop(sdk::Order::kMemory), piece);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, sorted);
  }
}

TEST_P(StridedLoopLayouts, OffsetsOfALinearIndexAgreeWithTheRuns) {
  const auto row_major = loop(sdk::Order::kRowMajor);
  const auto all = expected();
  for (int64_t i = 0; i < kNumel; ++i) {
    int64_t at[2];
    row_major.offsets(i, at);
    EXPECT_EQ((Offsets2{at[0], at[1]}), all[static_cast<size_t>(i)]) << i;
  }
}

TEST_P(StridedLoopLayouts, CursorSeeksAndAdvances) {
  const auto row_major = loop(sdk::Order::kRowMajor);
  const auto all = expected();
  for (int64_t i = 0; i < kNumel; ++i) {
    sdk::StridedCursor<2> cursor(row_major, i);
    EXPECT_EQ(cursor.offsets(), all[static_cast<size_t>(i)]) << i;
    if (i + 1 == kNumel) break;
    cursor.next();
    EXPECT_EQ(cursor.offsets(), all[static_cast<size_t>(i + 1)]) << i;
    cursor.seek(0);
    EXPECT_EQ(cursor.offsets(), all[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Pairs, StridedLoopLayouts,
                         ::testing::Combine(::testing::ValuesIn(kLayouts),
                                            ::testing::ValuesIn(kLayouts)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "And" +
                                  std::get<1>(info.param).name;
                         });

const Shape kContiguous = {12, 4, 1};
const Shape kReversed = {1, 2, 6};

TEST(StridedLoop, MergesDimensionsThatEveryOperandAllows) {
  const Shape shape = {2, 3, 4};
  EXPECT_EQ((sdk::StridedLoop<2>(shape, {kContiguous.data(), kContiguous.data()}).ndim()), 1);
  EXPECT_EQ((sdk::StridedLoop<2>(shape, {kContiguous.data(), kReversed.data()}).ndim()), 3);
}

TEST(StridedLoop, MemoryOrderFollowsTheFirstOperand) {
  const Shape shape = {2, 3, 4};
  const sdk::StridedLoop<2> loop(shape, {kContiguous.data(), kReversed.data()});
  EXPECT_EQ(loop.inner_stride(0), 1);
  EXPECT_EQ(loop.inner_stride(1), 6);
  EXPECT_EQ((sdk::StridedLoop<1>(shape, {kReversed.data()}).ndim()), 1);
  EXPECT_EQ((sdk::StridedLoop<1>(shape, {kReversed.data()}, sdk::Order::kRowMajor).ndim()), 3);
}

TEST(StridedLoop, AnEmptyShapeHasNoElements) {
  const sdk::StridedLoop<1> empty(Shape{3, 0, 4}, {kContiguous.data()});
  EXPECT_EQ(empty.numel(), 0);
  empty.for_each([](const std::array<int64_t, 1>&) { FAIL(); });
}

TEST(StridedLoop, AScalarIsALineOfOneElement) {
  const sdk::StridedLoop<1> one(Shape{}, {kContiguous.data()});
  EXPECT_EQ(one.ndim(), 1);
  EXPECT_EQ(one.inner_size(), 1);
  EXPECT_TRUE(one.is_contiguous(0));
  int calls = 0;
  one.for_each([&](const std::array<int64_t, 1>& at) {
    EXPECT_EQ(at[0], 0);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(StridedLoop, RefusesMoreDimensionsThanItHasRoomFor) {
  EXPECT_THROW(sdk::StridedLoop<1>(Shape(65, 1), {kContiguous.data()}), sdk::Error);
  const sdk::StridedLoop<1> loop(Shape{2, 3, 4}, {kReversed.data()}, sdk::Order::kRowMajor);
  EXPECT_THROW((sdk::StridedLoop<1, 2>(loop)), sdk::Error);
  EXPECT_EQ((sdk::StridedLoop<1, 3>(loop).stride(0, 2)), 6);
}

TEST(StridedLoop, OperandsMayBeCountedAtRunTime) {
  const int64_t* strides[] = {kContiguous.data(), kReversed.data()};
  sdk::StridedLoop<8> loop;
  loop.collapse(Shape{2, 3, 4}, std::span(strides, 2), sdk::Order::kRowMajor);
  loop.scale(1, 4);
  EXPECT_EQ(loop.operands(), 2);
  sdk::StridedCursor<8> cursor(loop, 5);  // the element (0, 1, 1)
  EXPECT_EQ(cursor.offset(0), 5);
  EXPECT_EQ(cursor.offset(1), 4 * (2 + 6));
  EXPECT_EQ(cursor.left(), 3);
  EXPECT_EQ(cursor.rows_left(), 0);
  cursor.advance(3);
  EXPECT_EQ(cursor.rows_left(), 1);
  cursor.advance_rows(1);
  EXPECT_EQ(cursor.offset(0), 12);
}

TEST(StridedLoop, Broadcasts) {
  const TestTensor row = TestTensor::of<float>({3}, {1, 2, 3});
  const TestTensor column = TestTensor::of<float>({2, 1}, {10, 20});
  const TestTensor out = TestTensor::empty(row.dtype(), {2, 3});
  const auto loop = sdk::make_loop<3>(out.view().shape(), {out.view(), row.view(), column.view()});
  loop.for_each([&](const std::array<int64_t, 3>& at) {
    out.view().data<float>()[at[0]] =
        row.view().data<float>()[at[1]] + column.view().data<float>()[at[2]];
  });
  EXPECT_EQ(out.values<double>(), (std::vector<double>{11, 12, 13, 21, 22, 23}));
}

TEST(BroadcastShape, AlignsShapesAtTheRight) {
  const TestTensor a = TestTensor::empty(sdk::dtype_of<float>, {3});
  const TestTensor b = TestTensor::empty(sdk::dtype_of<float>, {4, 2, 1});
  const sdk::TensorView views[] = {a.view(), b.view()};
  EXPECT_EQ(sdk::broadcast_shape(views), (std::vector<int64_t>{4, 2, 3}));
}

TEST(Lines, LeaveOutTheDimension) {
  const TestTensor x = TestTensor::empty(sdk::dtype_of<float>, {2, 3, 4});
  const auto lines = sdk::make_lines<1>({x.view()}, -2);
  EXPECT_EQ(lines.count(), 8);
  EXPECT_EQ(lines.size[0], 3);
  EXPECT_EQ(lines.step[0], 4);
  EXPECT_EQ(lines.loop.inner_stride(0), 1);
}

TEST(Lines, AScalarIsOneLineOfOneElement) {
  const TestTensor x = TestTensor::empty(sdk::dtype_of<float>, {});
  const auto lines = sdk::make_lines<1>({x.view()}, 0);
  EXPECT_EQ(lines.count(), 1);
  EXPECT_EQ(lines.size[0], 1);
}

// ---- reduced dimensions ----

constexpr uint64_t kAllDims = ~uint64_t{0};

uint64_t reduced_by_list(const std::vector<int64_t>& dims, int ndim) {
  const mt_int_list list{dims.data(), static_cast<int64_t>(dims.size())};
  return sdk::reduced_dims(&list, MT_DIM_LIST, 0, ndim);
}

TEST(ReducedDims, AListNamesThemFromEitherEnd) {
  EXPECT_EQ(reduced_by_list({0, -1}, 4), 0b1001u);
  EXPECT_EQ(reduced_by_list({2}, 3), 0b100u);
}

TEST(ReducedDims, NoListAndAnEmptyOneMeanAll) {
  const mt_int_list none{nullptr, 0};
  EXPECT_EQ(sdk::reduced_dims(&none, MT_DIM_LIST, 0, 2), kAllDims);
  const int64_t anything = 1;
  const mt_int_list empty{&anything, 0};
  EXPECT_EQ(sdk::reduced_dims(&empty, MT_DIM_LIST, 0, 2), kAllDims);
  EXPECT_EQ(sdk::reduced_dims(nullptr, MT_DIM_ALL, 0, 2), kAllDims);
}

TEST(ReducedDims, AnIntegerMayBeOptional) {
  const int64_t dim = -2;
  EXPECT_EQ(sdk::reduced_dims(&dim, MT_DIM_INT, 0, 3), 0b010u);
  const mt_optional_int absent{0, 0}, present{2, 1};
  EXPECT_EQ(sdk::reduced_dims(&absent, MT_DIM_OPTIONAL_INT, 0, 3), kAllDims);
  EXPECT_EQ(sdk::reduced_dims(&present, MT_DIM_OPTIONAL_INT, 0, 3), 0b100u);
}

TEST(ReducedDims, RefusesADimensionOutOfRange) {
  EXPECT_THROW(reduced_by_list({3}, 3), sdk::Error);
  EXPECT_THROW(reduced_by_list({-4}, 3), sdk::Error);
  EXPECT_EQ(reduced_by_list({-1}, 0), 1u);  // a scalar counts as one dimension
}

TEST(ReducedDims, SelectSplitsAShape) {
  const Shape shape = {2, 3, 4};
  int64_t reduced[3], kept[3];
  EXPECT_EQ(sdk::select_dims(0b101, shape, reduced), 2);
  EXPECT_EQ(sdk::select_dims(~uint64_t{0b101}, shape, kept), 1);
  EXPECT_EQ(reduced[0], 2);
  EXPECT_EQ(reduced[1], 4);
  EXPECT_EQ(kept[0], 3);
}

TEST(ParallelForTest, CoversTheRangeOnceAndCarriesExceptions) {
  for (const int32_t threads : {1, 4}) {
    TestContext context(threads);
    std::vector<int> seen(100, 0);
    int calls = 0;
    sdk::parallel_for(*context.get(), 10, 90, 16, [&](int64_t b, int64_t e) {
      ++calls;
      for (int64_t i = b; i < e; ++i) ++seen[static_cast<size_t>(i)];
    });
    for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i >= 10 && i < 90);
    EXPECT_EQ(calls, threads == 1 ? 1 : 5);
    sdk::parallel_for(*context.get(), 5, 5, 1, [&](int64_t, int64_t) noexcept { ADD_FAILURE(); });
    EXPECT_THROW(sdk::parallel_for(*context.get(), 0, 100, 1,
                                   [](int64_t, int64_t) { throw std::runtime_error("x"); }),
                 std::runtime_error);
  }
}

TEST(ScratchTest, AlignedOrAnError) {
  TestContext context;
  double* memory = sdk::scratch<double>(*context.get(), 100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  memory[99] = 1;
  context.out_of_memory = true;
  EXPECT_EQ(sdk::guarded(context.get(), [&] { sdk::scratch<double>(*context.get(), 100); }),
            MT_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(context.error, "no 800 bytes of scratch memory");
}

// ---- tables ----

struct OldArgs {
  mt_args_header header;
  const mt_tensor* self;
};
struct NewArgs {
  mt_args_header header;
  const mt_tensor* self;
  int64_t added_later;
  const mt_tensor* out;
};

int64_t seen_added = -1;
void good_kernel(mt_ctx&, const NewArgs& args) {
  seen_added = args.added_later;
  EXPECT_EQ(args.out, nullptr);
}
void bad_kernel(mt_ctx&, const NewArgs&) { throw sdk::Error(MT_ERROR_VALUE, "[bad] no"); }
void hungry_kernel(mt_ctx&, const NewArgs&) { throw std::bad_alloc(); }
void odd_kernel(mt_ctx&, const NewArgs&) { throw 5; }
void picky_kernel(mt_ctx&, const NewArgs&) { throw sdk::Declined{}; }
const char* never(const NewArgs& args) {
  return args.added_later == 0 ? "added_later is 0" : nullptr;
}

constexpr mt_kernel_entry kTable[] = {
    sdk::kernel_of<&good_kernel, &never>("good", 17, "simple", MT_TAKES_STRIDED, 5),
    sdk::kernel_of<&bad_kernel>("bad", 18, "simple"),
    sdk::kernel_of<&hungry_kernel>("hungry", 19, "simple"),
    sdk::kernel_of<&odd_kernel>("odd", 20, "simple"),
    sdk::kernel_of<&picky_kernel>("picky", 21, "simple"),
};

TEST(KernelTest, EntriesAndStatuses) {
  EXPECT_STREQ(kTable[0].op, "good");
  EXPECT_EQ(kTable[0].hash, 17u);
  EXPECT_EQ(kTable[0].priority, 5);
  EXPECT_EQ(kTable[0].flags, static_cast<uint32_t>(MT_TAKES_STRIDED));
  EXPECT_EQ(kTable[1].supports, nullptr);
  NewArgs args{};
  args.header.size = sizeof(args);
  args.added_later = 3;
  TestContext context;
  EXPECT_EQ(kTable[0].supports(nullptr, &args), nullptr);
  EXPECT_EQ(kTable[0].run(nullptr, context.get(), &args), MT_OK);
  EXPECT_EQ(seen_added, 3);
  EXPECT_EQ(kTable[1].run(nullptr, context.get(), &args), MT_ERROR_VALUE);
  EXPECT_EQ(context.error, "[bad] no");
  EXPECT_EQ(kTable[2].run(nullptr, context.get(), &args), MT_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kTable[3].run(nullptr, context.get(), &args), MT_ERROR_INTERNAL);
  EXPECT_EQ(kTable[4].run(nullptr, context.get(), &args), MT_DECLINED);
}

TEST(KernelTest, ArgumentsOfAnOlderHostReadAsZero) {
  OldArgs args{};
  args.header.size = sizeof(args);
  TestContext context;
  EXPECT_STREQ(kTable[0].supports(nullptr, &args), "added_later is 0");
  EXPECT_EQ(kTable[0].run(nullptr, context.get(), &args), MT_OK);
  EXPECT_EQ(seen_added, 0);
}

TEST(BackendTest, WritesOnlyWhatTheHostKnows) {
  static mt_host loader{};
  loader.size = sizeof(loader);
  loader.abi_major = MT_ABI_MAJOR;
  mt_backend backend{};
  std::fill_n(reinterpret_cast<char*>(&backend), sizeof(backend), '\x77');
  backend.size = offsetof(mt_backend, compile);  // as in an older, smaller struct
  ASSERT_EQ(sdk::fill_backend(&loader, &backend,
                              {.name = "test", .device_type = "cpu", .kernels = kTable}),
            MT_OK);
  EXPECT_EQ(backend.num_kernels, 5);
  EXPECT_EQ(backend.size, offsetof(mt_backend, compile));
  EXPECT_EQ(reinterpret_cast<const unsigned char*>(&backend.compile)[0], 0x77);
  loader.abi_major = MT_ABI_MAJOR + 1;
  EXPECT_EQ(sdk::fill_backend(&loader, &backend, {}), MT_ERROR_UNSUPPORTED);
}

// ---- random numbers ----

namespace philox = sdk::philox;

TEST(PhiloxTest, KnownAnswers) {
  // From Random123's kat_vectors, "philox4x32 10".
  const auto run = [](philox::Block counter, uint32_t k0, uint32_t k1) {
    return philox::philox4x32_10(counter, k0, k1);
  };
  EXPECT_EQ(run({0, 0, 0, 0}, 0, 0),
            (philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(run({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u),
            (philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(run({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, CounterLayout) {
  const philox::Stream stream(0x0123456789ABCDEFull, 0xFEDCBA9876543210ull);
  const int64_t index = (int64_t{0x3456789ABCDE} << 2) | 3;
  const philox::Block block = philox::philox4x32_10(
      {0x789ABCDEu, 0x3456u | 5u << 16, 0x76543210u, 0xFEDCBA98u}, 0x89ABCDEFu, 0x01234567u);
  EXPECT_EQ(stream.bits32(index, 5), block[3]);
  EXPECT_EQ(stream.bits64(index, 2),
            uint64_t{stream.bits32(index, 4)} << 32 | stream.bits32(index, 5));
}

TEST(PhiloxTest, UniformBits) {
  EXPECT_EQ(philox::uniform_of_bits<float>(0), 0.0f);
  EXPECT_EQ(philox::uniform_of_bits<float>(~0u), 1 - 0x1p-24f);
  EXPECT_EQ(philox::uniform_of_bits<double>(~uint64_t{0}), 1 - 0x1p-53);
  EXPECT_EQ(philox::uniform_of_bits<sdk::Half>(~0u), 1 - 0x1p-11f);
  EXPECT_EQ(philox::uniform_of_bits<sdk::BFloat16>(~0u), 1 - 0x1p-8f);
  EXPECT_EQ(static_cast<float>(sdk::Half(1 - 0x1p-11f)), 1 - 0x1p-11f);
  EXPECT_EQ(static_cast<float>(sdk::BFloat16(1 - 0x1p-8f)), 1 - 0x1p-8f);
}

TEST(PhiloxTest, IntegersAreUnbiasedByRejection) {
  const philox::Stream stream(42, 0);
  // For a range just above 2^31, almost half of the draws are rejected; without rejection, the
  // lower numbers would be twice as frequent.
  const uint64_t range = (uint64_t{1} << 31) + 1;
  double sum = 0;
  int redrawn = 0;
  for (int64_t i = 0; i < 20000; ++i) {
    const uint64_t value = philox::below(stream, i, range);
    ASSERT_LT(value, range);
    sum += static_cast<double>(value) / static_cast<double>(range);
    redrawn += value != (uint64_t{stream.bits32(i)} * range) >> 32;
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.011);
  EXPECT_NEAR(redrawn / 20000.0, 0.5, 0.02);
}

__extension__ using Wide = unsigned __int128;

TEST(PhiloxTest, WideRangesUseTheHighWordOfTheProduct) {
  const philox::Stream stream(7, 3);
  for (const uint64_t range : {(uint64_t{1} << 32) + 1, uint64_t{0x8000000000000001u}, ~uint64_t{0},
                               uint64_t{1000000007} * 1000000009}) {
    for (int64_t i = 0; i < 200; ++i) {
      const uint64_t rejected = (0 - range) % range;
      uint32_t round = 0;
      Wide product;
      do {
        product = static_cast<Wide>(stream.bits64(i, round++)) * range;
      } while (static_cast<uint64_t>(product) < rejected);
      ASSERT_EQ(philox::below(stream, i, range), static_cast<uint64_t>(product >> 64));
    }
  }
  EXPECT_EQ(philox::below(stream, 9, 0), stream.bits64(9));
  EXPECT_EQ(philox::below(stream, 9, uint64_t{1} << 32), stream.bits32(9));
  EXPECT_EQ(philox::below(stream, 9, 1), 0u);
}

// P(X > x) of the standard normal distribution.
double tail(double x) { return std::erfc(x / std::sqrt(2.0)) / 2; }

TEST(PhiloxTest, NormalQuantileInvertsTheDistribution) {
  for (double p = 0.5; p > 0x1p-66; p *= 0.93) {
    const double x = philox::normal_quantile(p);
    // A relative error of e in x is a relative error of about x * (x + 1) * e in p.
    EXPECT_NEAR(tail(x) / p, 1, 1e-14 + 4e-15 * x * x) << p;
    if (p >= 0x1p-33) {
      const float xf = philox::normal_quantile(static_cast<float>(p));
      const double exact = philox::normal_quantile(static_cast<double>(static_cast<float>(p)));
      EXPECT_NEAR(xf, exact, 4e-7 * (exact + 0.01)) << p;
    }
  }
  EXPECT_EQ(philox::normal_quantile(0.5), 0.0);
  EXPECT_EQ(philox::normal_quantile(0.5f), 0.0f);
}

TEST(PhiloxTest, LogIsAccurate) {
  for (double x = 0x1p-65; x < 4; x *= 1.0137) {
    EXPECT_NEAR(philox::log_normal_range(x), std::log(x), 4e-16 * std::abs(std::log(x)) + 1e-19);
    const float f = static_cast<float>(x);
    EXPECT_NEAR(philox::log_normal_range(f), std::log(static_cast<double>(f)),
                2e-7 * std::abs(std::log(static_cast<double>(f))) + 1e-9);
  }
}

TEST(PhiloxTest, NormalBitsAreSymmetricAndFinite) {
  for (const uint32_t bits : {0u, 1u, 12345u, 0x3FFFFFFFu, 0x7FFFFFFFu}) {
    EXPECT_EQ(philox::normal_of_bits(bits), -philox::normal_of_bits(bits | 0x80000000u));
    EXPECT_TRUE(std::isfinite(philox::normal_of_bits(bits)));
  }
  EXPECT_NEAR(philox::normal_of_bits(0u), 6.338, 0.001);
  EXPECT_NEAR(philox::normal_of_bits(uint64_t{0}), 9.155, 0.001);
}

// These bits are part of the contract: changing them changes every seeded run on every backend.
TEST(PhiloxTest, Frozen) {
  const philox::Stream stream(2024, 1);
  EXPECT_EQ(std::bit_cast<uint32_t>(philox::uniform<float>(stream, 5, 0, 1)), 1005197824u);
  EXPECT_EQ(std::bit_cast<uint32_t>(philox::normal<float>(stream, 5, 0, 1)), 1075628958u);
  EXPECT_EQ(std::bit_cast<uint64_t>(philox::normal<double>(stream, 5, 0, 1)), 4612699165458960678u);
  EXPECT_EQ(philox::integer<int64_t>(stream, 5, -1000, 2001), -986);
  uint64_t hash = 14695981039346656037u;
  for (int64_t i = 0; i < 4096; ++i) {
    hash =
        (hash ^ std::bit_cast<uint32_t>(philox::normal<float>(stream, i, 0, 1))) * 1099511628211u;
    hash =
        (hash ^ std::bit_cast<uint64_t>(philox::normal<double>(stream, i, 0, 1))) * 1099511628211u;
  }
  EXPECT_EQ(hash, 11930174946734543921u);
}

// ---- libraries ----

#define MEMORY_ROUTINES(F) F(strlen) F(memcmp)
MYTORCH_ROUTINES(MemoryRoutines, MEMORY_ROUTINES);
#define MORE_ROUTINES(F) F(strlen) F(mytorch_in_no_library) F(memcmp)
MYTORCH_ROUTINES(MoreRoutines, MORE_ROUTINES);

TEST(OpenedLibraryTest, FindsItsFunctions) {
  const sdk::OpenedLibrary<MemoryRoutines> library("libc.so.6");
  ASSERT_EQ(library.reason(), nullptr);
  EXPECT_EQ(library.routines().strlen("four"), 4u);
  EXPECT_EQ(library.routines().memcmp("ab", "ab", 2), 0);
}

TEST(OpenedLibraryTest, NamesTheFunctionThatIsMissing) {
  EXPECT_STREQ(sdk::OpenedLibrary<MoreRoutines>("libc.so.6").reason(),
               "libc.so.6 lacks mytorch_in_no_library");
  EXPECT_STREQ(sdk::OpenedLibrary<MoreRoutines>("libc.so.6", "", "C has no ").reason(),
               "C has no mytorch_in_no_library");
}

TEST(OpenedLibraryTest, SaysWhyItCannotBeOpened) {
  const std::string reason = sdk::OpenedLibrary<MoreRoutines>("libnowhere.so.1").reason();
  EXPECT_EQ(reason.find("libnowhere.so.1 cannot be opened: libnowhere.so.1: "), 0u) << reason;
  const std::string other =
      sdk::OpenedLibrary<MoreRoutines>("libnowhere.so.1", "not installed: ", "").reason();
  EXPECT_EQ(other.find("not installed: libnowhere.so.1: "), 0u) << other;
}

}  // namespace
}  // namespace mytorch::testing
