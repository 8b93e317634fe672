// The instruction set is the best one, or the one that MYTORCH_CPU pins. tests/CMakeLists.txt runs
// all of the backend's tests with each one pinned.
#include "backends/cpu-openmp/simd/instruction_set.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/convolution/direct_microkernel.h"
#include "backends/cpu-openmp/convolution/implicit_microkernel.h"
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/normalization/rows.h"
#include "backends/cpu-openmp/normalization/softmax_rows.h"
#include "backends/cpu-openmp/pooling/separable.h"
#include "backends/cpu-openmp/random/bits.h"
#include "backends/cpu-openmp/reduction/fold.h"
#include "backends/cpu-openmp/simd/matrix_tiles.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "mytorch/backend/error.h"
#include "tests/backends/cpu-openmp/cpu_backend.h"

namespace mytorch::testing {
namespace {

std::string description() { return cpu().describe(cpu().self); }

TEST(InstructionSet, TheDescriptionNamesIt) {
  EXPECT_EQ(description().find(std::string("vector code for ") + simd::instruction_set()), 0u)
      << description();
}

TEST(InstructionSet, TheEnvironmentPinsIt) {
  const char* pinned = std::getenv("MYTORCH_CPU");
  if (pinned == nullptr) {
    EXPECT_EQ(description().find("pinned"), std::string::npos) << description();
    return;
  }
  const std::map<std::string, std::set<std::string>> names = {{"avx3", {"AVX3"}},
                                                              {"avx3_bf16", {"AVX3"}},
                                                              {"avx3_amx", {"AVX3"}},
                                                              {"avx2", {"AVX2"}},
                                                              {"plain", {"SCALAR"}}};
  EXPECT_TRUE(names.at(pinned).contains(simd::instruction_set())) << simd::instruction_set();
  EXPECT_NE(description().find("pinned by MYTORCH_CPU"), std::string::npos) << description();
  EXPECT_EQ(simd::has_matrix_tiles(), pinned == std::string("avx3_amx"));
  EXPECT_EQ(simd::has_bfloat16_pairs(),
            pinned == std::string("avx3_bf16") || simd::has_matrix_tiles());
}

TEST(InstructionSet, TheDescriptionNamesTheSetsThatTheBuildLeavesOut) {
  const std::string left_out = simd::sets_left_out();
  EXPECT_EQ(description().find(", compiled without " + left_out) != std::string::npos,
            !left_out.empty())
      << description();
}

// Sizes around those of tiles and of the sums that are added to the result, with rows of pairs that
// lie in a row or in a column. Small integers have exact products and sums.
TEST(InstructionSet, TilesMultiplyWherePresent) {
  EXPECT_EQ(description().find("AMX") != std::string::npos, simd::has_matrix_tiles());
  if (!simd::has_matrix_tiles()) return;
  const auto bits = [](int64_t number) {  // the bfloat16 of a small integer
    const auto value = static_cast<float>(number);
    uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    return word >> 16;
  };
  const auto number = [](int64_t a, int64_t b) { return (a * 7 + b * 5) % 11 - 5; };
  const simd::TilesInUse tiles;
  for (const int64_t m : {1, 15, 16, 17, 32, 33, 70}) {
    for (const int64_t n : {16, 32, 48, 96}) {
      for (const int64_t k : {0, 1, 15, 16, 33, 256, 275}) {
        const int64_t panel_step = (k + 3) * simd::kTilePanel, panels = (n + 31) / 32;
        std::vector<uint32_t> rows(m * (k + 5)), columns(k * (m + 5)), b(panels * panel_step);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t p = 0; p < k; ++p) {
            const uint32_t pair = bits(number(i, 2 * p)) | bits(number(i, 2 * p + 1)) << 16;
            rows[i * (k + 5) + p] = columns[p * (m + 5) + i] = pair;
          }
        }
        // What lies beyond the operands is no number.
        std::fill(b.begin(), b.end(), 0x7fc07fc0);
        for (int64_t p = 0; p < k; ++p) {
          for (int64_t j = 0; j < n; ++j) {
            b[j / 32 * panel_step + p * 32 + j % 32] =
                bits(number(2 * p, j)) | bits(number(2 * p + 1, j)) << 16;
          }
        }
        for (const bool in_rows : {true, false}) {
          for (const bool add : {false, true}) {
            std::vector<float> c((m + 1) * (n + 7), 3);
            simd::tile_product(m, n, k, in_rows ? rows.data() : columns.data(), in_rows ? k + 5 : 1,
                               in_rows ? 1 : m + 5, b.data(), panel_step, c.data(), n + 7, add);
            for (int64_t i = 0; i < m; ++i) {
              for (int64_t j = 0; j < n; ++j) {
                int64_t sum = add ? 3 : 0;
                for (int64_t p = 0; p < 2 * k; ++p) sum += number(i, p) * number(p, j);
                ASSERT_EQ(c[i * (n + 7) + j], static_cast<float>(sum))
                    << m << " " << n << " " << k << " " << in_rows << add << " " << i << " " << j;
              }
              // Nothing beside the columns is written, nor below the rows.
              EXPECT_EQ(c[i * (n + 7) + n], 3);
            }
            EXPECT_EQ(c[m * (n + 7)], 3);
          }
        }
      }
    }
  }
}

TEST(InstructionSet, AnUnknownNameIsRefused) {
  EXPECT_THROW(simd::pin_instruction_set("avx9"), sdk::Error);
  EXPECT_THROW(simd::pin_instruction_set(""), sdk::Error);
}

// A table of functions, of which there is one for each instruction set.
struct Table {
  const char* name;
  const void* (*fetch)();
};
class InstructionSetTable : public ::testing::TestWithParam<Table> {
 protected:
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(InstructionSetTable, ASwitchOfTheSetChangesTheTable) {
  const void* const before = GetParam().fetch();
  std::set<const void*> tables;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_TRUE(tables.insert(GetParam().fetch()).second) << hwy::TargetName(target);
  }
  EXPECT_TRUE(tables.contains(before));
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_EQ(GetParam().fetch(), before);
}

template <auto fetch>
const void* address() {
  const auto& table = fetch();
  if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(table)>>) return table;
  return &table;
}

INSTANTIATE_TEST_SUITE_P(
    , InstructionSetTable,
    ::testing::Values(
        Table{"copy", &address<&cpu::copy_fns>}, Table{"random", &address<&cpu::random_fns>},
        Table{"sums", &address<&cpu::sum_folds>}, Table{"extrema", &address<&cpu::best_folds>},
        Table{"logic", &address<&cpu::logic_folds>}, Table{"moments", &address<&cpu::moment_folds>},
        Table{"float_products", &address<&cpu::gemm_internal::float_products>},
        Table{"double_products", &address<&cpu::gemm_internal::double_products>},
        Table{"int_products", &address<&cpu::gemm_internal::int_products>},
        Table{"float_implicit", &address<&cpu::implicit_microkernels<float>>},
        Table{"double_implicit", &address<&cpu::implicit_microkernels<double>>},
        Table{"float_direct", &address<&cpu::direct_microkernels<float>>},
        Table{"double_direct", &address<&cpu::direct_microkernels<double>>},
        Table{"float_rows", &address<&cpu::row_kernels<float>>},
        Table{"double_rows", &address<&cpu::row_kernels<double>>},
        Table{"float_softmax", &address<&cpu::softmax_kernels<float>>},
        Table{"double_softmax", &address<&cpu::softmax_kernels<double>>},
        Table{"float_pooling", &address<&cpu::pooling_kernels<float>>}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mytorch::testing
