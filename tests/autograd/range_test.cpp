// Results that are within the range of their type although a sum, a square or a position on the way
// to them is not. Expected values follow from the definitions.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/backends.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/cdist.h"
#include "mytorch/ops/cosine_similarity.h"
#include "mytorch/ops/dist.h"
#include "mytorch/ops/embedding_bag.h"
#include "mytorch/ops/frobenius_norm.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/get_total_norm.h"
#include "mytorch/ops/grid_sampler.h"
#include "mytorch/ops/group_norm.h"
#include "mytorch/ops/index_reduce.h"
#include "mytorch/ops/layer_norm.h"
#include "mytorch/ops/linalg_matrix_norm.h"
#include "mytorch/ops/linalg_norm.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/nanmean.h"
#include "mytorch/ops/norm.h"
#include "mytorch/ops/normalize.h"
#include "mytorch/ops/pairwise_distance.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/rms_norm.h"
#include "mytorch/ops/scatter_reduce.h"
#include "mytorch/ops/segment_reduce.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/std.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

// Calls f with each backend that is compared.
void on_backends(const std::function<void()>& f) {
  for (const char* backend : {"reference", "cpu-openmp"}) {
    SCOPED_TRACE(backend);
    const Prefer prefer("cpu", backend);
    f();
  }
}

void expect_near(const Tensor& found, const Values& expected, double relative) {
  const Values got = values(found);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], relative * std::abs(expected[i])) << "element " << i;
  }
}

Tensor of(const Values& list, ScalarType type) { return plain(list).to(type); }

// 70000 elements of 2: their sum exceeds float16, and in bfloat16 it would stop at 512.
constexpr int64_t kMany = 70000;

// Expects the mean of kMany elements of 2, and the gradient of one of them.
void expect_mean(const Tensor& mean, const Tensor& source) {
  expect_near(mean, {2}, 0);
  mean.sum().backward();
  const double step = source.dtype() == kFloat16 ? 0x1p-24 : 0x1p-25;  // of the type near 1 / kMany
  EXPECT_NEAR(values(source.grad())[kMany - 1], 1.0 / kMany, step);
}

TEST(Range, MeansOf16BitsWhoseSumsExceedThem) {
  on_backends([] {
    for (const ScalarType type : {kFloat16, kBFloat16}) {
      const auto twos = [&] { return full({kMany}, 2, type).requires_grad_(); };
      const Tensor start = zeros({1}, type), places = zeros({kMany}, kInt64);
      Tensor x = twos();
      expect_mean(index_reduce(start, 0, places, x, "mean", false), x);
      x = twos();
      expect_mean(scatter_reduce(start, 0, places, x, "mean", false), x);
      x = twos();
      expect_mean(segment_reduce(x, "mean", of({kMany}, kInt64)), x);
      x = twos();
      expect_mean(nanmean(x), x);
    }
  });
}

TEST(Range, BagsOf16BitsWhoseSumsExceedThem) {
  on_backends([] {
    for (const ScalarType type : {kFloat16, kBFloat16}) {
      const Tensor table = full({1, 1}, 2, type).requires_grad_();
      const Tensor mean = embedding_bag(table, zeros({1, kMany}, kInt64));
      expect_near(mean, {2}, 0);
    }
  });
}

// Expects the norm of (3, 0, -4) * scale, and its gradient.
void expect_norm(ScalarType type, double scale, double p) {
  SCOPED_TRACE(testing::Message() << type << ", scale " << scale << ", order " << p);
  const Tensor x = of({3 * scale, 0, -4 * scale}, type).detach().requires_grad_();
  const double sum = std::pow(3, p) + std::pow(4, p), norm = std::pow(sum, 1 / p);
  const double tolerance = type == kBFloat16 ? 1e-2 : 2e-6;
  const Tensor found = linalg_vector_norm(x, p);
  expect_near(found, {norm * scale}, tolerance);
  found.backward();
  const auto gradient = [&](double each) { return std::pow(each / norm, p - 1); };
  expect_near(x.grad(), {gradient(3), 0, -gradient(4)}, tolerance);
}

TEST(Range, NormsWhosePowersExceedTheirTypeOrVanish) {
  on_backends([] {
    for (const double scale : {1e20, 1e30, 1e-25, 1e-37, 1.0}) {
      for (const ScalarType type : {kFloat32, kBFloat16}) {
        for (const double p : {1.5, 2.0, 3.0}) expect_norm(type, scale, p);
      }
    }
  });
}

// Long rows, columns, and few results whose elements are split among threads.
TEST(Range, NormsOfManyElements) {
  on_backends([] {
    for (const double scale : {1e20, 1e-25}) {
      const Tensor x = full({300, 700}, scale, kFloat32);
      x.narrow(0, 7, 1).fill_(0);
      x.narrow(0, 9, 1).fill_(1);
      const Tensor rows = linalg_vector_norm(x, 2, {1}), columns = linalg_vector_norm(x, 2, {0});
      expect_near(rows.narrow(0, 6, 4),
                  {std::sqrt(700) * scale, 0, std::sqrt(700) * scale, std::sqrt(700)}, 1e-6);
      expect_near(columns.narrow(0, 699, 1), {std::sqrt(298 * scale * scale + 1)}, 1e-6);
      const Tensor all = full({400000}, scale, kFloat32);
      expect_near(linalg_vector_norm(all), {std::sqrt(400000) * scale}, 1e-6);
      expect_near(linalg_vector_norm(all.reshape({40, 10000}).t(), 2, {0}).narrow(0, 39, 1),
                  {100 * scale}, 1e-6);
    }
  });
}

TEST(Range, WhatIsMadeOfNorms) {
  on_backends([] {
    for (const double scale : {1e20, 1e-25}) {
      const Tensor x = of({3 * scale, 0, -4 * scale}, kFloat32), zero = zeros({3});
      expect_near(normalize(x, 2, {0}, 0), {0.6, 0, -0.8}, 1e-6);
      expect_near(cosine_similarity(x, x, 0, 0), {1}, 1e-6);
      for (const Tensor& each :
           {dist(x, zero), pairwise_distance(x, zero, 2, 0), norm(x), frobenius_norm(x, {0}),
            linalg_norm(x), linalg_matrix_norm(x.reshape({3, 1}), "fro"),
            cdist(x.reshape({1, 3}), zero.reshape({1, 3})), get_total_norm({x, zero}, 2)}) {
        expect_near(each.flatten(), {5 * scale}, 2e-6);
      }
      expect_near(mytorch::std(x), {std::sqrt(37.0 / 3) * scale}, 2e-6);
      const Tensor pair = stack({x, zero});
      const double sum_of_powers = std::pow(3, 1.5) + std::pow(4, 1.5);
      for (const double p : {1.5, 2.0}) {
        const Tensor found = cdist(pair, pair, p);
        const double distance = p == 2 ? 5 : std::pow(sum_of_powers, 1 / p);
        expect_near(found.flatten(), {0, distance * scale, distance * scale, 0}, 2e-6);
      }
    }
  });
}

// The expected distances of all pairs of rows.
Values distances_of(const Tensor& x, const Tensor& y) {
  const Values a = values(x), b = values(y);
  const int64_t size = x.size(-1);
  Values found;
  for (int64_t i = 0; i < x.size(0); ++i) {
    for (int64_t j = 0; j < y.size(0); ++j) {
      double sum = 0;
      for (int64_t k = 0; k < size; ++k) {
        const double d =
            a[static_cast<size_t>(i * size + k)] - b[static_cast<size_t>(j * size + k)];
        sum += d * d;
      }
      found.push_back(std::sqrt(sum));
    }
  }
  return found;
}

// Of so many rows, distances come from a product of matrices where that is exact.
TEST(Range, DistancesOfManyRows) {
  for (const ScalarType type : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    SCOPED_TRACE(type);
    Generator generator(3);
    const auto random = [&](IntList sizes) {
      return randn(sizes, generator, TensorOptions(kFloat64));
    };
    const double precision = type == kFloat64   ? 1e-14
                             : type == kFloat32 ? 2e-6
                             : type == kFloat16 ? 6e-4
                                                : 5e-3;
    const Tensor x = random({90, 75}).to(type), y = random({67, 75}).to(type);
    expect_near(cdist(x, y).flatten(), distances_of(x, y), precision);
    // The same rows, and neighbors of them, far from 0.
    const Tensor far = (random({90, 75}) + 4096).to(type);
    const Tensor near = stack({far, far + random({90, 75}).to(type) * 0.01}).view({180, 75});
    expect_near(cdist(near, far).flatten(), distances_of(near, far), precision);
    // Two distant groups, each with the other beside it.
    const Tensor groups = cat({x, (x.to(kFloat64) + 1000).to(type)});
    expect_near(cdist(groups, groups).flatten(), distances_of(groups, groups), precision);
    if (type == kFloat32) {
      for (const double scale : {1e25, 1e-30}) {
        expect_near(cdist(x * scale, y * scale).flatten(), distances_of(x * scale, y * scale),
                    precision);
      }
    }
    // Rows with infinities and NaN concern their own distances alone.
    Tensor special = x.clone();
    special[3][5] = INFINITY;
    special[8][74] = NAN;
    const Values found = values(cdist(special, y)), expected = distances_of(special, y);
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(found[i])) << i;
      } else if (std::isinf(expected[i])) {
        EXPECT_EQ(found[i], INFINITY) << i;
      } else {
        EXPECT_NEAR(found[i], expected[i], precision * expected[i]) << i;
      }
    }
    // Batches broadcast.
    const Tensor batches = stack({x, x * 2, x - 1}).unsqueeze(1), others = stack({y, y + 3});
    const Tensor all = cdist(batches, others);
    ASSERT_EQ(all.sizes().vec(), std::vector<int64_t>({3, 2, 90, 67}));
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        expect_near(all[i][j].flatten(), distances_of(batches[i][0], others[j]), precision);
      }
    }
  }
}

// Expects the normalization of (scale, -scale, scale, -scale), in the same layout as values from
// -1 to 1 have, and the gradient for an incoming one of (1, 2, 3, 4): with unit rows u it is (g - u
// mean(g u)) / scale, without the mean of g if it is centered.
void expect_normal(const std::function<Tensor(const Tensor&)>& f, ScalarType type, double scale,
                   bool centered) {
  SCOPED_TRACE(testing::Message() << type << ", scale " << scale);
  for (const int64_t times : {1, 40}) {  // rows of 4 and of 160 elements
    const auto repeated = [&](const Values& list) {
      return of(list, type).reshape({1, 1, 4}).expand({1, times, 4}).reshape({1, times * 4});
    };
    const Tensor x = repeated({scale, -scale, scale, -scale}).detach().requires_grad_();
    const Tensor found = f(x);
    EXPECT_EQ(found.sizes(), x.sizes());
    expect_near(found.narrow(1, 0, 4), {1, -1, 1, -1}, 1e-6);
    (found * repeated({1, 2, 3, 4})).sum().backward();
    const Values expected = centered ? Values{-1, -1, 1, 1} : Values{1.5, 1.5, 3.5, 3.5};
    expect_near(x.grad().narrow(1, 0, 4) * scale, expected, 1e-5);
  }
}

TEST(Range, NormalizationsOfRowsWhoseSquaresExceedTheirTypeOrVanish) {
  on_backends([] {
    for (const ScalarType type : {kFloat32, kFloat64}) {
      for (const double scale : {1e20, 1e30, 1e-25, 1e-30}) {
        const double eps = scale > 1 ? 1e-5 : 0;
        const auto layer = [&](const Tensor& x) { return layer_norm(x, {x.size(1)}, {}, {}, eps); };
        const auto rms = [&](const Tensor& x) { return rms_norm(x, {x.size(1)}, {}, eps); };
        const auto group = [&](const Tensor& x) {
          return group_norm(x.reshape({1, 2, -1}), 1, {}, {}, eps).reshape(x.sizes());
        };
        expect_normal(layer, type, scale, true);
        expect_normal(rms, type, scale, false);
        expect_normal(group, type, scale, true);
      }
    }
  });
}

// The coordinates 3e38 and -3e38 of a plane of 1 to 9: the corners with `border`; with `reflection`
// both are multiples of the period, and so the middle.
TEST(Range, GridsFarOutsideOfThePlane) {
  on_backends([] {
    const Tensor plane = (counting({1, 1, 3, 3}) + 1).to(kFloat32);
    const double expected[3][2] = {{0, 0}, {9, 1}, {5, 5}};
    for (const bool align_corners : {false, true}) {
      for (int64_t mode = 0; mode < 3; ++mode) {
        for (int64_t padding = 0; padding < 3; ++padding) {
          SCOPED_TRACE(testing::Message() << "mode " << mode << ", padding " << padding);
          Tensor grid = of({3e38, 3e38, -3e38, -3e38}, kFloat32).reshape({1, 1, 2, 2}).detach();
          grid.requires_grad_();
          const Tensor found = grid_sampler(plane, grid, mode, padding, align_corners);
          expect_near(found, {expected[padding][0], expected[padding][1]}, 1e-6);
          if (mode == 1) continue;  // steps have no gradient
          found.sum().backward();
          for (const double each : values(grid.grad())) {
            EXPECT_TRUE(padding == 2 ? std::isfinite(each) : each == 0) << each;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace mytorch
