// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

struct TrainOptions {
  std::string run;                                  // the folder of the run
  std::string text = "/usr/share/common-licenses";  // a file or a folder
  std::string tokens = "chars";                     // or "bytes"
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t context = 64;
  double dropout = 0;
  int64_t batch = 64;
  int64_t steps = 2000;
  double lr = 2e-3;
  int64_t warmup = 100;
  double weight_decay = 0.1;
  double clip = 1;
  int64_t log_every = 50;
  int64_t eval_every = 250;
  std::string device = "cpu";
  std::string autocast;  // "", "bfloat16" or "float16"
  int threads = 0;       // 0: as many as there are processors
  uint64_t seed = 0;
};

struct SampleOptions {
  std::string run;
  std::string prompt;
  int64_t length = 500;  // tokens
  double temperature = 0.8;
  int64_t top_k = 0;
  double top_p = 1;
  std::string device = "cpu";
  int threads = 0;
  uint64_t seed = 0;
};

struct Options {
  std::optional<TrainOptions> train;
  std::optional<SampleOptions> sample;
};

// Parses the arguments. If they request help or are invalid, prints that, sets `status` to the exit
// status and returns nothing.
std::optional<Options> parse_options(int argc, char** argv, int* status);
