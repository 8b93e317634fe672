// Gradients of first and second order of every differentiable operator at special points: zeros,
// integers, ties and singular matrices. Where they have a limit from all sides, they must equal it
// there, and at points 1e-6 to 1e-12 beside. MYTORCH_TEST_DEVICE is the device, SPECIAL_POINTS_OF
// the only operator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "conformance/check.h"
#include "conformance/inputs.h"
#include "conformance/leaves.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/functional.h"
#include "mytorch/error.h"
#include "mytorch/mytorch.h"
#include "tests/graph/device.h"

namespace mytorch::conformance {
namespace {

using Numbers = std::vector<double>;

const char* const singular = "singular matrices, at which results are not differentiable";
const char* const equal = "equal eigenvalues or singular values";

// Operators whose gradients differ from what is around them, and why. docs/autograd.md tells users.
const std::map<std::string, const char*>& exceptions() {
  const char* const domain = "the logarithm of a negative number, times 0";
  const char* const kink = "a kink";
  static const std::map<std::string, const char*> all = {
      {"xlogy.Tensor", domain},
      {"special_xlog1py.Tensor", domain},
      {"copysign.Tensor", kink},
      {"clamp", "equal bounds, of which the elements have the gradient, as in PyTorch"},
      {"softshrink", "the identity of lambd 0, of which 0 has no gradient, as in PyTorch"},
      {"special_i0e", kink},
      {"rnn_relu.input", kink},
      {"rnn_relu.data", kink},
      {"cosine_similarity", "a slope of 1 / eps near vectors of zeros"},
      {"std.correction", "differences of numbers as large as 1 / std"},
      {"corrcoef", "differences of numbers as large as 1 / std"},
      {"qr", singular},
      {"logdet", singular},
      {"linalg_lu_factor_ex", singular},
      {"linalg_lu", singular},
      {"linalg_qr", singular},
      {"linalg_slogdet", singular},
      {"slogdet", singular},
      {"cholesky_solve", singular},
      {"cholesky_inverse", singular},
      {"linalg_eig", equal},
      {"linalg_eig_forward", equal},
      {"linalg_eigh", equal},
      {"linalg_eigvalsh", equal},
      {"linalg_svd_forward", equal},
      {"linalg_svd", equal},
  };
  return all;
}

struct Pattern {
  const char* name;
  std::function<double(int64_t)> value;
};

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> all = {
      {"zeros", [](int64_t) { return 0.0; }},
      {"ones", [](int64_t) { return 1.0; }},
      {"equal elements", [](int64_t) { return 0.5; }},
      {"one zero", [](int64_t i) { return i == 1 ? 0.0 : 0.3 + 0.1 * static_cast<double>(i % 7); }},
      {"several zeros",
       [](int64_t i) { return i % 2 == 0 ? 0.0 : 0.2 + 0.1 * static_cast<double>(i % 5); }},
      {"whole numbers", [](int64_t i) { return static_cast<double>(i % 4); }},
      {"negative numbers", [](int64_t i) { return -1.0 - static_cast<double>(i % 3); }},
  };
  return all;
}

// Fixed numbers in [-1, 1] that differ.
double wave(int64_t i, int which) { return std::cos(1.7 * static_cast<double>(i) + which); }

Tensor filled(const Tensor& like, const std::function<double(int64_t)>& value) {
  const bool complex = like.is_complex();
  Numbers numbers;
  for (int64_t i = 0; i < like.numel() * (complex ? 2 : 1); ++i) numbers.push_back(value(i));
  const Tensor flat = tensor(numbers, kFloat64).to(like.device());
  if (!complex) return flat.reshape(like.sizes()).to(like.dtype());
  return view_as_complex(flat.reshape({-1, 2})).reshape(like.sizes()).to(like.dtype());
}

Tensor real_weighted(const Tensor& x, int which) {
  const Tensor parts = x.is_complex() ? view_as_real(x) : x;
  return (parts * filled(parts.detach(), [&](int64_t i) { return wave(i, which); })).sum();
}

Tensor total(const std::vector<Tensor>& list, int which) {
  Tensor sum;
  for (const Tensor& x : list) {
    if (!x.defined() || !x.requires_grad() || x.numel() == 0) continue;
    const Tensor term = real_weighted(x, which++);
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

void append(const std::vector<Tensor>& list, Numbers* numbers) {
  for (const Tensor& x : list) {
    if (!x.defined() || x.numel() == 0) continue;
    const Tensor parts = (x.is_complex() ? view_as_real(x) : x).detach();
    for (const double each : parts.to(kFloat64).contiguous().reshape({-1}).to_vector<double>()) {
      numbers->push_back(each);
    }
  }
}

// The elements of the gradients at a point, and of their gradients.
struct Derivatives {
  Numbers first, second;
};

Derivatives derivatives_at(const OpRecord& op, const DifferentiableCall& call_of,
                           const std::vector<Tensor>& point) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : point) leaves.push_back(x.detach().clone().requires_grad_());
  Derivatives found;
  const Tensor value = total(call_of.function(leaves), 0);
  if (!value.defined()) return found;
  const bool twice = !op.once_differentiable;
  const std::vector<Tensor> first =
      autograd::grad({value}, leaves, {}, {.create_graph = twice, .allow_unused = true});
  append(first, &found.first);
  if (!twice) return found;
  const Tensor again = total(first, 5);
  if (!again.defined()) return found;
  append(autograd::grad({again}, leaves, {}, {.allow_unused = true}), &found.second);
  return found;
}

// Returns how the derivative in a direction by jvp differs from that by the gradient, or "".
std::string compare_directed(const DifferentiableCall& call_of, const std::vector<Tensor>& point) {
  std::vector<Tensor> along;
  for (const Tensor& x : point) {
    along.push_back(filled(x, [](int64_t i) { return wave(i, 9); }));
  }
  std::vector<Tensor> leaves;
  for (const Tensor& x : point) leaves.push_back(x.detach().clone().requires_grad_());
  const Tensor value = total(call_of.function(leaves), 0);
  if (!value.defined()) return "";
  const std::vector<Tensor> slopes = autograd::grad({value}, leaves, {}, {.allow_unused = true});
  double expected = 0, size = 1;
  for (size_t i = 0; i < slopes.size(); ++i) {
    if (!slopes[i].defined()) continue;
    Numbers slope, step;
    append({slopes[i]}, &slope);
    append({along[i]}, &step);
    for (size_t k = 0; k < slope.size(); ++k) {
      expected += slope[k] * step[k];
      size += std::abs(slope[k] * step[k]);
    }
  }
  if (!std::isfinite(expected)) return "";
  const auto f = [&](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{total(call_of.function(in), 0)};
  };
  const auto products = autograd::functional::jvp(f, leaves, along, {}).products;
  const double found = products.at(0).item<double>();
  if (std::abs(found - expected) <= 1e-4 * size) return "";
  return "jvp is " + std::to_string(found) + ", the gradient times it " + std::to_string(expected);
}

// Returns the mean of numbers that are close to each other.
std::optional<double> limit(const Numbers& around, double allowed) {
  double sum = 0, largest = 0;
  for (const double x : around) {
    if (!std::isfinite(x)) return {};
    sum += x;
    largest = std::max(largest, std::abs(x));
  }
  const auto [low, high] = std::minmax_element(around.begin(), around.end());
  if (*high - *low > allowed * (1 + largest)) return {};
  return sum / static_cast<double>(around.size());
}

// Returns what differs from the limits, or "".
std::string compare(const std::string& what, const Numbers& at,
                    const std::vector<Numbers>& around) {
  for (size_t i = 0; i < at.size(); ++i) {
    Numbers near;
    for (const Numbers& each : around) {
      if (each.size() != at.size()) return "";
      near.push_back(each[i]);
    }
    const std::optional<double> expected = limit(near, 1e-2);
    if (!expected || std::abs(at[i] - *expected) <= 3e-2 * (1 + std::abs(*expected))) continue;
    return what + "[" + std::to_string(i) + "] is " + std::to_string(at[i]) + ", but " +
           std::to_string(*expected) + " around";
  }
  return "";
}

// The point moved by a step times numbers in [-1, 1], which are all 1 for `which` < 2.
std::vector<Tensor> moved(const std::vector<Tensor>& point, double step, int which) {
  std::vector<Tensor> near;
  for (size_t k = 0; k < point.size(); ++k) {
    near.push_back(point[k] + filled(point[k], [&](int64_t i) {
                     return step * (which < 2 ? 1 : wave(i + 31 * static_cast<int64_t>(k), which));
                   }));
  }
  return near;
}

std::string check_at(const OpRecord& op, const DifferentiableCall& call_of,
                     const std::vector<Tensor>& point) {
  std::vector<Numbers> first, second;
  for (int which = 0; which < 6; ++which) {
    const double step = which % 2 == 0 ? 1e-3 : -1e-3;
    Derivatives found = derivatives_at(op, call_of, moved(point, step, which / 2 * 2));
    first.push_back(found.first);
    second.push_back(found.second);
  }
  for (const double step : {0.0, 1e-6, 1e-9, 1e-12}) {
    const std::vector<Tensor> there = step == 0 ? point : moved(point, step, 2);
    const Derivatives at = derivatives_at(op, call_of, there);
    const std::string where =
        step == 0 ? "" : " " + std::to_string(std::lround(-std::log10(step))) + " digits beside";
    std::string text = compare("gradient" + where, at.first, first);
    if (text.empty()) text = compare("second gradient" + where, at.second, second);
    if (!text.empty()) return text;
  }
  return op.once_differentiable ? "" : compare_directed(call_of, point);
}

// Calls f(name, point) for the special points of a call: of all its operands, or one of them.
template <class F>
void for_each_point(const DifferentiableCall& call_of, ScalarType type, F&& f) {
  const auto as_type = [&](const Tensor& x) {
    const Tensor typed = type == kFloat32 ? x.to(x.is_complex() ? kComplex64 : kFloat32) : x;
    return typed.detach().to(test_device());
  };
  const int count = static_cast<int>(call_of.leaves.size());
  for (const Pattern& pattern : patterns()) {
    for (int which = -1; which < (count > 1 ? count : 0); ++which) {
      std::vector<Tensor> point;
      for (int k = 0; k < count; ++k) {
        const Tensor leaf = as_type(call_of.leaves[static_cast<size_t>(k)]);
        point.push_back(which < 0 || which == k ? filled(leaf, pattern.value) : leaf);
      }
      f(std::string(pattern.name) + " in " +
            (which < 0 ? "all" : call_of.names[static_cast<size_t>(which)]),
        point);
    }
  }
}

// Returns the call of a case in float64, without leaves if it is none that can be differentiated.
DifferentiableCall call_of_case(const Case& c) {
  if (!c.error().empty() || c.may_fail() || (c.typed && c.dtype != kFloat64)) return {};
  DifferentiableCall found;
  try {
    found = differentiable_call(c, make_arguments(c, 1, test_device(), kFloat64));
  } catch (const Error&) {
    return {};
  }
  int64_t elements = 0;
  for (const Tensor& leaf : found.leaves) elements += leaf.numel();
  return elements > 300 ? DifferentiableCall{} : found;
}

// Returns what is wrong with an operator's gradients, one line for each kind of point.
std::vector<std::string> faults_of(const OpRecord& op, ScalarType type) {
  std::vector<std::string> lines;
  std::set<std::string> seen;
  int rest = type == kFloat64 ? 8 : 2;  // calls; most faults do not depend on the type
  for (const Case& c : cases_of(op)) {
    const DifferentiableCall call_of = call_of_case(c);
    if (call_of.leaves.empty() || rest-- == 0) continue;
    for_each_point(call_of, type, [&](const std::string& name, const std::vector<Tensor>& point) {
      if (seen.count(name) != 0) return;
      std::string text;
      try {
        text = check_at(op, call_of, point);
      } catch (const Error&) {
        return;  // the operator refuses the point
      }
      if (text.empty()) return;
      seen.insert(name);
      lines.push_back(op.name + ": " + name + ": " + text + "  " + c.sample->dump());
    });
  }
  return lines;
}

void check_records(ScalarType type) {
  const char* const only = std::getenv("SPECIAL_POINTS_OF");
#ifdef __SANITIZE_ADDRESS__
  const size_t every = 10;  // sanitizers are ten times as slow
#else
  const size_t every = 1;
#endif
  for (const OpRecord& op : load_catalog(share_folder())) {
    if (!op.differentiable() || op.derived || op.random() || op.unspecified()) continue;
    if (only != nullptr ? op.name != only : std::hash<std::string>()(op.name) % every != 0)
      continue;
    const std::vector<std::string> lines = faults_of(op, type);
    if (const auto known = exceptions().find(op.name); known != exceptions().end()) {
      // Some of these are seen in double precision only. What rounding makes of a singular matrix
      // depends on LAPACK and the processor, and all rounding on the device.
      const bool by_rounding =
          known->second == singular || known->second == equal || test_device() != Device("cpu");
      EXPECT_FALSE(lines.empty() && type == kFloat64 && !by_rounding)
          << op.name << " is no exception any more";
      continue;
    }
    for (const std::string& line : lines) ADD_FAILURE() << line;
  }
}

TEST(SpecialPointsOfRecords, GradientsEqualTheirLimitsInFloat64) { check_records(kFloat64); }
TEST(SpecialPointsOfRecords, GradientsEqualTheirLimitsInFloat32) { check_records(kFloat32); }

}  // namespace
}  // namespace mytorch::conformance
