#include "plan/json.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "core/types/errors.h"

namespace mytorch::plan {
namespace {

double positive_number(const Json& json, const char* name, const std::string& where) {
  const double value = json.is_number() ? json.get<double>() : 0;
  if (!(value > 0) || !std::isfinite(value)) {
    fail(ErrorCode::kValue, "[plan] ", where, ": ", name, " is ", shown(json),
         ": give a positive number");
  }
  return value;
}

}  // namespace

Json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ErrorCode::kIo, "[plan] cannot read ", path);
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !(json.is_object() || json.is_array())) {
    fail(ErrorCode::kValue, "[plan] ", path, " is no JSON object or array");
  }
  return json;
}

std::string shown(const Json& value) {
  return value.is_primitive() ? value.dump() : absl::StrCat("an ", value.type_name());
}

double positive(const Json& object, const char* name, const std::string& where) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end()) {
    fail(ErrorCode::kValue, "[plan] ", where, " has no ", name);
  }
  return positive_number(*found, name, where);
}

int64_t whole(const Json& object, const char* name, const std::string& where) {
  const double value = positive(object, name, where);
  if (value != std::floor(value) || value > 1e15) {
    fail(ErrorCode::kValue, "[plan] ", where, ": ", name, " is ", value, ": give a whole number");
  }
  return static_cast<int64_t>(value);
}

std::vector<double> positives(const Json& object, const char* name, const std::string& where) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_array()) {
    fail(ErrorCode::kValue, "[plan] ", where, " has no array ", name);
  }
  std::vector<double> values;
  for (const Json& item : *found) values.push_back(positive_number(item, name, where));
  return values;
}

std::string one_of(const Json& object, const char* name, const std::vector<std::string>& known,
                   const std::string& where) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  const bool given = object.is_object() && found != object.end() && found->is_string();
  std::string value = given ? found->get<std::string>() : "";
  if (std::find(known.begin(), known.end(), value) == known.end()) {
    fail(ErrorCode::kValue, "[plan] ", where, ": the ", name, " is '", value, "': give one of ",
         absl::StrJoin(known, ", "));
  }
  return value;
}

void check_keys(const Json& object, const std::vector<std::string>& known,
                const std::string& where) {
  if (!object.is_object()) fail(ErrorCode::kValue, "[plan] ", where, " is no object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    fail(ErrorCode::kValue, "[plan] ", where, ": unknown key '", key, "': there are ",
         absl::StrJoin(known, ", "));
  }
}

}  // namespace mytorch::plan
