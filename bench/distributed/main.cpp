// Measures ways to train a model on several GPUs. Every rank runs it (scripts/bench-distributed):
//
//   mytorch launch --ranks 2 bench_distributed CASE ... [--device cuda] [--tiny] [--samples N]
//       [--steps N] [--seconds S] [--model 1.3b|7b] [--recompute] [--gpu NAME] [--machine FILE]
//
// Rank 0 prints a line of JSON for each case. A time is the median of `samples` samples of up to
// `steps` steps, of the slowest rank; --seconds is about what all samples of one measurement may
// take. bench/peers/torch_distributed.py has the same cases for PyTorch.
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/distributed/bench.h"

namespace {

using bench::Group;
using bench::Settings;
using Case = std::function<void(const Group&, const Settings&)>;

const std::vector<std::pair<std::string, Case>>& cases() {
  static const std::vector<std::pair<std::string, Case>> all = {
      {"ddp-gpt2", bench::ddp_gpt2},
      {"ddp-resnet50", bench::ddp_resnet50},
      {"ddp-mlp", bench::ddp_mlp},
      {"fsdp", bench::fsdp},
      {"tp", [](const Group& g, const Settings& s) { bench::tensor_parallel(g, s, 4096, false); }},
      {"tp-sequence",
       [](const Group& g, const Settings& s) { bench::tensor_parallel(g, s, 4096, true); }},
      {"tp-wide",
       [](const Group& g, const Settings& s) { bench::tensor_parallel(g, s, 8192, false); }},
      {"tp-wide-sequence",
       [](const Group& g, const Settings& s) { bench::tensor_parallel(g, s, 8192, true); }},
      {"pipeline-8", [](const Group& g, const Settings& s) { bench::pipeline(g, s, 8); }},
      {"pipeline-16", [](const Group& g, const Settings& s) { bench::pipeline(g, s, 16); }},
      {"ring", [](const Group& g, const Settings& s) { bench::split_sequences(g, s, true); }},
      {"ulysses", [](const Group& g, const Settings& s) { bench::split_sequences(g, s, false); }},
      {"experts", bench::experts},
  };
  return all;
}

const Case& case_of(const std::string& name) {
  std::string names;
  for (const auto& [known, body] : cases()) {
    if (known == name) return body;
    names += (names.empty() ? "" : ", ") + known;
  }
  throw std::invalid_argument("there is no case " + name + ": give some of " + names);
}

Settings parse(int argc, char** argv, std::vector<std::string>& wanted) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto value = [&] {
      if (++i >= argc) throw std::invalid_argument(std::string(word) + " needs a value");
      return std::string(argv[i]);
    };
    const auto count = [&] {
      const int number = std::stoi(value());
      if (number < 1) throw std::invalid_argument(std::string(word) + " takes 1 or more");
      return number;
    };
    if (word == "--device") {
      settings.device = mytorch::Device(value());
    } else if (word == "--tiny") {
      settings.tiny = true;
    } else if (word == "--samples") {
      settings.samples = count();
    } else if (word == "--steps") {
      settings.steps = count();
    } else if (word == "--seconds") {
      settings.seconds = std::stod(value());
    } else if (word == "--model") {
      settings.model = value();
    } else if (word == "--recompute") {
      settings.recompute = true;
    } else if (word == "--gpu") {
      settings.gpu = value();
    } else if (word == "--machine") {
      settings.machine = value();
    } else if (word.starts_with("-")) {
      throw std::invalid_argument("unknown option " + std::string(word));
    } else {
      wanted.emplace_back(word);
    }
  }
  for (const std::string& name : wanted) (void)case_of(name);
  if (wanted.empty()) throw std::invalid_argument("give cases");
  return settings;
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> wanted;
  Settings settings = parse(argc, argv, wanted);
  const Group world = mytorch::distributed::init({.device = settings.device});
  settings.device = world.device();
  for (const std::string& name : wanted) {
    mytorch::manual_seed(0);  // equal weights on all ranks, and at every run
    case_of(name)(world, settings);
    if (!settings.device.is_cpu()) mytorch::empty_cache(settings.device);
  }
  mytorch::distributed::finalize();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_distributed: %s\n", error.what());
  return 1;
}
