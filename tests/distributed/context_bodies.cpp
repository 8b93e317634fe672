// Attention over a sequence that is split over the ranks, against that of one rank.
#include <cmath>

#include "mytorch/distributed/attention.h"
#include "mytorch/mytorch.h"
#include "tests/distributed/bodies.h"

namespace mytorch::distributed::bodies {
namespace {

Tensor wave(IntList sizes, double seed, ScalarType dtype) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  const Tensor x = mytorch::empty({n}, kFloat64);
  for (int64_t i = 0; i < n; ++i) {
    x.data<double>()[i] = 2 * std::sin(seed + 0.37 * static_cast<double>(i * (i % 11 + 1)));
  }
  return x.reshape(sizes).to(dtype).to(here);
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance,
                 const std::string& what) {
  expect(found.defined() && found.sizes() == expected.sizes(), what + ": wrong shape");
  expect(found.dtype() == expected.dtype(), what + ": wrong type");
  const Tensor a = found.detach().to(kFloat64), b = expected.detach().to(kFloat64);
  const double far = (a - b).abs().max().item<double>();
  expect(far <= tolerance * (1 + b.abs().max().item<double>()),
         what + ": differs by " + std::to_string(far));
}

using Attention = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Group&,
                             const ContextAttentionOptions&);

struct Case {
  int64_t heads, key_heads, queries, keys;
  ScalarType dtype;
  ContextAttentionOptions options;
};

void compare(const Group& g, Attention attention, const Case& c, const std::string& what) {
  const int64_t n = g.size(), width = 8, value_width = 16;
  // In bfloat16 the inputs are the same, and one rank computes in float64.
  const Tensor q = wave({2, c.heads, c.queries * n, width}, 1, c.dtype);
  const Tensor k = wave({2, c.key_heads, c.keys * n, width}, 2, c.dtype);
  const Tensor v = wave({2, c.key_heads, c.keys * n, value_width}, 3, c.dtype);
  const Tensor weights = wave({2, c.heads, c.queries * n, value_width}, 4, c.dtype);
  const bool half = c.dtype == kBFloat16;
  const double tolerance = half ? 0.02 : c.dtype == kFloat64 ? 1e-12 : 3e-6;

  std::vector<Tensor> whole;
  for (const Tensor& x : {q, k, v}) whole.push_back(x.to(kFloat64).detach().requires_grad_());
  const double scale = c.options.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
  const auto [expected, logsumexp, draw] =
      mytorch::attention_forward(whole[0], whole[1], whole[2], {}, {}, -1,
                                 c.options.is_causal ? 0 : -1, 0, c.options.softcap, scale, 0.0);
  (expected * weights.to(kFloat64)).sum().backward();

  const SequenceSplit split = c.options.split;
  const auto part = [&](const Tensor& x) { return split_sequence(x, 2, g, split); };
  std::vector<Tensor> mine;
  for (const Tensor& x : {q, k, v}) mine.push_back(part(x).detach().clone().requires_grad_());
  // Ranks attend different numbers of times, but draw the same numbers afterwards.
  const Generator numbers(1);
  const uint64_t calls = numbers.call();
  Tensor y;
  {
    const GeneratorGuard guard(numbers);
    y = attention(mine[0], mine[1], mine[2], g, c.options);
  }
  expect(numbers.call() == calls, what + ": draws random numbers");
  expect_near(y, part(expected.to(c.dtype)), tolerance, what + ", output");
  (y * part(weights)).sum().backward();
  const char* names[] = {"query", "key", "value"};
  for (size_t i = 0; i < 3; ++i) {
    expect_near(mine[i].grad(), part(whole[i].grad().to(c.dtype)), tolerance,
                what + ", gradient of " + names[i]);
  }
}

void ring(const Group& g) {
  for (const ScalarType dtype : {kFloat64, kFloat32, kBFloat16}) {
    for (const auto& [heads, key_heads] : {std::pair{4, 4}, std::pair{4, 2}, std::pair{3, 1}}) {
      for (const SequenceSplit split : {SequenceSplit::kZigzag, SequenceSplit::kContiguous}) {
        const std::string what = std::string(dtype_name(dtype)) + ", " + std::to_string(key_heads) +
                                 " heads of keys, " +
                                 (split == SequenceSplit::kZigzag ? "zigzag" : "contiguous");
        compare(g, &ring_attention,
                {heads, key_heads, 6, 6, dtype, {.is_causal = true, .split = split}},
                "causal ring, " + what);
        compare(g, &ring_attention, {heads, key_heads, 6, 6, dtype, {.split = split}},
                "full ring, " + what);
      }
    }
  }
  compare(g, &ring_attention, {2, 2, 4, 10, kFloat64, {.scale = 0.3, .softcap = 2.0}},
          "other keys, with softcap");
  compare(g, &ring_attention,
          {2, 1, 5, 5, kFloat64, {.is_causal = true, .split = SequenceSplit::kContiguous}},
          "an odd length, contiguous");
}

void ulysses(const Group& g) {
  const int64_t n = g.size();
  for (const ScalarType dtype : {kFloat64, kFloat32, kBFloat16}) {
    for (const int64_t key_heads : {2 * n, n, int64_t{1}}) {
      for (const SequenceSplit split : {SequenceSplit::kZigzag, SequenceSplit::kContiguous}) {
        const std::string what =
            std::string(dtype_name(dtype)) + ", " + std::to_string(key_heads) + " heads of keys";
        compare(g, &ulysses_attention,
                {2 * n, key_heads, 6, 6, dtype, {.is_causal = true, .split = split}},
                "causal all-to-all, " + what);
        compare(g, &ulysses_attention, {2 * n, key_heads, 6, 4, dtype, {.split = split}},
                "full all-to-all, " + what);
      }
    }
  }
}

void sequences(const Group& g) {
  const int64_t n = g.size();
  for (const SequenceSplit split : {SequenceSplit::kZigzag, SequenceSplit::kContiguous}) {
    const Tensor x = wave({3, 4 * n, 2}, 0, kFloat64).requires_grad_();
    const Tensor mine = split_sequence(x, -2, g, split);
    const Tensor positions = sequence_positions(4, g, split, here);
    expect_near(mine, x.index_select(1, positions), 0, "positions");
    expect_near(join_sequence(mine, 1, g, split), x, 0, "joined");
    // Every rank weighs the whole sequence; a token's gradient is the sum over the ranks.
    const Tensor weights = wave({3, 4 * n, 2}, 5, kFloat64);
    (join_sequence(mine, 1, g, split) * weights).sum().backward();
    const Tensor expected = mytorch::zeros({3, 4 * n, 2}, kFloat64, here);
    expected.index_add_(1, positions, weights.index_select(1, positions), static_cast<double>(n));
    expect_near(x.grad(), expected, 1e-12, "gradient of a part");
  }
  // Of 2 pieces for each of n ranks, rank r has the r-th and the r-th from the end.
  const Tensor zigzag = sequence_positions(2, g, SequenceSplit::kZigzag);
  expect(zigzag[0].item<int64_t>() == g.rank() && zigzag[1].item<int64_t>() == 2 * n - 1 - g.rank(),
         "zigzag");
}

void refuse_lengths(const Group& g) {
  const auto x = [&](int64_t heads, int64_t length) {
    return mytorch::zeros({1, heads, length, 4}, kFloat32, here);
  };
  expect_error([&] { split_sequence(x(1, 2 * g.size() + 1), 2, g); },
               "pad it to " + std::to_string(4 * g.size()));
  expect_error([&] { ring_attention(x(1, 3), x(1, 3), x(1, 3), g, {.is_causal = true}); },
               "pad it to 4");
  expect_error([&] { ring_attention(x(1, 4), x(1, 2), x(1, 2), g, {.is_causal = true}); },
               "of the same tokens");
  expect_error([&] { ring_attention(x(1, 2), x(1, 0), x(1, 0), g); }, "at least one key");
  expect_error([&] { ulysses_attention(x(g.size(), 3), x(1, 3), x(1, 3), g, {.is_causal = true}); },
               "pad it to 4");
  expect_error([&] { ulysses_attention(x(0, 2), x(1, 2), x(1, 2), g); }, "multiple of the ranks");
  if (g.size() > 1) {
    expect_error([&] { ulysses_attention(x(g.size() + 1, 2), x(1, 2), x(1, 2), g); },
                 "ring_attention takes any");
  }
  g.barrier();  // and go on
}

}  // namespace

std::vector<Body> context_bodies() {
  return {{"AttendInARing", ring},
          {"AttendByHeads", ulysses},
          {"SplitSequences", sequences},
          {"RefuseLengths", refuse_lengths}};
}

}  // namespace mytorch::distributed::bodies
