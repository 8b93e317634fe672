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

inline constexpr uint64_t kPrefixBytes = 8;  // the length of the header, which precedes it
// Longer headers are rejected, as by other readers of the format.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxDims = 64;
inline constexpr char kMetadataKey[] = "__metadata__";
// The format has no complex128: such a tensor is one of F64 with a last dimension of 2, as
// view_as_real returns, and has this key and its name among the metadata.
inline constexpr std::string_view kComplexKey = "mytorch.complex128:";

struct SafetensorsHeader {
  std::vector<SafetensorsFile::Entry> entries;  // sorted by name
  Metadata metadata;
};

// Parses the header of file `path`, which is followed by `data_bytes` bytes, and checks everything
// that it implies: the entries cover the data without gaps or overlaps, and the size of each
// matches its shape and dtype. Throws Error(kIo).
SafetensorsHeader parse_header(std::string_view json, uint64_t data_bytes, const std::string& path);

// Formats the header for these entries, padded so that the data begins at a multiple of 8 bytes.
// Throws Error(kValue) if the header is too long, or if names or metadata are not UTF-8.
std::string format_header(const SafetensorsHeader& header);

// For example "F32".
const char* format_dtype(ScalarType dtype);
std::optional<ScalarType> parse_dtype(std::string_view name);

// Returns the size in bytes of a contiguous tensor, or nothing if the size or a stride overflows.
std::optional<int64_t> bytes_of(IntList shape, ScalarType dtype);

// Formats an external name or text for messages: escaped, and truncated if long.
std::string shown(std::string_view text);

}  // namespace mytorch::nn
