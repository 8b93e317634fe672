#include "autograd/anomaly.h"

#include <cxxabi.h>
#include <execinfo.h>

#include <cstdlib>
#include <memory>

#include "core/types/errors.h"
#include "mytorch/autograd.h"

namespace mytorch::autograd {

AnomalyMode::AnomalyMode(bool check_nan)
    : saved_anomaly_(thread_data.anomaly), saved_check_(thread_data.check_nan) {
  thread_data.anomaly = true;
  thread_data.check_nan = check_nan;
}

AnomalyMode::~AnomalyMode() {
  thread_data.anomaly = saved_anomaly_;
  thread_data.check_nan = saved_check_;
}

Origin current_origin() {
  Origin origin;
  void* frames[64];
  const int n = backtrace(frames, 64);
  origin.frames.assign(frames, frames + n);
  if (thread_data.executing != nullptr) origin.within = thread_data.executing->name();
  return origin;
}

namespace {

// "binary(mangled+0x12) [0x55]" with the name demangled.
std::string readable(const char* symbol) {
  std::string line = symbol;
  const size_t open = line.find('(');
  const size_t plus = line.find('+', open);
  if (open == std::string::npos || plus == std::string::npos || plus == open + 1) return line;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(line.substr(open + 1, plus - open - 1).c_str(), nullptr, nullptr,
                          &status),
      &std::free);
  if (status != 0) return line;
  return line.substr(0, open + 1) + name.get() + line.substr(plus);
}

}  // namespace

std::string describe_origin(const Node& node) {
  const NodeExtras* extras = NodeAccess::extras(&node);
  if (extras == nullptr || extras->origin.frames.empty()) return "";
  const Origin& origin = extras->origin;
  std::string text = absl::StrCat("\n  ", node.name(), " was recorded ");
  if (!origin.within.empty()) {
    absl::StrAppend(&text, "while the gradient of ", origin.within, " was computed, ");
  }
  absl::StrAppend(&text, "at:");
  const std::unique_ptr<char*, decltype(&std::free)> symbols(
      backtrace_symbols(origin.frames.data(), static_cast<int>(origin.frames.size())), &std::free);
  if (symbols == nullptr) return text;
  for (size_t i = 0; i < origin.frames.size(); ++i) {
    absl::StrAppend(&text, "\n    ", readable(symbols.get()[i]));
  }
  return text;
}

}  // namespace mytorch::autograd
