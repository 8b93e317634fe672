#include "graph/rules/match.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "dispatcher/table/op.h"

namespace mytorch::graph {
namespace {

bool same_constant(const Value& a, const Value& b) {
  if (a.variant().index() != b.variant().index()) return false;
  struct Same {
    const Value& other;
    bool operator()(std::monostate) const { return true; }
    bool operator()(const Tensor&) const { return false; }
    bool operator()(const std::vector<Tensor>&) const { return false; }
    bool operator()(const Generator&) const { return false; }
    bool operator()(const Handle&) const { return false; }
    bool operator()(const Scalar& x) const {
      // Of a zero its sign, too.
      const Scalar& y = std::get<Scalar>(other.variant());
      return x == y && std::signbit(x.real()) == std::signbit(y.real());
    }
    bool operator()(const std::vector<int64_t>& x) const {
      return x == std::get<std::vector<int64_t>>(other.variant());
    }
    bool operator()(const std::vector<double>& x) const {
      return x == std::get<std::vector<double>>(other.variant());
    }
    bool operator()(const std::string& x) const {
      return x == std::get<std::string>(other.variant());
    }
    bool operator()(ScalarType x) const { return x == std::get<ScalarType>(other.variant()); }
    bool operator()(const Device& x) const { return x == std::get<Device>(other.variant()); }
  };
  return std::visit(Same{b}, a.variant());
}

// Returns whether an argument has the default that a schema writes as `text`.
bool is_default(const Value& value, std::string_view text) {
  if (value.is_none()) return text == "None";
  if (const auto* string = std::get_if<std::string>(&value.variant())) return *string == text;
  const auto* number = std::get_if<Scalar>(&value.variant());
  if (number == nullptr) return false;
  if (text == "True" || text == "False") return number->to_bool() == (text == "True");
  char* end = nullptr;
  const std::string copy(text);
  const double parsed = std::strtod(copy.c_str(), &end);
  return end != copy.c_str() && *end == '\0' && number->equals(parsed);
}

// What a part of a pattern is to match: a value, a constant, or one number of a list.
struct Goal {
  const Pattern* pattern;
  ValueId id = kNoValue;
  Value constant;
};

class Matcher {
 public:
  Matcher(const Graph& graph, const GraphUses& uses,
          const std::function<bool(const PatternMatch&)>& accepts)
      : graph_(graph), uses_(uses), accepts_(accepts) {}

  // Matches a node, then all goals.
  bool node(const Pattern& pattern, int32_t index, std::vector<Goal> goals,
            PatternMatch match) const {
    const GraphNode& node = graph_.nodes[static_cast<size_t>(index)];
    if (!is_pure(node) || is_view(graph_, node) || node.results.empty() ||
        node.results[0].kind != Arg::kTensor) {
      return false;
    }
    if (std::find(match.nodes.begin(), match.nodes.end(), index) == match.nodes.end()) {
      match.nodes.push_back(index);
    }
    const auto overload =
        std::find_if(pattern.overloads.begin(), pattern.overloads.end(),
                     [&](const Pattern::Overload& each) { return each.entry == node.entry; });
    if (overload == pattern.overloads.end()) return false;
    if (!pattern.name.empty() && !bind(pattern.name, {node.results[0].values[0], {}}, &match)) {
      return false;
    }
    for (int swapped = 0; swapped <= (pattern.commutes ? 1 : 0); ++swapped) {
      std::vector<Goal> more = goals;
      bool fits = true;
      for (size_t a = 0; a < node.args.size() && fits; ++a) {
        const Arg& arg = node.args[a];
        const size_t from = swapped != 0 && a < 2 ? 1 - a : a;
        const int at = overload->from[from];
        if (at < 0) {
          fits = arg.kind == Arg::kConstant &&
                 (node.op().args[a].type == ArgType::kGenerator ||
                  is_default(arg.constant, node.op().args[a].default_text));
        } else if (arg.kind == Arg::kTensor) {
          more.push_back({&pattern.args[static_cast<size_t>(at)], arg.values[0], {}});
        } else {
          fits = arg.kind == Arg::kConstant;
          more.push_back({&pattern.args[static_cast<size_t>(at)], kNoValue, arg.constant});
        }
      }
      if (fits && all(std::move(more), match)) return true;
    }
    return false;
  }

 private:
  static bool bind(const std::string& name, const BoundName& bound, PatternMatch* match) {
    if (name == "_") return true;
    if (const BoundName* known = match->find(name)) {
      return known->id == bound.id &&
             (bound.id != kNoValue || same_constant(known->constant, bound.constant));
    }
    match->names.emplace_back(name, bound);
    return true;
  }

  bool all(std::vector<Goal> goals, PatternMatch match) const {
    while (!goals.empty()) {
      const Goal goal = std::move(goals.back());
      goals.pop_back();
      const Pattern& pattern = *goal.pattern;
      switch (pattern.kind) {
        case Pattern::kName:
          if (!bind(pattern.name, {goal.id, goal.constant}, &match)) return false;
          break;
        case Pattern::kConstant:
          if (goal.id != kNoValue || !matches_constant(pattern.constant, goal.constant)) {
            return false;
          }
          break;
        case Pattern::kList:
          if (!list(goal, &goals)) return false;
          break;
        case Pattern::kReshape: {
          if (goal.id == kNoValue) return false;
          ValueId inner = goal.id;
          const BufferUses& uses = uses_.of(goal.id);
          if (uses.is_single() && uses.whole != goal.id) {
            if (!is_whole(graph_, goal.id) || !is_whole(graph_, uses.whole) ||
                info(goal.id).dtype != info(uses.whole).dtype) {
              return false;
            }
            inner = uses.whole;
          }
          goals.push_back({&pattern.args[0], inner, {}});
          break;
        }
        case Pattern::kOperator: {
          if (goal.id == kNoValue) return false;
          const BufferUses& uses = uses_.of(goal.id);
          if (!uses.is_single() || !is_first_result(uses, goal.id)) return false;
          return node(pattern, uses.producer, std::move(goals), std::move(match));
        }
      }
    }
    return accepts_(match);
  }

  const ValueInfo& info(ValueId id) const { return graph_.values[static_cast<size_t>(id)]; }

  bool is_first_result(const BufferUses& uses, ValueId id) const {
    const GraphNode& node = graph_.nodes[static_cast<size_t>(uses.producer)];
    return node.results[0].kind == Arg::kTensor && node.results[0].values[0] == id;
  }

  static bool matches_constant(const Value& wanted, const Value& given) {
    const auto* a = std::get_if<Scalar>(&wanted.variant());
    const auto* b = std::get_if<Scalar>(&given.variant());
    if (a == nullptr || b == nullptr) return same_constant(wanted, given);
    // `0` is no -0.0.
    return *a == *b && std::signbit(a->real()) == std::signbit(b->real());
  }

  static bool list(const Goal& goal, std::vector<Goal>* goals) {
    if (goal.id != kNoValue) return false;
    std::vector<Value> items;
    if (const auto* ints = std::get_if<std::vector<int64_t>>(&goal.constant.variant())) {
      items.assign(ints->begin(), ints->end());
    } else if (const auto* floats = std::get_if<std::vector<double>>(&goal.constant.variant())) {
      items.assign(floats->begin(), floats->end());
    } else {
      return false;
    }
    if (items.size() != goal.pattern->args.size()) return false;
    for (size_t i = 0; i < items.size(); ++i) {
      goals->push_back({&goal.pattern->args[i], kNoValue, items[i]});
    }
    return true;
  }

  const Graph& graph_;
  const GraphUses& uses_;
  const std::function<bool(const PatternMatch&)>& accepts_;
};

}  // namespace

const BoundName* PatternMatch::find(const std::string& name) const {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const auto& each) { return each.first == name; });
  return found == names.end() ? nullptr : &found->second;
}

bool find_matches(const Graph& graph, const GraphUses& uses, const Pattern& pattern, int32_t root,
                  const std::function<bool(const PatternMatch&)>& accepts) {
  return Matcher(graph, uses, accepts).node(pattern, root, {}, {});
}

}  // namespace mytorch::graph
