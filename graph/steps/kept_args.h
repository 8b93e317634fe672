// The arguments of a kernel, kept beyond the call.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dispatcher/table/op.h"

namespace mytorch::graph {

// A deep copy of an argument struct: its lists, strings and numbers are copied, and its tensors
// replaced by those that `replace` returns.
class KeptArgs {
 public:
  using Replace = std::function<const mt_tensor*(const mt_tensor* tensor)>;
  KeptArgs(const OpInfo& op, const void* args, const Replace& replace);
  // An argument struct of zeros.
  explicit KeptArgs(size_t size) : bytes_(std::make_unique<char[]>(size)) {}
  void* get() const { return bytes_.get(); }

 private:
  template <class T>
  const T* keep(const T* data, size_t size);
  const mt_tensor* keep_number(const mt_tensor* number);

  std::unique_ptr<char[]> bytes_;
  std::vector<std::unique_ptr<char[]>> parts_;
};

}  // namespace mytorch::graph
