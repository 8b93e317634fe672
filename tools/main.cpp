// The `mytorch` command.
#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/error.h"
#include "mytorch/version.h"
#include "tools/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Inspects, tests and measures a mytorch installation.", "mytorch");
  app.set_version_flag("--version", MYTORCH_VERSION_STRING);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, mytorch::tools::Run>> commands;
  auto add = [&](const char* name, const char* what, auto make) {
    CLI::App* command = app.add_subcommand(name, what);
    commands.emplace_back(command, make(*command));
  };
  add("info", "Print the version, devices, backends and settings", mytorch::tools::add_info);
  add("ops", "List the kernels of every backend, or describe one operator",
      mytorch::tools::add_ops);
  add("call", "Call operators by name, with arguments and results as JSON",
      mytorch::tools::add_call);
  add("check", "Test a backend: its contract, and its operators against the reference",
      mytorch::tools::add_check);
  add("fuzz", "Call operators with hostile arguments, which must end in results or errors",
      mytorch::tools::add_fuzz);
  add("new-backend", "Write a small project that builds a backend",
      mytorch::tools::add_new_backend);
  add("launch", "Start the ranks of a program on this machine", mytorch::tools::add_launch);
  add("bench", "Time operators on every backend, beside the limits of the machine",
      mytorch::tools::add_bench);
  add("tune", "Measure which kernel is fastest, for MYTORCH_CHOICE=measured",
      mytorch::tools::add_tune);
  add("explain", "Show which kernel a call uses, and why not the others",
      mytorch::tools::add_explain);
  add("run", "Run a saved program on arrays in files", mytorch::tools::add_run);
  add("graph", "Print the operators of a saved program, what they cost, and pictures",
      mytorch::tools::add_graph);
  add("plan", "Predict step times of a model on many GPUs, and rank the ways to divide it",
      mytorch::tools::add_plan);
  try {
    const bool known = std::any_of(commands.begin(), commands.end(), [&](const auto& command) {
      return argc < 2 || argv[1][0] == '-' || command.first->get_name() == argv[1];
    });
    if (!known) {
      throw CLI::ValidationError(
          "unknown command '" + std::string(argv[1]) +
          "'; the commands are info, ops, call, check, fuzz, new-backend, launch, bench, tune, "
          "explain, run, graph and plan");
    }
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 1;
  }
  try {
    int status = 1;
    for (const auto& [command, run] : commands) {
      if (command->parsed()) status = run();
    }
    if (!std::cout.flush()) {
      throw mytorch::Error(mytorch::ErrorCode::kIo, "cannot write to standard output");
    }
    return status;
  } catch (const std::exception& error) {
    std::cerr << "mytorch: " << error.what() << "\n";
  }
  return 1;
}
