// The rows describe the requested cases. Tests do not depend on the measured times.
#include "bench/harness/runner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "bench/harness/probe.h"
#include "bench/harness/report.h"
#include "core/runtime/device_registry.h"
#include "mytorch/backends.h"
#include "mytorch/call.h"
#include "mytorch/error.h"
#include "mytorch/tensor.h"

namespace mytorch::bench {
namespace {

class Runner : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    load_default_backends();
    catalog_ = new auto(conformance::load_catalog(conformance::share_folder()));
  }
  static Case named(const std::string& op, const char* args) {
    Case c;
    c.name = op;
    c.record = find_record(*catalog_, op).record;
    c.args = Json::parse(args);
    return c;
  }
  static std::vector<Row> rows(const Case& c, std::vector<std::string> backends) {
    Options options;
    options.backends = std::move(backends);
    options.seconds = 0.002;
    std::ostringstream notes;
    return measure(*catalog_, c, options, notes);
  }
  static inline std::vector<OpRecord>* catalog_ = nullptr;
};

TEST_F(Runner, EachBackendGetsARow) {
  const Case c = named("add.Tensor", R"({"self": {"shape": [64]}, "other": {"shape": [64]}})");
  const auto found = rows(c, {"cpu-openmp", "reference", "chosen"});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].backend, "cpu-openmp");
  EXPECT_EQ(found[0].kernels.substr(0, 11), "cpu-openmp/");
  EXPECT_EQ(found[2].kernels, found[0].kernels);
  for (const Row& row : found) {
    EXPECT_GT(row.time.median, 0);
    EXPECT_EQ(row.bytes, 3 * 64 * 4);
    EXPECT_GE(row.time.samples, 4u);
  }
  ASSERT_TRUE(found[0].split.has_value());
  EXPECT_GT(found[0].split->frontend, 0);
  EXPECT_GT(found[0].split->kernel, 0);
  EXPECT_LT(found[0].split->kernel, 1) << "in seconds";
  EXPECT_EQ(found[0].flops, 64);  // the body for alpha = 1 is self + other
}

TEST_F(Runner, WithoutBackendsTheReferenceIsLeftOut) {
  for (const Row& row : rows(named("exp", R"({"self": {"shape": [64]}})"), {})) {
    EXPECT_NE(row.backend, "reference");
  }
}

TEST_F(Runner, AViewRunsNoKernelOfAnyBackend) {
  const Case view = named("view", R"({"self": {"shape": [6]}, "size": [2, 3]})");
  const auto of_view = rows(view, {"cpu-openmp"});
  ASSERT_EQ(of_view.size(), 1u);  // no kernel runs, whatever the pin
  EXPECT_EQ(of_view[0].backend, "-");
  EXPECT_EQ(of_view[0].limit, "");
}

TEST_F(Runner, FlopsOfACompositeAreThoseOfItsProducts) {
  const auto found = rows(
      named("matmul", R"({"self": {"shape": [8, 16]}, "other": {"shape": [16, 4]}})"), {"chosen"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].flops, 2 * 8 * 16 * 4);
}

TEST_F(Runner, ColdCachesAreSlowerAndHaveNoSplit) {
  Options options;
  options.warm = false;
  options.cold = true;
  options.seconds = 0.001;
  options.backends = {"chosen"};
  std::ostringstream notes;
  const Case c = named("exp", R"({"self": {"shape": [1024]}})");
  const auto found = measure(*catalog_, c, options, notes);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].cache, "cold");
  EXPECT_FALSE(found[0].split.has_value());
  EXPECT_GT(found[0].time.median, rows(c, {"chosen"})[0].time.median);
}

TEST_F(Runner, AProbeRestoresTheKernels) {
  const Tensor x = call("ones", {std::vector<int64_t>{4}})[0].tensor();
  std::vector<KernelRun> runs;
  {
    Probe probe(*catalog_, kCpuSlot, {});
    probe.begin(Probe::Mode::kTrace);
    call("add", {x, x});
    probe.end();
    runs = probe.trace();
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_STREQ(runs[0].entry->info->name, "add.Tensor");
    EXPECT_EQ(runs[0].flops, 4);
    // Without its kernel, the call leaves the output unchanged.
    const Tensor out = call("zeros", {std::vector<int64_t>{4}})[0].tensor();
    for (const auto mode : {Probe::Mode::kSkip, Probe::Mode::kSkipDirect}) {
      probe.begin(mode);
      call("add", {x, x}, {{"out", Value(out)}});
      probe.end();
      EXPECT_EQ(out.const_data<float>()[0], 0);
    }
    probe.begin(Probe::Mode::kTime);
    call("add", {x, x}, {{"out", Value(out)}});
    EXPECT_EQ(out.const_data<float>()[0], 2);
    EXPECT_GT(probe.seconds(), 0);
    // Destroyed while active.
  }
  EXPECT_EQ(call("add", {x, x})[0].tensor().const_data<float>()[3], 2);
}

// ---- results as files

std::vector<Row> made_rows() {
  Row row;
  row.what.suite = "pointwise";
  row.what.name = "add_16M";
  row.what.program = "add";
  row.backend = "ours";
  row.cache = "warm";
  row.threads = 2;
  row.time = summarize({2e-3, 2e-3, 2e-3});
  row.bytes = 2e6;
  return {row};
}

TEST(Report, DurationsHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(duration_text(0), "0 ns");
  EXPECT_EQ(duration_text(1.234e-9), "1.23 ns");
  EXPECT_EQ(duration_text(12.34e-6), "12.3 us");
  EXPECT_EQ(duration_text(0.1234), "123 ms");
  EXPECT_EQ(duration_text(999.9e-6), "1.00 ms");
  EXPECT_EQ(duration_text(3), "3.00 s");
}

class Results : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path =
        ::testing::TempDir() + "mytorch_bench_" + std::to_string(getpid()) + ".json";
    std::ofstream(path) << text;
    return path;
  }
  std::string compared(const std::string& text) {
    std::ostringstream out;
    print_comparison(made_rows(), read_results(write(text)), out);
    return out.str();
  }
};

TEST_F(Results, WrittenResultsCanBeRead) {
  const auto json = to_json(made_rows(), {1, 2, 3}, 2);
  const auto& entry = json.at("benchmarks").at(0);
  for (const char* key : {"name", "run_name", "run_type", "iterations", "real_time", "cpu_time",
                          "time_unit", "threads"}) {
    EXPECT_TRUE(entry.contains(key)) << key;
  }
  EXPECT_EQ(entry.at("bytes_per_second"), 1e9);
  const auto others = read_results(write(json.dump()));
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].name, "add_16M");
  EXPECT_EQ(others[0].label, "ours");
  EXPECT_EQ(others[0].threads, 2);
  EXPECT_DOUBLE_EQ(others[0].seconds, 2e-3);
}

TEST_F(Results, RatiosUseTheMedianOfRepetitions) {
  // Google Benchmark's format, with repetitions in different units.
  const std::string text = compared(R"({"context": {}, "benchmarks": [
      {"name": "add_16M/threads:2", "real_time": 1.0, "time_unit": "ms"},
      {"name": "add_16M/threads:2", "real_time": 6000.0, "time_unit": "us"},
      {"name": "add_16M/threads:2", "real_time": 9.0, "time_unit": "ms"},
      {"name": "other", "real_time": 1.0, "time_unit": "ms"}]})");
  EXPECT_NE(text.find("3.00x  the file's"), std::string::npos) << text;
  EXPECT_NE(text.find("over 1 case"), std::string::npos) << text;
  const std::string aggregate = compared(R"({"context": {"label": "torch"}, "benchmarks": [
      {"name": "add_16M_median", "run_name": "add_16M", "run_type": "aggregate",
       "aggregate_name": "median", "real_time": 1.0, "time_unit": "ms"},
      {"name": "add_16M_mean", "run_name": "add_16M", "run_type": "aggregate",
       "aggregate_name": "mean", "real_time": 9.0, "time_unit": "ms"}]})");
  EXPECT_NE(aggregate.find("0.50x  torch"), std::string::npos) << aggregate;
}

struct Parameter {
  const char* name;
  const char* text;
};
std::string name_of(const ::testing::TestParamInfo<Parameter>& info) { return info.param.name; }

class OtherConditions : public Results, public ::testing::WithParamInterface<Parameter> {};

TEST_P(OtherConditions, AreNotCompared) {
  const std::string text = compared(std::string(R"({"context": {}, "benchmarks": [
      {"name": "x", "case": "add_16M", "real_time": 1.0, "time_unit": "ms", )") +
                                    GetParam().text + "}]}");
  EXPECT_NE(text.find("not in the file: add_16M"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Results, OtherConditions,
    ::testing::Values(Parameter{"Threads", R"("threads": 1, "dtype": "float32", "cache": "warm")"},
                      Parameter{"Type", R"("threads": 2, "dtype": "float64", "cache": "warm")"},
                      Parameter{"Cache", R"("threads": 2, "dtype": "float32", "cache": "cold")"}),
    name_of);

TEST_F(Results, AMissingFileIsAnError) { EXPECT_THROW(read_results("/no/such/file.json"), Error); }

class BadFiles : public Results, public ::testing::WithParamInterface<Parameter> {};

TEST_P(BadFiles, AreRefused) { EXPECT_THROW(read_results(write(GetParam().text)), Error); }

INSTANTIATE_TEST_SUITE_P(
    Results, BadFiles,
    ::testing::Values(Parameter{"Empty", ""}, Parameter{"List", "[]"},
                      Parameter{"EmptyObject", "{}"},
                      Parameter{"EntryWithoutTime", R"({"context": {}, "benchmarks": [{}]})"},
                      Parameter{
                          "TimeIsNoNumber",
                          R"({"context": {}, "benchmarks": [{"name": "x", "real_time": "y"}]})"},
                      Parameter{"UnknownUnit", R"({"context": {}, "benchmarks":
                                     [{"name": "x", "real_time": 1, "time_unit": "days"}]})"}),
    name_of);

}  // namespace
}  // namespace mytorch::bench
