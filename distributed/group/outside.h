// Calls of groups from outside of the operators: no graph records them.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "core/runtime/stream_capture.h"

namespace mytorch::distributed {

// Begins a method `name` of Group or Work. While a function is recorded, throws Error(kUnsupported)
// that names `instead`, the operator that graphs hold, or ends the graph where breaks are allowed.
// In its scope, what runs around the engine's call is not recorded either.
class OutsideOfGraphs {
 public:
  explicit OutsideOfGraphs(const char* name, const char* instead = nullptr)
      : mask_(begin(name, instead)) {}

 private:
  static uint32_t begin(const char* name, const char* instead) {
    if (recording_graph()) [[unlikely]] {
      std::string what = "communicates outside of operators";
      if (instead != nullptr) absl::StrAppend(&what, " (graphs hold mytorch::", instead, "())");
      check_effect(name, what.c_str());
    }
    return kLayerCapture;
  }

  const LayerMask mask_;
};

}  // namespace mytorch::distributed
