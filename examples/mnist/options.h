// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

struct Options {
  std::string model = "mlp";
  std::string data;  // empty: the default directory
  std::string device = "cpu";
  bool distributed = false;
  int threads = 0;  // 0: as many as there are processors
  int64_t epochs = 0;
  int64_t batch = 64;
  uint64_t seed = 0;
  double lr = 0;
  std::string save;
  std::string load;
};

// Parses the arguments. If they request help or are invalid, prints that, sets `status` to the exit
// status and returns nothing.
std::optional<Options> parse_options(int argc, char** argv, int* status);
