// What goes before any other choice.
#pragma once

#include "dispatcher/choice/choice.h"

namespace mytorch {

// Pins a backend that was just registered as MYTORCH_PREFER says.
void pin_from_environment(const Backend& backend);

}  // namespace mytorch
