#include <algorithm>
#include <iterator>

#include "absl/strings/escaping.h"
#include "core/types/errors.h"
#include "nlohmann/json.hpp"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn {
namespace {

struct DtypeName {
  ScalarType dtype;
  const char* name;
};
constexpr DtypeName kDtypeNames[] = {
    {kBool, "BOOL"},   {kUInt8, "U8"},    {kInt8, "I8"},       {kInt16, "I16"},
    {kInt32, "I32"},   {kInt64, "I64"},   {kFloat16, "F16"},   {kBFloat16, "BF16"},
    {kFloat32, "F32"}, {kFloat64, "F64"}, {kComplex64, "C64"},
};

// Returns an entry and metadata of types that the format has.
SafetensorsFile::Entry stored(const SafetensorsFile::Entry& entry) {
  SafetensorsFile::Entry result = entry;
  if (entry.dtype == kComplex128) {
    result.dtype = kFloat64;
    result.shape.push_back(2);
  }
  return result;
}
Metadata stored(const SafetensorsHeader& header) {
  Metadata result = header.metadata;
  for (const SafetensorsFile::Entry& entry : header.entries) {
    if (entry.dtype == kComplex128) result.emplace(std::string(kComplexKey) + entry.name, "");
  }
  return result;
}

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::kValue, "[save_safetensors] name or metadata '", shown(text),
         "' is not UTF-8, as the format requires");
  }
}

}  // namespace

const char* format_dtype(ScalarType dtype) {
  const auto* const found = std::find_if(std::begin(kDtypeNames), std::end(kDtypeNames),
                                         [&](const DtypeName& row) { return row.dtype == dtype; });
  if (found == std::end(kDtypeNames)) {
    fail(ErrorCode::kType, "[save_safetensors] the format has no ", dtype_name(dtype));
  }
  return found->name;
}

std::optional<ScalarType> parse_dtype(std::string_view name) {
  for (const DtypeName& row : kDtypeNames) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<int64_t> bytes_of(IntList shape, ScalarType dtype) {
  int64_t bytes = element_size(dtype);
  bool empty = false;
  for (int64_t size : shape) {
    empty |= size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 120;
  return absl::StrCat(absl::CHexEscape(std::string(text.substr(0, kLongest))),
                      text.size() > kLongest ? "..." : "");
}

std::string format_header(const SafetensorsHeader& header) {
  std::string json = "{";
  const auto separate = [&json] {
    if (json.back() != '{') json += ',';
  };
  if (const Metadata metadata = stored(header); !metadata.empty()) {
    absl::StrAppend(&json, "\"", kMetadataKey, "\":{");
    for (const auto& [key, value] : metadata) {
      separate();
      absl::StrAppend(&json, quoted(key), ":", quoted(value));
    }
    json += '}';
  }
  for (const auto& each : header.entries) {
    const SafetensorsFile::Entry entry = stored(each);
    separate();
    absl::StrAppend(&json, quoted(entry.name), ":{\"dtype\":\"", format_dtype(entry.dtype),
                    "\",\"shape\":[", absl::StrJoin(entry.shape, ","), "],\"data_offsets\":[",
                    entry.begin, ",", entry.end, "]}");
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxHeaderBytes) {
    fail(ErrorCode::kValue, "[save_safetensors] the names, shapes and metadata take ", json.size(),
         " bytes, but the format allows ", kMaxHeaderBytes, ": save to several files");
  }
  return json;
}

}  // namespace mytorch::nn
