// The text of rewriting rules (rewrite.h): expressions in Python's syntax, as in records.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mytorch::graph {

struct Expr {
  enum Kind : uint8_t {
    kName,    // text
    kNumber,  // number; `whole` if it has no fraction in the text
    kBool,    // number
    kNone,
    kString,     // text
    kList,       // args
    kCall,       // text is the operator or function; `keywords` holds "" for positional args
    kAttribute,  // args[0].text
    kItem,       // args[0][args[1]]
    kSlice,      // args[0][args[1] : args[2]]; kNone for an end that is not given
    kBinary,     // text is the symbol
    kNegative,
    kCompare,  // text is the symbol, "is" or "is not"
    kAnd,
    kOr,
    kNot,
    kIf,    // args[1] if args[0] else args[2]
    kBind,  // (text := args[0])
  };
  Kind kind = kNone;
  std::string text;
  double number = 0;
  bool whole = false;
  std::vector<Expr> args;
  std::vector<std::string> keywords;
  int column = 0;  // from 1
};

// Returns the tree of an expression. Throws Error(kValue), beginning with `where` and with the
// column, if the text is none.
Expr parse_expression(std::string_view text, std::string_view where);

// An assignment `a, b = expression`; the names are empty for an expression alone. "_" drops a
// value.
struct Assignment {
  std::vector<std::string> names;
  Expr value;
};
Assignment parse_assignment(std::string_view text, std::string_view where);

}  // namespace mytorch::graph
