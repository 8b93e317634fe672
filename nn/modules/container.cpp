#include "mytorch/nn/container.h"

#include "core/types/errors.h"

namespace mytorch::nn {

Module& ModuleList::operator[](size_t index) {
  if (index >= size()) {
    fail(ErrorCode::kValue, "[ModuleList] index ", index, " is out of range for ", size(),
         " modules");
  }
  return child(index);
}

void ModuleList::fail_type(size_t index, const Module& module) {
  fail(ErrorCode::kType, "[ModuleList] module ", index, " has another type: ", module.describe());
}

Tensor Sequential::forward(const Tensor& input) {
  if (empty()) return input;
  Tensor x = child(0).forward(input);
  for (size_t i = 1; i < size(); ++i) x = child(i).forward(x);
  return x;
}

}  // namespace mytorch::nn
