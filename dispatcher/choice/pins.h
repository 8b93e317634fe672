// What goes before any other choice.
#pragma once

#include <string>
#include <vector>

#include "dispatcher/choice/choice.h"

namespace mytorch {

// What MYTORCH_PREFER says, in order; `op` is empty where all are meant.
struct Preference {
  std::string op;
  std::string backend;
};
std::vector<Preference> environment_preferences();
// The ops of a full or base name.
std::vector<OpEntry*> ops_named(const std::string& name);

// Pins a backend that was just registered as MYTORCH_PREFER says.
void pin_from_environment(const Backend& backend);

}  // namespace mytorch
