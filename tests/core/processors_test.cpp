// The number of processors that the process may use.
#include "core/runtime/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/nn/data/temp_directory.h"

namespace mytorch {
namespace {

namespace fs = std::filesystem;
using testing::TempDirectory;

struct Case {
  const char* name;
  std::string of_process;
  std::vector<std::pair<std::string, std::string>> files;
  double expected;
};

class ProcessorsTest : public ::testing::TestWithParam<Case> {};

TEST_P(ProcessorsTest, OfControlGroups) {
  const TempDirectory directory;
  const fs::path folder = directory.path();
  std::ofstream(folder / "of_process") << GetParam().of_process;
  for (const auto& [path, text] : GetParam().files) {
    fs::create_directories((folder / path).parent_path());
    std::ofstream(folder / path) << text;
  }
  const ControlGroups groups{folder / "of_process", folder};
  EXPECT_EQ(processors_of_groups(groups), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Systems, ProcessorsTest,
    ::testing::Values(
        Case{"nothing", "", {}, INFINITY},
        Case{"no_limit", "0::/a\n", {{"a/cpu.max", "max 100000\n"}}, INFINITY},
        Case{"version_2", "0::/a/b\n", {{"a/b/cpu.max", "150000 100000\n"}}, 1.5},
        Case{"outer_group",
             "0::/a/b\n",
             {{"a/b/cpu.max", "400000 100000\n"}, {"a/cpu.max", "200000 100000\n"}},
             2},
        Case{"container", "0::/\n", {{"cpu.max", "50000 100000\n"}}, 0.5},
        Case{"version_1",
             "4:cpu,cpuacct:/a\n3:memory:/a\n",
             {{"cpu/a/cpu.cfs_quota_us", "300000\n"}, {"cpu/a/cpu.cfs_period_us", "100000\n"}},
             3},
        Case{"version_1_no_limit",
             "4:cpu:/\n",
             {{"cpu/cpu.cfs_quota_us", "-1\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
             INFINITY},
        Case{"both",
             "2:cpu:/a\n0::/\n",
             {{"cpu/cpu.cfs_quota_us", "300000\n"},
              {"cpu/cpu.cfs_period_us", "100000\n"},
              {"cpu.max", "max 100000\n"}},
             3},
        Case{"of_others", "2:cpuset:/a\n", {{"cpuset/a/cpu.max", "1 2\n"}}, INFINITY},
        Case{"damaged", "x\n:\n0::a\n0::/\n", {{"cpu.max", "many\n"}}, INFINITY}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Processors, AreThoseOfTheAffinityMask) {
  std::thread([] {
    cpu_set_t mask, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_LE(available_processors(), CPU_COUNT(&mask));
    EXPECT_GE(available_processors(), 1);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(available_processors(), 1);
  }).join();
}

}  // namespace
}  // namespace mytorch
