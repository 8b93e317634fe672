// A copy of the arguments of a call.
#pragma once

#include <vector>

#include "dispatcher/table/op.h"

namespace mytorch {

// A copy of an argument struct and of its tensor lists, so that operands can be replaced by others.
class ArgsCopy {
 public:
  ArgsCopy(const OpInfo& op, const void* args);
  ArgsCopy(const ArgsCopy&) = delete;
  ArgsCopy& operator=(const ArgsCopy&) = delete;
  void* get() { return bytes_.data(); }

 private:
  std::vector<char> bytes_;
  std::vector<std::vector<const mt_tensor*>> lists_;
};

}  // namespace mytorch
