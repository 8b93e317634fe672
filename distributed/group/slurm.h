// Where the ranks of a step of Slurm meet, if no MPI connects them.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace mytorch::distributed {

// Returns the first host of a list in Slurm's compact form: "node01" of "node[01-03,7],login".
// Throws Error(kValue) if it is none.
std::string first_host(const std::string& list);

// Returns "host:port" for the processes of a step: the host of rank 0, and a port that other steps
// on it are not likely to have. Nothing outside of a step. `variable` reads the environment.
std::optional<std::string> slurm_address(
    const std::function<std::optional<std::string>(const char*)>& variable);

}  // namespace mytorch::distributed
