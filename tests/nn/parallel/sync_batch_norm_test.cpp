#include "mytorch/nn/parallel/sync_batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "mytorch/compile.h"
#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using ranks::expect;
using ranks::expect_close;
using ranks::expect_error;

constexpr int64_t kChannels = 3;

// (7, 3, 2, 2); the means of channels lie far from zero.
Tensor whole_batch(double step) {
  const Tensor x = mytorch::empty({7, kChannels, 2, 2}, kFloat64);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<double>(i);
    x.data<double>()[i] = std::sin(step + 1.3 * at) * (1 + at / 50) + 20 * ((i / 4) % kChannels);
  }
  return x;
}
Tensor coefficients(const Tensor& like) {
  const Tensor c = mytorch::empty(like.sizes(), kFloat64);
  for (int64_t i = 0; i < c.numel(); ++i) {
    c.data<double>()[i] = std::cos(0.7 * static_cast<double>(i * i));
  }
  return c;
}
void set_affine(BatchNorm& norm) {
  const NoGradGuard no_grad;
  if (!norm.weight.defined()) return;
  for (int64_t c = 0; c < norm.weight.numel(); ++c) {
    norm.weight.data<double>()[c] = 0.5 + static_cast<double>(c);
    norm.bias.data<double>()[c] = 1 - static_cast<double>(c);
  }
}

Tensor train(Module& norm, const Tensor& x, const Tensor& c) {
  const Tensor y = norm(x);
  (y * y * c).sum().backward();
  return y;
}

struct Case {
  std::vector<int64_t> sizes;  // of the ranks' batches
  SyncBatchNormArgs options;
};

class SyncedNorm : public ::testing::TestWithParam<Case> {};
TEST_P(SyncedNorm, IsThatOfOneProcessWithTheWholeBatch) {
  const auto& [sizes, options] = GetParam();
  BatchNorm2d one(kChannels, {.eps = options.eps,
                              .momentum = options.momentum,
                              .affine = options.affine,
                              .track_running_stats = options.track_running_stats});
  one.to(kFloat64);
  set_affine(one);
  std::vector<Tensor> xs, ys;
  for (int step = 0; step < 2; ++step) {
    xs.push_back(whole_batch(step).requires_grad_());
    ys.push_back(train(one, xs.back(), coefficients(xs.back())));
  }
  one.eval();
  const Tensor evaluated = one(xs[0]);

  distributed::run_local(static_cast<int>(sizes.size()), [&, sizes = sizes, options = options](
                                                             const distributed::Group& world) {
    SyncBatchNorm norm(kChannels, options);
    norm.to(kFloat64);
    set_affine(norm);
    const auto rank = static_cast<std::ptrdiff_t>(world.rank());
    const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});
    const int64_t size = sizes[static_cast<size_t>(rank)];
    const auto mine = [&](const Tensor& all) { return all.detach().narrow(0, begin, size); };
    for (size_t step = 0; step < 2; ++step) {
      const Tensor x = mine(xs[step]).clone().requires_grad_();
      const Tensor y = train(norm, x, mine(coefficients(xs[step])));
      expect_close(y, mine(ys[step]), 1e-10, "result");
      expect_close(x.grad(), mine(xs[step].grad()), 1e-10, "gradient of the input");
    }
    for (const auto& [name, parameter] : norm.named_parameters()) {
      const Tensor sum = parameter.grad().clone();
      world.all_reduce(sum);
      expect_close(sum, (name == "weight" ? one.weight : one.bias).grad(), 1e-10, name);
    }
    if (options.track_running_stats) {
      expect_close(norm.running_mean, one.running_mean, 1e-10, "running mean");
      expect_close(norm.running_var, one.running_var, 1e-10, "running variance");
      expect(norm.num_batches_tracked.item<int64_t>() == 2, "counts batches");
    }
    norm.eval();
    const uint64_t calls = world.sequence();
    const Tensor y = norm(mine(xs[0]));
    // Without running statistics, a rank's are those of its own batch.
    if (options.track_running_stats) expect_close(y, mine(evaluated), 1e-10, "evaluation");
    expect(world.sequence() == calls, "evaluation communicates");
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, SyncedNorm,
                         ::testing::Values(Case{{4, 3}, {}}, Case{{6, 1}, {.momentum = 0.3}},
                                           Case{{7, 0}, {.eps = 1e-3}},
                                           Case{{0, 2, 5}, {.momentum = std::nullopt}},
                                           Case{{3, 3, 1}, {.affine = false}},
                                           Case{{2, 4, 1}, {.track_running_stats = false}}));

TEST(SyncBatchNorm, AloneIsABatchNorm) {
  BatchNorm2d norm(kChannels);
  SyncBatchNorm synced(kChannels);
  norm.to(kFloat64);
  synced.to(kFloat64);
  const Tensor x = whole_batch(0).requires_grad_(), z = whole_batch(0).requires_grad_();
  EXPECT_TRUE(equal(train(norm, x, coefficients(x)), train(synced, z, coefficients(z))));
  EXPECT_TRUE(equal(x.grad(), z.grad()));
  EXPECT_TRUE(equal(norm.running_var, synced.running_var));
  expect_error(
      [&] {
        synced(mytorch::ones({1, kChannels, 1, 1}, kFloat64));
      },
      "one value per channel");
  expect_error([&] { synced(mytorch::ones({kChannels}, kFloat64)); },
               "does not have 2 or more dimensions with 3 channels");
}

TEST(SyncBatchNorm, NeedsTwoValuesOverAllRanks) {
  distributed::run_local(2, [](const distributed::Group& world) {
    SyncBatchNorm norm(2);
    const Tensor y = norm(mytorch::full({1, 2}, static_cast<double>(world.rank())));
    expect_close(y, mytorch::full({1, 2}, world.rank() == 0 ? -1.0 : 1.0), 1e-4, "one value each");
    expect_error([&] { norm(mytorch::ones({world.rank(), 2})); }, "one value per channel");
    const Tensor before = norm.running_var.clone();
    expect(norm(mytorch::ones({0, 2})).numel() == 0, "nothing of nothing");
    expect_close(norm.running_var, before, 0, "no statistics of nothing");
  });
}

TEST(SyncBatchNorm, ComputesHalfTypesInFloat32) {
  distributed::run_local(2, [](const distributed::Group& world) {
    BatchNorm2d one(kChannels);
    SyncBatchNorm norm(kChannels);
    const Tensor all = whole_batch(0).to(kBFloat16);
    const Tensor x = all.narrow(0, 3 * world.rank(), 3 + world.rank()).detach().requires_grad_();
    const Tensor z = all.to(kFloat32).requires_grad_();
    const Tensor c = coefficients(all).to(kFloat32);
    const auto mine = [&](const Tensor& t) { return t.narrow(0, 3 * world.rank(), x.size(0)); };
    const Tensor y = norm(x);
    expect(y.dtype() == kBFloat16, "the input's type");
    expect_close(y, mine(train(one, z, c)), 1.0 / 256, "result");
    expect_close(norm.running_var, one.running_var, 1e-5, "running variance");
    (y.to(kFloat32) * y.to(kFloat32) * mine(c)).sum().backward();
    expect_close(x.grad(), mine(z.grad()), 1.0 / 32, "gradient of the input");
  });
}

TEST(SyncBatchNorm, CompilesToTheSame) {
  distributed::run_local(2, [](const distributed::Group& world) {
    const SyncBatchNormArgs cumulative{.momentum = std::nullopt};
    SyncBatchNorm norm(kChannels, cumulative), other(kChannels, cumulative);
    const auto step_of = [](SyncBatchNorm& of) {
      return [&of](const Tensor& x, const Tensor& c) {
        const Tensor y = of(x);
        const Tensor loss = (y * y * c).sum();
        return autograd::grad({loss}, {x, of.weight});
      };
    };
    auto compiled = compile(step_of(norm));
    const auto plain = step_of(other);
    for (int step = 0; step < 5; ++step) {
      const Tensor x = whole_batch(step + 0.3 * world.rank()).to(kFloat32).requires_grad_();
      const Tensor c = coefficients(x).to(kFloat32);
      const std::vector<Tensor> found = compiled(x, c), expected = plain(x, c);
      expect_close(found[0], expected[0], 1e-4, "gradient of the input");
      expect_close(found[1], expected[1], 1e-4, "gradient of the weight");
      expect_close(norm.running_var, other.running_var, 1e-5, "running variance");
    }
    expect(compiled.stats().replayed > 0, "replays");
  });
}

struct NormedNet : Module {
  Conv2d conv{2, 4, 3};
  BatchNorm2d norm{4, {.eps = 1e-3}};
  Sequential rest{Flatten(), BatchNorm1d(4 * 4), Linear(16, 2)};
  LazyBatchNorm1d lazy;
  NormedNet() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("rest", rest);
    register_module("lazy", lazy);
  }
  Tensor forward(const Tensor& x) override { return lazy(rest(relu(norm(conv(x))))); }
};

TEST(SyncBatchNorm, ConvertsTheNormsOfAModule) {
  NormedNet one;
  const Tensor x = mytorch::randn({6, 2, 4, 4});
  one.eval();
  one(x);  // the lazy norm takes its sizes
  one.train();
  NormedNet shared = clone(one);
  const TensorMap state = shared.state_dict();
  const Tensor expected = one(x);
  distributed::run_local(2, [&](const distributed::Group& world) {
    NormedNet net = clone(shared);
    const Tensor weight = net.norm.weight;
    SyncBatchNorm::convert_sync_batchnorm(net);
    expect(net.norm.weight.is_same(weight), "the parameters are the same");
    expect_close(net(x.narrow(0, 4 * world.rank(), 4 - 2 * world.rank())),
                 expected.detach().narrow(0, 4 * world.rank(), 4 - 2 * world.rank()), 1e-5,
                 "result");
    expect_close(net.norm.running_var, one.norm.running_var, 1e-5, "running variance");
    const std::string text = net.str();
    expect(text.find("BatchNorm1d") == std::string::npos &&
               text.find("SyncBatchNorm(4, eps=0.001") != std::string::npos,
           text);
    expect(net.state_dict().size() == state.size(), "the names stay");

    NormedNet fresh;  // with a norm that is lazy yet
    SyncBatchNorm::convert_sync_batchnorm(fresh, world);
    expect(fresh.str().find("LazySyncBatchNorm(") != std::string::npos, fresh.str());
    fresh(x);
    expect(fresh.lazy.describe().find("SyncBatchNorm(2, ") == 0, fresh.lazy.describe());
    expect(clone(fresh).norm.describe().find("SyncBatchNorm(") == 0, "a clone stays converted");
  });
}

}  // namespace
}  // namespace mytorch::nn
