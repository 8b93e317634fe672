// The files and texts that the framework reads, with valid samples of each.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace mytorch::testing {

// Thrown by Format::read if a damaged input was neither refused nor read consistently.
struct Inconsistent : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void require(bool holds, const std::string& what) {
  if (!holds) throw Inconsistent(what);
}

struct Format {
  std::string name;
  std::vector<std::string> samples;
  size_t header;  // the first bytes of a sample, which say how the others are read
  // Reads an input. Throws mytorch::Error if it refuses it.
  std::function<void(const std::string& bytes)> read;
};

// Returns all formats. Formats of files use files in `folder`.
std::vector<Format> all_formats(const std::string& folder);
// Those of model_files.cpp.
std::vector<Format> model_formats(const std::string& folder);
// Those of program_files.cpp.
std::vector<Format> program_formats(const std::string& folder);

}  // namespace mytorch::testing
