// attention_forward and attention_backward of 16-bit types and attention_paged, compared with
// float32 on the CPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/call.h"
#include "mytorch/choice.h"
#include "mytorch/error.h"
#include "mytorch/generator.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/attention_backward.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/attention_paged.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/gt.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/rand.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/reshape.h"
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

// The largest difference; infinite if an element is NaN or infinite in only one of them.
double distance(const Tensor& found, const Tensor& expected) {
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

// The norm of the difference, relative to that of what is expected.
double error_of(const Tensor& found, const Tensor& expected) {
  const Tensor x = found.to(kCPU).to(kFloat32).contiguous(),
               y = expected.to(kCPU).to(kFloat32).contiguous();
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double a = x.data<float>()[i], b = y.data<float>()[i];
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  return std::sqrt(difference / std::max(norm, 1e-12));
}

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

  // The gradients on the GPU, by the kernel of capability 9.0, and those in float32 on the CPU.
  static void compare_gradients(const Tensor& q, const Tensor& k, const Tensor& v, const Call& c,
                                const Tensor& mask = {}, bool of_logsumexp = true) {
    const auto wide = [](const Tensor& x) { return x.to(kCPU).to(kFloat32); };
    const Tensor masked = mask.defined() ? mask.to(kCPU) : mask;
    const auto [out, sums, draw] = attention_forward(wide(q), wide(k), wide(v), masked, {}, c.left,
                                                     c.right, c.diagonal, 0.0, c.scale, 0.0);
    const Tensor grad = randn(q.sizes(), q.dtype(), "cuda");
    const Tensor grad_sums = of_logsumexp ? randn(sums.sizes(), kFloat32, "cuda") : Tensor();
    const auto differentiate = [&](const Tensor& g, const Tensor& gs, const Tensor& a,
                                   const Tensor& b, const Tensor& d, const Tensor& m,
                                   const Tensor& o, const Tensor& l, const Tensor& r) {
      return attention_backward(g, gs, a, b, d, m, {}, o, l, r, c.left, c.right, c.diagonal, 0.0,
                                c.scale, 0.0, {1, 1, 1, 0});
    };
    const Tensor output = out.to(q.dtype()).to("cuda"), logsumexp = sums.to("cuda");
    bool found = false;
    for (const Explanation& e :
         explain("attention_backward", {grad, of_logsumexp ? Value(grad_sums) : Value(), q, k, v,
                                        mask.defined() ? Value(mask) : Value(), Value(), output,
                                        logsumexp, draw.to("cuda"), c.left, c.right, c.diagonal,
                                        0.0, c.scale, 0.0, std::vector<int64_t>{1, 1, 1, 0}})) {
      for (const ExplainedKernel& one : e.kernels) {
        if (one.kernel != "sm90") continue;
        EXPECT_EQ(one.reason, "");
        found = true;
      }
    }
    EXPECT_TRUE(found);
    const auto [dq, dk, dv, none] =
        differentiate(grad, grad_sums, q, k, v, mask, output, logsumexp, draw.to("cuda"));
    const auto [eq, ek, ev, none2] =
        differentiate(wide(grad), of_logsumexp ? wide(grad_sums) : grad_sums, wide(q), wide(k),
                      wide(v), masked, out, sums, draw);
    const double most = q.dtype() == kFloat16 ? 2e-3 : 1e-2;
    EXPECT_LT(error_of(dq, eq), most);
    EXPECT_LT(error_of(dk, ek), most);
    EXPECT_LT(error_of(dv, ev), most);
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
      {2, 3, 3, 130, 333},                  // blocks that are not full
      {2, 4, 2, 257, 200},                  // grouped heads
      {1, 2, 1, 300, 300, -1, 0},           // causal
      {1, 2, 2, 70, 300, -1, 0, 230},       // causal from the bottom right
      {1, 2, 2, 300, 100, -1, 0, -200},     // rows that see nothing
      {1, 2, 2, 500, 500, 150, 0},          // a window
      {1, 2, 2, 500, 500, 20, 30, 7, 0.5},  // on both sides
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

TEST_P(Attention, HasTheGradientsOfFloat32) {
  const int64_t width = GetParam();
  if (width > 128) GTEST_SKIP() << "the gradient of wider heads is the library's";
  const Call calls[] = {
      {2, 3, 3, 130, 333},                  // blocks that are not full
      {2, 4, 2, 257, 200},                  // grouped heads
      {1, 2, 1, 300, 300, -1, 0},           // causal
      {1, 2, 2, 70, 300, -1, 0, 230},       // causal from the bottom right
      {1, 2, 2, 300, 100, -1, 0, -200},     // rows that see nothing
      {1, 2, 2, 100, 600, -1, 0},           // keys that nothing sees
      {1, 2, 2, 500, 500, 150, 0},          // a window
      {1, 2, 2, 500, 500, 20, 30, 7, 0.5},  // on both sides
      {1, 1, 1, 1, 1},
  };
  for (const ScalarType dtype : {kBFloat16, kFloat16}) {
    for (const Call& c : calls) {
      SCOPED_TRACE(std::to_string(c.queries) + " x " + std::to_string(c.keys));
      compare_gradients(randn({c.batch, c.heads, c.queries, width}, dtype, "cuda"),
                        randn({c.batch, c.key_heads, c.keys, width}, dtype, "cuda"),
                        randn({c.batch, c.key_heads, c.keys, width}, dtype, "cuda"), c);
    }
  }
}

TEST_P(Attention, HasTheGradientsOfSlicesAndMasks) {
  const int64_t width = GetParam();
  if (width > 128) GTEST_SKIP() << "the gradient of wider heads is the library's";
  const Tensor packed = randn({2, 150, 9, width}, kBFloat16, "cuda");  // (B, T, 3 H, D)
  const auto part = [&](int64_t i) { return transpose(slice(packed, 2, 3 * i, 3 * i + 3), 1, 2); };
  const Call causal{2, 3, 3, 150, 150, -1, 0};
  compare_gradients(part(0), part(1), part(2), causal, {}, false);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2, 3, 150, 150}, {2, 1, 150, 150}, {1, 3, 1, 150}, {1, 1, 150, 1}}) {
    // Column 0 stays, so that rows see something.
    Tensor mask = rand(sizes, kFloat32, "cuda").gt(0.3);
    if (sizes[3] > 1) select(mask, 3, 0).fill_(true);
    compare_gradients(part(0), part(1), part(2), causal, mask);
    compare_gradients(part(0), part(1), part(2), {2, 3, 3, 150, 150}, mask);
  }
}

TEST_P(Attention, RepeatsTheBitsOfGradients) {
  const int64_t width = GetParam();
  const Tensor q = randn({3, 4, 1000, width}, kBFloat16, "cuda");
  const Tensor k = randn({3, 2, 1000, width}, kBFloat16, "cuda");
  const auto [out, sums, draw] = attention_forward(q, k, k, {}, {}, -1, 0, 0, 0.0, 0.125, 0.0);
  const auto differentiate = [&, &o = out, &l = sums, &d = draw] {
    return attention_backward(q, {}, q, k, k, {}, {}, o, l, d, -1, 0, 0, 0.0, 0.125, 0.0,
                              {1, 1, 1, 0});
  };
  const auto first = differentiate();
  for (int i = 0; i < 100; ++i) {
    const auto again = differentiate();
    ASSERT_EQ(distance(std::get<0>(again), std::get<0>(first)), 0);
    ASSERT_EQ(distance(std::get<1>(again), std::get<1>(first)), 0);
    ASSERT_EQ(distance(std::get<2>(again), std::get<2>(first)), 0);
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

// ---- operands with gaps

using StridedAttention = Gpu;

// Otherwise the scores of all queries and keys would be in memory at once.
TEST_F(StridedAttention, RunsInAKernel) {
  manual_seed(5);
  const auto calls_of = [](const std::vector<Explanation>& all) {
    std::string names;
    for (const Explanation& e : all) names += e.op + " ";
    return names;
  };
  const auto some_rows = [](const Tensor& x) { return x.narrow(2, 60, 90); };
  const auto wide = [](const Tensor& x) { return x.to(kCPU).to(kFloat32); };
  for (const ScalarType dtype : {kBFloat16, kFloat32}) {
    SCOPED_TRACE(dtype);
    // Every second element of each row, and rows that begin anywhere.
    const auto with_gaps = [&] {
      return randn({2, 3, 150, 128}, dtype, "cuda").slice(3, 0, 128, 2);
    };
    const Tensor q = with_gaps(), k = with_gaps(), v = with_gaps();
    EXPECT_EQ(calls_of(explain("attention_forward",
                               {q, k, v, Value(), Value(), -1, -1, 0, 0.0, 0.125, 0.0})),
              "attention_forward ");
    const auto [out, sums, draw] = attention_forward(q, k, v, {}, {}, -1, -1, 0, 0.0, 0.125, 0.0);
    const auto [expected, expected_sums, none] =
        attention_forward(wide(q), wide(k), wide(v), {}, {}, -1, -1, 0, 0.0, 0.125, 0.0);
    EXPECT_LT(distance(out, expected), dtype == kFloat32 ? 1e-5 : 2e-2);

    const Tensor grad = with_gaps();
    EXPECT_EQ(calls_of(explain("attention_backward",
                               {some_rows(grad), Value(), some_rows(q), k, v, Value(), Value(),
                                some_rows(out), some_rows(sums), draw, -1, -1, 0, 0.0, 0.125, 0.0,
                                std::vector<int64_t>{1, 1, 1, 0}})),
              "attention_backward ");
    const auto differentiate = [&](auto of, const Tensor& o, const Tensor& l, const Tensor& d) {
      return attention_backward(of(some_rows(grad)), {}, of(some_rows(q)), of(k), of(v), {}, {},
                                some_rows(o), some_rows(l), d, -1, -1, 0, 0.0, 0.125, 0.0,
                                {1, 1, 1, 0});
    };
    const auto [dq, dk, dv, dm] = differentiate([](const Tensor& x) { return x; }, out, sums, draw);
    const auto [eq, ek, ev, em] = differentiate(wide, expected, expected_sums, none);
    const double most = dtype == kFloat32 ? 1e-5 : 1e-2;
    EXPECT_LT(error_of(dq, eq), most);
    EXPECT_LT(error_of(dk, ek), most);
    EXPECT_LT(error_of(dv, ev), most);
  }
}

// ---- few rows

struct Pages {
  std::vector<int64_t> lengths;
  int64_t heads, key_heads, queries, width, value_width, slots;
  int64_t left = -1, right = 0;
  double softcap = 0;
  bool slopes = false;
};

class PagedAttention : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped()) manual_seed(4);
  }

  // Compares a call, in pages that are shuffled. Slots that are not in use are NaN, and entries of
  // the table past a length point nowhere.
  static void compare(const Pages& c, ScalarType dtype, ScalarType index) {
    const auto batch = static_cast<int64_t>(c.lengths.size());
    int64_t columns = 0, used = 0;
    for (const int64_t n : c.lengths) columns = std::max(columns, (n + c.slots - 1) / c.slots + 1);
    const int64_t pages = batch * columns + 1;
    const Tensor key = empty({pages, c.slots, c.key_heads, c.width});
    const Tensor value = empty({pages, c.slots, c.key_heads, c.value_width});
    const Tensor table = empty({batch, columns}, kInt64), lengths = empty({batch}, kInt64);
    key.fill_(std::numeric_limits<double>::quiet_NaN());
    value.fill_(std::numeric_limits<double>::quiet_NaN());
    table.fill_(-1234567);
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t length = c.lengths[static_cast<size_t>(b)];
      lengths.data<int64_t>()[b] = length;
      for (int64_t m = 0; m * c.slots < length; ++m) {
        const int64_t page = pages - 1 - used++;
        table.data<int64_t>()[b * columns + m] = page;
        const int64_t n = std::min(c.slots, length - m * c.slots);
        key.select(0, page).narrow(0, 0, n).copy_(randn({n, c.key_heads, c.width}));
        value.select(0, page).narrow(0, 0, n).copy_(randn({n, c.key_heads, c.value_width}));
      }
    }
    const Tensor slopes = c.slopes ? rand({c.heads}) : Tensor();
    const Tensor query = randn({batch, c.heads, c.queries, c.width});
    const auto attend = [&](Device device, ScalarType type) {
      const auto typed = [&](const Tensor& x) { return x.to(dtype).to(type).to(device); };
      return attention_paged(typed(query), typed(key), typed(value), table.to(index).to(device),
                             lengths.to(index).to(device), c.slopes ? slopes.to(device) : slopes,
                             c.left, c.right, c.softcap, 0.125);
    };
    const auto [out, sums] = attend("cuda", dtype);
    const auto [expected, expected_sums] = attend(kCPU, kFloat32);
    EXPECT_LT(distance(out, expected), dtype == kFloat32 ? 1e-5 : dtype == kFloat16 ? 3e-3 : 2e-2);
    EXPECT_LT(distance(sums, expected_sums), dtype == kFloat32 ? 1e-5 : 1e-3);
  }
};

TEST_F(PagedAttention, MatchesTheCpu) {
  const Pages calls[] = {
      {{1, 17, 0, 700}, 8, 1, 1, 128, 128, 16},  // eight heads share a key head; an empty sequence
      {{333, 40}, 8, 8, 1, 64, 64, 1},           // pages of one slot
      {{3000}, 16, 2, 1, 128, 128, 256},         // several splits
      {{900, 31}, 12, 1, 1, 64, 64, 48},         // 12 rows: two tiles
      {{500, 2}, 8, 2, 5, 128, 128, 16},         // 20 rows; a sequence shorter than its queries
      {{500, 65}, 4, 2, 3, 128, 128, 32, 100, 0},          // a window
      {{500, 65}, 4, 2, 3, 64, 64, 32, 20, 2, 1.5, true},  // all that changes scores
      {{300, 7}, 6, 2, 2, 40, 24, 16},                     // other widths
      {{300, 7}, 6, 3, 1, 33, 5, 7},                       // rows that are not aligned
      {{600, 70}, 3, 1, 4, 192, 256, 16},
      {{2000}, 1, 1, 1, 96, 96, 64},
  };
  for (const ScalarType dtype : {kBFloat16, kFloat16, kFloat32}) {
    for (const Pages& c : calls) {
      SCOPED_TRACE(std::to_string(c.lengths[0]) + " keys of " + std::to_string(c.width));
      compare(c, dtype, kInt32);
      compare(c, dtype, kInt64);
    }
  }
}

TEST_F(PagedAttention, ReportsPagesThatDoNotExist) {
  const Tensor q = randn({1, 2, 1, 64}, kBFloat16, "cuda");
  const Tensor k = randn({4, 16, 2, 64}, kBFloat16, "cuda");
  const Tensor table = tensor({1, 4}).to(kInt64).reshape({1, 2}).to("cuda");
  const auto last = [&](int64_t length) {
    const Tensor lengths = tensor({length}).to(kInt64).to("cuda");
    return std::get<0>(attention_paged(q, k, k, table, lengths, {}, -1, 0, 0.0, 0.125)).to(kCPU);
  };
  EXPECT_NO_THROW(last(16));
  EXPECT_THROW(last(17), Error);
}

TEST_F(PagedAttention, RepeatsItsBits) {
  const Tensor q = randn({3, 16, 1, 128}, kBFloat16, "cuda");
  const Tensor k = randn({300, 16, 2, 128}, kBFloat16, "cuda");
  const Tensor table = arange(300, kInt64, "cuda").reshape({3, 100});
  const Tensor lengths = tensor({1600, 1000, 33}).to(kInt64).to("cuda");
  const auto attend = [&] {
    return std::get<0>(attention_paged(q, k, k, table, lengths, {}, -1, 0, 0.0, 0.125));
  };
  const Tensor first = attend();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(distance(attend(), first), 0);
}

TEST_F(PagedAttention, HasTheKernelOfFewRowsOfOneTensor) {
  for (const ScalarType dtype : {kBFloat16, kFloat32}) {
    for (const Call& c : {Call{3, 8, 1, 1, 700},
                          {2, 4, 2, 5, 333, -1, 0, 328},
                          {2, 4, 2, 5, 300, 30, 40, 100},
                          {1, 2, 2, 3, 100, -1, 0, -200}}) {
      const Tensor q = randn({c.batch, c.heads, c.queries, 128}, dtype, "cuda");
      const Tensor packed = randn({c.batch, c.keys, 2, c.key_heads, 128}, dtype, "cuda");
      const Tensor k = transpose(select(packed, 2, 0), 1, 2),
                   v = transpose(select(packed, 2, 1), 1, 2);
      const auto attend = [&](const Tensor& a, const Tensor& b, const Tensor& d) {
        return attention_forward(a, b, d, {}, {}, c.left, c.right, c.diagonal, 0.0, c.scale, 0.0);
      };
      const auto wide = [](const Tensor& x) { return x.to(kCPU).to(kFloat32); };
      const auto [out, sums, draw] = attend(q, k, v);
      const auto [expected, expected_sums, none] = attend(wide(q), wide(k), wide(v));
      EXPECT_LT(distance(out, expected), dtype == kFloat32 ? 1e-5 : 2e-2);
      EXPECT_LT(distance(sums, expected_sums), 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, Attention, ::testing::Values(32, 64, 96, 128, 256));

}  // namespace
}  // namespace mytorch::testing
