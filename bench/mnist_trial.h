// What train_mnist and its twin in libtorch share: the options, the times and the report of epochs.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>

namespace bench {

struct Options {
  std::string data;
  std::string model = "mlp";
  int64_t epochs = 1;
  int64_t batch = 64;
  int threads = 1;
  double lr = 0;  // 0: the default of the model
  uint64_t seed = 1;
  std::string device = "cpu";
  bool graph = false;
  bool json = false;

  double momentum() const { return model == "cnn" ? 0.9 : 0; }
};

struct Epoch {
  double loss;
  double accuracy;  // of the test images, in [0, 1]
  double wall_seconds;
  double cpu_seconds;
  double samples_per_second;
};

// Runs from its construction on.
class Stopwatch {
 public:
  // Returns an epoch of so many samples, without loss and accuracy.
  Epoch stop(double samples) const;

 private:
  std::clock_t cpu_start_ = std::clock();
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Runs as many epochs as requested and prints a line after each, or Google Benchmark's JSON after
// all, so that one script reads the results of both programs. `context` has members of its context.
void run_epochs(const Options& options, const std::string& context,
                const std::function<Epoch()>& epoch);

// The body of main(): parses the arguments and runs the trial, and prints what either throws. Only
// with `on_devices` are --device and --graph options.
int run_trial(int argc, char** argv, bool on_devices, void (*trial)(const Options&));

}  // namespace bench
