// Measured choice: tuning, its table and file, and explanations.
#include "dispatcher/choice/measured.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "dispatcher/choice/observe.h"
#include "dispatcher/choice/signature.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/choice/table_file.h"
#include "mytorch/abi_ops/copysign.h"
#include "mytorch/backends.h"
#include "mytorch/choice.h"
#include "mytorch/ops/copysign.h"
#include "mytorch/ops/floor_divide.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/xlogy.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

namespace fs = std::filesystem;
using testing::add_backend_with;
using testing::expect_error;
using testing::fill_out;
using testing::kTakesAll;
using testing::TestKernel;
using testing::Values;
using testing::values;

// A device used by these tests only, without kernels except those for copies.
testing::FakeDevice& timed() {
  static testing::FakeDevice& device =
      testing::FakeDevice::create({"timed", 1, [](const std::string&) { return false; },
                                   [](const mt_program&) { return false; }});
  return device;
}

// The clock of measurements. Kernels of these tests move it by the time that they are said to take,
// and reading it by a microsecond, so that no kernel takes no time.
std::atomic<int64_t> clock_micros;
double scripted_seconds() { return 1e-6 * static_cast<double>(clock_micros++); }

// A kernel that takes `micros` and fills its output with `value`. Counts its runs.
TestKernel taking(const std::string& op, const std::string& name, float value, int micros,
                  std::atomic<int>* runs, int32_t priority = 0) {
  return {op, name, priority, kTakesAll, [=](mt_ctx*, const void* args) {
            ++*runs;
            clock_micros += micros;
            return fill_out(static_cast<const mt_args_copysign_Tensor*>(args)->out, value);
          }};
}

// Gives every test an empty cache directory and an empty table.
class MeasuredTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder() = fs::temp_directory_path() / ("mytorch_choice_" + std::to_string(::getpid()));
    ::setenv("MYTORCH_CACHE", folder().c_str(), 1);
    tuning_clock = scripted_seconds;
  }
  static void TearDownTestSuite() {
    tuning_clock = steady_;
    fs::remove_all(folder());
  }
  void SetUp() override {
    timed();
    clear_choice_table();
  }
  void TearDown() override {
    set_choice(Choice::kPriority);
    clear_choice_table();
  }
  static fs::path& folder() {
    static fs::path path;
    return path;
  }
  static inline double (*const steady_)() = tuning_clock;
  static Tensor large(double value = 1) { return full({200, 200}, value).to(timed().device()); }
  static Tensor small(double value = 1) { return full({2, 2}, value).to(timed().device()); }
};

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::atomic<int> first_runs, second_runs;
void add_two_kernels() {
  static const bool once = [] {
    add_backend_with("measured-1", "timed",
                     {taking("copysign.Tensor", "slow", 1, 5000, &first_runs, 5)});
    add_backend_with("measured-2", "timed",
                     {taking("copysign.Tensor", "quick", 2, 50, &second_runs)});
    return true;
  }();
  (void)once;
}

TEST_F(MeasuredTest, UsesTheFastestMeasuredKernelElsePriority) {
  add_two_kernels();
  EXPECT_EQ(values(copysign(large(), large()))[0], 1);  // by priority
  {
    Tuning tuning;
    EXPECT_EQ(values(copysign(large(), large()))[0], 2);
    const int runs = first_runs;
    copysign(large(), large());  // already measured
    EXPECT_EQ(first_runs, runs);
  }
  EXPECT_EQ(values(copysign(large(), large()))[0], 1) << "measured choice is opt-in";
  set_choice(Choice::kMeasured);
  EXPECT_EQ(values(copysign(large(), large()))[0], 2);
  EXPECT_EQ(values(copysign(small(), small()))[0], 1) << "below the threshold nobody looks";
  EXPECT_EQ(values(copysign(full({4, 9000}, 1).to(timed().device()),
                            large().view({4, 10000}).slice(1, 0, 9000)))[0],
            1)
      << "another kind of call";
  const Prefer pinned("timed", "measured-1");
  EXPECT_EQ(values(copysign(large(), large()))[0], 1) << "a pin goes first";
}

TEST_F(MeasuredTest, TableRoundTripsBetweenProcesses) {
  add_two_kernels();
  {
    Tuning tuning;
    copysign(large(), large());
    EXPECT_FALSE(fs::exists(choice_table().path));
    tuning.save();
  }
  const ChoiceTable table = choice_table();
  EXPECT_EQ(table.entries, 1);
  EXPECT_EQ(table.problem, "");
  const TableFile file = read_table(table.path, machine_fingerprint());
  ASSERT_EQ(file.measurements.size(), 1);
  EXPECT_EQ(table_hash(file.measurements), table.hash);
  const Measurement& m = file.measurements[0];
  EXPECT_EQ(m.op, "copysign.Tensor");
  EXPECT_EQ(m.call, "float32[200,200] float32[200,200] threads=" +
                        m.call.substr(m.call.find("threads=") + 8));
  ASSERT_EQ(m.timings.size(), 2);
  EXPECT_NE(m.timings[0].kernel.find("measured-2"), std::string::npos);
  EXPECT_NEAR(m.timings[0].seconds, 50e-6, 2e-6);
  EXPECT_NEAR(m.timings[1].seconds, 5000e-6, 2e-6);
}

// Kernels that accumulate would notice a second run.
TEST_F(MeasuredTest, MeasuresWrittenOperandsOnCopies) {
  const auto doubles = [](const std::string& name) {
    return TestKernel{"floor_divide", name, 0, kTakesAll, [](mt_ctx*, const void* args) {
                        const auto& a = *static_cast<const mt_args_copysign_Tensor*>(args);
                        float* out = testing::floats(a.out);
                        for (int64_t i = 0; i < testing::numel(a.out); ++i) {
                          out[i] = 2 * testing::floats(a.self)[i];
                        }
                        return MT_OK;
                      }};
  };
  add_backend_with("in-place-1", "timed", {doubles("one")});
  add_backend_with("in-place-2", "timed", {doubles("two")});
  Tensor x = large(3);
  {
    Tuning tuning;
    floor_divide_(x, x);
  }
  EXPECT_EQ(choice_table().entries, 1);
  EXPECT_EQ(values(x)[17], 6);
}

TEST_F(MeasuredTest, IgnoresKernelsThatFail) {
  static std::atomic<int> runs{0};  // static because the kernel stays registered
  add_backend_with("measured-fails", "timed",
                   {{"xlogy.Tensor", "fails", 9, kTakesAll, [](mt_ctx* ctx, const void*) {
                       ctx->set_error(ctx, MT_ERROR_VALUE, "no luck");
                       return int{MT_ERROR_VALUE};
                     }}});
  add_backend_with("measured-works", "timed", {taking("xlogy.Tensor", "works", 4, 1, &runs)});
  const Tensor x = large();
  {
    Tuning tuning;
    EXPECT_EQ(values(xlogy(x, x).slice(0, 0, 1))[0], 4);  // the copy is too small to be measured
  }
  EXPECT_EQ(choice_table().entries, 1);
}

// ---- the file

Measurement some(const std::string& op, uint64_t signature, const std::string& best = "a 1/x") {
  return {op, "cpu", signature, "float32[2,3] threads=1", {{best, 1e-6}, {"b 1/y", 2.5e-6}}};
}

TEST_F(MeasuredTest, DamagedLinesAreIgnored) {
  const std::string path = folder() / "damaged.txt";
  merge_table(path, "here", {some("add", 1), some("mul", 2), some("sub", 3)});
  std::string text = read(path);
  text[text.find("mul") + 1] ^= 4;
  std::ofstream(path) << text << "trash\n";
  const TableFile file = read_table(path, "here");
  EXPECT_EQ(file.measurements.size(), 2);
  EXPECT_EQ(file.problem, "2 damaged lines were ignored");
  // A file truncated anywhere is read up to that point.
  for (size_t n = 0; n < text.size(); n += 7) {
    std::ofstream(path, std::ios::trunc) << text.substr(0, n);
    EXPECT_LE(read_table(path, "here").measurements.size(), 2);
  }
  std::ofstream(path, std::ios::trunc) << std::string(100000, '\t');
  EXPECT_TRUE(read_table(path, "here").measurements.empty());
  // The next writer repairs it.
  merge_table(path, "here", {some("add", 9)});
  EXPECT_EQ(read_table(path, "here").problem, "");
}

TEST_F(MeasuredTest, IgnoresTablesOfOtherMachines) {
  const std::string path = folder() / "moved.txt";
  merge_table(path, "there", {some("add", 1)});
  const TableFile file = read_table(path, "here");
  EXPECT_TRUE(file.measurements.empty());
  EXPECT_EQ(file.problem, "the table was measured on another machine (there)");
  EXPECT_NE(table_path("here"), table_path("there"));
}

TEST_F(MeasuredTest, ConcurrentWritersLoseNothing) {
  const std::string path = folder() / "together.txt";
  constexpr int kWriters = 6;
  constexpr int kLines = 20;
  for (int w = 0; w < kWriters; ++w) {
    if (::fork() != 0) continue;
    for (int i = 0; i < kLines; ++i) merge_table(path, "here", {some("op", 1000 * w + i)});
    ::_exit(0);
  }
  for (int w = 0; w < kWriters; ++w) {
    int status = 1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  const TableFile file = read_table(path, "here");
  EXPECT_EQ(file.measurements.size(), kWriters * kLines);
  EXPECT_EQ(file.problem, "");
}

TEST_F(MeasuredTest, UnwritableDirectoryIsAnError) {
  expect_error(ErrorCode::kIo, {"/proc/nowhere"},
               [] { merge_table("/proc/nowhere/choice.txt", "here", {some("add", 1)}); });
}

TEST_F(MeasuredTest, HashCoversTheChosenKernels) {
  EXPECT_EQ(table_hash({some("add", 1), some("mul", 2)}),
            table_hash({some("mul", 2), some("add", 1)}));
  EXPECT_NE(table_hash({some("add", 1)}), table_hash({some("add", 1, "c 1/z")}));
  Measurement slower = some("add", 1);
  slower.timings[0].seconds *= 1.5;
  EXPECT_EQ(table_hash({some("add", 1)}), table_hash({slower}));
}

// ---- signatures

TEST_F(MeasuredTest, SignaturesGroupSizesByQuarterOctave) {
  for (int64_t n = 0; n < 8; ++n) EXPECT_NE(size_bucket(n), size_bucket(n + 1)) << n;
  EXPECT_EQ(size_bucket(1000), size_bucket(1023));
  EXPECT_NE(size_bucket(1023), size_bucket(1024));
  EXPECT_NE(size_bucket(1024), size_bucket(1280));
  for (int64_t n = 8; n < 100000; ++n) EXPECT_LE(size_bucket(n), size_bucket(n + 1));
}

TEST_F(MeasuredTest, SignaturesDistinguishKindsOfCalls) {
  std::vector<uint64_t> seen;
  const Observe observe([&](const KernelCall& call) {
    if (std::string(call.entry->info->base) == "copysign") {
      seen.push_back(signature(SignaturePlan(*call.entry->info), *call.ctx, call.args));
    }
  });
  add_two_kernels();
  const Tensor a = large();
  copysign(a, a);
  copysign(a.t(), a);
  copysign(a, a.t());
  copysign(a, full({200}, 1).to(timed().device()));
  copysign(a, 2.0);
  copysign(full({300, 200}, 1).to(timed().device()), full({1, 200}, 1).to(timed().device()));
  ASSERT_EQ(seen.size(), 6);
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]) << i << " " << j;
  }
  copysign(large(), large());
  EXPECT_EQ(seen[6], seen[0]);
}

// Even if the table has an entry for them.
TEST_F(MeasuredTest, SmallCallsAreNotLookedUp) {
  add_two_kernels();
  Measurement m;
  for (const Tensor& x : {small(), large()}) {
    {
      const Observe observe([&](const KernelCall& call) {
        if (std::string(call.entry->info->base) != "copysign") return;
        m = {call.entry->info->name,
             device_label(call.slot),
             signature(SignaturePlan(*call.entry->info), *call.ctx, call.args),
             "by hand",
             {}};
      });
      copysign(x, x);
    }
    for (const KernelEntry& kernel : kernels(*find_op("copysign.Tensor"), timed().slot())) {
      if (kernel.backend->name == "measured-2") m.timings = {{kernel_id(kernel), 1e-6}};
    }
    MeasuredTable::get().add(m);
  }
  set_choice(Choice::kMeasured);
  EXPECT_EQ(values(copysign(large(), large()))[0], 2);
  EXPECT_EQ(values(copysign(small(), small()))[0], 1);
}

// ---- explanations, and pins of single operators

TEST_F(MeasuredTest, ExplainsWhatItChoosesAndWhy) {
  add_two_kernels();
  const auto explained = [] {
    const auto all = explain("copysign", {large(), large()});
    EXPECT_EQ(all.size(), 1);
    return all.at(0);
  };
  Explanation e = explained();
  EXPECT_EQ(e.op, "copysign.Tensor");
  EXPECT_EQ(e.by, "priority");
  EXPECT_EQ(e.call.rfind("float32[200,200] float32[200,200]", 0), 0);
  ASSERT_GE(e.kernels.size(), 2);
  EXPECT_EQ(e.kernels[0].kernel, "slow");
  EXPECT_TRUE(e.kernels[0].chosen);
  EXPECT_LT(e.kernels[0].seconds, 0);
  {
    Tuning tuning;
    copysign(large(), large());
    e = explained();
  }
  EXPECT_EQ(e.by, "measured");
  const auto quick = std::find_if(e.kernels.begin(), e.kernels.end(),
                                  [](const ExplainedKernel& k) { return k.kernel == "quick"; });
  ASSERT_NE(quick, e.kernels.end());
  EXPECT_TRUE(quick->chosen);
  EXPECT_NEAR(quick->seconds, 50e-6, 2e-6);
  EXPECT_NEAR(e.kernels[0].seconds, 5000e-6, 2e-6);
  const Prefer pinned("timed", "measured-1", "copysign.Tensor");
  e = explained();
  EXPECT_EQ(e.by, "pin");
  EXPECT_TRUE(e.kernels[0].chosen);
}

TEST_F(MeasuredTest, PinsOfOneOperatorOverrideThoseOfAll) {
  add_two_kernels();
  const Prefer all("timed", "measured-1");
  EXPECT_EQ(values(copysign(large(), large()))[0], 1);
  {
    const Prefer one("timed", "measured-2", "copysign");
    EXPECT_EQ(values(copysign(large(), large()))[0], 2);
    EXPECT_EQ(values(copysign(small(), small()))[0], 2);
  }
  EXPECT_EQ(values(copysign(large(), large()))[0], 1);
  expect_error(ErrorCode::kValue, {"there is no operator 'no_such'"},
               [] { const Prefer p("timed", "measured-1", "no_such"); });
}

}  // namespace
}  // namespace mytorch
