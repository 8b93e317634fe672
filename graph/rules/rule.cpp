#include "graph/rules/rule.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "dispatcher/table/op.h"

namespace mytorch::graph {
namespace {

constexpr std::string_view kCommute[] = {
    "add",         "mul",        "maximum",     "minimum",     "eq",         "ne",
    "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
};
constexpr std::string_view kAttributes[] = {"shape", "ndim", "dtype", "device"};
// With one argument each, `last` with two.
constexpr std::string_view kFunctions[] = {"number", "numel", "floating", "itemsize", "last"};

template <class List>
bool is_in(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

// Returns whether a graph has nodes of an operator; others are recorded as those that they call.
bool is_node(const OpInfo& op) { return op.meaning != Meaning::kComposite || op.has_kernel; }

std::vector<OpEntry*> overloads_of(const std::string& name) {
  if (name.find('.') == std::string::npos) return find_overloads(name);
  OpEntry* const found = find_op(name);
  return found == nullptr ? std::vector<OpEntry*>() : std::vector<OpEntry*>{found};
}

class RuleReader {
 public:
  explicit RuleReader(const Rewrite& text)
      : text_(text), where_(absl::StrCat("[rewrite] ", text.name)) {}

  Rule read() {
    if (text_.name.empty()) fail(ErrorCode::kValue, "[rewrite] a rule has no name");
    Rule rule;
    rule.name = text_.name;
    rule.mode = text_.mode;
    where_ = absl::StrCat("[rewrite] ", text_.name, ": pattern");
    rule.pattern = pattern(parse_expression(text_.pattern, where_));
    if (rule.pattern.kind != Pattern::kOperator) refuse(1, "is no operator");
    where_ = absl::StrCat("[rewrite] ", text_.name, ": replacement");
    rule.to = parse_assignment(text_.to, where_);
    for (const std::string& name : rule.to.names) {
      if (name != "_" && !made_.contains(name) && result_index(name) < 0) {
        refuse(1, "`", name, "` is neither a result nor a name that the pattern binds by `:=`");
      }
    }
    check(rule.to.value);
    where_ = absl::StrCat("[rewrite] ", text_.name, ": condition");
    rule.has_condition = !text_.condition.empty();
    if (rule.has_condition) check(rule.condition = parse_expression(text_.condition, where_));
    return rule;
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(int column, const Parts&... parts) const {
    fail(ErrorCode::kValue, where_, ", column ", column, ": ", absl::StrCat(parts...));
  }

  Pattern constant(Value value) const {
    Pattern found;
    found.kind = Pattern::kConstant;
    found.constant = std::move(value);
    return found;
  }

  Pattern pattern(const Expr& e) {
    switch (e.kind) {
      case Expr::kName: {
        Pattern found;
        found.name = e.text;
        if (e.text != "_") bind(e);
        return found;
      }
      case Expr::kNumber:
        return constant(e.whole ? Value(static_cast<int64_t>(e.number)) : Value(e.number));
      case Expr::kBool:
        return constant(Value(e.number != 0));
      case Expr::kNone:
        return constant({});
      case Expr::kString:
        return constant(Value(e.text));
      case Expr::kList: {
        Pattern found;
        found.kind = Pattern::kList;
        for (const Expr& each : e.args) found.args.push_back(pattern(each));
        return found;
      }
      case Expr::kBind: {
        Pattern found = pattern(e.args[0]);
        if (found.kind != Pattern::kOperator)
          refuse(e.column, "`", e.text, " :=` names an operator");
        bind(e);
        made_.insert(e.text);
        found.name = e.text;
        return found;
      }
      case Expr::kNegative:
        return operation("neg", e);
      case Expr::kBinary:
        if (rule_operator(e.text) != nullptr) return operation(rule_operator(e.text), e);
        break;
      case Expr::kCall:
        if (e.text == "reshape") {
          if (e.args.size() != 1) refuse(e.column, "`reshape` of a pattern takes one value");
          Pattern found;
          found.kind = Pattern::kReshape;
          found.args.push_back(pattern(e.args[0]));
          return found;
        }
        return operation(e.text, e);
      default:
        break;
    }
    refuse(e.column, "not part of a pattern");
  }

  void bind(const Expr& e) {
    if (result_index(e.text) >= 0) refuse(e.column, "the name `", e.text, "` is that of a result");
    names_.insert(e.text);
  }

  Pattern operation(const std::string& name, const Expr& e) {
    Pattern found;
    found.kind = Pattern::kOperator;
    for (const Expr& each : e.args) found.args.push_back(pattern(each));
    const std::vector<OpEntry*> candidates = overloads_of(name);
    if (candidates.empty()) refuse(e.column, "unknown operator `", name, "`");
    std::string reason;
    for (const OpEntry* entry : candidates) {
      const OpInfo& op = *entry->info;
      if (!is_node(op)) {
        reason =
            absl::StrCat("a graph has no node of `", op.name, "`, but the operators that it calls");
        continue;
      }
      Pattern::Overload overload{entry, std::vector<int>(static_cast<size_t>(op.num_args), -1)};
      const std::string misfit = place(op, e, found.args, &overload.from);
      if (misfit.empty()) {
        found.overloads.push_back(std::move(overload));
      } else {
        reason = misfit;
      }
    }
    if (found.overloads.empty()) refuse(e.column, reason);
    found.commutes =
        found.args.size() == 2 && is_in(kCommute, found.overloads[0].entry->info->base);
    return found;
  }

  // Finds where the arguments of an operator are. Returns why they do not fit, or "".
  static std::string place(const OpInfo& op, const Expr& e, const std::vector<Pattern>& args,
                           std::vector<int>* from) {
    for (size_t i = 0; i < args.size(); ++i) {
      const std::string keyword = i < e.keywords.size() ? e.keywords[i] : "";
      int at = static_cast<int>(i);
      if (!keyword.empty()) {
        at = 0;
        while (at < op.num_args && keyword != op.args[at].name) ++at;
        if (at == op.num_args)
          return absl::StrCat("`", op.name, "` has no argument `", keyword, "`");
      } else if (at >= op.num_args || op.args[at].kw_only) {
        return absl::StrCat("`", op.name, "` takes fewer arguments");
      }
      if (!takes(op.args[at], args[i])) {
        return absl::StrCat("`", op.args[at].name, "` of `", op.name, "` has another type");
      }
      (*from)[static_cast<size_t>(at)] = static_cast<int>(i);
    }
    for (int i = 0; i < op.num_args; ++i) {
      if ((*from)[static_cast<size_t>(i)] < 0 && op.args[i].default_text == nullptr) {
        return absl::StrCat("`", op.name, "` needs `", op.args[i].name, "`");
      }
    }
    return "";
  }

  static bool takes(const ArgInfo& arg, const Pattern& given) {
    const ArgType type = arg.type;
    switch (given.kind) {
      case Pattern::kName:
        return type != ArgType::kTensorList;
      case Pattern::kOperator:
      case Pattern::kReshape:
        return type == ArgType::kTensor || type == ArgType::kOperand;
      case Pattern::kList:
        return type == ArgType::kIntList || type == ArgType::kFloatList;
      default:
        break;
    }
    if (given.constant.is_none()) return arg.optional;
    if (std::holds_alternative<std::string>(given.constant.variant())) return type == ArgType::kStr;
    const bool flag = std::get<Scalar>(given.constant.variant()).is_bool();
    return type == ArgType::kScalar || type == ArgType::kOperand ||
           (flag ? type == ArgType::kBool : type == ArgType::kInt || type == ArgType::kFloat);
  }

  void check(const Expr& e) const {
    if (e.kind == Expr::kName && !names_.contains(e.text)) {
      refuse(e.column, "the pattern does not bind `", e.text, "`");
    }
    if (e.kind == Expr::kBind) refuse(e.column, "`:=` belongs to patterns");
    if (e.kind == Expr::kAttribute && !is_attribute(e.text)) {
      refuse(e.column, "unknown attribute `.", e.text, "`");
    }
    if (e.kind == Expr::kCall && !is_function(e.text) && overloads_of(e.text).empty()) {
      refuse(e.column, "unknown operator or function `", e.text, "`");
    }
    if (e.kind == Expr::kCall && is_function(e.text)) {
      const size_t count = e.text == "last" ? 2 : 1;
      const bool named = std::any_of(e.keywords.begin(), e.keywords.end(),
                                     [](const std::string& keyword) { return !keyword.empty(); });
      if (e.args.size() != count || named) {
        refuse(e.column, "`", e.text, "` takes ", count, count == 1 ? " argument" : " arguments");
      }
    }
    for (const Expr& each : e.args) check(each);
  }

  const Rewrite& text_;
  std::string where_;
  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_set<std::string> made_;  // of these, the values of operators
};

// The rules, which live as long as the process: plans are made by several threads.
struct RuleTable {
  std::mutex mutex;
  std::deque<Rule> owned;
  std::vector<const Rule*> all;

  void add(const Rewrite& text) {
    for (const Rule* each : all) {
      if (each->name == text.name) {
        fail(ErrorCode::kValue, "[rewrite] there is a rule `", text.name, "` already");
      }
    }
    owned.push_back(read_rule(text));
    all.push_back(&owned.back());
  }
};

RuleTable& rule_table() {
  static RuleTable* const found = [] {
    auto* made = new RuleTable;
    for (int32_t i = 0; i < kGeneratedRules.size; ++i) {
      const RuleText& each = kGeneratedRules.begin[i];
      made->add({each.name, each.pattern, each.to, each.condition, each.mode});
    }
    return made;
  }();
  return *found;
}

}  // namespace

Rule read_rule(const Rewrite& text) { return RuleReader(text).read(); }

std::vector<const Rule*> rules() {
  RuleTable& found = rule_table();
  const std::lock_guard lock(found.mutex);
  return found.all;
}

void add_rewrite(const Rewrite& rule) {
  RuleTable& found = rule_table();
  const std::lock_guard lock(found.mutex);
  found.add(rule);
}

const char* rule_operator(const std::string& symbol) {
  if (symbol == "+") return "add";
  if (symbol == "-") return "sub";
  if (symbol == "*") return "mul";
  return symbol == "/" ? "div" : nullptr;
}

int result_index(std::string_view name) {
  if (name == "result") return 0;
  const bool numbered = name.size() == 7 && name.substr(0, 6) == "result";
  return numbered && name[6] >= '1' && name[6] <= '9' ? name[6] - '0' : -1;
}

bool is_attribute(std::string_view name) { return is_in(kAttributes, name); }
bool is_function(std::string_view name) { return is_in(kFunctions, name); }

}  // namespace mytorch::graph
