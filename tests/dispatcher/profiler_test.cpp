// Profiles of kernel calls and ranges.
#include "mytorch/profiler.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "mytorch/abi_ops/hypot.h"
#include "mytorch/backends.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/hypot.h"
#include "mytorch/ops/logaddexp.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/ones.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using profiler::KernelTime;
using profiler::Profile;
using profiler::Range;
using testing::bare;
using testing::expect_error;
using testing::full;

KernelTime time_of(Profile& profile, const std::string& op, const std::string& device = "cpu") {
  KernelTime found;
  for (const KernelTime& t : profile.times()) {
    if (t.op != op || t.device != device) continue;
    EXPECT_EQ(found.calls, 0) << op << " is reported twice";
    found = t;
  }
  return found;
}

class ProfilerTest : public ::testing::Test {
 protected:
  ProfilerTest() : folder_(fs::temp_directory_path() / ("profiler" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~ProfilerTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static json read(const std::string& path) { return json::parse(std::ifstream(path)); }
  // Returns the timed events, by name.
  static std::multimap<std::string, json> timed(const json& trace) {
    std::multimap<std::string, json> found;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] == "X") found.emplace(event["name"], event);
    }
    return found;
  }

 private:
  fs::path folder_;
};

TEST_F(ProfilerTest, CountsCallsAndSaysWhoMadeThem) {
  const Tensor a = ones({64, 32});
  const Tensor b = ones({32, 16});
  Profile profile;
  for (int i = 0; i < 3; ++i) a.mm(b);
  profile.stop();
  a.mm(b);  // outside the profile
  const KernelTime t = time_of(profile, "mm");
  EXPECT_EQ(t.calls, 3);
  EXPECT_NE(t.backend, "");
  EXPECT_NE(t.kernel, "");
  EXPECT_EQ(t.bytes, 3 * 4 * (64 * 32 + 32 * 16 + 64 * 16));
  EXPECT_GT(t.seconds, 0);
  EXPECT_LE(t.self_seconds, t.seconds);
  EXPECT_LE(t.longest, t.seconds);
  EXPECT_NE(profile.table().find("mm "), std::string::npos);
}

// An inactive profiler costs nothing: the slots are restored.
TEST_F(ProfilerTest, LeavesTheDirectCallAsItWas) {
  load_default_backends();
  const OpEntry& add = *find_op("add.Tensor");
  const BoundKernel* before = add.slots[kCpuSlot].load();
  {
    Profile profile;
    Profile another;
    EXPECT_NE(add.slots[kCpuSlot].load(), before);
    another.stop();
    EXPECT_NE(add.slots[kCpuSlot].load(), before);
  }
  EXPECT_EQ(add.slots[kCpuSlot].load(), before);
}

TEST_F(ProfilerTest, ProfilesThatOverlapSeeTheirOwnTime) {
  const Tensor a = ones({4, 4});
  Profile outer;
  a.mm(a);
  Profile inner;
  a.mm(a);
  inner.stop();
  a.mm(a);
  EXPECT_EQ(time_of(inner, "mm").calls, 1);
  EXPECT_EQ(time_of(outer, "mm").calls, 3);
}

TEST_F(ProfilerTest, SeesAllThreads) {
  Profile profile;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      const Tensor a = ones({4, 4});
      for (int k = 0; k < 100; ++k) a.mm(a);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(time_of(profile, "mm").calls, 400);
  profile.save_trace(path("threads.json"));
  std::map<int, int> of_thread;
  for (const auto& [name, event] : timed(read(path("threads.json")))) {
    if (name == "mm") ++of_thread[event["tid"].get<int>()];
  }
  ASSERT_EQ(of_thread.size(), 4);
  for (const auto& [thread, calls] : of_thread) EXPECT_EQ(calls, 100);
}

TEST_F(ProfilerTest, TraceNestsRangesAndCalls) {
  const Tensor a = ones({4, 8});
  Profile profile;
  {
    const Range step("a \"step\"\n");
    const Range inner("inner");
    a.mm(a.t());
  }
  profile.save_trace(path("trace.json"));
  const auto events = timed(read(path("trace.json")));
  const json& step = events.find("a \"step\"\n")->second;
  const json& mm = events.find("mm")->second;
  EXPECT_EQ(step["cat"], "range");
  EXPECT_EQ(mm["args"]["operands"], "float32[4,8] float32[8,4] -> float32[4,4]");
  EXPECT_EQ(mm["args"]["device"], "cpu");
  EXPECT_NE(mm["args"]["backend"], "");
  const auto end = [](const json& e) { return e["ts"].get<double>() + e["dur"].get<double>(); };
  EXPECT_GE(mm["ts"].get<double>(), step["ts"].get<double>());
  EXPECT_LE(end(mm), end(step));
  // The self time of a range excludes nested calls.
  const KernelTime outer = time_of(profile, "a \"step\"\n", "");
  EXPECT_NEAR(outer.seconds - outer.self_seconds, time_of(profile, "inner", "").seconds, 1e-9);
}

// Conversions are nested calls.
TEST_F(ProfilerTest, ConversionsAreToldApart) {
  testing::add_backend_with("profiled", "cpu",
                            {{"hypot", "simple", 1000, 0, [](mt_ctx*, const void* args) {
                                return testing::fill_out(
                                    static_cast<const mt_args_hypot*>(args)->out, 7);
                              }}});
  const Tensor a = ones({8, 4});
  Profile profile;
  hypot(a.t(), a.t());
  const KernelTime outer = time_of(profile, "hypot");
  EXPECT_EQ(outer.backend, "profiled");
  EXPECT_EQ(outer.kernel, "simple");
  const KernelTime copies = time_of(profile, "copy_");
  EXPECT_GE(copies.calls, 2);
  EXPECT_NEAR(outer.seconds - outer.self_seconds, copies.seconds, 1e-9);
}

TEST_F(ProfilerTest, WhatDecomposesIsToldAsAWholeAndByItsParts) {
  const Tensor a = ones({3});
  const RestrictKernels only(Kernels::kPrimitives);
  Profile profile;
  logaddexp(a, a);
  const KernelTime whole = time_of(profile, "logaddexp");
  EXPECT_EQ(whole.calls, 1);
  EXPECT_EQ(whole.backend, "");
  EXPECT_EQ(whole.kernel, "(decomposed)");
  const KernelTime part = time_of(profile, "exp");
  EXPECT_GE(part.calls, 1);
  EXPECT_GT(whole.seconds, part.seconds);
  EXPECT_LE(whole.self_seconds, whole.seconds - part.seconds);
}

TEST_F(ProfilerTest, AComposedOperatorIsToldAsAWholeToo) {
  const Tensor a = ones({3, 3});
  const RestrictKernels only(Kernels::kPrimitives);
  Profile profile;
  a.mm(a);
  EXPECT_EQ(time_of(profile, "mm").kernel, "(decomposed)");
  EXPECT_GT(time_of(profile, "mm").seconds, time_of(profile, "bmm").seconds);
}

TEST_F(ProfilerTest, FailuresAreTold) {
  testing::add_backend_with("failing", "cpu",
                            {{"xlogy.Tensor", "broken", 1000, 0,
                              [](mt_ctx*, const void*) { return int{MT_ERROR_INTERNAL}; }}});
  const Tensor a = ones({3});
  Profile profile;
  EXPECT_THROW(call("xlogy", {a, a}), Error);
  EXPECT_EQ(time_of(profile, "xlogy.Tensor").calls, 1);
  EXPECT_EQ(time_of(profile, "xlogy.Tensor").kernel, "broken (failed)");
}

TEST_F(ProfilerTest, WaitsForADeviceWhereToldTo) {
  const Tensor a = ones({4, 4}).to(full().device());
  a.mm(a);
  const int before = full().calls().synchronizations;
  {
    Profile profile;
    a.mm(a);
    EXPECT_EQ(full().calls().synchronizations, before);
  }
  {
    Profile profile({.wait = true});
    a.mm(a);
    EXPECT_GT(full().calls().synchronizations, before);
    const KernelTime t = time_of(profile, "bmm", "full:0");
    EXPECT_EQ(t.calls, 1);
    EXPECT_EQ(t.backend, "full");
  }
  const int waited = full().calls().synchronizations;
  Profile profile;
  a.mm(a);
  EXPECT_EQ(full().calls().synchronizations, waited);
}

TEST_F(ProfilerTest, KeepsNoMoreThanItsLimit) {
  const Tensor a = ones({4, 4});
  Profile profile({.limit = 10});
  for (int i = 0; i < 25; ++i) a.mm(a);
  EXPECT_EQ(time_of(profile, "mm").calls, 10);
  EXPECT_NE(profile.table().find("15 more were not kept: the limit is 10"), std::string::npos)
      << profile.table();
  profile.save_trace(path("cut.json"));
  EXPECT_EQ(read(path("cut.json"))["otherData"]["dropped"], 15);
}

TEST_F(ProfilerTest, SaysWhyATraceCannotBeWritten) {
  Profile profile;
  expect_error(ErrorCode::kIo,
               {"[profiler] cannot create the trace", "folder.json", "No such file"},
               [&] { profile.save_trace(path("no/such/folder.json")); });
  if (fs::exists("/dev/full")) {
    expect_error(ErrorCode::kIo, {"[profiler] cannot write the trace /dev/full"},
                 [&] { profile.save_trace("/dev/full"); });
  }
}

// Runs in a separate process, because the variables are read when the first backend is loaded.
TEST_F(ProfilerTest, TheEnvironmentTracesAWholeProcess) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  const std::string out = path("table.txt");
  const std::string line = "MYTORCH_PROFILE=1 MYTORCH_TRACE='" + path("all.json") + "' '" +
                           program + "' --gtest_filter=ProfilerTest.CountsCalls* > /dev/null 2> '" +
                           out + "'";
  ASSERT_EQ(std::system(line.c_str()), 0);
  const auto events = timed(read(path("all.json")));
  EXPECT_EQ(events.count("mm"), 4);
  EXPECT_GE(events.count("fill_"), 2);
  std::ifstream table(out);
  const std::string text{std::istreambuf_iterator<char>(table), {}};
  EXPECT_NE(text.find("kernel calls"), std::string::npos) << text;
}

}  // namespace
}  // namespace mytorch
