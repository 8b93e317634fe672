// The `mytorch` command.
#include <functional>
#include <iostream>
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
  add("check", "tests a backend's operators against the oracle", mytorch::tools::add_check);
  CLI11_PARSE(app, argc, argv);
  try {
    for (const auto& [command, run] : commands) {
      if (command->parsed()) return run();
    }
  } catch (const std::exception& error) {
    std::cerr << "mytorch: " << error.what() << "\n";
  }
  return 1;
}
