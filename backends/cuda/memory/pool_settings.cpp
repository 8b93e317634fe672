// Parses MYTORCH_CUDA_ALLOC.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "backends/cuda/memory/pool.h"

namespace mytorch::cuda {
namespace {

// Parses "NAME=NUMBER" with the number in [least, most].
bool read(const std::string& word, std::string_view name, double least, double most,
          double* value) {
  if (!word.starts_with(name) || word.size() == name.size()) return false;
  char* end = nullptr;
  *value = std::strtod(word.c_str() + name.size(), &end);
  return *end == '\0' && *value >= least && *value <= most;
}

}  // namespace

PoolSettings PoolSettings::parse(const char* text) {
  PoolSettings settings;
  const std::string given = text != nullptr ? text : "";
  if (given.empty()) return settings;
  if (given == "off") {
    settings.caching = false;
    return settings;
  }
  if (given == "async") {
    settings.async = true;
    return settings;
  }
  for (size_t begin = 0; begin <= given.size();) {
    const size_t end = std::min(given.find(',', begin), given.size());
    const std::string word = given.substr(begin, end - begin);
    double value = 0;
    if (word == "expandable") {
      settings.expandable = true;
    } else if (read(word, "max_split_size=", 20, 1 << 30, &value)) {
      settings.max_split_size = static_cast<size_t>(value * (1 << 20));
    } else if (read(word, "collect_above=", 0.01, 1, &value)) {
      settings.collect_above = value;
    } else {
      throw std::invalid_argument(
          "MYTORCH_CUDA_ALLOC is '" + given +
          "'; it must be off, async, or any of expandable, max_split_size=MIB with at least 20 MiB "
          "and collect_above=FRACTION from 0.01 to 1, separated by commas");
    }
    begin = end + 1;
  }
  return settings;
}

}  // namespace mytorch::cuda
