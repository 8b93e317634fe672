// Validates a shared library before the dynamic linker opens it. The linker does not check the
// length of a file and trusts its contents, so a damaged file would crash the process.
#pragma once

#include <string>

namespace mytorch {

// Throws Error(kIo), naming the file and the problem, if the file is missing, is not a regular
// file, is not a shared library for this machine, is truncated, or does not match the checksum with
// which the build sealed it, if any (cmake/seal.py).
void check_library(const std::string& path);

}  // namespace mytorch
