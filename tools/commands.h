// The commands of `mytorch`. Each adds its arguments to the parser, and runs when it was chosen.
#pragma once

#include <CLI/CLI.hpp>

namespace mytorch::tools {

// What a command came to: the status of the process.
using Run = std::function<int()>;

Run add_info(CLI::App& app);
Run add_ops(CLI::App& app);
Run add_check(CLI::App& app);
Run add_new_backend(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_tune(CLI::App& app);
Run add_explain(CLI::App& app);

}  // namespace mytorch::tools
