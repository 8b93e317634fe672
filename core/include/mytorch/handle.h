// An object that operators pass on without looking inside, such as a process group.
#pragma once

#include <memory>
#include <string>

namespace mytorch {

// A type name and a shared pointer. Without an object, an absent argument.
struct Handle {
  std::string type;
  std::shared_ptr<void> object;
};

}  // namespace mytorch
