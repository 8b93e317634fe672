// Gradients of complex functions, by PyTorch's convention: dL/d(real part) + 1j * dL/d(imaginary
// part). gradcheck compares them with differences in both parts.
#include <gtest/gtest.h>

#include <complex>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/ops.h"
#include "mytorch/tensor.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using namespace std::complex_literals;
using autograd::gradcheck;
using autograd::gradgradcheck;
using Z = std::complex<double>;

struct NamedFunction {
  const char* name;
  std::function<Tensor(const Tensor& z, const Tensor& w)> f;
};

// Away from zeros, poles and branch cuts.
Tensor matrix(const std::vector<Z>& numbers) {
  return reshape(tensor(numbers, kComplex128), {2, 3}).clone().requires_grad_();
}
Tensor z() {
  return matrix({{0.5, 0.25}, {-0.75, 1.5}, {-1.25, -0.5}, {2, -1}, {0.75, 0.5}, {1.25, -0.75}});
}
Tensor w() {
  return matrix({{1.5, -0.5}, {0.25, 0.75}, {-0.5, 1.25}, {1, 0.5}, {-1.5, 0.25}, {0.5, -0.25}});
}

class ComplexGradient : public ::testing::TestWithParam<NamedFunction> {};

TEST_P(ComplexGradient, AgreesWithDifferences) {
  const auto f = [&](const std::vector<Tensor>& x) -> std::vector<Tensor> {
    return {GetParam().f(x[0], x[1])};
  };
  const std::vector<Tensor> inputs = {z(), w()};
  EXPECT_EQ(gradcheck(f, inputs).message, "");
  EXPECT_EQ(gradgradcheck(f, inputs).message, "");
}

#define UNARY(name)                                               \
  {                                                               \
#name, [](const Tensor& z, const Tensor&) { return name(z); } \
  }

const NamedFunction kFunctions[] = {
    UNARY(neg),
    UNARY(square),
    UNARY(reciprocal),
    UNARY(conj),
    UNARY(abs),
    UNARY(angle),
    UNARY(sgn),
    UNARY(real),
    UNARY(imag),
    UNARY(sqrt),
    UNARY(rsqrt),
    UNARY(exp),
    UNARY(exp2),
    UNARY(expm1),
    UNARY(log),
    UNARY(log2),
    UNARY(log10),
    UNARY(log1p),
    UNARY(sin),
    UNARY(cos),
    UNARY(tan),
    UNARY(asin),
    UNARY(acos),
    UNARY(atan),
    UNARY(sinh),
    UNARY(cosh),
    UNARY(tanh),
    UNARY(asinh),
    UNARY(acosh),
    UNARY(atanh),
    UNARY(sigmoid),
    UNARY(silu),
    UNARY(view_as_real),
    {"add", [](const Tensor& z, const Tensor& w) { return add(z, w, Scalar(2.0 + 1i)); }},
    {"sub", [](const Tensor& z, const Tensor& w) { return z - w; }},
    {"mul", [](const Tensor& z, const Tensor& w) { return z * w; }},
    {"div", [](const Tensor& z, const Tensor& w) { return z / w; }},
    {"pow", [](const Tensor& z, const Tensor& w) { return pow(z, w); }},
    {"mul_real", [](const Tensor& z, const Tensor& w) { return z * real(w); }},
    {"real_divided", [](const Tensor& z, const Tensor& w) { return real(w) / z; }},
    {"mul_broadcast", [](const Tensor& z, const Tensor& w) { return z * imag(w)[0]; }},
    {"addcmul", [](const Tensor& z, const Tensor& w) { return addcmul(z, z, w, 1i); }},
    {"lerp", [](const Tensor& z, const Tensor& w) { return lerp(z, w, 0.25); }},
    {"where", [](const Tensor& z, const Tensor& w) { return where(real(z) > 0, z * w, w); }},
    {"polar", [](const Tensor& z, const Tensor& w) { return polar(abs(z), imag(w)); }},
    {"complex", [](const Tensor& z, const Tensor& w) { return complex(real(w), imag(z)) * z; }},
    {"sum", [](const Tensor& z, const Tensor&) { return (z * z).sum(); }},
    {"mean", [](const Tensor& z, const Tensor&) { return (z * z).mean({1}); }},
    {"prod", [](const Tensor& z, const Tensor&) { return prod(z); }},
    {"prod_dim", [](const Tensor& z, const Tensor&) { return prod(z, 1); }},
    {"var", [](const Tensor& z, const Tensor&) { return var(z); }},
    {"std", [](const Tensor& z, const Tensor&) { return mytorch::std(z, {1}); }},
    {"norm", [](const Tensor& z, const Tensor&) { return linalg_vector_norm(z); }},
    {"norm3", [](const Tensor& z, const Tensor&) { return linalg_vector_norm(z, 3, {0}); }},
    {"cumsum", [](const Tensor& z, const Tensor&) { return cumsum(z * z, 1); }},
    {"cumprod", [](const Tensor& z, const Tensor&) { return cumprod(z, 1); }},
    {"mm", [](const Tensor& z, const Tensor& w) { return mm(z, w.mT()); }},
    {"matmul", [](const Tensor& z, const Tensor& w) { return matmul(z, conj(w.mT())); }},
    {"addmm",
     [](const Tensor& z, const Tensor& w) {
       return addmm(z.slice(1, 0, 2), z, w.mT(), 1i, Scalar(2.0 - 1i));
     }},
    {"bmm",
     [](const Tensor& z, const Tensor& w) { return bmm(unsqueeze(z, 0), unsqueeze(w.mT(), 0)); }},
    {"dot", [](const Tensor& z, const Tensor& w) { return dot(z[0], w[1]); }},
    {"vdot", [](const Tensor& z, const Tensor& w) { return vdot(z[0], w[1]); }},
    {"outer", [](const Tensor& z, const Tensor& w) { return outer(z[0], w[1]); }},
    {"gather",
     [](const Tensor& z, const Tensor&) {
       return gather(z, 1, tensor({{2, 2}, {0, 1}}));
     }},
    {"scatter_add",
     [](const Tensor& z, const Tensor& w) {
       return scatter_add(z, 1, tensor({{2, 2}}), w);
     }},
    {"index_select",
     [](const Tensor& z, const Tensor&) {
       return index_select(z, 1, tensor({2, 0}));
     }},
    {"cat",
     [](const Tensor& z, const Tensor& w) {
       return cat({z, real(w), z}, 0);
     }},
    {"flip_transpose", [](const Tensor& z, const Tensor& w) { return flip(z.mT(), {0}) * w.mT(); }},
    {"masked_fill",
     [](const Tensor& z, const Tensor& w) { return masked_fill(z * w, real(z) > 0, 2i); }},
};

INSTANTIATE_TEST_SUITE_P(All, ComplexGradient, ::testing::ValuesIn(kFunctions),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(ComplexGradients, AreThoseOfPyTorch) {
  const Tensor z = tensor(std::vector<Z>{1.0 + 2i}, kComplex128).requires_grad_();
  abs(z).sum().backward();
  EXPECT_LE(std::abs(z.grad().item<Z>() - (1.0 + 2i) / std::sqrt(5)), 1e-15);
  const Tensor w = tensor(std::vector<Z>{1.0 + 2i}, kComplex128).requires_grad_();
  (w * w).backward(tensor(std::vector<Z>{1.0 + 1i}, kComplex128));
  // grad * conj(f'(w)) for f' = 2 w.
  EXPECT_EQ(w.grad().item<Z>(), (1.0 + 1i) * std::conj(2.0 * (1.0 + 2i)));
  // A real operand of a complex result takes the real part.
  const Tensor x = leaf({3});
  (x * (1.0 + 2i)).backward(tensor(std::vector<Z>{1.0 + 1i}, kComplex128));
  EXPECT_EQ(x.grad().dtype(), kFloat64);
  EXPECT_EQ(values(x.grad()), Values{3});  // Re((1 + i) (1 - 2i))
  const Tensor converted = leaf({3});
  converted.to(kComplex128).backward(tensor(std::vector<Z>{2.0 + 1i}, kComplex128));
  EXPECT_EQ(values(converted.grad()), Values{2});
}

TEST(ComplexGradients, OfMagnitudesAreZeroAtZero) {
  const Tensor z = tensor(std::vector<Z>{0i, 3i}, kComplex128).requires_grad_();
  (abs(z).sum() + real(sgn(z)).sum()).backward();
  EXPECT_EQ(z.grad().to_vector<Z>()[0], Z(0));
}

TEST(ComplexGradients, WritesThroughViewsOfAnotherTypeAreRefused) {
  const Tensor z = tensor(std::vector<Z>{1i}, kComplex128).requires_grad_();
  const Tensor y = z * 2;
  EXPECT_ERROR(real(y).mul_(2), "view of a complex128 tensor");
}

}  // namespace
}  // namespace mytorch
