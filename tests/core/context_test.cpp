// Per-thread state: contexts with their scratch memory, thread counts and modes.
#include "core/runtime/context.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/runtime/device_registry.h"
#include "mytorch/grad_mode.h"
#include "mytorch/threads.h"
#include "mytorch/version.h"
#include "tests/core/cpu_context.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

TEST(ContextTest, OneForEachThread) {
  EXPECT_EQ(cpu(), cpu());
  mt_ctx* other = nullptr;
  std::thread([&] { other = cpu(); }).join();
  EXPECT_NE(other, cpu());
  EXPECT_EQ(cpu()->size, sizeof(mt_ctx));
  EXPECT_EQ(cpu()->device.type, MT_DEVICE_CPU);
  EXPECT_EQ(cpu()->stream, nullptr);
  EXPECT_EQ(cpu()->host, host());
  EXPECT_STREQ(host()->version, MYTORCH_VERSION_STRING);
  EXPECT_EQ(host()->abi_major, MT_ABI_MAJOR);
}

TEST(ContextTest, ScratchIsAlignedAndApart) {
  mt_ctx* ctx = cpu();
  std::vector<std::pair<char*, size_t>> taken;
  for (size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{100000}, size_t{3} << 20,
                       size_t{5}, size_t{0}, size_t{9} << 20}) {
    char* data = static_cast<char*>(ctx->scratch(ctx, bytes));
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    std::memset(data, static_cast<int>(taken.size()), bytes);
    taken.emplace_back(data, bytes);
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    for (size_t k = 0; k < taken[i].second; k += 997) {
      ASSERT_EQ(taken[i].first[k], static_cast<char>(i));
    }
  }
  EXPECT_GT(cpu()->blocks.size(), 1u);
  release_scratch(ctx);
  // From now on, one block serves the same requests.
  for (int call = 0; call < 2; ++call) {
    for (const auto& [data, bytes] : taken) ASSERT_NE(ctx->scratch(ctx, bytes), nullptr);
    EXPECT_EQ(cpu()->blocks.size(), 1u);
    release_scratch(ctx);
  }
  EXPECT_EQ(ctx->scratch(ctx, 10), cpu()->blocks[0].data);
  release_scratch(ctx);
}

TEST(ContextTest, ScratchThatCannotBeHadIsNull) {
  mt_ctx* ctx = cpu();
  EXPECT_EQ(ctx->scratch(ctx, size_t{1} << 62), nullptr);
  EXPECT_EQ(ctx->scratch(ctx, SIZE_MAX), nullptr);
  EXPECT_NE(ctx->scratch(ctx, 100), nullptr);
  release_scratch(ctx);
}

TEST(ContextTest, OutputsAreMadeOnlyForDynamicRecords) {
  mt_ctx* ctx = cpu();
  const int64_t size = 3;
  EXPECT_EQ(ctx->make_output(ctx, 0, &size, 1), nullptr);
  EXPECT_EQ(cpu()->error_status, MT_ERROR_INTERNAL);
  EXPECT_NE(cpu()->error.find("dynamic"), std::string::npos);
  ctx->set_error(ctx, MT_ERROR_VALUE, nullptr);
  EXPECT_EQ(cpu()->error, "");
}

TEST(ContextTest, HostErrorsBelongToTheThread) {
  host()->set_error(MT_ERROR_DEVICE, "mine");
  std::thread([] { EXPECT_EQ(take_host_error(), ""); }).join();
  EXPECT_EQ(take_host_error(), "mine");
  EXPECT_EQ(take_host_error(), "");
}

TEST(ThreadsTest, CountIsPerThread) {
  const int saved = num_threads();
  EXPECT_GE(saved, 1);
  set_num_threads(7);
  EXPECT_EQ(num_threads(), 7);
  EXPECT_EQ(cpu()->num_threads, 7);
  std::thread([&] { EXPECT_EQ(num_threads(), saved); }).join();
  expect_error(ErrorCode::kValue, {"[set_num_threads]", "0"}, [] { set_num_threads(0); });
  expect_error(ErrorCode::kValue, {"-3"}, [] { set_num_threads(-3); });
  EXPECT_EQ(num_threads(), 7);
  set_num_threads(saved);
}

int default_num_threads() {
  int n = 0;
  std::thread([&] { n = num_threads(); }).join();
  return n;
}

// Sets an environment variable for the lifetime of this object.
class EnvironmentScope {
 public:
  EnvironmentScope(const char* name, const char* value) : name_(name) {
    if (const char* text = std::getenv(name)) saved_ = text;
    setenv(name, value, 1);
  }
  ~EnvironmentScope() {
    if (saved_.has_value()) {
      setenv(name_, saved_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> saved_;
};

TEST(ThreadsTest, DefaultComesFromTheEnvironment) {
  const int usual = default_num_threads();
  {
    const EnvironmentScope omp("OMP_NUM_THREADS", "3");
    const EnvironmentScope own("MYTORCH_NUM_THREADS", "5");
    EXPECT_EQ(default_num_threads(), 5);
  }
  EXPECT_EQ(default_num_threads(), usual);
}

class InvalidThreadsTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Environment, InvalidThreadsTest, ::testing::Values("0", "-1", "many", ""));

TEST_P(InvalidThreadsTest, FallsBackToOpenMpsVariable) {
  const EnvironmentScope omp("OMP_NUM_THREADS", "3");
  const EnvironmentScope own("MYTORCH_NUM_THREADS", GetParam());
  EXPECT_EQ(default_num_threads(), 3);
}

TEST(ModesTest, GuardsNest) {
  EXPECT_TRUE(grad_enabled());
  {
    const NoGradGuard no_grad;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE(layers_wanted(kLayerAutograd));
    {
      const EnableGradGuard grad;
      EXPECT_TRUE(grad_enabled());
      EXPECT_TRUE(layers_wanted(kLayerAutograd));
    }
    EXPECT_FALSE(grad_enabled());
    std::thread([] { EXPECT_TRUE(grad_enabled()); }).join();
  }
  EXPECT_TRUE(grad_enabled());
  {
    const InferenceMode inference;
    EXPECT_TRUE(inference_mode_enabled());
    EXPECT_FALSE(grad_enabled());
    const InferenceMode again;
  }
  EXPECT_FALSE(inference_mode_enabled());
  EXPECT_TRUE(grad_enabled());
}

TEST(ModesTest, LayersAreMaskedForAScope) {
  EXPECT_FALSE(layers_wanted(0));
  EXPECT_TRUE(layers_wanted(kLayerAutograd));
  {
    const LayerMask mask(kLayerAutograd);
    EXPECT_FALSE(layers_wanted(kLayerAutograd));
    const LayerMask all(~0u);
    EXPECT_FALSE(layers_wanted(~0u));
  }
  EXPECT_TRUE(layers_wanted(kLayerAutograd));
}

}  // namespace
}  // namespace mytorch
