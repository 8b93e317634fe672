// Sums, means, variances, norms and normalizations of numbers whose mean is large beside their
// spread, in several layouts, on each backend. Expected values are those of the numbers as the type
// stores them, in long double.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/backends.h"
#include "mytorch/ops/batch_norm_training.h"
#include "mytorch/ops/group_norm.h"
#include "mytorch/ops/layer_norm.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/logsumexp.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/rms_norm.h"
#include "mytorch/ops/std.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/var.h"
#include "mytorch/ops/var_mean.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

struct Layout {
  const char* name;
  std::vector<int64_t> order;  // of the dimensions (4, 6, 10, 25) in memory, outermost first
};
const Layout kLayouts[] = {
    {"contiguous", {0, 1, 2, 3}}, {"transposed", {3, 2, 1, 0}}, {"channels last", {0, 2, 3, 1}}};

struct Kind {
  ScalarType type;
  double spread;   // of numbers around a mean of 1
  double epsilon;  // the rounding of the type, relative, and of numbers close to 0
  double least;
};
const Kind kKinds[] = {{kFloat32, 1e-6, 0x1p-24, 0},
                       {kFloat64, 1e-6, 0x1p-53, 0},
                       {kFloat16, 0.05, 0x1p-11, 0x1p-24},
                       {kBFloat16, 0.2, 0x1p-8, 0}};

constexpr int64_t kSizes[] = {4, 6, 10, 25};
constexpr int64_t kCount = 4 * 6 * 10 * 25;

// Numbers scale * (1 +- spread) in a layout.
Tensor numbers(const Layout& layout, const Kind& kind, double scale) {
  std::vector<double> list;
  uint64_t bits = 12345;
  for (int64_t i = 0; i < kCount; ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    list.push_back(scale * (1 + kind.spread * (static_cast<double>(bits >> 40) * 0x1p-23 - 1)));
  }
  std::vector<int64_t> sizes, back(4);
  for (int64_t d = 0; d < 4; ++d) {
    sizes.push_back(kSizes[layout.order[static_cast<size_t>(d)]]);
    back[static_cast<size_t>(layout.order[static_cast<size_t>(d)])] = d;
  }
  return plain(list).to(kind.type).reshape(sizes).permute(back);
}

// The elements of a contiguous tensor's values in each group: the indices that agree in the
// dimensions that are not reduced.
std::vector<std::vector<long double>> groups_of(const Tensor& x, const std::vector<int64_t>& dims) {
  const Values all = values(x);
  std::vector<std::vector<long double>> groups;
  for (int64_t i = 0; i < kCount; ++i) {
    int64_t rest = i, group = 0, width = 1;
    for (int64_t d = 3; d >= 0; --d) {
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
        group += rest % kSizes[d] * width;
        width *= kSizes[d];
      }
      rest /= kSizes[d];
    }
    if (groups.size() < static_cast<size_t>(width)) groups.resize(static_cast<size_t>(width));
    groups[static_cast<size_t>(group)].push_back(all[static_cast<size_t>(i)]);
  }
  return groups;
}

struct Moments {
  long double mean = 0, spread = 0, square = 0;  // spread: the mean of (x - mean)^2
  explicit Moments(const std::vector<long double>& x) {
    const auto n = static_cast<long double>(x.size());
    for (const long double each : x) mean += each / n, square += each * each / n;
    for (const long double each : x) spread += (each - mean) * (each - mean) / n;
  }
};

// `allowed`: the relative error; `least`: that of numbers close to 0.
void expect_each(const char* what, const Tensor& found, const std::vector<long double>& expected,
                 double allowed, double least = 0) {
  const Values got = values(found);
  ASSERT_EQ(got.size(), expected.size()) << what;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double right = static_cast<double>(expected[i]);
    const double error = (std::abs(got[i] - right) - least) / std::abs(right);
    worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
  }
  EXPECT_LE(worst, allowed) << what;
}

void on_all(const std::function<void(const Layout&, const Kind&, double)>& f) {
  for (const char* backend : {"reference", "cpu-openmp"}) {
    const Prefer prefer("cpu", backend);
    for (const Layout& layout : kLayouts) {
      for (const Kind& kind : kKinds) {
        for (const double scale : {1.0, 1024.0}) {
          SCOPED_TRACE(testing::Message() << backend << ", " << layout.name << ", " << kind.type
                                          << ", mean " << scale);
          f(layout, kind, scale);
        }
      }
    }
  }
}

TEST(Precision, ReductionsOfNumbersWithALargeMean) {
  on_all([](const Layout& layout, const Kind& kind, double scale) {
    const Tensor x = numbers(layout, kind, scale);
    for (const std::vector<int64_t>& dims :
         std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {3}, {0}, {1}, {0, 2, 3}, {2, 3}}) {
      SCOPED_TRACE(testing::Message() << dims.size() << " dimensions from " << dims[0]);
      std::vector<long double> sums, means, vars, stds, norms, logs;
      for (const auto& group : groups_of(x, dims)) {
        const Moments m(group);
        const auto n = static_cast<long double>(group.size());
        sums.push_back(m.mean * n);
        means.push_back(m.mean);
        vars.push_back(m.spread);
        stds.push_back(std::sqrt(m.spread));
        norms.push_back(std::sqrt(m.square * n));
        long double sum = 0;
        for (const long double each : group) sum += std::exp(each - m.mean);
        logs.push_back(m.mean + std::log(sum));
      }
      // The rounding of the result. In double, sums of many elements lose a few bits more, and
      // distances from a mean those of the subtraction.
      const bool is_double = kind.type == kFloat64;
      const double exact = (is_double ? 64 : 4) * kind.epsilon;
      const double spread = is_double ? 1e-8 : exact;
      if (kind.type != kFloat16 || scale == 1) {
        expect_each("sum", sum(x, dims), sums, exact);
        expect_each("norm", linalg_vector_norm(x, 2, dims), norms, exact);
      }
      expect_each("mean", mean(x, dims), means, exact);
      expect_each("var", var(x, dims, 0), vars, spread, kind.least);
      expect_each("std", mytorch::std(x, dims, 0), stds, spread, kind.least);
      const auto [variance, average] = var_mean(x, dims, 0);
      expect_each("var of var_mean", variance, vars, spread, kind.least);
      expect_each("mean of var_mean", average, means, exact);
      expect_each("logsumexp", logsumexp(x, dims), logs, exact);
    }
  });
}

// Expects (x - mean) / sqrt(spread) of the moments of groups, up to the rounding of the mean, which
// a kernel takes from its compute type, and of the result. In double, the mean of many elements
// loses a few bits more.
void expect_normal(const char* what, const Tensor& found, const Tensor& x,
                   const std::vector<int64_t>& dims, const Kind& kind, bool centered) {
  const auto from = groups_of(x, dims), to = groups_of(found, dims);
  const double wide = kind.type == kFloat64 ? 64 * 0x1p-53 : 2 * 0x1p-24;
  double worst = 0, allowed = 0;
  for (size_t g = 0; g < from.size(); ++g) {
    const Moments m(from[g]);
    const long double deviation = std::sqrt(centered ? m.spread : m.square);
    const long double middle = centered ? m.mean : 0;
    for (size_t i = 0; i < from[g].size(); ++i) {
      const long double expected = (from[g][i] - middle) / deviation;
      worst = std::max(worst, static_cast<double>(std::abs(to[g][i] - expected)));
    }
    allowed = std::max(allowed, static_cast<double>(std::abs(m.mean) / deviation) * wide);
  }
  EXPECT_LE(worst, allowed + 4 * kind.epsilon) << what;
}

TEST(Precision, NormalizationsOfNumbersWithALargeMean) {
  on_all([](const Layout& layout, const Kind& kind, double scale) {
    const Tensor x = numbers(layout, kind, scale);
    expect_normal("layer_norm of a row", layer_norm(x, {25}, {}, {}, 0), x, {3}, kind, true);
    expect_normal("layer_norm of a plane", layer_norm(x, {10, 25}, {}, {}, 0), x, {2, 3}, kind,
                  true);
    expect_normal("rms_norm", rms_norm(x, {10, 25}, {}, 0), x, {2, 3}, kind, false);
    expect_normal("group_norm", group_norm(x, 6, {}, {}, 0), x, {2, 3}, kind, true);
    expect_normal("batch_norm", std::get<0>(batch_norm_training(x, {}, {}, 0)), x, {0, 2, 3}, kind,
                  true);
    const Tensor rows = x.permute({0, 2, 3, 1}).reshape({4 * 10 * 25, 6});
    const Tensor columns = std::get<0>(batch_norm_training(rows, {}, {}, 0));
    expect_normal("batch_norm of a matrix", columns.reshape({4, 10, 25, 6}).permute({0, 3, 1, 2}),
                  x, {0, 2, 3}, kind, true);
  });
}

}  // namespace
}  // namespace mytorch
