// PyTorch's results and gradients, replayed.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "conformance/check.h"
#include "conformance/compare.h"
#include "conformance/elements.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"

namespace mytorch::conformance {
namespace {

double as_number(const Json& json) {
  if (json.is_string()) return json == "nan" ? NAN : json == "inf" ? INFINITY : -INFINITY;
  return json.is_boolean() ? json.get<bool>() : json.get<double>();
}

// The tolerance for a result computed in `dtype`, compared with one with 6 digits.
double relative(ScalarType dtype) {
  switch (dtype) {
    case kFloat16:
      return 2e-3;
    case kBFloat16:
      return 1.6e-2;
    case kFloat32:
      return 2e-5;
    default:
      return 1e-5;
  }
}

// Operators for which the sign of a zero is part of the result; of others it is PyTorch's own
// choice, which differs between its scalar and its vector code.
bool keeps_zero_sign(const std::string& op) {
  static const std::set<std::string> kOps = {
      "neg",        "abs",  "copysign.Tensor", "floor", "ceil",      "round", "trunc", "mul.Tensor",
      "div.Tensor", "sqrt", "clone",           "alias", "reciprocal"};
  return kOps.contains(op);
}

std::string compare_values(const OpRecord& op, const std::vector<Element>& found,
                           const Json& expected, ScalarType dtype, bool zero_sign) {
  if (expected.is_null()) return "";  // random, or never written
  if (found.size() != expected.size()) return "has another number of elements";
  double top = 0;
  for (const Json& value : expected) {
    if (std::isfinite(as_number(value))) top = std::max(top, std::abs(as_number(value)));
  }
  for (size_t i = 0; i < found.size(); ++i) {
    bool equal;
    if (!found[i].is_float) {
      equal = expected[i].is_number_integer() && found[i].i == expected[i].get<int64_t>();
    } else {
      const double want = as_number(expected[i]);
      const double got = found[i].d;
      // Sums that cancel are only as exact as their terms, which were near the largest result.
      equal = std::isnan(want) ? std::isnan(got)
              : std::isinf(want)
                  ? got == want
                  : std::abs(got - want) <= relative(dtype) * (std::abs(want) + top / 64);
      equal |= undefined_moment(op, got, want);
      if (want == 0 && got == 0 && zero_sign) equal = std::signbit(want) == std::signbit(got);
    }
    if (equal) continue;
    std::ostringstream out;
    out.precision(12);
    out << "element " << i << " is " << found[i].as_double() << ", PyTorch gives " << expected[i];
    return out.str();
  }
  return "";
}

// The elements of a tensor; of a complex one the parts of each.
std::vector<Element> parts_of(const Tensor& tensor) {
  std::vector<Element> elements = elements_of(tensor);
  if (!is_complex(tensor.dtype())) return elements;
  std::vector<Element> parts;
  for (const Element& e : elements) {
    parts.push_back(Element::of_float(e.d));
    parts.push_back(Element::of_float(e.im));
  }
  return parts;
}

std::string compare_one(const OpRecord& op, const Value& found, const Json& expected) {
  if (!expected.is_array()) {
    const double want = as_number(expected);
    const double got = found.scalar().to_double();
    const bool equal =
        std::isnan(want) ? std::isnan(got) : std::abs(got - want) <= 1e-5 * std::abs(want);
    return equal ? "" : "is " + std::to_string(got) + ", PyTorch gives " + expected.dump();
  }
  const Tensor& tensor = found.tensor();
  const std::vector<int64_t> shape = expected[1].get<std::vector<int64_t>>();
  if (dtype_name(tensor.dtype()) != expected[0].get<std::string>() ||
      tensor.sizes().vec() != shape) {
    std::string own = dtype_name(tensor.dtype());
    return "is " + own + Json(tensor.sizes().vec()).dump() + ", PyTorch gives " +
           expected[0].get<std::string>() + expected[1].dump();
  }
  return compare_values(op, parts_of(tensor), expected[2], to_real(tensor.dtype()),
                        keeps_zero_sign(op.name));
}

// Returns a leaf with the values of an argument.
Tensor leaf_for(const Tensor& tensor) { return copy_of(tensor).detach().requires_grad_(); }

bool is_double(const Tensor& tensor) {
  return tensor.defined() && to_real(tensor.dtype()) == kFloat64;
}

// Replaces the arguments whose gradients are recorded by leaves.
std::map<std::string, std::vector<Tensor>> track(const OpRecord& op, const Json& expected,
                                                 Arguments* arguments) {
  std::map<std::string, std::vector<Tensor>> leaves;
  for (auto& [name, value] : arguments->values) {
    if (!expected.contains(name)) continue;
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (!is_double(*tensor)) continue;
      leaves[name] = {leaf_for(*tensor)};
      const Tensor& leaf = leaves[name][0];
      value = op.arg(name)->written ? call("clone", {leaf})[0].tensor() : leaf;
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      if (!std::all_of(list->begin(), list->end(), is_double)) continue;
      for (const Tensor& tensor : *list) leaves[name].push_back(leaf_for(tensor));
      value = leaves[name];
    }
  }
  return leaves;
}

// Returns the sum of the results that require a gradient, the first one with weights 1, 1.25, 1.5,
// ..., each further one that has elements with weights that start 0.5 higher; an undefined tensor
// if there are none.
Tensor weighted_sum(const std::vector<Value>& results) {
  Tensor total;
  double first = 1;
  for (const Value& result : results) {
    std::vector<Tensor> tensors;
    if (const auto* one = std::get_if<Tensor>(&result.variant())) tensors = {*one};
    if (const auto* list = std::get_if<std::vector<Tensor>>(&result.variant())) tensors = *list;
    for (Tensor t : tensors) {
      if (!t.defined() || !t.requires_grad()) continue;
      if (t.is_complex()) t = call("view_as_real", {t})[0].tensor();
      std::vector<double> weights(static_cast<size_t>(t.numel()));
      for (size_t i = 0; i < weights.size(); ++i)
        weights[i] = first + 0.25 * static_cast<double>(i);
      if (t.numel() != 0) first += 0.5;
      Tensor w = tensor(weights, kFloat64);
      w = call("view", {w, t.sizes().vec()})[0].tensor();
      if (!t.device().is_cpu()) w = call("to.device", {w, t.device()})[0].tensor();
      const Tensor sum = call("sum", {call("mul", {t, w})[0]})[0].tensor();
      total = total.defined() ? call("add", {total, sum})[0].tensor() : sum;
    }
  }
  return total;
}

void check_gradients(const Case& c, Arguments arguments, const Json& expected, const Fail& fail) {
  const auto leaves = track(*c.op, expected, &arguments);
  if (leaves.empty()) return;
  const Tensor total = weighted_sum(call_named(c.op->name, arguments));
  if (!total.defined()) {
    fail("gradient", "no result requires a gradient");
    return;
  }
  total.backward();
  for (const auto& [name, list] : leaves) {
    for (size_t i = 0; i < list.size(); ++i) {
      const Json& own = expected.at(name);
      const Json& want = c.op->arg(name)->is_tensor_list() ? own.at(i) : own;
      const Tensor grad = list[i].grad();
      if (!grad.defined()) {
        const bool zero =
            std::all_of(want.begin(), want.end(), [](const Json& x) { return x == 0; });
        if (!zero) fail("gradient", "of '" + name + "' is absent");
        continue;
      }
      const std::string what = compare_values(*c.op, parts_of(grad), want, kFloat64, false);
      if (!what.empty()) fail("gradient", "of '" + name + "': " + what);
    }
  }
}

// Types that PyTorch refuses must be refused, with a reason.
void check_refused(const Case& c, const Arguments& arguments, const Json& golden,
                   const Fail& fail) {
  try {
    call_named(c.op->name, arguments);
    fail("golden",
         "returned a result, but PyTorch fails: " + golden.at("error").get<std::string>());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kType) {
      fail("golden", std::string("failed with an error other than a type error: ") + error.what());
    }
  }
}

void check_results(const Case& c, const Arguments& given, const Json& golden, const Fail& fail) {
  const Arguments arguments = copy_of(given);
  std::vector<Value> flat;
  for (const Value& result : call_named(c.op->name, arguments)) {
    if (const auto* list = std::get_if<std::vector<Tensor>>(&result.variant())) {
      flat.insert(flat.end(), list->begin(), list->end());
    } else {
      flat.push_back(result);
    }
  }
  const Json& expected = golden.at("out");
  if (flat.size() != expected.size()) {
    fail("golden", "has " + std::to_string(flat.size()) + " results, but PyTorch has " +
                       std::to_string(expected.size()));
    return;
  }
  for (size_t i = 0; i < flat.size(); ++i) {
    const std::string what = compare_one(*c.op, flat[i], expected[i]);
    if (!what.empty()) fail("golden", "result " + std::to_string(i) + " " + what);
  }
  if (!golden.contains("after")) return;
  for (const auto& [name, want] : golden.at("after").items()) {
    const Tensor& tensor = arguments.find(name)->tensor();
    const std::string what =
        compare_values(*c.op, parts_of(tensor), want, to_real(tensor.dtype()), false);
    if (!what.empty()) fail("golden", "argument '" + name + "' afterwards: " + what);
  }
}

void check_one(const Case& c, const Arguments& arguments, const Json& golden, const Fail& fail) {
  if (golden.contains("error")) {
    check_refused(c, arguments, golden, fail);
    return;
  }
  try {
    check_results(c, arguments, golden, fail);
    if (golden.contains("grad")) check_gradients(c, arguments, golden.at("grad"), fail);
  } catch (const Error& error) {
    fail("golden", std::string("failed: ") + error.what());
  }
}

}  // namespace

Report check_goldens(const std::vector<OpRecord>& catalog, const Options& options,
                     std::ostream& out) {
  std::map<std::string, const OpRecord*> known;
  for (const OpRecord& op : catalog) known[op.name] = &op;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(share_folder() + "/goldens")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::optional<Prefer> pin;
  if (!options.backend.empty()) pin.emplace(options.device, options.backend);
  Report report;
  for (const auto& file : files) {
    int line = 1;
    std::ifstream stream(file);
    for (const Json& golden : Json::parse(stream)) {
      ++line;
      const auto op = known.find(golden.at("op").get<std::string>());
      if (op == known.end() || !options.selects(*op->second)) continue;
      const Case c{op->second, &golden, line, false,
                   dtype_from_name(golden.value("dtype", "float64").c_str())};
      const Arguments arguments = make_golden_arguments(c, Device(options.device));
      bool failed = false;
      check_one(c, arguments, golden, [&](const std::string& check, const std::string& what) {
        failed = true;
        const Failure failure{
            c.op->name, -1, check, describe(arguments),
            what + " (" + file.filename().string() + ":" + std::to_string(line) + ")"};
        report.failures.push_back(failure);
        print_failure(failure, reproducer(options, failure.op, -1) + " --goldens", out);
      });
      Score& score = report.scores[c.op->name];
      ++score.cases;
      score.failed += failed;
      ++report.cases;
      report.failed += failed;
    }
  }
  out << report.cases << " golden cases, " << report.cases - report.failed << " passed, "
      << report.failed << " failed" << std::endl;
  return report;
}

}  // namespace mytorch::conformance
