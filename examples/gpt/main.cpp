// A small GPT-2, trained on any text:
//
//   gpt train run --text book.txt
//   gpt sample run --prompt "The "
//
// Training prints lines, and on a terminal a bar with the time left; run it again to resume it. The
// folder has checkpoints, log.csv, and the model in Hugging Face's format.

#include <cstdio>
#include <exception>
#include <stdexcept>

#include "options.h"
#include "sample.h"
#include "train.h"

int main(int argc, char** argv) {
  int status = 0;
  try {
    const std::optional<Options> options = parse_options(argc, argv, &status);
    if (options.has_value() && options->train) train(*options->train);
    if (options.has_value() && options->sample) sample(*options->sample);
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) throw std::runtime_error("cannot write to standard output");
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "gpt: %s\n", error.what());
    return 1;
  }
  return status;
}
