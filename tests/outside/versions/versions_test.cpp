// Plug-ins for other contract versions run. Libraries that are not plug-ins give an error with the
// reason, and the process continues.
#include <filesystem>

#include "dispatcher/choice/choice.h"
#include "mytorch/backends.h"
#include "mytorch/choice.h"
#include "mytorch/device_memory.h"
#include "mytorch/generated/operators.h"  // grow.py's
#include "mytorch/graph.h"
#include "mytorch/mytorch.h"
#include "mytorch/ops/outside_scale.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch {
namespace {

using testing::expect_error;

std::string plugin(const std::string& name) {
  return std::string(OUTSIDE_VERSIONS) + "/" + name + ".so";
}

std::vector<float> floats(const Tensor& x) {
  const Tensor flat = x.detach().to(kCPU).contiguous().view({-1});
  return {flat.const_data<float>(), flat.const_data<float>() + flat.numel()};
}

uint64_t fallbacks_of(const std::string& op) {
  for (const SlowPaths& s : slow_paths()) {
    if (s.op == op) return s.fallbacks;
  }
  return 0;
}

// Expects that the plug-in's kernels run, missing ones fall back to the CPU, and a network trains.
void expect_works(const std::string& name, const std::string& version_of_contract) {
  load_backend(plugin(name));
  allow_fallback(true);
  const Device device(name);
  const Tensor a = arange(8, kFloat32).view({2, 2, 2}).to(device);
  EXPECT_EQ(floats(a.bmm(a)), (std::vector<float>{2, 3, 6, 11, 46, 55, 66, 79}));
  EXPECT_EQ(fallbacks_of("bmm"), 0) << version_of_contract;
  EXPECT_EQ(floats(a.transpose(1, 2).to(kFloat64).to(kFloat32))[1], 2);
  EXPECT_EQ(floats(a + a)[3], 6);
  nn::Linear line(2, 1);
  line.to(device);
  line(a).sum().backward();
  EXPECT_EQ(floats(line.weight.grad()), (std::vector<float>{12, 16}));
}

TEST(VersionsTest, APluginOfAnOlderMinorVersionWorks) {
  expect_works("v1_0", "1.0");
  expect_works("v1_1", "1.1");
  // Features that its structs lack are unsupported.
  const Device device("v1_0");
  expect_error(ErrorCode::kUnsupported, {"v1_0"}, [&] { memory_stats(device); });
  expect_error(ErrorCode::kUnsupported, {"v1_0"}, [&] { empty_pinned({2}, kFloat32, device); });
  expect_error(ErrorCode::kUnsupported, {"v1_0"}, [&] { Graph(device).capture([] {}); });
}

TEST(VersionsTest, APluginOfANewerMinorVersionWorks) {
  expect_works("newer", "a future minor version");
}

// Returns "ran" if the plug-in ran the call, else the reason why it did not.
std::string told(const std::vector<NamedValue>& named) {
  for (const Explanation& e : explain("outside_scale", {ones({3})}, named)) {
    for (const ExplainedKernel& kernel : e.kernels) {
      if (e.op == "outside_scale" && kernel.backend == "grown")
        return kernel.chosen ? "ran" : kernel.reason;
    }
  }
  return "was not asked";
}

TEST(VersionsTest, APluginOutlivesAnArgumentThatAnOperatorGains) {
  add_op(ops::outside_scale::entry);
  load_backend(plugin("grown"));
  const Tensor x = arange(3, kFloat32);
  EXPECT_EQ(told({}), "ran");
  EXPECT_EQ(told({{"by", 5.0}}), "ran");
  EXPECT_EQ(told({{"plus", 0}}), "ran");
  EXPECT_EQ(floats(outside_scale(x, 3)), (std::vector<float>{0, 3, 6}));
  // A call with the new argument decomposes into the nodes of the operator's program.
  EXPECT_EQ(told({{"plus", 1}}), "was built for an older schema, without 'plus'");
  EXPECT_EQ(floats(outside_scale(x, 3, 1)), (std::vector<float>{1, 4, 7}));
}

// ---- libraries that are not plug-ins

struct NoPlugin {
  std::string path;
  ErrorCode code;
  std::string says;
};

TEST(VersionsTest, ALibraryThatIsNoPluginGivesAnErrorAndChangesNothing) {
  const std::string odd = std::string(OUTSIDE_ODD) + "/";
  const testing::TempDirectory folder;
  const std::string whole = testing::read_file(plugin("grown"));
  testing::write_file(folder.file("half.so"), whole.substr(0, whole.size() / 2));
  testing::write_file(folder.file("text.so"), "not a library");
  const NoPlugin all[] = {
      {odd + "other_major.so", ErrorCode::kUnsupported, "implements contract version 2"},
      {folder.file("half.so"), ErrorCode::kIo, "truncated"},
      {folder.file("text.so"), ErrorCode::kIo, "not a shared library"},
      {folder.file("nothing.so"), ErrorCode::kIo, "No such file"},
      {odd + "no_symbol.so", ErrorCode::kIo, "does not export mt_backend_init"},
      {odd + "unresolved.so", ErrorCode::kIo, "symbol_that_nobody_has"},
      {OUTSIDE_ANOTHER, ErrorCode::kIo, "does not export mt_backend_init"},
      {odd + "no_hardware.so", ErrorCode::kUnsupported, "there is no such chip here"},
      {plugin("fails"), ErrorCode::kInternal, "failed with status 8: the chip does not answer"},
      {plugin("throws"), ErrorCode::kInternal, "threw: a C function must return a status"},
  };
  for (const NoPlugin& one : all) {
    const size_t before = backend_infos().size();
    expect_error(one.code, {"[backend]", one.path, one.says}, [&] { load_backend(one.path); });
    expect_error(one.code, {one.says}, [&] { load_backend(one.path); });  // the second attempt
    EXPECT_EQ(backend_infos().size(), before);
    EXPECT_EQ(floats(ones({2}) + 1), (std::vector<float>{2, 2})) << "after " << one.path;
  }
}

}  // namespace
}  // namespace mytorch
