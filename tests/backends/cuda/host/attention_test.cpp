// attention_forward of 16-bit types, compared with float32 on the CPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "mytorch/call.h"
#include "mytorch/choice.h"
#include "mytorch/generator.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/slice.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/tensor.h"
#include "tests/backends/cuda/gpu.h"

namespace mytorch::testing {
namespace {

struct Call {
  int64_t batch, heads, key_heads, queries, keys;
  int64_t left = -1, right = -1, diagonal = 0;
  double scale = 0.125;
};

class Attention : public Gpu, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    manual_seed(3);
    const Tensor q = randn({1, 1, 64, 64}, kBFloat16, "cuda");
    if (!runs("sm90", q, q, q, Call{})) GTEST_SKIP() << "the GPU is not of capability 9.0";
  }

  // Whether a kernel runs the call.
  static bool runs(const std::string& kernel, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Call& c) {
    for (const Explanation& e :
         explain("attention_forward",
                 {q, k, v, Value(), Value(), c.left, c.right, c.diagonal, 0.0, c.scale, 0.0})) {
      for (const ExplainedKernel& one : e.kernels) {
        if (one.kernel == kernel) return one.reason.empty();
      }
    }
    return false;
  }

  // The largest difference; infinite if an element is NaN or infinite in only one of them.
  static double distance(const Tensor& found, const Tensor& expected) {
    const Tensor a = found.to(kCPU).to(kFloat32), b = expected.to(kCPU).to(kFloat32);
    double most = 0;
    const Tensor x = a.contiguous(), y = b.contiguous();
    const float* p = x.data<float>();
    const float* q = y.data<float>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (p[i] == q[i] || (std::isnan(p[i]) && std::isnan(q[i]))) continue;
      const double d = std::abs(static_cast<double>(p[i]) - q[i]);
      most = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(most, d);
    }
    return most;
  }

  static void compare(const Tensor& q, const Tensor& k, const Tensor& v, const Call& c) {
    const auto attend = [&](const Tensor& a, const Tensor& b, const Tensor& d) {
      return attention_forward(a, b, d, {}, {}, c.left, c.right, c.diagonal, 0.0, c.scale, 0.0);
    };
    ASSERT_TRUE(runs("sm90", q, k, v, c));
    const auto [out, lse, draw] = attend(q, k, v);
    const auto wide = [](const Tensor& x) { return x.to(kCPU).to(kFloat32); };
    const auto [expected, expected_lse, none] = attend(wide(q), wide(k), wide(v));
    EXPECT_LT(distance(out, expected), q.dtype() == kFloat16 ? 3e-3 : 2e-2);
    EXPECT_LT(distance(lse, expected_lse), 1e-3);
  }
};

TEST_P(Attention, MatchesFloat32) {
  const Call calls[] = {
      {1, 1, 1, 1, 1},
      {2, 3, 3, 130, 333},                  // blocks that are not full
      {2, 4, 2, 257, 200},                  // grouped heads
      {1, 2, 1, 300, 300, -1, 0},           // causal
      {1, 2, 2, 70, 300, -1, 0, 230},       // causal from the bottom right
      {1, 2, 2, 300, 100, -1, 0, -200},     // rows that see nothing
      {1, 2, 2, 500, 500, 150, 0},          // a window
      {1, 2, 2, 500, 500, 20, 30, 7, 0.5},  // on both sides
      {3, 2, 2, 1, 700},
  };
  for (const ScalarType dtype : {kBFloat16, kFloat16}) {
    for (const Call& c : calls) {
      SCOPED_TRACE(std::to_string(c.queries) + " x " + std::to_string(c.keys));
      const int64_t width = GetParam();
      compare(randn({c.batch, c.heads, c.queries, width}, dtype, "cuda"),
              randn({c.batch, c.key_heads, c.keys, width}, dtype, "cuda"),
              randn({c.batch, c.key_heads, c.keys, width}, dtype, "cuda"), c);
    }
  }
}

TEST_P(Attention, TakesSlicesOfPackedProjections) {
  const int64_t width = GetParam();
  const Tensor packed = randn({2, 150, 9, width}, kBFloat16, "cuda");  // (B, T, 3 H, D)
  const auto part = [&](int64_t i) { return transpose(slice(packed, 2, 3 * i, 3 * i + 3), 1, 2); };
  compare(part(0), part(1), part(2), {2, 3, 3, 150, 150, -1, 0});
}

TEST_P(Attention, KeepsNaNInItsHead) {
  const int64_t width = GetParam();
  const Tensor q = randn({1, 2, 200, width}, kBFloat16, "cuda");
  const Tensor k = randn({1, 2, 200, width}, kBFloat16, "cuda");
  select(select(k, 1, 1), 1, 150).fill_(std::numeric_limits<double>::quiet_NaN());
  compare(q, k, randn({1, 2, 200, width}, kBFloat16, "cuda"), {1, 2, 2, 200, 200});
}

TEST_P(Attention, RepeatsItsBits) {
  const Tensor q = randn({2, 4, 1000, GetParam()}, kBFloat16, "cuda");
  const auto attend = [&] {
    return std::get<0>(attention_forward(q, q, q, {}, {}, -1, 0, 0, 0.0, 0.125, 0.0));
  };
  const Tensor first = attend();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(distance(attend(), first), 0);
}

TEST_P(Attention, DeclinesUnalignedRows) {
  const int64_t width = GetParam();
  const Tensor q = randn({1, 1, 64, width + 8}, kBFloat16, "cuda");
  const Tensor k = randn({1, 1, 64, width}, kBFloat16, "cuda");
  EXPECT_TRUE(runs("sm90", slice(q, 3, 8), k, k, Call{}));
  EXPECT_FALSE(runs("sm90", slice(q, 3, 4, width + 4), k, k, Call{}));
}

INSTANTIATE_TEST_SUITE_P(Widths, Attention, ::testing::Values(32, 64, 96, 128, 256));

}  // namespace
}  // namespace mytorch::testing
