// Looks at a shared library before the dynamic linker does, which maps a file without looking at
// its length, believes what its tables say, and dies with the process where they are wrong.
#pragma once

#include <string>

namespace mytorch {

// Throws Error(kIo) that names the file and what is wrong with it: it is missing, no file, no
// shared library of this kind of machine, cut short, or its tables contradict each other. Damage
// inside code and data cannot be seen.
void check_library(const std::string& path);

}  // namespace mytorch
