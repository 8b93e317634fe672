// A whole file in memory.
#pragma once

#include <cstdint>
#include <string>

namespace mytorch::nn {

// Returns the bytes of a file, decompressed if it is gzipped. Throws Error(kIo), naming the file,
// if it cannot be read or has more than `most` bytes, and Error(kOutOfMemory).
std::string read_whole_file(const std::string& path, uint64_t most = UINT64_MAX);

}  // namespace mytorch::nn
