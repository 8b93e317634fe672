// The version of mytorch.
#pragma once

#define MYTORCH_VERSION_MAJOR 0
#define MYTORCH_VERSION_MINOR 1
#define MYTORCH_VERSION_PATCH 0
#define MYTORCH_VERSION_STRING "0.1.0"
