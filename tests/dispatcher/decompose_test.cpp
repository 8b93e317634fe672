// Decomposition: operators without a kernel run as the operators that their records name.
#include <cmath>
#include <limits>

#include "mytorch/backends.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/addcmul.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/gelu.h"
#include "mytorch/ops/hypot.h"
#include "mytorch/ops/layer_norm.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/log_softmax.h"
#include "mytorch/ops/logsumexp.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/silu.h"
#include "mytorch/ops/softmax.h"
#include "mytorch/ops/var.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::expect_error;
using testing::FakeDevice;
using testing::slow_paths_of;
using testing::Values;
using testing::values;

// The minimum with which a backend runs every operator: primitives, node operations and plain
// reductions.
FakeDevice& nodes() {
  static FakeDevice& device =
      FakeDevice::create({"nodes", 1, nullptr, [](const mt_program& p) {
                            int steps = 0;
                            for (int i = 0; i < p.num_nodes; ++i) {
                              const std::string op = p.nodes[i].op;
                              steps += op != "input" && op != "scalar" && op != "const" &&
                                       op != "cast" && op != "state";
                            }
                            return p.fold != nullptr ? steps == 0 : steps <= 1;
                          }});
  return device;
}

Tensor on_nodes(const Tensor& x) { return x.to(nodes().device()); }

void expect_close(const Tensor& found, const Tensor& expected) {
  const Values a = values(found);
  const Values b = values(expected);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-5 * (1 + std::abs(b[i]))) << "element " << i;
  }
}

TEST(DecomposeTest, PointwiseProgramsBecomeTheirNodes) {
  const Tensor x = tensor({-2, -0.5, 0, 1, 3});
  const Tensor there = on_nodes(x);
  const int kernels = nodes().calls().kernels;
  expect_close(gelu(there), gelu(x));
  EXPECT_GT(nodes().calls().kernels, kernels + 2);
  EXPECT_EQ(slow_paths_of("gelu").decomposed, 1u);
  EXPECT_EQ(slow_paths_of("gelu").fallbacks, 0u);
  expect_close(silu(there), silu(x));
  expect_close(hypot(there, there), hypot(x, x));
  expect_close(add(there, there, 3), add(x, x, 3));
  expect_close(clamp(there, -1, 2), clamp(x, -1, 2));
  expect_close(addcmul(there, there, there, 0.5), addcmul(x, x, x, 0.5));
}

TEST(DecomposeTest, OutInPlaceAndMixedTypes) {
  const Tensor x = tensor({1.0, 2, 3});
  const Tensor there = on_nodes(x);
  const Tensor out = on_nodes(tensor({0, 0, 0}, kFloat64));
  add_out(out, there, there, 2);
  EXPECT_EQ(values(out), (Values{3, 6, 9}));
  there.add_(there, 2);
  EXPECT_EQ(values(there), (Values{3, 6, 9}));
  const Tensor integers = on_nodes(tensor(std::vector<int64_t>{1, 2, 3}));
  const Tensor sum = add(integers, integers, 4);
  EXPECT_EQ(sum.dtype(), kInt64);
  EXPECT_EQ(values(sum), (Values{5, 10, 15}));
  const Tensor bools = on_nodes(tensor({1, 0, 1}, kBool));
  EXPECT_EQ(add(bools, bools).dtype(), kBool);
  EXPECT_EQ(values(add(bools, bools)), (Values{1, 0, 1}));
  expect_close(add(there, scalar_tensor(5), 2), on_nodes(tensor({13.0, 16, 19})));
}

TEST(DecomposeTest, ReductionsDecompose) {
  const Tensor x = tensor({1.0, 2, 3, 4, 5, 7}).view({2, 3});
  const Tensor there = on_nodes(x);
  expect_close(mean(there, IntList(1)), mean(x, IntList(1)));
  expect_close(mean(there), mean(x));
  expect_close(var(there, IntList({0, 1}), 0, true), var(x, IntList({0, 1}), 0, true));
  expect_close(logsumexp(there, 1), logsumexp(x, 1));
  expect_close(linalg_vector_norm(there), linalg_vector_norm(x));
  EXPECT_EQ(slow_paths_of("var.correction").fallbacks, 0u);
}

// Nodes of the 16-bit types compute in float32, so that a result is rounded once.
TEST(DecomposeTest, HalfTypesAreRoundedOnce) {
  const Tensor x = tensor({-2, -0.7, 0.1, 1.3, 3}).to(kFloat16);
  EXPECT_EQ(values(gelu(on_nodes(x))), values(gelu(x.to(kFloat32)).to(kFloat16)));
  EXPECT_EQ(gelu(on_nodes(x)).dtype(), kFloat16);
}

TEST(DecomposeTest, LogsumexpOfInfinities) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor({inf, 1, inf, -inf, -inf, -inf}).view({2, 3});
  EXPECT_EQ(values(logsumexp(on_nodes(x), {1})), (Values{inf, -inf}));
}

TEST(DecomposeTest, CompositesAndTheirGradients) {
  auto run = [](const Tensor& x) {
    const Tensor leaf = x.detach().requires_grad_();
    const Tensor y = log_softmax(leaf, 1) * softmax(leaf, 0) + layer_norm(leaf, 3);
    (y * y).sum().backward();
    return leaf.grad();
  };
  const Tensor x = tensor({1.0, 2, 4, 4, 5, 7}).view({2, 3});
  expect_close(run(on_nodes(x)), run(x));
}

// If an operator cannot decompose further, the error names it rather than the operator called.
TEST(DecomposeTest, FailsIfANodeHasNoKernel) {
  const Tensor x = tensor({1.0, 2}).to(testing::bare().device());
  expect_error(ErrorCode::kUnsupported, {"no kernel of", "on bare"}, [&] { gelu(x); });
}

// Kernels of operators that can decompose can be disabled for every backend.
TEST(DecomposeTest, RestrictKernelsForcesDecomposition) {
  const Tensor x = tensor({1.0, 2, 4, 4, 5, 7}).view({2, 3});
  const Tensor expected = gelu(x) + softmax(x, 1);
  const uint64_t before = slow_paths_of("gelu").decomposed;
  const RestrictKernels primitives(Kernels::kPrimitives);
  expect_close(gelu(x) + softmax(x, 1), expected);
  EXPECT_EQ(slow_paths_of("gelu").decomposed, before + 1);
}

}  // namespace
}  // namespace mytorch
