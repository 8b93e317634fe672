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
  CLI::App app("Looks at a mytorch installation and tests it.", "mytorch");
  app.set_version_flag("--version", MYTORCH_VERSION_STRING);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, mytorch::tools::Run>> commands;
  auto add = [&](const char* name, const char* what, auto make) {
    CLI::App* command = app.add_subcommand(name, what);
    commands.emplace_back(command, make(*command));
  };
  add("info", "version, devices, backends and settings", mytorch::tools::add_info);
  add("ops", "which backend has a kernel for which operator, or all about one operator",
      mytorch::tools::add_ops);
  add("check", "tests a backend's operators against the reference", mytorch::tools::add_check);
  add("new-backend", "writes a small project that makes a backend",
      mytorch::tools::add_new_backend);
  add("bench", "times operators on every backend, beside the machine's own limits",
      mytorch::tools::add_bench);
  add("tune", "measures which kernel is the fastest, for MYTORCH_CHOICE=measured",
      mytorch::tools::add_tune);
  add("explain", "which kernel a call takes, and why not another", mytorch::tools::add_explain);
  try {
    const bool known = std::any_of(commands.begin(), commands.end(), [&](const auto& command) {
      return argc < 2 || argv[1][0] == '-' || command.first->get_name() == argv[1];
    });
    if (!known) {
      throw CLI::ValidationError("there is no command '" + std::string(argv[1]) +
                                 "': info, ops, check, new-backend, bench, tune or explain");
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
