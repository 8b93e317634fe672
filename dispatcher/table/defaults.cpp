#include "dispatcher/table/defaults.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace mytorch {

Value default_value(const ArgInfo& arg) {
  const std::string text = arg.default_text;
  if (text == "None") return {};
  switch (arg.type) {
    case ArgType::kIntList:
    case ArgType::kFloatList: {
      std::vector<int64_t> ints;
      std::vector<double> floats;
      for (const char* at = text.c_str() + 1; *at != ']' && *at != '\0';) {
        char* end = nullptr;
        floats.push_back(std::strtod(at, &end));
        ints.push_back(static_cast<int64_t>(floats.back()));
        at = end + std::strspn(end, ", ");
      }
      return arg.type == ArgType::kIntList ? Value(std::move(ints)) : Value(std::move(floats));
    }
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
  if (arg.type != ArgType::kFloat && text.find_first_not_of("-0123456789") == std::string::npos) {
    return Value(static_cast<int64_t>(std::strtoll(text.c_str(), nullptr, 10)));
  }
  return Value(std::strtod(text.c_str(), nullptr));
}

}  // namespace mytorch
