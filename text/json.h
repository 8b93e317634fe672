// Checked access to the fields of a JSON document.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "nlohmann/json_fwd.hpp"

namespace mytorch::text {

// A value of the document and its path. Every function throws Error(kIo) that names the path if the
// value is missing or has another type.
class Json {
 public:
  // Throws Error(kIo) if the text is not JSON or is nested too deeply.
  static std::shared_ptr<const nlohmann::json> parse(std::string_view text);

  explicit Json(const nlohmann::json& value, std::string path = "")
      : value_(&value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  const nlohmann::json& raw() const { return *value_; }
  bool is_null() const;
  bool is_string() const;
  bool is_object() const;
  bool has(const char* key) const;  // and it is not null
  Json at(const char* key) const;   // null if there is none
  std::string string() const;
  std::string string(const char* key) const { return at(key).string(); }
  std::string string(const char* key, std::string_view fallback) const;
  bool boolean(const char* key, bool fallback) const;
  uint32_t integer() const;  // 0 ... 2^31 - 1
  uint32_t integer(const char* key) const { return at(key).integer(); }
  size_t size(const char* key) const;
  double number() const;
  char32_t character(const char* key) const;                       // a string of one character
  void each(const std::function<void(const Json&)>& visit) const;  // of an array
  // The elements of an array `key`; null counts as empty.
  void each(const char* key, const std::function<void(const Json&)>& visit) const;
  void each_field(const std::function<void(const std::string&, const Json&)>& visit) const;
  // Returns the index of the field's value in `names`. Throws Error(kUnsupported) that lists them.
  size_t choice(const char* key, std::initializer_list<const char*> names) const;

  [[noreturn]] void fail_type(const char* wanted) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace mytorch::text
