// Pins: the preferences of Prefer and MYTORCH_PREFER, which take precedence over any other choice.
#pragma once

#include <string>
#include <vector>

#include "dispatcher/choice/choice.h"

namespace mytorch {

// An entry of MYTORCH_PREFER. `op` is empty if it applies to all operators.
struct Preference {
  std::string op;
  std::string backend;
};
// Returns the entries in order.
std::vector<Preference> environment_preferences();
// Returns the operators with a full or base name.
std::vector<OpEntry*> ops_named(const std::string& name);

// Applies MYTORCH_PREFER to a backend that was just registered.
void pin_from_environment(const Backend& backend);

}  // namespace mytorch
