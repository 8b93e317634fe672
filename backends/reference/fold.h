// The states of reductions.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/reference/node_ops.h"

namespace mytorch::reference {

class Fold {
 public:
  virtual ~Fold() = default;
  virtual void reset() = 0;
  virtual void push(Value value) = 0;
  virtual std::vector<Value> state() const = 0;  // the components, in the order of abi.h
};

// Returns NULL for an unknown fold.
std::unique_ptr<Fold> make_fold(std::string_view name, bool floating);

}  // namespace mytorch::reference
