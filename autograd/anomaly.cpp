#include "autograd/anomaly.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <set>
#include <string_view>
#include <tuple>

#include "autograd/meta.h"
#include "core/types/errors.h"
#include "mytorch/autograd.h"

namespace mytorch::autograd {

AnomalyMode::AnomalyMode(bool check_nan)
    : saved_anomaly_(thread_data.anomaly), saved_check_(thread_data.check_nan) {
  set_enabled(true, check_nan);
}

AnomalyMode::~AnomalyMode() {
  thread_data.anomaly = saved_anomaly_;
  thread_data.check_nan = saved_check_;
}

void AnomalyMode::set_enabled(bool enabled, bool check_nan) {
  thread_data.anomaly = enabled;
  thread_data.check_nan = check_nan;
}

bool AnomalyMode::is_enabled() { return thread_data.anomaly; }

thread_local constinit const NameScope* NameScope::innermost_
    __attribute__((tls_model("initial-exec"))) = nullptr;

std::string NameScope::path() {
  std::string path;
  for (const NameScope* scope = innermost_; scope != nullptr; scope = scope->outer_) {
    path = path.empty() ? std::string(scope->name_) : absl::StrCat(piece(scope->name_), ".", path);
  }
  return path;
}

void set_name(const Tensor& tensor, std::string name) {
  const Edge edge = tensor.defined() ? edge_of(tensor.impl()) : Edge();
  if (edge.node == nullptr) {
    fail(ErrorCode::kValue, "[set_name] the tensor '", name,
         "' does not require grad: call requires_grad_() on it first");
  }
  NodeExtras& extras = NodeAccess::make_extras(edge.node);
  std::lock_guard<std::mutex> lock(extras.mutex);
  std::erase_if(extras.names, [&](const auto& at) { return at.input == edge.input; });
  if (!name.empty()) extras.names.push_back({edge.input, std::move(name)});
}

std::string name(const Tensor& tensor) {
  return tensor.defined() ? name_at(edge_of(tensor.impl())) : "";
}

std::string name_at(const Edge& edge) {
  NodeExtras* extras = edge.node != nullptr ? NodeAccess::extras(edge.node) : nullptr;
  if (extras == nullptr) return "";
  std::lock_guard<std::mutex> lock(extras->mutex);
  for (const auto& at : extras->names) {
    if (at.input == edge.input) return at.name;
  }
  return "";
}

std::string operator_name(const Node& node) {
  std::string_view name = node.name();
  constexpr std::string_view kSuffix = "Backward";
  if (!name.ends_with(kSuffix) || name == kSuffix) return std::string(name);
  name.remove_suffix(kSuffix.size());
  std::string text;
  for (char c : name) {
    const bool upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (upper && !text.empty()) text += '_';
    text += upper ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : c;
  }
  return text;
}

NodeOrigin current_origin() {
  NodeOrigin origin;
  void* frames[64];
  const int n = backtrace(frames, 64);
  origin.frames.assign(frames, frames + n);
  origin.scope = NameScope::path();
  if (thread_data.executing != nullptr) origin.within = operator_name(*thread_data.executing);
  return origin;
}

namespace {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : symbol;
}

// Appends a line per function that called the library, the innermost first.
void append_functions(const std::vector<void*>& frames, std::string* text) {
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&current_origin), &own);
  bool inside = true;  // the innermost frames are the library's
  int unnamed = 0;
  for (void* frame : frames) {
    Dl_info info{};
    if (dladdr(frame, &info) == 0) info = {};
    const std::string function = info.dli_sname != nullptr ? demangled(info.dli_sname) : "";
    inside = inside && info.dli_fbase == own.dli_fbase &&
             (function.empty() || function.find("mytorch::") != std::string::npos);
    if (inside) continue;
    if (function.empty()) {
      ++unnamed;
      continue;
    }
    if (function.starts_with("__libc_start")) break;
    absl::StrAppend(text, "\n    ", function);
  }
  if (unnamed > 0) {
    absl::StrAppend(text, "\n    ", unnamed, unnamed == 1 ? " function" : " functions",
                    " without a name: link the program with -rdynamic to see names");
  }
}

std::string scope_of(const Node& node) {
  const NodeExtras* extras = NodeAccess::extras(&node);
  return extras == nullptr || extras->origin.scope.empty()
             ? ""
             : absl::StrCat(" in ", extras->origin.scope);
}

// Describes a value: its name, the operator that computed it, its type and shape.
std::string describe_value(const Edge& edge) {
  const std::string name = name_at(edge);
  std::string text = name.empty() ? "" : absl::StrCat("'", name, "', ");
  absl::StrAppend(&text, NodeAccess::is_leaf(edge.node) ? "a leaf" : operator_name(*edge.node));
  const GradInfo& info = edge.node->infos()[edge.input];
  if (info.ndim >= 0) {
    absl::StrAppend(&text, ": ", dtype_name(info.dtype), " ", shape_str(info.sizes()));
  }
  return text + scope_of(*edge.node);
}

// Appends a line per value from which the node's operation was computed, the latest first.
void append_operands(const Node& node, std::string* text) {
  constexpr size_t kMostLines = 12;
  struct Earlier {
    // Leaves, which have the greatest sequence number, come last.
    static uint64_t time(const Edge& edge) {
      return NodeAccess::is_leaf(edge.node) ? 0 : edge.node->sequence();
    }
    bool operator()(const Edge& a, const Edge& b) const {
      if (time(a) != time(b)) return time(a) > time(b);
      return std::tie(a.node, a.input) < std::tie(b.node, b.input);
    }
  };
  std::set<Edge, Earlier> next;
  const auto add = [&next](const Node& from) {
    for (uint32_t i = 0; i < from.num_edges(); ++i) {
      if (from.edges()[i].node != nullptr) next.insert(from.edges()[i]);
    }
  };
  add(node);
  if (next.empty()) return;
  absl::StrAppend(text, "\n  ", operator_name(node), " was computed from, the latest first:");
  for (size_t lines = 0; !next.empty(); ++lines) {
    if (lines == kMostLines) {
      absl::StrAppend(text, "\n    and earlier values");
      return;
    }
    const Edge edge = *next.begin();
    next.erase(next.begin());
    absl::StrAppend(text, "\n    ", describe_value(edge));
    add(*edge.node);
  }
}

}  // namespace

std::string describe_origin(const Node& node) {
  const NodeExtras* extras = NodeAccess::extras(&node);
  if (extras == nullptr || extras->origin.frames.empty()) return "";
  const NodeOrigin& origin = extras->origin;
  std::string text = absl::StrCat("\n  ", operator_name(node), " was recorded", scope_of(node));
  if (!origin.within.empty()) {
    absl::StrAppend(&text, ", while the gradient of ", origin.within, " was computed");
  }
  absl::StrAppend(&text, ", by:");
  append_functions(origin.frames, &text);
  append_operands(node, &text);
  return text;
}

}  // namespace mytorch::autograd
