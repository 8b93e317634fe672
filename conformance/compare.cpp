#include "conformance/compare.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "graph/run/closeness.h"

namespace mytorch::conformance {
namespace {

double default_relative(ScalarType dtype) {
  switch (dtype) {
    case kFloat16:
      return 2e-3;
    case kBFloat16:
      return 1.6e-2;
    case kFloat32:
    case kComplex64:
      return 1e-5;
    default:
      return 1e-12;
  }
}

// Larger terms are test values at the ends of the range. They count only for linear operators,
// whose every step has an error relative to its operands.
constexpr double kOrdinary = 1e4;

std::vector<const Tensor*> tensors_of(const Arguments& arguments) {
  std::vector<const Tensor*> found;
  for (const auto& [name, value] : arguments.values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) found.push_back(tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (const Tensor& t : *list) {
        if (t.defined()) found.push_back(&t);
      }
    }
  }
  return found;
}

double largest(const std::vector<Element>& elements, double limit) {
  double found = 0;
  for (const Element& e : elements) {
    const double size = e.size();
    if (size <= limit) found = std::max(found, size);
  }
  return found;
}

// Calls f(i, x) for every element i of the result and every element x of an operand that broadcasts
// to it.
template <class F>
void for_each_operand(const Arguments& arguments, const Tensor& result, F f) {
  const std::vector<int64_t> shape = result.sizes().vec();
  for (const Tensor* t : tensors_of(arguments)) {
    if (t->sizes().size() > shape.size()) continue;
    const std::vector<Element> elements = elements_of(*t);
    const size_t lead = shape.size() - t->sizes().size();
    std::vector<int64_t> strides(shape.size(), 0);
    int64_t step = 1;
    for (size_t d = t->sizes().size(); d-- > 0;) {
      strides[lead + d] = t->sizes()[d] == 1 ? 0 : step;
      step *= t->sizes()[d];
    }
    size_t at = 0;
    for_each_offset(shape, strides, [&](int64_t offset) {
      if (offset < static_cast<int64_t>(elements.size()))
        f(at, is_complex(t->dtype()) ? elements[offset].size() : elements[offset].as_double());
      ++at;
    });
  }
  for (const auto& [name, value] : arguments.values) {
    if (const auto* scalar = std::get_if<Scalar>(&value.variant())) {
      for (size_t at = 0; at < static_cast<size_t>(result.numel()); ++at)
        f(at, std::hypot(scalar->real(), scalar->imag()));
    }
  }
}

// Returns the largest operand of each element of the result.
std::vector<double> operand_sizes(const Arguments& arguments, const Tensor& result, double limit) {
  std::vector<double> sizes(static_cast<size_t>(result.numel()), 0.0);
  for_each_operand(arguments, result, [&](size_t at, double value) {
    if (std::isfinite(value)) sizes[at] = std::max(sizes[at], std::min(std::abs(value), limit));
  });
  return sizes;
}

// Returns the elements of a gradient that may be infinity times a vanishing slope. In one precision
// the slope is 0 and the product NaN; in another it is tiny and the product infinite.
std::vector<bool> vanishing_slopes(const OpRecord& op, const Arguments& arguments,
                                   const Tensor& result) {
  std::vector<bool> found(static_cast<size_t>(result.numel()), false);
  if (!op.derived) return found;
  for_each_operand(arguments, result,
                   [&](size_t at, double value) { found[at] = found[at] || std::isinf(value); });
  return found;
}

// Whether padding takes part in a product: a kernel may multiply the zeros around the input, which
// infinities turn into NaN, or leave them out.
bool multiplies_padding(const OpRecord& op, const Arguments& arguments) {
  if (op.name.find("conv") == std::string::npos) return false;
  for (const Tensor* t : tensors_of(arguments)) {
    for (const Element& e : elements_of(*t)) {
      if (!std::isfinite(e.as_double())) return true;
    }
  }
  return false;
}

std::string text(const Element& e) {
  std::ostringstream out;
  out.precision(17);
  if (e.is_float) {
    out << e.d;
    if (e.im != 0) out << (e.im < 0 ? " - " : " + ") << std::abs(e.im) << "i";
  } else
    out << e.i;
  return out.str();
}

std::string index_text(int64_t linear, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = linear % shape[d];
    linear /= shape[d];
  }
  std::string out = "[";
  for (size_t d = 0; d < shape.size(); ++d) out += (d ? ", " : "") + std::to_string(index[d]);
  return out + "]";
}

// The error of a complex number is relative to its magnitude: a part may be the difference of
// larger numbers. Which parts are NaN or infinite beside an infinite one depends on the formula.
double complex_excess(const Element& got, const Element& want, double allowed) {
  const auto finite = [](const Element& e) { return std::isfinite(e.d) && std::isfinite(e.im); };
  if (!finite(got) || !finite(want)) return finite(got) == finite(want) ? 0 : INFINITY;
  const double error = std::hypot(got.d - want.d, got.im - want.im);
  return error == 0 ? 0 : allowed > 0 ? error / allowed : INFINITY;
}

// Whether an infinite element may be one near the end of the type's range: a step on the way to it
// may be larger than the result.
bool overflows(ScalarType dtype, double found, double expected) {
  constexpr double kNear = 0x1p-8;
  const double most = dtype == kFloat16 ? 65504 : dtype == kFloat64 ? 0x1p1023 : 0x1p127;
  return std::isinf(found) && std::abs(expected) > kNear * most &&
         std::signbit(found) == std::signbit(expected);
}

// How much further from its value than the results at perturbed operands an element may be: they
// are few, and their errors smaller than those of many steps.
constexpr double kFurther = 16;

// Adds to the allowed errors what elements move by when operands have rounding errors.
void allow_nearby(const std::vector<Tensor>& nearby, const std::vector<Element>& elements,
                  std::vector<double>* allowed) {
  std::vector<double> moved(elements.size(), 0.0);
  for (const Tensor& tensor : nearby) {
    const std::vector<Element> others = elements_of(tensor);
    if (others.size() != elements.size()) continue;
    for (size_t i = 0; i < elements.size(); ++i) {
      const double distance =
          std::hypot(others[i].d - elements[i].d, others[i].im - elements[i].im);
      if (std::isfinite(distance)) moved[i] = std::max(moved[i], distance);
    }
  }
  for (size_t i = 0; i < elements.size(); ++i) (*allowed)[i] += kFurther * moved[i];
}

std::string tensor_difference(const OpRecord& op, const Arguments& arguments, const Tensor& found,
                              const Tensor& expected, const Tolerance& tolerance, bool values_only,
                              double* worst_error, const std::vector<Tensor>& nearby) {
  if (found.defined() != expected.defined()) {
    return found.defined() ? "is defined, expected none" : "is undefined, expected a tensor";
  }
  if (!found.defined()) return "";
  if (found.dtype() != expected.dtype() || !(found.sizes() == expected.sizes()) ||
      (!values_only && !same_strides(found, expected))) {
    return "is " + shape_text(found) + ", expected " + shape_text(expected);
  }
  if (op.unspecified()) return "";
  const std::vector<Element> got = elements_of(found);
  const std::vector<Element> want = elements_of(expected);
  std::vector<double> allowed;
  std::vector<bool> vanishing;
  if (is_differentiable(expected.dtype())) {
    allowed = tolerance.allowed(op, arguments, expected, want);
    allow_nearby(nearby, want, &allowed);
    vanishing = vanishing_slopes(op, arguments, expected);
  }
  const bool padded = multiplies_padding(op, arguments);
  const size_t slices = std::max<size_t>(1, tolerance.skipped.size());
  const size_t slice = std::max<size_t>(1, want.size() / slices);
  int64_t worst = -1;
  double worst_excess = 0;
  int64_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double excess = 0;
    if (padded && std::isnan(got[i].d)) continue;
    if (!tolerance.skipped.empty() && tolerance.skipped[i / slice]) continue;
    if (!want[i].is_float) {
      excess = got[i].i == want[i].i ? 0 : INFINITY;
    } else if (is_complex(expected.dtype())) {
      excess = complex_excess(got[i], want[i], allowed[i]);
    } else if (undefined_moment(op, got[i].d, want[i].d) ||
               (tolerance.infinities && !std::isfinite(got[i].d) && !std::isfinite(want[i].d)) ||
               (vanishing[i] && !std::isfinite(got[i].d) && !std::isfinite(want[i].d))) {
      excess = 0;
    } else if (std::isnan(want[i].d) || std::isnan(got[i].d)) {
      excess = std::isnan(want[i].d) && std::isnan(got[i].d) ? 0 : INFINITY;
    } else if (std::isinf(want[i].d) || std::isinf(got[i].d)) {
      excess =
          want[i].d == got[i].d || overflows(expected.dtype(), got[i].d, want[i].d) ? 0 : INFINITY;
    } else {
      const double error = std::abs(got[i].d - want[i].d);
      excess = error == 0 ? 0 : allowed[i] > 0 ? error / allowed[i] : INFINITY;
    }
    if (worst_error != nullptr) *worst_error = std::max(*worst_error, excess);
    if (excess <= 1) excess = 0;
    if (excess == 0) continue;
    ++wrong;
    if (worst < 0 || excess > worst_excess) {
      worst = static_cast<int64_t>(i);
      worst_excess = excess;
    }
  }
  if (worst < 0) return "";
  std::ostringstream out;
  out << "element " << index_text(worst, expected.sizes().vec()) << " is " << text(got[worst])
      << ", expected " << text(want[worst]);
  if (!allowed.empty()) out << " (allowed error " << allowed[worst] << ")";
  out << "; " << wrong << " of " << want.size() << " elements differ in " << shape_text(expected);
  return out.str();
}

}  // namespace

bool same_strides(const Tensor& a, const Tensor& b) {
  if (b.numel() == 0) return true;
  for (int64_t d = 0; d < b.dim(); ++d) {
    if (b.sizes()[d] != 1 && a.strides()[d] != b.strides()[d]) return false;
  }
  return true;
}

bool undefined_moment(const OpRecord& op, double a, double b) {
  return op.fold == "welford" && !std::isfinite(a) && !std::isfinite(b);
}

std::vector<double> Tolerance::allowed(const OpRecord& op, const Arguments& arguments,
                                       const Tensor& expected,
                                       const std::vector<Element>& elements) const {
  std::vector<double> result(elements.size(), 0.0);
  if (exact || op.meaning == "view") return result;
  const ScalarType dtype = expected.dtype();
  const double eps = graph::rounding_error(dtype);
  const auto own = op.tolerance.find(dtype_name(dtype));
  const double relative =
      (own != op.tolerance.end() ? own->second : default_relative(dtype)) * factor;
  std::vector<double> terms(elements.size(), 0.0);
  double steps = 8 * factor;
  if (op.meaning == "pointwise") {
    static const std::set<std::string> kLinear = {"input", "scalar", "const", "cast",
                                                  "add",   "sub",    "mul",   "neg"};
    const bool linear =
        std::includes(kLinear.begin(), kLinear.end(), op.nodes.begin(), op.nodes.end());
    if (op.nodes.contains("add") || op.nodes.contains("sub")) {
      terms = operand_sizes(arguments, expected, linear ? 1e300 : kOrdinary);
    }
  } else {
    double size = 0;
    double count = 0;
    for (const Tensor* t : tensors_of(arguments)) {
      size = std::max(size, largest(elements_of(*t), kOrdinary));
      count = std::max(count, static_cast<double>(t->numel()));
    }
    count = std::max(1.0, count / std::max<double>(1.0, static_cast<double>(elements.size())));
    double top = std::max({size, size * std::min(size, 100.0), largest(elements, kOrdinary)});
    if (by_result) top = std::min(top, largest(elements, 1e300));
    std::fill(terms.begin(), terms.end(), top);
    steps *= std::sqrt(count);
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    // The subnormal numbers of a type are evenly spaced, so their error is absolute.
    const double spacing = dtype == kFloat16                           ? 0x1p-24
                           : dtype == kFloat64 || dtype == kComplex128 ? 0x1p-1074
                                                                       : 0x1p-126;
    result[i] = relative * elements[i].size() + steps * eps * terms[i] + spacing;
  }
  return result;
}

std::vector<bool> skipped_slices(const Arguments& arguments, const std::vector<Value>& found,
                                 const std::vector<Value>& expected, std::string* problem) {
  std::vector<Tensor> operands, got, want;
  const auto collect = [](const Value& value, std::vector<Tensor>* to) {
    const auto add = [&](const Tensor& tensor) {
      if (tensor.defined() && tensor.numel() > 0) to->push_back(tensor);
    };
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) add(*tensor);
    if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      std::for_each(list->begin(), list->end(), add);
    }
  };
  for (const auto& [name, value] : arguments.values) collect(value, &operands);
  for (const Value& value : found) collect(value, &got);
  for (const Value& value : expected) collect(value, &want);
  if (operands.empty() || want.empty()) return {};
  int64_t batch = 1;
  if (operands[0].dim() > 2) {
    batch = operands[0].size(0);
    for (const std::vector<Tensor>* all : {&operands, &got, &want}) {
      for (const Tensor& t : *all) {
        if (t.dim() == 0 || t.size(0) != operands[0].size(0)) batch = 1;
      }
    }
  }
  const auto non_finite = [&](const std::vector<Tensor>& tensors) {
    std::vector<bool> slices(static_cast<size_t>(batch), false);
    for (const Tensor& t : tensors) {
      if (!is_differentiable(t.dtype())) continue;
      const std::vector<Element> elements = elements_of(t);
      const size_t slice = elements.size() / slices.size();
      for (size_t i = 0; i < elements.size(); ++i) {
        if (!std::isfinite(elements[i].d) || !std::isfinite(elements[i].im)) {
          slices[i / slice] = true;
        }
      }
    }
    return slices;
  };
  const std::vector<bool> a = non_finite(got), b = non_finite(want);
  std::vector<bool> skipped(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    skipped[i] = a[i] && b[i];
    if (a[i] == b[i]) continue;
    *problem = std::string("the results") + (batch > 1 ? " of batch " + std::to_string(i) : "") +
               (a[i] ? " have non-finite elements, expected none"
                     : " are finite, expected some NaN or infinity");
  }
  return skipped;
}

std::string difference(const OpRecord& op, const Arguments& arguments, const Value& found,
                       const Value& expected, const Tolerance& tolerance, bool values_only,
                       double* worst) {
  const auto& a = found.variant();
  const auto& b = expected.variant();
  if (a.index() != b.index())
    return "is " + found.type_name() + ", expected " + expected.type_name();
  if (const auto* tensor = std::get_if<Tensor>(&b)) {
    std::vector<Tensor> nearby;
    for (const Value* value : tolerance.nearby) nearby.push_back(value->tensor());
    return tensor_difference(op, arguments, found.tensor(), *tensor, tolerance, values_only, worst,
                             nearby);
  }
  if (const auto* list = std::get_if<std::vector<Tensor>>(&b)) {
    const auto& got = found.tensors();
    if (got.size() != list->size()) {
      return "has " + std::to_string(got.size()) + " tensors, expected " +
             std::to_string(list->size());
    }
    for (size_t i = 0; i < got.size(); ++i) {
      std::vector<Tensor> nearby;
      for (const Value* value : tolerance.nearby) {
        if (i < value->tensors().size()) nearby.push_back(value->tensors()[i]);
      }
      const std::string what = tensor_difference(op, arguments, got[i], (*list)[i], tolerance,
                                                 values_only, worst, nearby);
      if (!what.empty()) return "tensor " + std::to_string(i) + " " + what;
    }
    return "";
  }
  if (std::holds_alternative<Scalar>(b)) {
    const double got = found.scalar().to_double();
    const double want = expected.scalar().to_double();
    const bool equal = std::isnan(want) ? std::isnan(got) : got == want;
    if (equal && found.type_name() == expected.type_name()) return "";
    return "is " + found.type_name() + " " + std::to_string(got) + ", expected " +
           expected.type_name() + " " + std::to_string(want);
  }
  return "";
}

std::string shape_text(const Tensor& tensor) {
  auto list = [](IntList values) {
    std::string out = "(";
    for (size_t i = 0; i < values.size(); ++i) out += (i ? ", " : "") + std::to_string(values[i]);
    return out + ")";
  };
  return std::string(dtype_name(tensor.dtype())) + " " + list(tensor.sizes()) + " strides " +
         list(tensor.strides());
}

}  // namespace mytorch::conformance
