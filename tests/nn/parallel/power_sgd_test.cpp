#include "mytorch/nn/parallel/power_sgd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using ranks::expect;
using ranks::expect_close;
using ranks::expect_error;

const std::vector<std::vector<int64_t>> kShapes = {{6, 4}, {5}, {3, 2, 2}, {2, 7}, {}};

// The values of rank `rank` in step `step`, as one vector.
Tensor values(int64_t numel, int rank, int64_t step = 0) {
  const Tensor x = mytorch::empty({numel}, kFloat64);
  for (int64_t i = 0; i < numel; ++i) {
    const auto at = static_cast<double>(i * i + 5 * i * (rank + 1) + 3 * step);
    x.data<double>()[i] = std::sin(0.1 + 0.37 * at) + 0.2 * std::cos(at);
  }
  return x;
}

// A bucket of gradients with the given shapes, all zeros.
GradBucket make_bucket(const std::vector<std::vector<int64_t>>& shapes,
                       ScalarType dtype = kFloat32) {
  GradBucket bucket;
  int64_t numel = 0;
  for (const auto& shape : shapes) {
    bucket.parameters.push_back(mytorch::zeros(shape, dtype));
    numel += bucket.parameters.back().numel();
  }
  bucket.memory = mytorch::zeros({numel}, dtype);
  int64_t at = 0;
  for (const Tensor& p : bucket.parameters) {
    bucket.gradients.push_back(bucket.memory.narrow(0, at, p.numel()).view(p.sizes()));
    at += p.numel();
  }
  return bucket;
}

// Reduces what `mine` holds to its mean, and returns the result.
Tensor reduce(const PowerSGD& hook, const distributed::Group& world, const GradBucket& bucket,
              const Tensor& mine) {
  bucket.memory.copy_(mine);
  hook(world, bucket, 1.0 / world.size())();
  return bucket.memory.clone();
}

class PowerSGDTypes : public ::testing::TestWithParam<ScalarType> {};
TEST_P(PowerSGDTypes, AFullRankGivesTheMean) {
  const ScalarType dtype = GetParam();
  const double tolerance = dtype == kFloat64 ? 1e-12 : dtype == kFloat32 ? 1e-5 : 1.0 / 64;
  distributed::run_local(3, [&](const distributed::Group& world) {
    const PowerSGD hook(
        {.matrix_approximation_rank = 7, .start_powerSGD_iter = 0, .min_compression_rate = 0});
    const GradBucket bucket = make_bucket(kShapes, dtype);
    for (int64_t step = 0; step < 3; ++step) {
      const int64_t n = bucket.memory.numel();
      const Tensor mean = (values(n, 0, step) + values(n, 1, step) + values(n, 2, step)) / 3;
      const Tensor found = reduce(hook, world, bucket, values(n, world.rank(), step));
      expect_close(found, mean, tolerance, "step " + std::to_string(step));
    }
    // A gradient of zeros, and one whose columns depend on each other.
    const Tensor zero = mytorch::zeros({bucket.memory.numel()});
    const PowerSGD fresh(
        {.matrix_approximation_rank = 4, .start_powerSGD_iter = 0, .min_compression_rate = 0});
    expect_close(reduce(fresh, world, bucket, zero), zero, 0, "zeros");
    expect_close(reduce(fresh, world, bucket, zero + 3), zero + 3, tolerance, "ones");
  });
}
INSTANTIATE_TEST_SUITE_P(Types, PowerSGDTypes, ::testing::Values(kFloat32, kFloat64, kBFloat16));

TEST(PowerSGD, ErrorFeedbackGivesTheSumOfGradients) {
  distributed::run_local(2, [](const distributed::Group& world) {
    // Returns the error of the sum over `steps` steps, as a part of one gradient.
    const auto error = [&](int64_t steps, bool feedback) {
      const PowerSGD hook({.start_powerSGD_iter = 0, .use_error_feedback = feedback});
      const GradBucket bucket = make_bucket({{8, 8}}, kFloat64);
      const Tensor sum = mytorch::zeros({64}, kFloat64), given = mytorch::zeros({64}, kFloat64);
      for (int64_t step = 0; step < steps; ++step) {
        sum.add_(reduce(hook, world, bucket, values(64, world.rank())));
        given.add_((values(64, 0) + values(64, 1)) / 2);
      }
      return (sum - given).pow(2).sum().sqrt().item<double>() /
             given.pow(2).sum().sqrt().item<double>();
    };
    expect(error(1, true) > 0.3, "a matrix of rank 8 is none of rank 1");
    expect(error(200, true) < 0.03,
           "what was left out is added: " + std::to_string(error(200, true)));
    expect(error(200, false) > 0.3, "without feedback it is lost");
  });
}

// The mean has rank 1, but not the ranks' gradients: one step finds it only if the ranks begin with
// the same Q.
TEST(PowerSGD, RanksDrawTheSameMatrix) {
  distributed::run_local(2, [](const distributed::Group& world) {
    const Tensor u = values(8, 0).view({8, 1}), v = values(6, 1).view({1, 6});
    const Tensor other = values(48, 2) * (world.rank() == 0 ? 1 : -1);
    const Tensor mean = u.matmul(v).view({48});
    for (const bool warm : {true, false}) {
      const PowerSGD hook({.start_powerSGD_iter = 0,
                           .use_error_feedback = false,
                           .warm_start = warm,
                           .random_seed = 7});
      const GradBucket bucket = make_bucket({{8, 6}}, kFloat64);
      expect_close(reduce(hook, world, bucket, mean + other), mean, 1e-10, "first step");
      expect_close(reduce(hook, world, bucket, mean + other), mean, 1e-10, "second step");
    }
  });
}

TEST(PowerSGD, ReducesTheFirstStepsWhole) {
  distributed::run_local(2, [](const distributed::Group& world) {
    const PowerSGD hook({.start_powerSGD_iter = 2});
    GradBucket first = make_bucket({{8, 8}}, kFloat64);
    const GradBucket last = make_bucket({{8, 8}, {3, 2}}, kFloat64);
    first.is_last = false;
    const auto far = [&](const GradBucket& bucket) {
      const int64_t n = bucket.memory.numel();
      const Tensor found = reduce(hook, world, bucket, values(n, world.rank()));
      return (found - (values(n, 0) + values(n, 1)) / 2).abs();
    };
    for (int step = 0; step < 2; ++step) {
      expect(far(first).max().item<double>() < 1e-12, "the first bucket is whole");
      expect(far(last).max().item<double>() < 1e-12, "the last bucket is whole");
    }
    expect(far(first).max().item<double>() > 0.1, "the first bucket is compressed");
    const Tensor error = far(last);
    expect(error.narrow(0, 0, 64).max().item<double>() > 0.1, "the last bucket is compressed");
    expect(error.narrow(0, 64, 6).max().item<double>() < 1e-12,
           "a matrix whose factors are no smaller is not");
  });
}

TEST(PowerSGD, TrainsAModel) {
  const auto train = [](const distributed::Group& world, const CommunicationHook& hook) {
    Sequential net(Linear(16, 32), Tanh(), Linear(32, 16));
    ranks::set_parameters(net, 0);
    DistributedDataParallel parallel(
        net, {.bucket_bytes = 2000, .first_bucket_bytes = 200, .hook = hook});
    optim::SGD optimizer(net.parameters(), optim::SGDOptions(0.5).momentum(0.9));
    double loss = 0;
    for (int64_t step = 0; step < 150; ++step) {
      const int64_t size = ranks::kBatch / world.size();
      const Tensor x = ranks::batch(step % 4, world.rank() * size, size, 16, 2).x;
      const Tensor y = (x.flip({1}) * 0.7).detach();
      optimizer.zero_grad();
      const Tensor error = (parallel(x) - y).pow(2).mean();
      error.backward();
      optimizer.step();
      const Tensor mean = error.detach().clone();
      world.all_reduce(mean, {distributed::ReduceOp::kAverage});
      if (step >= 146) loss += mean.item<double>() / 4;
      if (step == 0) expect(mean.item<double>() > 0.2, "there is something to learn");
    }
    for (const Tensor& parameter : net.parameters()) {
      const Tensor other = parameter.detach().clone();
      world.broadcast(other, 0);
      expect_close(other, parameter, 0, "the ranks have the same parameters");
    }
    return loss;
  };
  distributed::run_local(2, [&](const distributed::Group& world) {
    const double whole = train(world, {});
    const double compressed =
        train(world, PowerSGD({.matrix_approximation_rank = 2, .start_powerSGD_iter = 4}));
    expect(compressed < 2 * whole + 1e-3, "the loss is " + std::to_string(compressed) + ", and " +
                                              std::to_string(whole) + " without compression");
  });
}

TEST(PowerSGD, RefusesOptionsWithoutAMeaning) {
  expect_error([] { PowerSGD({.matrix_approximation_rank = 0}); }, "give at least 1");
  expect_error([] { PowerSGD({.start_powerSGD_iter = -1}); }, "number of steps");
  expect_error([] { PowerSGD({.orthogonalization_epsilon = -1}); }, "small positive number");
}

}  // namespace
}  // namespace mytorch::nn
