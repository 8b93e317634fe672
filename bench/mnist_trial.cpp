#include "bench/mnist_trial.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <vector>

namespace bench {
namespace {

template <typename T>
T parse(const std::string& name, const std::string& text, T (*convert)(const char*, char**),
        T smallest) {
  char* end = nullptr;
  const T value = convert(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= smallest)) {
    throw std::invalid_argument(name + ": bad value '" + text + "'");
  }
  return value;
}

Options parse_options(int argc, char** argv, bool on_devices) {
  const auto integer = [](const char* s, char** end) { return std::strtol(s, end, 10); };
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    std::string value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      throw std::invalid_argument(name + ": needs a value");
    }
    if (name == "--data") {
      options.data = value;
    } else if (name == "--model" && (value == "mlp" || value == "cnn")) {
      options.model = value;
    } else if (name == "--epochs") {
      options.epochs = parse<long>(name, value, integer, 1);
    } else if (name == "--batch") {
      options.batch = parse<long>(name, value, integer, 1);
    } else if (name == "--threads") {
      options.threads = static_cast<int>(parse<long>(name, value, integer, 1));
    } else if (name == "--lr") {
      options.lr = parse<double>(name, value, std::strtod, 0);
    } else if (name == "--seed") {
      options.seed = static_cast<uint64_t>(parse<long>(name, value, integer, 0));
    } else if (on_devices && name == "--device") {
      options.device = value;
    } else if (on_devices && name == "--graph" && (value == "0" || value == "1")) {
      options.graph = value == "1";
    } else if (name == "--benchmark_format" && (value == "console" || value == "json")) {
      options.json = value == "json";
    } else {
      throw std::invalid_argument(name + " " + value + ": not understood");
    }
  }
  if (options.data.empty()) throw std::invalid_argument("--data DIR is needed");
  if (options.lr == 0) options.lr = options.model == "mlp" ? 0.5 : 0.01;
  return options;
}

void print_line(const Epoch& epoch, int64_t index, int64_t count) {
  std::printf("epoch %ld/%ld loss %.6f accuracy %.2f%% time %.4fs samples/s %.0f\n",
              static_cast<long>(index + 1), static_cast<long>(count), epoch.loss,
              100 * epoch.accuracy, epoch.wall_seconds, epoch.samples_per_second);
  std::fflush(stdout);
}

// Writes a number as Google Benchmark does; Python's json module reads NaN and Infinity.
std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char text[32];
  std::snprintf(text, sizeof text, "%.6e", value);
  return text;
}

// Google Benchmark itself would add the numbers of iterations and repetitions to the name.
void print_json(const std::vector<Epoch>& epochs, const Options& options,
                const std::string& context) {
  const std::string name = options.model + "_epoch";
  std::printf("{\n  \"context\": {%s, \"threads\": %d, \"batch\": %ld},\n  \"benchmarks\": [\n",
              context.c_str(), options.threads, static_cast<long>(options.batch));
  for (size_t i = 0; i < epochs.size(); ++i) {
    const Epoch& epoch = epochs[i];
    std::printf("    {\"name\": \"%s\", \"run_name\": \"%s\", \"run_type\": \"iteration\", ",
                name.c_str(), name.c_str());
    std::printf("\"repetitions\": %zu, \"repetition_index\": %zu, \"threads\": 1, ", epochs.size(),
                i);
    std::printf("\"iterations\": 1, \"real_time\": %.6f, \"cpu_time\": %.6f, ",
                1e3 * epoch.wall_seconds, 1e3 * epoch.cpu_seconds);
    std::printf("\"time_unit\": \"ms\", \"items_per_second\": %.1f, ", epoch.samples_per_second);
    std::printf("\"loss\": %s, \"accuracy\": %.6f}%s\n", json_number(epoch.loss).c_str(),
                epoch.accuracy, i + 1 < epochs.size() ? "," : "");
  }
  std::printf("  ]\n}\n");
}

}  // namespace

Epoch Stopwatch::stop(double samples) const {
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
  Epoch epoch{};
  epoch.wall_seconds = wall.count();
  epoch.cpu_seconds = static_cast<double>(std::clock() - cpu_start_) / CLOCKS_PER_SEC;
  epoch.samples_per_second = samples / epoch.wall_seconds;
  return epoch;
}

void run_epochs(const Options& options, const std::string& context,
                const std::function<Epoch()>& epoch) {
  std::vector<Epoch> epochs;
  for (int64_t i = 0; i < options.epochs; ++i) {
    epochs.push_back(epoch());
    if (!options.json) print_line(epochs.back(), i, options.epochs);
  }
  if (options.json) print_json(epochs, options, context);
}

int run_trial(int argc, char** argv, bool on_devices, void (*trial)(const Options&)) {
  try {
    trial(parse_options(argc, argv, on_devices));
  } catch (const std::exception& error) {
    const std::string program = std::filesystem::path(argv[0]).filename().string();
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
    return 1;
  }
  return 0;
}

}  // namespace bench
