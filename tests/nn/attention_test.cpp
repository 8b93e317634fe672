// Attention at its edges: long rows, rows that see nothing, slices of packed projections, and
// repeated calls.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/transformer.h"
#include "mytorch/ops/all.h"
#include "mytorch/ops/attention_backward.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/attention_paged.h"
#include "mytorch/ops/attention_varlen_forward.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/isfinite.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/scaled_dot_product_attention.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::nn {
namespace {

bool close(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
  return (a.to(kFloat64) - b.to(kFloat64)).abs().max().item<double>() <= tolerance;
}
bool same(const Tensor& a, const Tensor& b) { return (a == b).all().item<bool>(); }

// attention_forward with what these tests leave at its default.
std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                           double dropout_p = 0,
                                           std::optional<Generator> generator = {}) {
  return attention_forward(q, k, v, {}, {}, -1, -1, 0, 0, 0.25, dropout_p, generator);
}
std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& q,
                                                    const Tensor& k, const Tensor& v,
                                                    const Tensor& out, const Tensor& lse,
                                                    const Tensor& draw, double dropout_p = 0) {
  return attention_backward(grad, {}, q, k, v, {}, {}, out, lse, draw, -1, -1, 0, 0, 0.25,
                            dropout_p);
}

TEST(Attention, LongRowsEqualASoftmaxInDouble) {
  const Tensor q = randn({1, 2, 3, 16}), k = randn({1, 1, 65537, 16}), v = randn({1, 1, 65537, 5});
  const auto [out, lse, draw] = forward(q, k, v);
  const Tensor scores =
      matmul(q.to(kFloat64) * 0.25, k.to(kFloat64).transpose(-2, -1).expand({1, 2, 16, 65537}));
  EXPECT_TRUE(close(out, matmul(scores.softmax(-1), v.to(kFloat64).expand({1, 2, 65537, 5}))));
  EXPECT_TRUE(close(lse, exp(scores).sum(-1).log(), 1e-4));
}

TEST(Attention, SumsOf16BitOperandsAreFloat32) {
  // The sum of 4096 equal weights in bfloat16 would stop at 256.
  const Tensor q = zeros({1, 1, 2, 8}, kBFloat16), k = zeros({1, 1, 4096, 8}, kBFloat16);
  const Tensor v = ones({1, 1, 4096, 8}, kBFloat16);
  const auto [out, lse, draw] = forward(q, k, v);
  EXPECT_TRUE(close(out, ones({1, 1, 2, 8}), 0));
  EXPECT_TRUE(close(lse, full({1, 1, 2}, std::log(4096.0)), 1e-5));
}

TEST(Attention, RowsThatSeeNothingAreZeroAndHaveNoGradient) {
  for (const bool causal : {false, true}) {
    Tensor q = randn({1, 2, 300, 16}).requires_grad_(), k = randn({1, 2, 200, 16}).requires_grad_();
    Tensor v = randn({1, 2, 200, 16}).requires_grad_();
    Tensor mask = ones({1, 1, 300, 200}, kBool);
    mask.narrow(2, 0, 150).fill_(false);
    const Tensor out =
        std::get<0>(causal ? attention_forward(q, k, v, {}, {}, -1, 0, -150, 0, 1, 0)
                           : attention_forward(q, k, v, mask, {}, -1, -1, 0, 0, 1, 0));
    EXPECT_TRUE((out.narrow(2, 0, 150) == 0).all().item<bool>());
    EXPECT_TRUE((out.narrow(2, 150, 150) != 0).all().item<bool>());
    out.sum().backward();
    EXPECT_TRUE((q.grad().narrow(2, 0, 150) == 0).all().item<bool>());
    for (const Tensor& x : {q, k, v}) EXPECT_TRUE(isfinite(x.grad()).all().item<bool>());
  }
}

TEST(Attention, WeightsOfRowsThatSeeNothingAreZeroAndHaveNoGradient) {
  const double infinity = std::numeric_limits<double>::infinity();
  Tensor hidden = zeros({3, 4}, kBool);
  hidden.narrow(0, 1, 1).fill_(true);
  for (const bool numbers : {false, true}) {
    MultiheadAttention attention(8, 2);
    const Tensor x = randn({3, 1, 8}).requires_grad_(), y = randn({4, 1, 8}).requires_grad_();
    const Tensor mask = numbers ? zeros({3, 4}).masked_fill(hidden, -infinity) : hidden;
    const auto [out, weights] = attention.forward(x, y, y, {}, true, mask);
    const Tensor without =
        std::get<0>(attention.forward(x, y, y, {}, /*need_weights=*/false, mask));
    EXPECT_TRUE(close(out, without));
    EXPECT_TRUE((weights.narrow(1, 1, 1) == 0).all().item<bool>());
    EXPECT_TRUE(close(weights.sum(-1).flatten(), tensor({1.0, 0.0, 1.0}), 1e-6));
    (out.sum() + weights.sum()).backward();
    EXPECT_TRUE((x.grad().narrow(0, 1, 1) == 0).all().item<bool>());
    for (const Tensor& each : {x, y}) EXPECT_TRUE(isfinite(each.grad()).all().item<bool>());
  }
}

TEST(Attention, MasksOfMinusInfinityEqualBools) {
  const Tensor q = randn({1, 2, 70, 16}), k = randn({1, 2, 140, 16}), v = randn({1, 2, 140, 16});
  const Tensor keep = randn({1, 2, 70, 140}) > 0.5;
  const Tensor added =
      zeros({1, 2, 70, 140})
          .masked_fill(keep.logical_not(), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(same(scaled_dot_product_attention(q, k, v, keep),
                   scaled_dot_product_attention(q, k, v, added)));
}

TEST(Attention, NaNAndInfinityStayInTheirHead) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Tensor q = randn({2, 3, 130, 16}), k = randn({2, 3, 130, 16}), v = randn({2, 3, 130, 16});
    const Tensor before = scaled_dot_product_attention(q, k, v);
    k.select(0, 1).select(0, 1).fill_(bad);
    const Tensor out = scaled_dot_product_attention(q, k, v);
    EXPECT_TRUE(isnan(out.select(0, 1).select(0, 1)).all().item<bool>());
    out.select(0, 1).select(0, 1).copy_(before.select(0, 1).select(0, 1));
    EXPECT_TRUE(same(out, before));
  }
}

TEST(Attention, ASingleRowAndNoKeys) {
  const Tensor q = randn({2, 4, 1, 32}), k = randn({2, 4, 77, 32}), v = randn({2, 4, 77, 32});
  const Tensor expected = matmul((matmul(q, k.transpose(-2, -1)) / std::sqrt(32.0)).softmax(-1), v);
  EXPECT_TRUE(close(scaled_dot_product_attention(q, k, v), expected));
  const Tensor none = scaled_dot_product_attention(q, k.narrow(2, 0, 0), v.narrow(2, 0, 0));
  EXPECT_TRUE((none == 0).all().item<bool>());
}

TEST(Attention, SlicesOfAPackedProjectionEqualCopiesAndGiveTheirOrder) {
  const Tensor packed = randn({2, 65, 3, 4, 16});  // (batch, time, which, head, width)
  const auto part = [&](int64_t which) { return packed.select(2, which).transpose(1, 2); };
  const Tensor out = scaled_dot_product_attention(part(0), part(1), part(2), {}, 0, true);
  EXPECT_TRUE(same(out, scaled_dot_product_attention(part(0).contiguous(), part(1).contiguous(),
                                                     part(2).contiguous(), {}, 0, true)));
  EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
}

TEST(Attention, GroupedHeadsEqualRepeatedOnes) {
  const Tensor q = randn({2, 6, 20, 16}), k = randn({2, 2, 30, 16}), v = randn({2, 2, 30, 16});
  EXPECT_TRUE(
      same(scaled_dot_product_attention(q, k, v, {}, 0, false, std::nullopt, true),
           scaled_dot_product_attention(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1))));
}

TEST(Attention, FewRowsEqualTheSameRowsAmongMany) {
  // Calls of up to 8 rows have a kernel of their own, with and without shared heads of keys.
  const Tensor k = randn({2, 2, 1500, 24}), v = randn({2, 2, 1500, 20});
  const Tensor q = randn({2, 6, 40, 24});
  const Tensor slopes = ones({6}) * 0.01;
  for (const ScalarType type : {kFloat32, kBFloat16, kFloat16}) {
    const auto call = [&](int64_t first, int64_t rows, int64_t left, int64_t right) {
      return attention_forward(q.narrow(2, first, rows).to(type), k.to(type), v.to(type), {},
                               slopes, left, right, 1460 + first, 3, 0.25, 0);
    };
    for (const int64_t rows : {1, 3, 8}) {
      for (const auto& [left, right] : {std::pair{-1, -1}, {-1, 0}, {700, 0}, {0, 3}}) {
        const auto [all, all_sums, all_draw] = call(0, 40, left, right);
        const auto [out, sums, draw] = call(17, rows, left, right);
        EXPECT_TRUE(close(out, all.narrow(2, 17, rows), type == kFloat32 ? 1e-5 : 1e-2));
        EXPECT_TRUE(close(sums, all_sums.narrow(2, 17, rows)));
      }
    }
  }
}

TEST(Attention, ARowAndAMaskThatHidesItsFirstKeys) {
  const Tensor q = randn({1, 4, 1, 16}), k = randn({1, 2, 1000, 16}), v = randn({1, 2, 1000, 16});
  Tensor mask = ones({1, 1, 1, 1000}, kBool);
  mask.narrow(3, 0, 700).fill_(false);
  const auto attend = [&](const Tensor& mask, const Tensor& k, const Tensor& v) {
    return scaled_dot_product_attention(q, k, v, mask, 0, false, std::nullopt, true);
  };
  EXPECT_TRUE(close(attend(mask, k, v), attend({}, k.narrow(2, 700, 300), v.narrow(2, 700, 300))));
  mask.fill_(false);
  EXPECT_TRUE((attend(mask, k, v) == 0).all().item<bool>());
}

TEST(Attention, PagesEqualContiguousKeysWhateverTheirOrder) {
  const int64_t slots = 16, heads = 2;
  Tensor k = randn({2, heads, 100, 32}), v = randn({2, heads, 100, 32});
  const Tensor q = randn({2, 6, 5, 32});
  for (const ScalarType type : {kFloat32, kBFloat16}) {
    Tensor key_pages = full({20, slots, heads, 32}, std::nan(""), type);
    Tensor value_pages = full({20, slots, heads, 32}, std::nan(""), type);
    Tensor table = full({2, 7}, -1, kInt32);
    const int64_t lengths[] = {100, 37};
    for (int64_t b = 0, next = 19; b < 2; ++b) {
      for (int64_t first = 0; first < lengths[b]; first += slots, next -= 2) {
        const int64_t n = std::min(slots, lengths[b] - first);
        table.select(0, b).select(0, first / slots).fill_(next);
        const auto put = [&](const Tensor& pages, const Tensor& x) {
          pages.select(0, next).narrow(0, 0, n).copy_(
              x.select(0, b).narrow(1, first, n).transpose(0, 1));
        };
        put(key_pages, k);
        put(value_pages, v);
      }
    }
    const Tensor counts = tensor({100, 37}).to(kInt32);
    const auto [out, sums] =
        attention_paged(q.to(type), key_pages, value_pages, table, counts, {}, 60, 0, 0, 0.25);
    for (int64_t b = 0; b < 2; ++b) {
      const auto one = [&](const Tensor& x, int64_t n) {
        return x.narrow(0, b, 1).narrow(2, 0, n).to(type);
      };
      const auto [expected, expected_sums, draw] =
          attention_forward(one(q, 5), one(k, lengths[b]), one(v, lengths[b]), {}, {}, 60, 0,
                            lengths[b] - 5, 0, 0.25, 0);
      EXPECT_TRUE(close(out.narrow(0, b, 1), expected, type == kFloat32 ? 1e-5 : 1e-2));
      EXPECT_TRUE(close(sums.narrow(0, b, 1), expected_sums));
    }
    table.select(0, 1).select(0, 2).fill_(20);
    EXPECT_THROW(
        attention_paged(q.to(type), key_pages, value_pages, table, counts, {}, -1, 0, 0, 0.25),
        Error);
  }
}

TEST(Attention, GradientsOfMasksEqualThoseInDouble) {
  const Tensor q = randn({2, 4, 150, 16}), k = randn({2, 2, 300, 16}), v = randn({2, 2, 300, 16});
  const Tensor grad = randn({2, 4, 150, 16});
  const int64_t shapes[][4] = {{2, 4, 150, 300}, {1, 1, 150, 300}, {2, 1, 150, 300},
                               {1, 4, 1, 300},   {2, 4, 150, 1},   {1, 1, 1, 1}};
  for (const auto& shape : shapes) {
    const Tensor mask = randn({shape[0], shape[1], shape[2], shape[3]});
    const auto gradient = [&](ScalarType type) {
      const auto [out, sums, draw] = attention_forward(q.to(type), k.to(type), v.to(type),
                                                       mask.to(type), {}, 90, -1, 10, 2, 0.25, 0);
      return std::get<3>(attention_backward(grad.to(type), {}, q.to(type), k.to(type), v.to(type),
                                            mask.to(type), {}, out, sums, draw, 90, -1, 10, 2, 0.25,
                                            0));
    };
    const Tensor found = gradient(kFloat32);
    EXPECT_EQ(found.sizes(), mask.sizes());
    EXPECT_TRUE(close(found, gradient(kFloat64), 1e-3)) << mask.sizes();
  }
}

// Odd widths, odd numbers of rows and keys, bands that begin anywhere, and operands whose rows
// begin at odd elements.
TEST(Attention, SixteenBitsAreCloseToDouble) {
  for (const ScalarType type : {kBFloat16, kFloat16}) {
    for (const int64_t width : {33, 64}) {
      const auto draw = [&](int64_t heads, int64_t rows) {
        const Tensor wide = randn({2, heads, rows, width + 3}).to(type);
        return width == 33 ? wide.narrow(3, 1, width) : wide.narrow(3, 0, width).contiguous();
      };
      const Tensor q = draw(4, 251), k = draw(2, 301), v = draw(2, 301), grad = draw(4, 251);
      for (const auto& [left, right, softcap, dropout] :
           {std::tuple{-1, -1, 0.0, 0.0}, {-1, 7, 0.0, 0.0}, {60, 11, 3.0, 0.1}}) {
        const auto results = [&, left = left, right = right, softcap = softcap,
                              dropout = dropout](ScalarType as) {
          const Tensor x = q.to(as), y = k.to(as), z = v.to(as);
          const auto [out, lse, draw] = attention_forward(x, y, z, {}, {}, left, right, 13, softcap,
                                                          0.3, dropout, Generator(7));
          const auto [dq, dk, dv, dm] =
              attention_backward(grad.to(as), {}, x, y, z, {}, {}, out, lse, draw, left, right, 13,
                                 softcap, 0.3, dropout);
          return std::vector<Tensor>{out, lse, dq, dk, dv};
        };
        const std::vector<Tensor> found = results(type), expected = results(kFloat64);
        const double unit = type == kBFloat16 ? 0x1p-8 : 0x1p-11;
        for (size_t i = 0; i < found.size(); ++i) {
          const double most = expected[i].abs().max().item<double>();
          EXPECT_TRUE(close(found[i], expected[i], 2 * unit * most)) << i << " width " << width;
        }
      }
    }
  }
}

TEST(Attention, PackedSequencesEqualSeparateOnes) {
  const int64_t offsets[] = {0, 70, 70, 71, 200};
  Tensor q = randn({200, 4, 16}).requires_grad_(), k = randn({200, 2, 16}).requires_grad_();
  Tensor v = randn({200, 2, 8}).requires_grad_();
  const Tensor cu = tensor({0, 70, 70, 71, 200}).to(kInt32);
  const Tensor grad = randn({200, 4, 8});
  const Tensor out =
      std::get<0>(attention_varlen_forward(q, k, v, cu, cu, 129, 129, {}, 40, 0, true, 0, 0.25));
  (out * grad).sum().backward();
  const Tensor found[] = {q.grad(), k.grad(), v.grad()};
  for (int64_t b = 0; b < 4; ++b) {
    const int64_t n = offsets[b + 1] - offsets[b];
    const auto one = [&](const Tensor& x) {
      return x.detach().narrow(0, offsets[b], n).transpose(0, 1).unsqueeze(0);
    };
    Tensor x[] = {one(q).requires_grad_(), one(k).requires_grad_(), one(v).requires_grad_()};
    const Tensor expected =
        std::get<0>(attention_forward(x[0], x[1], x[2], {}, {}, 40, 0, 0, 0, 0.25, 0));
    EXPECT_TRUE(n == 0 || close(one(out), expected));
    if (n == 0) continue;
    (expected * one(grad)).sum().backward();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(close(one(found[i]), x[i].grad()));
  }
}

TEST(Attention, HundredCallsGiveTheSameBits) {
  const Tensor q = randn({1, 1, 300, 16}), k = randn({1, 1, 520, 16}), v = randn({1, 1, 520, 16});
  const Tensor grad = randn({1, 1, 300, 16});
  const auto [out, lse, draw] = forward(q, k, v, 0.2, Generator(5));
  const auto [dq, dk, dv, dm] = backward(grad, q, k, v, out, lse, draw, 0.2);
  for (int i = 0; i < 100; ++i) {
    const auto [out2, lse2, draw2] = forward(q, k, v, 0.2, Generator(5));
    const auto [dq2, dk2, dv2, dm2] = backward(grad, q, k, v, out, lse, draw, 0.2);
    ASSERT_TRUE(same(out, out2) && same(lse, lse2) && same(draw, draw2)) << "call " << i;
    ASSERT_TRUE(same(dq, dq2) && same(dk, dk2) && same(dv, dv2)) << "call " << i;
  }
}

TEST(Attention, WithoutDropoutTheGeneratorCountsNoCall) {
  const Tensor x = randn({1, 2, 3, 8});
  const uint64_t before = default_generator().call();
  scaled_dot_product_attention(x, x, x);
  EXPECT_EQ(default_generator().call(), before);
  scaled_dot_product_attention(x, x, x, {}, 0.5);
  EXPECT_EQ(default_generator().call(), before + 1);
}

TEST(Attention, MemoryGrowsWithTheLengthAndNotItsSquare) {
  const Tensor x = randn({1, 1, 12288, 8});  // its scores would take 576 MiB
  const auto peak_kib = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before = peak_kib();
  const auto [out, lse, draw] = forward(x, x, x);
  backward(out, x, x, x, out, lse, draw);
  EXPECT_LT(peak_kib() - before, 100 * 1024);
}

}  // namespace
}  // namespace mytorch::nn
