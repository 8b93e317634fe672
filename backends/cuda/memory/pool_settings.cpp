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
  bool known = true, of_segments = false;
  for (size_t begin = 0; begin <= given.size();) {
    const size_t end = std::min(given.find(',', begin), given.size());
    const std::string word = given.substr(begin, end - begin);
    double value = 0;
    if (word == "off" || word == "guarded") {
      known = known && settings.caching;
      settings.caching = false;
      settings.guarded = word == "guarded";
    } else if (word == "async") {
      settings.async = true;
    } else if (word == "expandable") {
      settings.expandable = of_segments = true;
    } else if (read(word, "max_split_size=", 20, 1 << 30, &value)) {
      settings.max_split_size = static_cast<size_t>(value * (1 << 20));
      of_segments = true;
    } else if (read(word, "collect_above=", 0.01, 1, &value)) {
      settings.collect_above = value;
      of_segments = true;
    } else if (read(word, "limit=", 1, 1 << 30, &value)) {
      settings.limit = static_cast<size_t>(value * (1 << 20));
    } else {
      known = false;
    }
    begin = end + 1;
  }
  const bool alone = !settings.async || given == "async";
  if (!known || !alone || (of_segments && !settings.caching)) {
    throw std::invalid_argument(
        "MYTORCH_CUDA_ALLOC is '" + given +
        "'; it must be async, off or guarded, or any of expandable, max_split_size=MIB with at "
        "least 20 MiB and collect_above=FRACTION from 0.01 to 1, separated by commas; limit=MIB "
        "may be added to all but async");
  }
  return settings;
}

}  // namespace mytorch::cuda
