#include "dispatcher/table/defaults.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/types/errors.h"

namespace mytorch {
namespace {

[[noreturn]] void refuse(const ArgInfo& arg) {
  fail(ErrorCode::kValue, "[default] the default '", arg.default_text, "' of argument '", arg.name,
       "' does not fit its type");
}

// Returns the elements of "[1, 2]". `parse(text, &element)` returns false if the text is no
// element.
template <class T, class Parse>
std::vector<T> elements(const ArgInfo& arg, Parse parse) {
  absl::string_view text = arg.default_text;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') refuse(arg);
  text = text.substr(1, text.size() - 2);
  std::vector<T> found;
  if (text.empty()) return found;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    T element;
    if (!parse(part, &element)) refuse(arg);
    found.push_back(element);
  }
  return found;
}

bool parse_int(absl::string_view text, int64_t* value) { return absl::SimpleAtoi(text, value); }

}  // namespace

Value default_value(const ArgInfo& arg) {
  const std::string text = arg.default_text;
  if (text == "None") return {};
  switch (arg.type) {
    case ArgType::kIntList:
      return Value(elements<int64_t>(arg, parse_int));
    case ArgType::kFloatList:
      return Value(elements<double>(arg, absl::SimpleAtod));
    case ArgType::kTensorList:
      if (text != "[]") refuse(arg);
      return Value(std::vector<Tensor>());
    case ArgType::kStr:
      return Value(text);
    case ArgType::kScalarType:
      return Value(dtype_from_name(text.c_str()));
    case ArgType::kDevice:
      return Value(Device(text));
    default:
      break;
  }
  if (text == "True" || text == "False") return Value(text == "True");
  int64_t whole = 0;
  if (arg.type != ArgType::kFloat && parse_int(text, &whole)) return Value(whole);
  double number = 0;
  const bool integral = arg.type == ArgType::kInt || arg.type == ArgType::kBool;
  if (integral || !absl::SimpleAtod(text, &number)) refuse(arg);
  return Value(number);
}

}  // namespace mytorch
