// Training and measuring.
#pragma once

#include <cstdint>

#include "models.h"
#include "options.h"

// Trains or evaluates as the options say, and prints a line per epoch.
void run(const Options& options);
