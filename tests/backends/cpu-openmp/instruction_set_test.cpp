// The instruction set is the best one, or the one that MYTORCH_CPU pins. tests/CMakeLists.txt runs
// all of the backend's tests with each one pinned.
#include "backends/cpu-openmp/simd/instruction_set.h"

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <type_traits>

#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/convolution/direct_microkernel.h"
#include "backends/cpu-openmp/convolution/implicit_microkernel.h"
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/normalization/rows.h"
#include "backends/cpu-openmp/normalization/softmax_rows.h"
#include "backends/cpu-openmp/pooling/separable.h"
#include "backends/cpu-openmp/random/bits.h"
#include "backends/cpu-openmp/reduction/fold.h"
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
  const std::map<std::string, std::set<std::string>> names = {
      {"avx3", {"AVX3"}}, {"avx3_bf16", {"AVX3"}}, {"avx2", {"AVX2"}}, {"plain", {"SCALAR"}}};
  EXPECT_TRUE(names.at(pinned).contains(simd::instruction_set())) << simd::instruction_set();
  EXPECT_NE(description().find("pinned by MYTORCH_CPU"), std::string::npos) << description();
  EXPECT_EQ(simd::has_bfloat16_pairs(), pinned == std::string("avx3_bf16"));
}

TEST(InstructionSet, TheDescriptionNamesTheSetsThatTheBuildLeavesOut) {
  const std::string left_out = simd::sets_left_out();
  EXPECT_EQ(description().find(", compiled without " + left_out) != std::string::npos,
            !left_out.empty())
      << description();
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
