// Looks at a shared library before the dynamic linker does, which maps a file without looking at
// its length, believes everything that it says, and dies with the process where that is wrong.
#pragma once

#include <string>

namespace mytorch {

// Throws Error(kIo) that names the file and what is wrong with it: it is missing, no file, no
// shared library of this kind of machine, cut short, or, where the build sealed it with a checksum
// (cmake/seal.py), changed in any bit.
void check_library(const std::string& path);

}  // namespace mytorch
