#include "text/json.h"

#include "nlohmann/json.hpp"
#include "text/errors.h"
#include "text/unicode.h"

namespace mytorch::text {
namespace {

constexpr int kDeepest = 64;

// Strings of a file may be long, or not printable.
std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 100)) result += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  if (text.size() > 100) result = repair_utf8(result) + "...";
  return result;
}

void check_depth(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest)
        fail(ErrorCode::kIo, "the file is nested deeper than ", kDeepest, " levels");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace

std::shared_ptr<const nlohmann::json> Json::parse(std::string_view text) {
  // The JSON library treats a zero byte as the end of its input and would ignore the rest.
  if (text.find('\0') != text.npos)
    fail(ErrorCode::kIo, "the file is not JSON: it has a zero byte");
  check_depth(text);
  try {
    return std::make_shared<const nlohmann::json>(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kIo, "the file is not JSON: ", shown(error.what()));
  }
}

bool Json::is_null() const { return value_->is_null(); }
bool Json::is_string() const { return value_->is_string(); }
bool Json::is_object() const { return value_->is_object(); }

void Json::fail_type(const char* wanted) const {
  fail(ErrorCode::kIo, "'", shown(path_), "' ", value_->is_null() ? "is missing" : "is not valid",
       ": it must be ", wanted);
}

bool Json::has(const char* key) const {
  if (!is_object()) fail_type("an object");
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

Json Json::at(const char* key) const {
  static const nlohmann::json missing;
  if (!is_object()) fail_type("an object");
  const auto found = value_->find(key);
  return Json(found == value_->end() ? missing : *found, path_.empty() ? key : path_ + "." + key);
}

std::string Json::string() const {
  if (!is_string()) fail_type("a string");
  return value_->get<std::string>();
}

std::string Json::string(const char* key, std::string_view fallback) const {
  return has(key) ? string(key) : std::string(fallback);
}

bool Json::boolean(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  const Json field = at(key);
  if (!field.value_->is_boolean()) field.fail_type("true or false");
  return field.value_->get<bool>();
}

uint32_t Json::integer() const {
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() > INT32_MAX) {
    fail_type("an integer from 0 to 2147483647");
  }
  return static_cast<uint32_t>(value_->get<uint64_t>());
}

size_t Json::size(const char* key) const {
  const Json field = at(key);
  if (!field.value_->is_number_unsigned()) field.fail_type("an integer of 0 or more");
  return field.value_->get<uint64_t>();
}

double Json::number() const {
  if (!value_->is_number()) fail_type("a number");
  return value_->get<double>();
}

char32_t Json::character(const char* key) const {
  const std::string text = string(key);
  if (text.empty() || char_length(text[0]) != text.size()) at(key).fail_type("one character");
  size_t position = 0;
  return next_char(text, position);
}

void Json::each(const std::function<void(const Json&)>& visit) const {
  if (!value_->is_array()) fail_type("an array");
  size_t index = 0;
  for (const nlohmann::json& value : *value_) {
    visit(Json(value, absl::StrCat(path_, "[", index++, "]")));
  }
}

void Json::each(const char* key, const std::function<void(const Json&)>& visit) const {
  if (has(key)) at(key).each(visit);
}

void Json::each_field(const std::function<void(const std::string&, const Json&)>& visit) const {
  if (!is_object()) fail_type("an object");
  for (const auto& [key, value] : value_->items()) visit(key, Json(value, path_ + "." + key));
}

size_t Json::choice(const char* key, std::initializer_list<const char*> names) const {
  const std::string value = string(key);
  std::string list;
  size_t index = 0;
  for (const char* name : names) {
    if (value == name) return index;
    absl::StrAppend(&list, index++ == 0 ? "" : ", ", name);
  }
  fail(ErrorCode::kUnsupported, "'", shown(path_), "': the ", key, " '", shown(value),
       "' is not supported; supported: ", list);
}

}  // namespace mytorch::text
