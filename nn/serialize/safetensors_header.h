// The JSON header of a safetensors file:
//
//   {"__metadata__": {"key": "value", ...},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mytorch/nn/serialize.h"

namespace mytorch::nn {

inline constexpr uint64_t kPrefixBytes = 8;  // the header's length, in front of it
// Longer ones are refused, as by the format's other readers.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxDims = 64;
inline constexpr char kMetadataKey[] = "__metadata__";

struct SafetensorsHeader {
  std::vector<SafetensorsFile::Entry> entries;  // by name
  Metadata metadata;
};

// Reads the header of file `path`, behind which lie `data_bytes` bytes, and checks all that can be
// known without them: on return the entries cover the data without gap or overlap, and each has as
// many bytes as its shape and dtype need. Throws Error(kIo).
SafetensorsHeader parse_header(std::string_view json, uint64_t data_bytes, const std::string& path);

// The header to write for these entries, padded so that the data begin at a multiple of 8 bytes.
// Throws Error(kValue) where it would be too long, or names or metadata are not UTF-8.
std::string format_header(const SafetensorsHeader& header);

// "F32" and so on.
const char* format_dtype(ScalarType dtype);
std::optional<ScalarType> parse_dtype(std::string_view name);

// Bytes of a contiguous tensor; nothing where they, or its strides, do not fit an int64.
std::optional<int64_t> bytes_of(IntList shape, ScalarType dtype);

// A name or text from outside, as shown in messages: escaped, and cut where it is long.
std::string shown(std::string_view text);

}  // namespace mytorch::nn
