// The gradient of gelu against its formula in double, for numbers of any magnitude.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "mytorch/abi_ops/gelu_grad.h"
#include "tests/backends/cpu-onednn/onednn_backend.h"

namespace mytorch::testing {
namespace {

std::string gelu_grad(const TestTensor& grad, const TestTensor& self, const TestTensor& out,
                      int threads = 1, const char* approximate = "none") {
  mt_args_gelu_grad args{};
  args.header.compute = self.dtype();
  args.grad = grad, args.self = self, args.out = out, args.approximate = approximate;
  return run_onednn("gelu_grad", args, threads);
}

TEST(OnednnActivation, GradientOfGeluAgreesWithItsFormula) {
  std::vector<double> x = {0.0,  -0.0, 1e-40, -1e-40,   1e-30,     -1e-30,    13.5,     -13.5, 1e4,
                           -1e4, 3e38, -3e38, INFINITY, -INFINITY, -INFINITY, INFINITY, NAN};
  for (int i = -4000; i <= 4000; ++i) x.push_back(i * 0.0051);
  const auto n = static_cast<int64_t>(x.size());
  std::vector<double> g(x.size());
  for (size_t i = 0; i < g.size(); ++i) g[i] = std::sin(static_cast<double>(i)) + 1.5;
  const TestTensor self = TestTensor::of<float>({n}, x), grad = TestTensor::of<float>({n}, g);
  const std::vector<double> xs = self.values<double>(), gs = grad.values<double>();
  for (const int threads : {1, 2}) {
    const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, {n});
    ASSERT_EQ(gelu_grad(grad, self, out, threads), "");
    const std::vector<double> found = out.values<double>();
    for (size_t i = 0; i < found.size(); ++i) {
      const double density = std::exp(-0.5 * xs[i] * xs[i]) / std::sqrt(2 * std::numbers::pi);
      const double slope = 0.5 * (1 + std::erf(xs[i] / std::numbers::sqrt2)) + xs[i] * density;
      if (std::isnan(slope)) {
        EXPECT_TRUE(std::isnan(found[i])) << xs[i];
      } else {
        EXPECT_NEAR(found[i], gs[i] * slope, 3e-7 * gs[i]) << xs[i];
      }
    }
  }
}

TEST(OnednnActivation, DeclinesWithAReason) {
  const TestTensor x = TestTensor::empty(sdk::dtype_of<float>, {8});
  EXPECT_NE(gelu_grad(x, x, x, 1, "tanh").find("approximate"), std::string::npos);
  const TestTensor d = TestTensor::empty(sdk::dtype_of<double>, {8});
  EXPECT_NE(gelu_grad(d, d, d).find("[dtype]"), std::string::npos);
  const TestTensor none = TestTensor::empty(sdk::dtype_of<float>, {0});
  EXPECT_NE(gelu_grad(none, none, none).find("no elements"), std::string::npos);
}

}  // namespace
}  // namespace mytorch::testing
