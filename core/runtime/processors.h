// The processors that the process may use.
#pragma once

#include "core/runtime/control_groups.h"

namespace mytorch {

// Returns the number of processors in the process's affinity mask, or fewer if a control group
// gives it less time: the quotient of quota and period, rounded to the nearest number. At least 1.
int available_processors();

// Returns the least number of processors that a control group of the process gives it, such as 1.5;
// infinity without a limit.
double processors_of_groups(const ControlGroups& groups);

}  // namespace mytorch
