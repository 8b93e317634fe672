// Writing text.
#pragma once

#include "options.h"

// Prints the prompt and its continuation by the model of a run.
void sample(const SampleOptions& options);
