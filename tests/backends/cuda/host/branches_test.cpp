// Compiled functions whose device graphs spread independent steps over streams.
#include "mytorch/compile.h"
#include "mytorch/device_memory.h"
#include "mytorch/generator.h"
#include "mytorch/mytorch.h"
#include "tests/backends/cuda/gpu.h"
#include "tests/core/same_bits.h"

namespace mytorch::testing {
namespace {

class GraphBranches : public Gpu {};

// Four chains of products, each of which leaves most of a GPU idle, with sums and random numbers.
std::vector<Tensor> chains(const std::vector<Tensor>& x) {
  std::vector<Tensor> values = x, sums;
  for (int i = 0; i < 6; ++i) {
    for (Tensor& value : values) {
      value = dropout(tanh(mm(value, value) * 0.05), 0.1, true);
      sums.push_back(value.sum(0));
    }
  }
  values.push_back(stack(sums).sum(0));
  return values;
}

TEST_F(GraphBranches, GiveTheBitsOfTheFunction) {
  const NoGradGuard no_grad;
  std::vector<Tensor> x;
  for (int i = 0; i < 4; ++i) x.push_back(randn({192, 192}).to("cuda"));
  auto compiled = compile(
      [&](const Tensor& scale) {
        return chains({x[0] * scale, x[1] * scale, x[2] * scale, x[3] * scale});
      },
      {.mode = CompileMode::kExact});
  int64_t held = 0;
  for (int call = 0; call < 48; ++call) {
    const Tensor scale = full({}, 1 + 0.01 * call, kFloat32, Device("cuda"));
    manual_seed(call / 12);
    const std::vector<Tensor> expected =
        chains({x[0] * scale, x[1] * scale, x[2] * scale, x[3] * scale});
    manual_seed(call / 12);
    const std::vector<Tensor> found = compiled(scale);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_TRUE(same_bits(found[i], expected[i])) << "result " << i << " of call " << call;
    }
    const auto now = static_cast<int64_t>(memory_stats().reserved);
    if (call == 34) held = now;
    if (call > 34) {
      EXPECT_LE(now, held) << call;
    }
  }
  EXPECT_TRUE(compiled.stats().device_graph);
  EXPECT_GT(compiled.stats().streams, 1) << "four chains took as long as one";
}

TEST_F(GraphBranches, ReportFaultsOfAllStreams) {
  const NoGradGuard no_grad;
  const Tensor x = randn({64, 64}).to("cuda");
  auto compiled = compile([&](const Tensor& good, const Tensor& bad) {
    return std::vector<Tensor>{mm(x.index_select(0, good), x), mm(x.index_select(0, bad), x)};
  });
  const Tensor good = arange(64).to("cuda");
  for (int call = 0; call < 14; ++call) {
    compiled(good, good);
    synchronize();
    for (const bool first : {false, true}) {
      const Tensor bad = good + (call % 2 == 0 ? 64 : 0);
      const bool fails = call > 3 && call % 2 == 0;
      if (!fails) continue;
      EXPECT_THROW(
          {
            first ? compiled(bad, good) : compiled(good, bad);
            synchronize();
          },
          Error)
          << call << first;
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
