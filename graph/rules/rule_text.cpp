#include "graph/rules/rule_text.h"

#include <cctype>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/types/errors.h"

namespace mytorch::graph {
namespace {

class RuleParser {
 public:
  RuleParser(std::string_view text, std::string_view where) : text_(text), where_(where) { next(); }

  Expr whole() {
    Expr found = expression();
    if (token_ != "") refuse("unexpected '", token_, "'");
    return found;
  }

  // Reads "a, b =" if the text begins with it.
  std::vector<std::string> targets() {
    const size_t begin = begin_, at = at_;
    const std::string first = token_;
    std::vector<std::string> names;
    while (is_name()) {
      names.push_back(token_);
      next();
      if (token_ == "=") {
        next();
        return names;
      }
      if (token_ != ",") break;
      next();
    }
    begin_ = begin;
    at_ = at;
    token_ = first;
    return {};
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::kValue, where_, ", column ", begin_ + 1, ": ", absl::StrCat(parts...), " in `",
         std::string(text_), "`");
  }

  bool is_name() const {
    return !token_.empty() &&
           (std::isalpha(static_cast<unsigned char>(token_[0])) != 0 || token_[0] == '_');
  }

  // Reads the next token; "" at the end.
  void next() {
    const auto is = [this](size_t i, auto test) {
      return i < text_.size() && test(static_cast<unsigned char>(text_[i])) != 0;
    };
    while (is(at_, [](int c) { return std::isspace(c); })) ++at_;
    begin_ = at_;
    if (at_ == text_.size()) {
      token_.clear();
      return;
    }
    const auto in_name = [](int c) { return std::isalnum(c) != 0 || c == '_' ? 1 : 0; };
    const auto digit = [](int c) { return std::isdigit(c); };
    if (is(at_, digit) || (text_[at_] == '.' && is(at_ + 1, digit))) {
      double value = 0;
      const char* const end =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), value).ptr;
      at_ = static_cast<size_t>(end - text_.data());
    } else if (is(at_, in_name)) {
      // Operators from outside have names with "::".
      while (is(at_, in_name) || (text_.substr(at_, 2) == "::" && is(at_ + 2, in_name))) {
        at_ += text_[at_] == ':' ? 2 : 1;
      }
    } else if (text_[at_] == '\'' || text_[at_] == '"') {
      const size_t end = text_.find(text_[at_], at_ + 1);
      if (end == std::string_view::npos) refuse("a string without an end");
      at_ = end + 1;
    } else {
      const std::string_view two = text_.substr(at_, 2);
      const bool wide =
          two == ":=" || two == "==" || two == "!=" || two == "<=" || two == ">=" || two == "//";
      at_ += wide ? 2 : 1;
    }
    token_ = std::string(text_.substr(begin_, at_ - begin_));
  }

  bool take(std::string_view token) {
    if (token_ != token) return false;
    next();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) {
      refuse("expected '", std::string(token), "' instead of '",
             token_.empty() ? "the end" : token_, "'");
    }
  }

  Expr made(Expr::Kind kind, std::string text, std::vector<Expr> args) const {
    Expr found;
    found.kind = kind;
    found.text = std::move(text);
    found.column = args.empty() ? static_cast<int>(begin_) + 1 : args[0].column;
    found.args = std::move(args);
    return found;
  }

  Expr expression() {
    Expr value = disjunction();
    if (!take("if")) return value;
    Expr condition = disjunction();
    expect("else");
    Expr other = expression();
    return made(Expr::kIf, "", {std::move(condition), std::move(value), std::move(other)});
  }
  Expr disjunction() {
    Expr left = conjunction();
    while (take("or")) left = made(Expr::kOr, "", {std::move(left), conjunction()});
    return left;
  }
  Expr conjunction() {
    Expr left = negation();
    while (take("and")) left = made(Expr::kAnd, "", {std::move(left), negation()});
    return left;
  }
  Expr negation() {
    if (take("not")) return made(Expr::kNot, "", {negation()});
    return comparison();
  }
  // `a < b < c` is `a < b and b < c`.
  Expr comparison() {
    Expr left = sum();
    Expr all;
    bool any = false;
    while (true) {
      std::string symbol = token_;
      if (symbol == "is") {
        next();
        if (take("not")) symbol = "is not";
      } else if (symbol == "==" || symbol == "!=" || symbol == "<" || symbol == "<=" ||
                 symbol == ">" || symbol == ">=") {
        next();
      } else {
        return any ? all : left;
      }
      Expr right = sum();
      Expr one = made(Expr::kCompare, symbol, {left, right});
      all = any ? made(Expr::kAnd, "", {std::move(all), std::move(one)}) : std::move(one);
      any = true;
      left = std::move(right);
    }
  }
  Expr sum() {
    Expr left = term();
    while (token_ == "+" || token_ == "-") {
      const std::string symbol = token_;
      next();
      left = made(Expr::kBinary, symbol, {std::move(left), term()});
    }
    return left;
  }
  Expr term() {
    Expr left = unary();
    while (token_ == "*" || token_ == "/" || token_ == "//" || token_ == "%") {
      const std::string symbol = token_;
      next();
      left = made(Expr::kBinary, symbol, {std::move(left), unary()});
    }
    return left;
  }
  Expr unary() {
    if (!take("-")) return postfix();
    Expr operand = unary();
    if (operand.kind == Expr::kNumber) {
      operand.number = -operand.number;
      return operand;
    }
    return made(Expr::kNegative, "", {std::move(operand)});
  }

  Expr postfix() {
    Expr value = atom();
    while (true) {
      if (token_ == "(" && (value.kind == Expr::kName || value.kind == Expr::kAttribute)) {
        value = call(std::move(value));
      } else if (take(".")) {
        if (!is_name()) refuse("expected a name after '.'");
        std::string name = token_;
        next();
        value = made(Expr::kAttribute, std::move(name), {std::move(value)});
      } else if (take("[")) {
        value = item(std::move(value));
      } else {
        return value;
      }
    }
  }

  // `name(...)`, or `name.overload(...)`.
  Expr call(Expr callee) {
    Expr found;
    found.kind = Expr::kCall;
    found.column = callee.column;
    found.text = callee.text;
    if (callee.kind == Expr::kAttribute) {
      if (callee.args[0].kind != Expr::kName) refuse("only operators and functions are called");
      found.text = absl::StrCat(callee.args[0].text, ".", callee.text);
    }
    expect("(");
    while (!take(")")) {
      std::string keyword;
      if (is_name()) {
        const size_t begin = begin_, at = at_;
        const std::string name = token_;
        next();
        if (take("=")) {
          keyword = name;
        } else {
          begin_ = begin;
          at_ = at;
          token_ = name;
        }
      }
      if (keyword.empty() && !found.keywords.empty() && !found.keywords.back().empty()) {
        refuse("a positional argument after one that is given by name");
      }
      found.keywords.push_back(keyword);
      found.args.push_back(expression());
      if (token_ != ")") expect(",");
    }
    return found;
  }

  Expr item(Expr value) {
    Expr none;
    none.kind = Expr::kNone;
    Expr first = token_ == ":" ? none : expression();
    if (take("]")) return made(Expr::kItem, "", {std::move(value), std::move(first)});
    expect(":");
    Expr second = token_ == "]" ? none : expression();
    expect("]");
    return made(Expr::kSlice, "", {std::move(value), std::move(first), std::move(second)});
  }

  Expr atom() {
    Expr found;
    found.column = static_cast<int>(begin_) + 1;
    if (token_.empty()) refuse("the text ends too early");
    const char c = token_[0];
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || (c == '.' && token_.size() > 1)) {
      found.kind = Expr::kNumber;
      const auto read = std::from_chars(token_.data(), token_.data() + token_.size(), found.number);
      found.whole = token_.find_first_not_of("0123456789") == std::string::npos;
      constexpr double kExact = int64_t{1} << 53;  // below it, doubles hold whole numbers
      if (read.ec != std::errc() || (found.whole && found.number >= kExact)) {
        refuse("the number '", token_, "' is out of range");
      }
      next();
    } else if (c == '\'' || c == '"') {
      found.kind = Expr::kString;
      found.text = token_.substr(1, token_.size() - 2);
      next();
    } else if (take("[")) {
      found.kind = Expr::kList;
      while (!take("]")) {
        found.args.push_back(expression());
        if (token_ != "]") expect(",");
      }
    } else if (take("(")) {
      found = expression();
      if (found.kind == Expr::kName && take(":=")) {
        std::string name = found.text;
        found = made(Expr::kBind, std::move(name), {expression()});
      }
      expect(")");
    } else if (is_name()) {
      found.text = token_;
      found.kind = Expr::kName;
      if (token_ == "True" || token_ == "False") {
        found.kind = Expr::kBool;
        found.number = token_ == "True" ? 1 : 0;
      } else if (token_ == "None") {
        found.kind = Expr::kNone;
      }
      next();
    } else {
      refuse("unexpected '", token_, "'");
    }
    return found;
  }

  const std::string_view text_, where_;
  size_t at_ = 0, begin_ = 0;  // after and at the current token
  std::string token_;
};

}  // namespace

Expr parse_expression(std::string_view text, std::string_view where) {
  return RuleParser(text, where).whole();
}

Assignment parse_assignment(std::string_view text, std::string_view where) {
  RuleParser parser(text, where);
  Assignment found;
  found.names = parser.targets();
  found.value = parser.whole();
  return found;
}

}  // namespace mytorch::graph
