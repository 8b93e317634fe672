// Reads damaged files and texts of every format that the framework reads. Each is refused with
// Error, or read consistently.
//
//   formats_fuzz [--only FORMAT] [--cases N] [--seconds S] [--seed N] [--first N]
//
// makes N cases of each format (default: 4000), or as many as fit into S seconds per format. A case
// depends only on the seed and its number. A case that crashes, hangs or breaks a rule is printed
// with the command that repeats it; the exit status is then 1.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>

#include "conformance/isolate.h"
#include "mytorch/error.h"
#include "tests/formats/formats.h"
#include "tests/formats/mutate.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::testing {
namespace {

struct Options {
  std::string only;
  uint64_t cases = 4000;
  double seconds = 0;
  uint64_t seed = 1;
  uint64_t first = 0;
};

std::string input_of(const Format& format, uint64_t seed, uint64_t number) {
  return Mutator(seed * 0x9e3779b97f4a7c15u + number).mutate(format.samples, format.header);
}

// Returns "read", "refused", or what is wrong, in one line.
std::string outcome_of(const Format& format, const std::string& input) {
  std::string outcome = "read";
  try {
    format.read(input);
  } catch (const Error& error) {
    outcome = "refused";
    if (error.code() == ErrorCode::kInternal) outcome = std::string("failed: ") + error.what();
  } catch (const std::exception& error) {
    outcome = std::string("threw ") + error.what();
  }
  std::replace(outcome.begin(), outcome.end(), '\n', ' ');
  return outcome;
}

// Returns whether all cases of a format ended well.
bool fuzz(const Format& format, const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto over = [&](uint64_t number) {
    if (options.seconds == 0) return number - options.first >= options.cases;
    return std::chrono::duration<double>(Clock::now() - begin).count() >= options.seconds;
  };
  uint64_t number = options.first;
  uint64_t read = 0, refused = 0;
  std::string wrong;
  const auto ended = conformance::run_in_child(
      [&](const conformance::Tell& tell) {
        // The samples themselves are read.
        for (const std::string& sample : format.samples) {
          const std::string outcome = outcome_of(format, sample);
          if (outcome.starts_with("threw")) throw Inconsistent("a valid sample " + outcome);
        }
        for (uint64_t each = options.first; !over(each); ++each) {
          tell("case " + std::to_string(each));
          tell(outcome_of(format, input_of(format, options.seed, each)));
        }
      },
      [&](const std::string& line) {
        if (line.starts_with("case ")) {
          number = std::stoull(line.substr(5));
        } else if (line == "read" || line == "refused") {
          ++(line == "read" ? read : refused);
        } else if (wrong.empty()) {
          wrong = line;
        }
      },
      60);
  if (!ended.well && wrong.empty()) wrong = "the process " + ended.how;
  std::cout << format.name << ": " << read << " read, " << refused << " refused\n";
  if (wrong.empty()) return true;
  std::cout << "FOUND " << format.name << ": " << wrong << "\n  again: formats_fuzz --only '"
            << format.name << "' --seed " << options.seed << " --first " << number
            << " --cases 1\n";
  return false;
}

int run(const Options& options) {
  const TempDirectory folder;
  bool known = false;
  bool well = true;
  for (const Format& format : all_formats(folder.path())) {
    if (!options.only.empty() && format.name != options.only) continue;
    known = true;
    well = fuzz(format, options) && well;
  }
  if (!known) std::cerr << "there is no format '" << options.only << "'\n";
  return known && well ? 0 : 1;
}

}  // namespace
}  // namespace mytorch::testing

int main(int argc, char** argv) {
  mytorch::testing::Options options;
  CLI::App app("Reads damaged files and texts.");
  app.add_option("--only", options.only, "the only format");
  app.add_option("--cases", options.cases, "cases of each format");
  app.add_option("--seconds", options.seconds, "time for each format, instead of --cases");
  app.add_option("--seed", options.seed, "seed of the damage");
  app.add_option("--first", options.first, "number of the first case");
  CLI11_PARSE(app, argc, argv);
  return mytorch::testing::run(options);
}
