// Reading and writing of config.json.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace mytorch::nn::models {

// The fields of a JSON object, read into variables or written from them: a configuration lists its
// fields once, as `fields("n_head", n_head)`. Reading keeps the value of a variable whose field is
// absent or null, and throws Error(kValue), naming file and field, for a value of another type.
class ConfigFields {
 public:
  // Reads a file. `what` begins the messages. Throws Error(kIo) if it cannot be read, and
  // Error(kValue) if it is not a JSON object.
  static ConfigFields read(const char* what, const std::string& path);
  static ConfigFields write();
  ConfigFields(ConfigFields&&) noexcept;
  ~ConfigFields();

  bool reading() const;
  void operator()(const char* name, int64_t& value);
  void operator()(const char* name, double& value);
  void operator()(const char* name, bool& value);
  void operator()(const char* name, std::string& value);
  void operator()(const char* name, std::optional<int64_t>& value);
  void operator()(const char* name, std::map<std::string, std::string>& value);
  // Writes a text; reading, throws Error(kValue) if the field is another text.
  void require(const char* name, const std::string& value);
  // Throws Error(kValue) if the field is present and is not `value`: other values are not
  // implemented.
  void refuse_unless(const char* name, bool value);
  void refuse_unless(const char* name, const char* value);

  bool has(const char* name) const;  // false for null
  // Returns the fields of an object in a field, for reading; `has` must be true.
  ConfigFields inside(const char* name) const;
  void write_inside(const char* name, const ConfigFields& fields);
  void write_list(const char* name, const std::string& only);

  std::string json() const;
  [[noreturn]] void fail_field(const char* name, const std::string& reason) const;

 private:
  struct State;
  explicit ConfigFields(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Returns the path of config.json, given it or its folder.
std::string config_path(const std::string& path);

}  // namespace mytorch::nn::models
