#include "nn/modules/names.h"

#include <cxxabi.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace mytorch::nn {

std::string class_name(const std::type_info& type) {
  const char* mangled = type.name();
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = text != nullptr ? text : mangled;
  std::free(text);
  const size_t arguments = name.find('<');  // template arguments have namespaces of their own
  const size_t colon = name.rfind("::", arguments);
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : absl::StrCat(prefix, ".", name);
}

}  // namespace mytorch::nn
