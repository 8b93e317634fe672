#include "nn/models/config_fields.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/types/errors.h"
#include "nlohmann/json.hpp"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn::models {

using Json = nlohmann::ordered_json;

struct ConfigFields::State {
  std::string what, path;  // empty for writing
  Json json = Json::object();

  // Returns the field, or null if it is absent.
  const Json* find(const char* name) const {
    const auto found = json.find(name);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
};

namespace {

std::string text_of(const Json& value) {
  constexpr size_t kLongest = 100;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

}  // namespace

ConfigFields::ConfigFields(std::unique_ptr<State> state) : state_(std::move(state)) {}
ConfigFields::ConfigFields(ConfigFields&&) noexcept = default;
ConfigFields::~ConfigFields() = default;

ConfigFields ConfigFields::write() { return ConfigFields(std::make_unique<State>()); }

ConfigFields ConfigFields::read(const char* what, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    fail(ErrorCode::kIo, "[", what, "] there is no file ", path,
         ": give a file, or the folder of a model in Hugging Face's format");
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) fail(ErrorCode::kIo, "[", what, "] file ", path, " cannot be read");
  auto state = std::make_unique<State>();
  state->what = what;
  state->path = path;
  // A document that nests deeply would use as much stack.
  constexpr int kMaxDepth = 32;
  bool too_deep = false;
  const Json::parser_callback_t callback = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  state->json = Json::parse(text, callback, /*allow_exceptions=*/false);
  if (too_deep || !state->json.is_object()) {
    fail(ErrorCode::kValue, "[", what, "] file ", path, " is not a JSON object");
  }
  return ConfigFields(std::move(state));
}

bool ConfigFields::reading() const { return !state_->path.empty(); }

void ConfigFields::fail_field(const char* name, const std::string& reason) const {
  fail(ErrorCode::kValue, "[", state_->what, "] file ", state_->path, ": ", name, " is ",
       text_of(state_->json.value(name, Json())), reason);
}

bool ConfigFields::has(const char* name) const { return state_->find(name) != nullptr; }

void ConfigFields::operator()(const char* name, int64_t& value) {
  if (!reading()) {
    state_->json[name] = value;
  } else if (const Json* found = state_->find(name)) {
    if (!found->is_number_integer() ||
        (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX})) {
      fail_field(name, ", not a whole number");
    }
    value = found->get<int64_t>();
  }
}

void ConfigFields::operator()(const char* name, double& value) {
  if (!reading()) {
    state_->json[name] = value;
  } else if (const Json* found = state_->find(name)) {
    if (!found->is_number()) fail_field(name, ", not a number");
    value = found->get<double>();
  }
}

void ConfigFields::operator()(const char* name, bool& value) {
  if (!reading()) {
    state_->json[name] = value;
  } else if (const Json* found = state_->find(name)) {
    if (!found->is_boolean()) fail_field(name, ", not true or false");
    value = found->get<bool>();
  }
}

void ConfigFields::operator()(const char* name, std::string& value) {
  if (!reading()) {
    state_->json[name] = value;
  } else if (const Json* found = state_->find(name)) {
    if (!found->is_string()) fail_field(name, ", not a text");
    value = found->get<std::string>();
  }
}

void ConfigFields::operator()(const char* name, std::optional<int64_t>& value) {
  if (!reading()) {
    state_->json[name] = value.has_value() ? Json(*value) : Json();
  } else if (has(name)) {
    (*this)(name, value.emplace());
  }
}

void ConfigFields::operator()(const char* name, std::map<std::string, std::string>& value) {
  if (!reading()) {
    state_->json[name] = value;
  } else if (const Json* found = state_->find(name)) {
    if (!found->is_object()) fail_field(name, ", not an object");
    for (const auto& [key, item] : found->items()) {
      if (!item.is_string()) {
        fail_field(name, absl::StrCat(", whose entry '", shown(key), "' is not a text"));
      }
      value[key] = item.get<std::string>();
    }
  }
}

void ConfigFields::require(const char* name, const std::string& value) {
  std::string found;
  if (!reading()) {
    state_->json[name] = value;
  } else if ((*this)(name, found); found != value) {
    fail_field(name, absl::StrCat(", not \"", value, "\": it describes another kind of model"));
  }
}

void ConfigFields::refuse_unless(const char* name, bool value) {
  bool found = value;
  if (reading()) (*this)(name, found);
  if (found != value) {
    fail_field(name,
               absl::StrCat(", which is not supported: only ", value ? "true" : "false", " is"));
  }
}

void ConfigFields::refuse_unless(const char* name, const char* value) {
  std::string found = value;
  if (reading()) (*this)(name, found);
  if (found != value) {
    fail_field(name, absl::StrCat(", which is not supported: only \"", value, "\" is"));
  }
}

ConfigFields ConfigFields::inside(const char* name) const {
  if (!state_->find(name)->is_object()) fail_field(name, ", not an object");
  auto state = std::make_unique<State>(*state_);
  state->json = state_->json[name];
  state->what = absl::StrCat(state_->what, ".", name);
  return ConfigFields(std::move(state));
}

void ConfigFields::write_inside(const char* name, const ConfigFields& fields) {
  state_->json[name] = fields.state_->json;
}

void ConfigFields::write_list(const char* name, const std::string& only) {
  state_->json[name] = Json::array({only});
}

std::string ConfigFields::json() const { return state_->json.dump(2) + "\n"; }

std::string config_path(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? path + "/config.json" : path;
}

}  // namespace mytorch::nn::models
