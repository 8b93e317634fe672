// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

struct Options {
  std::string model = "mlp";
  std::string data;  // empty: mytorch's default
  std::string device = "cpu";
  int threads = 0;  // 0: as many as there are processors
  int64_t epochs = 0;
  int64_t batch = 64;
  uint64_t seed = 0;
  double lr = 0;
  std::string save;
  std::string load;
};

// Nothing when the arguments ask for help or are wrong, which has then been said; `status` is what
// the program is to exit with.
std::optional<Options> parse_options(int argc, char** argv, int* status);
