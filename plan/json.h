// JSON files of people, whose mistakes are named.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mytorch::plan {

using Json = nlohmann::json;

// Throws Error(kIo) for a file that cannot be read, and Error(kValue) for one that is no JSON
// object or array.
Json read_json(const std::string& path);

// Returns a value for a message: of arrays and objects, which may be long and deep, the type alone.
std::string shown(const Json& value);

// Returns a positive, finite number of an object. Throws Error(kValue) if it is missing or is none.
double positive(const Json& object, const char* name, const std::string& where);
int64_t whole(const Json& object, const char* name, const std::string& where);

// Returns an array of such numbers.
std::vector<double> positives(const Json& object, const char* name, const std::string& where);
// Returns a text, which must be one of `known`.
std::string one_of(const Json& object, const char* name, const std::vector<std::string>& known,
                   const std::string& where);
// Throws Error(kValue), naming the key and those that are known, for another one.
void check_keys(const Json& object, const std::vector<std::string>& known,
                const std::string& where);

}  // namespace mytorch::plan
