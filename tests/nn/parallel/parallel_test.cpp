#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <set>

#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "mytorch/nn/parallel/distributed_sampler.h"

namespace mytorch::nn {
namespace {

struct Net : Module {
  Linear hidden{6, 16};
  Linear middle{16, 16};
  Linear output{16, 3};
  Net() {
    register_module("hidden", hidden);
    register_module("middle", middle);
    register_module("output", output);
  }
  Tensor forward(const Tensor& x) override { return output(relu(middle(tanh(hidden(x))))); }
};

// The parameters do not depend on the generator, which threads share.
void set_parameters(Module& net, double seed) {
  const NoGradGuard no_grad;
  for (const Tensor& p : net.parameters()) {
    for (int64_t i = 0; i < p.numel(); ++i) {
      p.data<float>()[i] = static_cast<float>(0.4 * std::sin(seed + 1.7 * static_cast<double>(i)));
    }
    seed += 1;
  }
}

struct Data {
  Tensor x, y;
};
Data batch(int64_t step, int64_t begin, int64_t size) {
  const Tensor x = mytorch::empty({size, 6}), y = mytorch::empty({size}, kInt64);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t k = 0; k < 6; ++k) {
      x.data<float>()[i * 6 + k] =
          static_cast<float>(std::cos(static_cast<double>(step * 31 + (begin + i) * 7 + k * k)));
    }
    y.data<int64_t>()[i] = (begin + i + step) % 3;
  }
  return {x, y};
}

constexpr int64_t kBatch = 24;
constexpr int kSteps = 12;

std::vector<double> losses_of_one() {
  Net net;
  set_parameters(net, 0);
  optim::SGD optimizer(net.parameters(), optim::SGDOptions(0.2).momentum(0.9));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const Data data = batch(step, 0, kBatch);
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(net(data.x), data.y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

class DataParallel : public testing::TestWithParam<std::tuple<int, int64_t>> {};
TEST_P(DataParallel, HasTheLossesOfOneProcess) {
  const auto& [ranks, bucket] = GetParam();
  const std::vector<double> expected = losses_of_one();
  distributed::run_local(
      ranks, [&, ranks = ranks, bucket = bucket](const distributed::Group& world) {
        Net net;
        set_parameters(net, world.rank());  // rank 0's are broadcast
        DistributedDataParallel parallel(
            net, {.bucket_bytes = bucket, .first_bucket_bytes = std::max<int64_t>(bucket / 4, 1)});
        optim::SGD optimizer(net.parameters(), optim::SGDOptions(0.2).momentum(0.9));
        const int64_t size = kBatch / ranks;
        for (int step = 0; step < kSteps; ++step) {
          const Data data = batch(step, world.rank() * size, size);
          optimizer.zero_grad();
          const Tensor loss = cross_entropy(parallel(data.x), data.y);
          loss.backward();
          optimizer.step();
          const Tensor mean = loss.detach().clone();
          world.all_reduce(mean, {distributed::ReduceOp::kAverage});
          const double found = mean.item<double>();
          if (std::abs(found - expected[static_cast<size_t>(step)]) > 1e-5) {
            throw Error(ErrorCode::kInternal,
                        "step " + std::to_string(step) + ": loss " + std::to_string(found) +
                            ", expected " + std::to_string(expected[static_cast<size_t>(step)]));
          }
        }
        if (bucket < 100 && parallel.num_buckets() < 6) {
          throw Error(ErrorCode::kInternal, "there should be a bucket for each parameter");
        }
      });
}
INSTANTIATE_TEST_SUITE_P(Ranks, DataParallel,
                         testing::Combine(testing::Values(1, 2, 4),
                                          testing::Values<int64_t>(16, 600, 1 << 20)));

TEST(NoSync, ReducesTheSumOfGradients) {
  distributed::run_local(2, [](const distributed::Group& world) {
    Net net;
    set_parameters(net, 0);
    DistributedDataParallel parallel(net);
    const auto backward = [&](int64_t step) {
      const Data data = batch(step, world.rank() * 4, 4);
      cross_entropy(parallel(data.x), data.y).backward();
    };
    {
      const auto guard = parallel.no_sync();
      backward(0);
      backward(1);
    }
    backward(2);
    // By hand, on one rank.
    Net one;
    set_parameters(one, 0);
    for (int rank = 0; rank < 2; ++rank) {
      for (int64_t step = 0; step < 3; ++step) {
        const Data data = batch(step, rank * 4, 4);
        (cross_entropy(one(data.x), data.y) / 2).backward();
      }
    }
    for (size_t i = 0; i < net.parameters().size(); ++i) {
      const Tensor difference = net.parameters()[i].grad() - one.parameters()[i].grad();
      if (difference.abs().max().item<double>() > 1e-6) {
        throw Error(ErrorCode::kInternal, "parameter " + std::to_string(i) + " differs");
      }
    }
  });
}

TEST(DistributedDataParallel, NamesParametersWithoutAGradient) {
  distributed::run_local(2, [](const distributed::Group&) {
    Net net;
    DistributedDataParallel parallel(net);
    net.hidden(mytorch::ones({2, 6})).sum().backward();
    try {
      parallel(mytorch::ones({2, 6}));
    } catch (const Error& error) {
      if (std::string(error.what())
              .find("no gradient to middle.weight, middle.bias, output.weight") !=
          std::string::npos) {
        return;
      }
      throw;
    }
    throw Error(ErrorCode::kInternal, "no error");
  });
}

TEST(DistributedSampler, DealsEveryIndex) {
  for (const bool drop_last : {false, true}) {
    std::multiset<int64_t> dealt;
    for (int rank = 0; rank < 3; ++rank) {
      const data::DistributedSampler sampler(std::make_shared<data::RandomSampler>(10, 5), 3, rank,
                                             drop_last);
      const std::vector<int64_t> indices = sampler.indices(2);
      EXPECT_EQ(sampler.size(), drop_last ? 3 : 4);
      EXPECT_EQ(static_cast<int64_t>(indices.size()), sampler.size());
      dealt.insert(indices.begin(), indices.end());
    }
    const std::set<int64_t> different(dealt.begin(), dealt.end());
    EXPECT_EQ(different.size(), drop_last ? 9u : 10u);
    EXPECT_EQ(dealt.size(), drop_last ? 9u : 12u);
  }
  const data::DistributedSampler none(std::make_shared<data::SequentialSampler>(0), 2, 1);
  EXPECT_TRUE(none.indices(0).empty());
  EXPECT_THROW(data::DistributedSampler(std::make_shared<data::SequentialSampler>(3), 2, 2), Error);
}

}  // namespace
}  // namespace mytorch::nn
