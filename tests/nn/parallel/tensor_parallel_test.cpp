#include "mytorch/nn/parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using ranks::expect;
using ranks::expect_close;

Tensor wave(IntList sizes, double seed) {
  const Tensor x = mytorch::empty(sizes);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = static_cast<float>(std::sin(seed + 0.7 * static_cast<double>(i)));
  }
  return x;
}

// This rank's part of a tensor.
Tensor part(const Tensor& x, int64_t dim, const distributed::Group& g) {
  const int64_t n = x.size(dim) / g.size();
  return x.narrow(dim, g.rank() * n, n);
}

constexpr int64_t kSequence = 8, kWidth = 12, kHidden = 24, kVocabulary = 22;

// Embedding, norm, MLP, and a head that is split over the vocabulary, on one rank.
struct Whole {
  Embedding embedding{kVocabulary, kWidth};
  LayerNorm norm{kWidth};
  Linear up{kWidth, kHidden}, down{kHidden, kWidth}, head{kWidth, 24};
  Whole() {
    double seed = 0;
    for (Module* module : std::initializer_list<Module*>{&embedding, &norm, &up, &down, &head}) {
      ranks::set_parameters(*module, seed += 3);
    }
  }
  Tensor loss(const Tensor& indices, const Tensor& target) {
    const Tensor x = embedding(indices);
    const Tensor y = head(x + down(gelu(up(norm(x)))));
    return cross_entropy(y.reshape({-1, 24}), target.reshape({-1}));
  }
};

// Indices and targets, (sequence, batch) or (batch, sequence).
Tensor indices_of(int64_t dim, int64_t step) {
  const Tensor x = mytorch::empty({kSequence, 3}, kInt64);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int64_t>()[i] = (i * 5 + step) % kVocabulary;
  return dim == 0 ? x : x.t().contiguous();
}

class TensorParallel : public ::testing::TestWithParam<std::tuple<int, bool, int64_t>> {};
TEST_P(TensorParallel, HasTheLossAndGradientsOfOneRank) {
  const auto& [ranks, sequence, dim] = GetParam();
  Whole one;
  const Tensor indices = indices_of(dim, 0), target = indices_of(dim, 1);
  const Tensor loss = one.loss(indices, target);
  loss.backward();
  distributed::run_local(ranks, [&, sequence = sequence, dim = dim](const distributed::Group& g) {
    Whole whole;
    const VocabParallelArgs vocabulary{
        .sequence_parallel = sequence, .sequence_dim = dim, .group = g};
    const ColumnParallelArgs column{.sequence_parallel = sequence, .sequence_dim = dim, .group = g};
    const RowParallelArgs row{.sequence_parallel = sequence, .sequence_dim = dim, .group = g};
    VocabParallelEmbedding embedding(whole.embedding, vocabulary);
    ColumnParallelLinear up(whole.up, column), head(whole.head, column);
    RowParallelLinear down(whole.down, row);
    if (sequence) sum_gradients_of_ranks(whole.norm, g);
    const Tensor x = embedding(indices);
    expect(x.size(dim) == (sequence ? kSequence / g.size() : kSequence), "the layout is wrong");
    const Tensor y = head(x + down(gelu(up(whole.norm(x)))));
    expect(y.size(-1) == 24 / g.size() && y.size(dim) == kSequence, "the logits are not split");
    const Tensor found =
        vocab_parallel_cross_entropy(y.reshape({-1, 24 / g.size()}), target.reshape({-1}), g);
    expect_close(found.item<double>(), loss.item<double>(), 1e-6, "loss");
    found.backward();
    expect_close(up.weight.grad(), part(one.up.weight.grad(), 0, g), 1e-5, "up.weight");
    expect_close(up.bias.grad(), part(one.up.bias.grad(), 0, g), 1e-5, "up.bias");
    expect_close(down.weight.grad(), part(one.down.weight.grad(), 1, g), 1e-5, "down.weight");
    expect_close(down.bias.grad(), one.down.bias.grad(), 1e-5, "down.bias");
    expect_close(head.weight.grad(), part(one.head.weight.grad(), 0, g), 1e-5, "head.weight");
    expect_close(whole.norm.weight.grad(), one.norm.weight.grad(), 1e-5, "norm.weight");
    const int64_t rows = (kVocabulary + g.size() - 1) / g.size();
    const int64_t mine = std::min(rows, kVocabulary - g.rank() * rows);
    expect(embedding.weight.size(0) == rows, "the embedding has another number of rows");
    expect_close(embedding.weight.grad().narrow(0, 0, mine),
                 one.embedding.weight.grad().narrow(0, g.rank() * rows, mine), 1e-5, "embedding");
  });
}
INSTANTIATE_TEST_SUITE_P(Layouts, TensorParallel,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool(),
                                            ::testing::Values<int64_t>(0, 1)));

TEST(TensorParallelLayouts, CompiledWithBreaksOrRefused) {
  distributed::run_local(2, [](const distributed::Group& g) {
    Whole whole;
    ColumnParallelLinear up(whole.up, {.group = g});
    RowParallelLinear down(whole.down, {.group = g});
    const auto step = [&](const Tensor& x) {
      up.zero_grad();
      down.zero_grad();
      const Tensor loss = down(gelu(up(x))).pow(2).mean();
      loss.backward();
      return std::vector<Tensor>{loss.detach(), up.weight.grad().clone(),
                                 down.weight.grad().clone()};
    };
    auto refused = mytorch::compile(step);
    ranks::expect_error([&] { refused(wave({5, kWidth}, 0)); }, "Group::all_reduce() communicates");
    auto compiled = mytorch::compile(step, {.allow_breaks = true});
    for (int call = 0; call < 4; ++call) {
      const Tensor x = wave({5, kWidth}, call);
      const std::vector<Tensor> found = compiled(x), expected = step(x);
      for (size_t i = 0; i < expected.size(); ++i) {
        expect_close(found[i], expected[i], 1e-6, "call " + std::to_string(call));
      }
    }
    expect(compiled.stats().replayed_segments > 0, "nothing was replayed");
  });
}

TEST(TensorParallelLayouts, InputsAndOutputsThatAreNotSplit) {
  Linear up(kWidth, kHidden), down(kHidden, kWidth);
  ranks::set_parameters(up, 1);
  ranks::set_parameters(down, 2);
  const Tensor x = wave({5, kWidth}, 0).requires_grad_();
  const Tensor y = down(tanh(up(x)));
  const Tensor weights = wave({5, kWidth}, 3);
  (y * weights).sum().backward();
  distributed::run_local(3, [&](const distributed::Group& g) {
    ColumnParallelLinear first(up, {.gather_output = true, .group = g});
    RowParallelLinear second(down, {.input_is_parallel = false, .group = g});
    const Tensor mine = x.detach().clone().requires_grad_();
    const Tensor h = first(mine);
    expect(h.size(-1) == kHidden, "the output is not gathered");
    const Tensor found = second(tanh(h));
    expect_close(found, y, 1e-6, "result");
    (found * weights).sum().backward();
    expect_close(mine.grad(), x.grad(), 1e-5, "the input's gradient");
    expect_close(first.weight.grad(), part(up.weight.grad(), 0, g), 1e-5, "up.weight");
    expect_close(second.weight.grad(), part(down.weight.grad(), 1, g), 1e-5, "down.weight");
  });
}

TEST(TensorParallelLayouts, OnlyNeededGradientsAreComputed) {
  distributed::run_local(2, [](const distributed::Group& g) {
    ColumnParallelLinear up(kWidth, kHidden, {.bias = false, .group = g});
    const Tensor x = wave({5, kWidth}, 0);
    up(x).sum().backward();  // no gradient of the input
    expect(up.weight.grad().defined() && !up.bias.defined(), "the weight has no gradient");
    up.weight.requires_grad_(false);
    const Tensor y = x.clone().requires_grad_();
    up(y).sum().backward();
    const Tensor sum = up.weight.detach().sum(0).clone();
    g.all_reduce(sum);
    expect_close(y.grad()[0], sum, 1e-5, "the input's gradient");
  });
}

TEST(TensorParallelLayouts, InitializedAsOneRank) {
  Tensor expected;
  {
    manual_seed(7);
    expected = Linear(kWidth, kHidden).weight.detach();
  }
  // One thread after the other: they share the default generator.
  distributed::run_local(2, [&](const distributed::Group& g) {
    for (int turn = 0; turn < 2; ++turn) {
      if (turn == g.rank()) {
        manual_seed(7);
        ColumnParallelLinear up(kWidth, kHidden, {.group = g});
        expect_close(up.weight, part(expected, 0, g), 0, "weight");
      }
      g.barrier();
    }
  });
}

TEST(TensorParallelLayouts, RefusesWhatCannotBeSplit) {
  distributed::run_local(2, [](const distributed::Group& g) {
    ranks::expect_error([&] { ColumnParallelLinear(4, 5, {.group = g}); }, "multiple");
    ranks::expect_error([&] { RowParallelLinear(5, 4, {.group = g}); }, "multiple");
    ranks::expect_error([&] { part_of_rank(wave({3, 2}, 0), 0, g); }, "multiple");
    VocabParallelEmbedding embedding(5, 4, {.group = g});
    ranks::expect_error([&] { embedding(mytorch::full({2}, 5, kInt64)); }, "5");
    g.barrier();
  });
}

}  // namespace
}  // namespace mytorch::nn
