#include "graph/rules/rule_eval.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/types/errors.h"

namespace mytorch::graph {
namespace {

using Ints = std::vector<int64_t>;

[[noreturn]] void refuse_rule(const Expr& e, const char* why) {
  fail(ErrorCode::kValue, "[rewrite] column ", e.column, ": ", why);
}

const Scalar* number_of(const Value& value) { return std::get_if<Scalar>(&value.variant()); }
const Ints* list_of(const Value& value) { return std::get_if<Ints>(&value.variant()); }

int64_t index_of(const Value& value, size_t size, const Expr& e) {
  const Scalar* const number = number_of(value);
  if (number == nullptr || number->is_float()) refuse_rule(e, "an index is an int");
  int64_t at = number->to_int();
  if (at < 0) at += static_cast<int64_t>(size);
  return at;
}

// The numbers of rules are ints as long as they can be.
Value arithmetic(const Expr& e, const Scalar& a, const Scalar& b) {
  const bool whole = !a.is_float() && !b.is_float();
  if (e.text == "/") return a.to_double() / b.to_double();
  if (e.text == "//" || e.text == "%") {
    if (!whole || b.to_int() <= 0) refuse_rule(e, "// and % divide ints by positive ones");
    const int64_t x = a.to_int(), y = b.to_int();
    const bool below = x % y < 0;  // quotients are rounded down
    return e.text == "//" ? x / y - (below ? 1 : 0) : x % y + (below ? y : 0);
  }
  if (whole) {
    const int64_t x = a.to_int(), y = b.to_int();
    int64_t result = 0;
    const bool overflows = e.text == "+"   ? __builtin_add_overflow(x, y, &result)
                           : e.text == "-" ? __builtin_sub_overflow(x, y, &result)
                                           : __builtin_mul_overflow(x, y, &result);
    if (overflows) refuse_rule(e, "an int overflows");
    return result;
  }
  const double x = a.to_double(), y = b.to_double();
  return e.text == "+" ? x + y : e.text == "-" ? x - y : x * y;
}

}  // namespace

std::vector<Value> Evaluator::values(const Expr& e) const {
  if (e.kind != Expr::kCall || is_function(e.text)) return {value(e)};
  std::vector<Value> args;
  std::vector<NamedValue> named;
  for (size_t i = 0; i < e.args.size(); ++i) {
    Value each = value(e.args[i]);
    if (e.keywords[i].empty()) {
      args.push_back(std::move(each));
    } else {
      named.emplace_back(e.keywords[i], std::move(each));
    }
  }
  return call(e.text, std::move(args), std::move(named));
}

Value Evaluator::value(const Expr& e) const {
  switch (e.kind) {
    case Expr::kName: {
      const BoundName& bound = lookup_(e.text);
      if (bound.id == kNoValue) return bound.constant;
      if (tensors_ == nullptr) refuse_rule(e, "a condition cannot read elements");
      return tensors_(bound.id);
    }
    case Expr::kNumber:
      return e.whole ? Value(static_cast<int64_t>(e.number)) : Value(e.number);
    case Expr::kBool:
      return e.number != 0;
    case Expr::kNone:
      return {};
    case Expr::kString:
      return e.text;
    case Expr::kList: {
      Ints found;
      for (const Expr& each : e.args) {
        const Value one = value(each);
        if (number_of(one) == nullptr) refuse_rule(each, "a list holds ints");
        found.push_back(number_of(one)->to_int());
      }
      return found;
    }
    case Expr::kAttribute:
      return attribute(e);
    case Expr::kItem:
    case Expr::kSlice:
      return item(e);
    case Expr::kCall: {
      if (is_function(e.text)) return function(e);
      std::vector<Value> found = values(e);
      if (found.empty()) refuse_rule(e, "the operator has no result");
      return std::move(found[0]);
    }
    case Expr::kNegative: {
      const Value operand = value(e.args[0]);
      if (number_of(operand) == nullptr) return call("neg", {operand})[0];
      const Scalar& number = *number_of(operand);
      return number.is_float() ? Value(-number.to_double()) : Value(-number.to_int());
    }
    case Expr::kBinary:
      return binary(e);
    case Expr::kIf:
      return value(is_true(e.args[0]) ? e.args[1] : e.args[2]);
    default:
      return is_true(e);
  }
}

bool Evaluator::is_true(const Expr& e) const {
  switch (e.kind) {
    case Expr::kAnd:
      return is_true(e.args[0]) && is_true(e.args[1]);
    case Expr::kOr:
      return is_true(e.args[0]) || is_true(e.args[1]);
    case Expr::kNot:
      return !is_true(e.args[0]);
    case Expr::kCompare:
      return compare(e);
    default: {
      const Value found = value(e);
      if (number_of(found) == nullptr) refuse_rule(e, "a condition is a bool");
      return number_of(found)->to_bool();
    }
  }
}

bool Evaluator::facts(const Expr& e, Facts* found) const {
  if (e.kind == Expr::kName) {
    const BoundName& bound = lookup_(e.text);
    if (bound.id == kNoValue) return false;
    const ValueInfo& info = graph_.values[static_cast<size_t>(bound.id)];
    *found = {info.dtype, as_list(info.sizes).vec(), graph_.buffer_of(bound.id).device};
    return true;
  }
  const Value computed = value(e);
  const auto* const tensor = std::get_if<Tensor>(&computed.variant());
  if (tensor == nullptr || !tensor->defined()) return false;
  *found = {tensor->dtype(), tensor->sizes().vec(), tensor->device()};
  return true;
}

Value Evaluator::attribute(const Expr& e) const {
  Facts found{kFloat32, {}, {}};
  if (!facts(e.args[0], &found)) refuse_rule(e, "only tensors have attributes");
  if (e.text == "shape") return found.sizes;
  if (e.text == "ndim") return static_cast<int64_t>(found.sizes.size());
  if (e.text == "dtype") return found.dtype;
  const std::string name = found.device.str();
  return name.substr(0, name.find(':'));
}

Value Evaluator::function(const Expr& e) const {
  if (e.args.empty()) refuse_rule(e, "the function takes an argument");
  Facts found{kFloat32, {}, {}};
  const bool tensor = facts(e.args[0], &found);
  if (e.text == "number") return !tensor && number_of(value(e.args[0])) != nullptr;
  if (!tensor) refuse_rule(e, "the function takes a tensor");
  if (e.text == "floating") return is_floating_point(found.dtype);
  if (e.text == "itemsize") return static_cast<int64_t>(element_size(found.dtype));
  if (e.text == "last") {
    // Whether an argument `dim`, an int or a list of one, is the last dimension.
    if (e.args.size() != 2) refuse_rule(e, "last() takes a tensor and a dimension");
    const Value dim = value(e.args[1]);
    const auto ndim = static_cast<int64_t>(found.sizes.size());
    const auto is_last = [ndim](int64_t d) { return d == -1 || d == ndim - 1; };
    if (list_of(dim) != nullptr) return list_of(dim)->size() == 1 && is_last((*list_of(dim))[0]);
    return number_of(dim) != nullptr && is_last(number_of(dim)->to_int());
  }
  int64_t count = 1;
  for (const int64_t size : found.sizes) count *= size;
  return count;
}

Value Evaluator::binary(const Expr& e) const {
  const Value a = value(e.args[0]), b = value(e.args[1]);
  const Scalar *const x = number_of(a), *const y = number_of(b);
  if (x != nullptr && y != nullptr) return arithmetic(e, *x, *y);
  if (list_of(a) != nullptr && list_of(b) != nullptr && e.text == "+") {
    Ints found = *list_of(a);
    found.insert(found.end(), list_of(b)->begin(), list_of(b)->end());
    return found;
  }
  if (list_of(a) != nullptr && y != nullptr && e.text == "*") {
    Ints found;
    for (int64_t i = 0; i < y->to_int(); ++i) {
      found.insert(found.end(), list_of(a)->begin(), list_of(a)->end());
    }
    return found;
  }
  if (e.text == "//" || e.text == "%") refuse_rule(e, "// and % are for ints");
  return call(rule_operator(e.text), {a, b})[0];
}

Value Evaluator::item(const Expr& e) const {
  // One of several results.
  if (e.kind == Expr::kItem && e.args[0].kind == Expr::kCall && !is_function(e.args[0].text)) {
    std::vector<Value> found = values(e.args[0]);
    const int64_t at = index_of(value(e.args[1]), found.size(), e);
    if (at < 0 || at >= static_cast<int64_t>(found.size())) refuse_rule(e, "no such result");
    return std::move(found[static_cast<size_t>(at)]);
  }
  const Value of = value(e.args[0]);
  if (list_of(of) == nullptr) refuse_rule(e, "only lists have items");
  const Ints& list = *list_of(of);
  const auto size = static_cast<int64_t>(list.size());
  if (e.kind == Expr::kItem) {
    const int64_t at = index_of(value(e.args[1]), list.size(), e);
    if (at < 0 || at >= size) refuse_rule(e, "no such item");
    return list[static_cast<size_t>(at)];
  }
  const auto end = [&](const Expr& at, int64_t missing) {
    if (at.kind == Expr::kNone) return missing;
    return std::clamp<int64_t>(index_of(value(at), list.size(), e), 0, size);
  };
  const int64_t first = end(e.args[1], 0), last = std::max(first, end(e.args[2], size));
  return Ints(list.begin() + first, list.begin() + last);
}

bool Evaluator::compare(const Expr& e) const {
  if (e.text == "is" || e.text == "is not") {
    if (e.args[1].kind != Expr::kNone) refuse_rule(e, "`is` compares with None");
    Facts unused{kFloat32, {}, {}};
    const bool none = !facts(e.args[0], &unused) && value(e.args[0]).is_none();
    return none == (e.text == "is");
  }
  const Value a = value(e.args[0]), b = value(e.args[1]);
  if (number_of(a) != nullptr && number_of(b) != nullptr) {
    const double x = number_of(a)->to_double(), y = number_of(b)->to_double();
    return e.text == "=="   ? x == y
           : e.text == "!=" ? x != y
           : e.text == "<"  ? x < y
           : e.text == "<=" ? x <= y
           : e.text == ">"  ? x > y
                            : x >= y;
  }
  if (e.text != "==" && e.text != "!=") refuse_rule(e, "only numbers are ordered");
  // A type is written as its name.
  const auto text = [](const Value& value) {
    const auto* const dtype = std::get_if<ScalarType>(&value.variant());
    const auto* const string = std::get_if<std::string>(&value.variant());
    return dtype != nullptr ? std::string(dtype_name(*dtype)) : string != nullptr ? *string : "";
  };
  const bool lists = list_of(a) != nullptr && list_of(b) != nullptr;
  const bool same = lists ? *list_of(a) == *list_of(b) : !text(a).empty() && text(a) == text(b);
  return same == (e.text == "==");
}

}  // namespace mytorch::graph
