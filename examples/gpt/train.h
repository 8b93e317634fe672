// Training.
#pragma once

#include "options.h"

// Trains as the options say, from the latest checkpoint of the run, and prints lines of progress.
void train(const TrainOptions& options);
