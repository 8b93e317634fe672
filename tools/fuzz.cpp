// `mytorch fuzz`.
#include "conformance/fuzz.h"

#include <filesystem>
#include <iostream>
#include <memory>
#include <random>

#include "conformance/isolate.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

struct FuzzArguments {
  conformance::FuzzOptions options;
  uint64_t megabytes = 0;
  CLI::Option* seed = nullptr;
};

int fuzz(FuzzArguments given) {
  conformance::FuzzOptions& options = given.options;
  const bool own = !options.plugin.empty();
  if (own) options.plugin = std::filesystem::absolute(options.plugin).string();
  const std::string path = options.plugin;
  const auto prepare = [&] {
    if (own) {
      load_backend(path);
    } else {
      load_default_backends();
    }
  };
  const auto ended = conformance::run_in_child(
      [&](const conformance::Tell& tell) {
        prepare();
        for (const BackendInfo& info : backend_infos()) {
          if (own ? info.path == path : info.name == options.backend && info.error.empty()) {
            tell(info.device_type + " " + info.name);
          }
        }
      },
      [&](const std::string& line) {
        options.device = line.substr(0, line.find(' '));
        options.backend = line.substr(line.find(' ') + 1);
      },
      60);
  if (!ended.well) throw Error(ErrorCode::kIo, "[fuzz] loading the backends " + ended.how);
  options.memory = static_cast<int64_t>(given.megabytes << 20);
  if (given.seed->count() == 0) options.seed = std::random_device()();
  std::cout << "seed " << options.seed << "\n" << std::flush;
  const auto catalog = conformance::load_catalog(conformance::share_folder());
  const auto report = conformance::fuzz(catalog, options, prepare, std::cout);
  std::cout << report.calls << " calls, " << report.refused << " refused with an Error, "
            << report.findings.size() << " findings\n";
  return report.findings.empty() ? 0 : 1;
}

}  // namespace

Run add_fuzz(CLI::App& app) {
  auto given = std::make_shared<FuzzArguments>();
  conformance::FuzzOptions* options = &given->options;
  app.add_option("library", options->plugin, "a backend's shared library to test");
  app.add_option("--backend", options->backend,
                 "the backend to test (default: the dispatcher's choice)");
  app.add_option("--only", options->only, "only these operators, by full or base name");
  given->seed = app.add_option("--seed", options->seed, "seed of the calls (default: random)");
  app.add_option("--first", options->first, "number of the first call (0)");
  app.add_option("--calls", options->calls, "calls to make (default: no limit)");
  app.add_option("--seconds", options->seconds, "time to spend (60, or no limit with --calls)");
  app.add_option("--call-seconds", options->call_seconds, "time limit for one call (30)")
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--memory", given->megabytes,
                 "memory that a process may allocate, in MiB; 0: no limit (0)")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 30));
  return [given] {
    if (given->options.calls == 0 && given->options.seconds == 0) given->options.seconds = 60;
    return fuzz(*given);
  };
}

}  // namespace mytorch::tools
