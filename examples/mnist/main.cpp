// Handwritten digits: an MLP and a CNN on MNIST.
//
//   mnist --model cnn --data DIR --threads 4 --save cnn.safetensors
//
// or, on several processes, `mytorch launch --ranks 4 --mpi mnist --distributed`, prints a line per
// epoch:
//
//   epoch 3/10 loss 0.0213 accuracy 94.52% time 0.11s samples/s 545000

#include <cstdio>
#include <exception>
#include <stdexcept>

#include "options.h"
#include "train.h"

int main(int argc, char** argv) {
  int status = 0;
  try {
    const std::optional<Options> options = parse_options(argc, argv, &status);
    if (options.has_value()) run(*options);
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) throw std::runtime_error("cannot write to standard output");
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
  }
  return status;
}
