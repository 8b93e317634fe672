// The commands of `mytorch`. Each function adds the arguments of a command to its parser and
// returns the function that runs it.
#pragma once

#include <CLI/CLI.hpp>

namespace mytorch::tools {

// Runs a command and returns the exit status.
using Run = std::function<int()>;

Run add_info(CLI::App& app);
Run add_ops(CLI::App& app);
Run add_call(CLI::App& app);
Run add_check(CLI::App& app);
Run add_fuzz(CLI::App& app);
Run add_new_backend(CLI::App& app);
Run add_launch(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_tune(CLI::App& app);
Run add_explain(CLI::App& app);
Run add_run(CLI::App& app);
Run add_graph(CLI::App& app);
Run add_plan(CLI::App& app);

}  // namespace mytorch::tools
