#include "distributed/group/slurm.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/types/errors.h"

namespace mytorch::distributed {

std::string first_host(const std::string& list) {
  std::string host;
  bool inside = false, chosen = false;  // of brackets; whether their first number is complete
  for (const char c : list) {
    if (c == '[' && !inside) {
      inside = true;
      chosen = false;
    } else if (c == ']' && inside) {
      inside = false;
    } else if (inside) {
      chosen = chosen || c == '-' || c == ',';
      if (!chosen) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  if (host.empty() || inside || host.find_first_of("[] ") != std::string::npos) {
    fail(ErrorCode::kValue, "[init] \"", list,
         "\" is no list of Slurm's hosts, as node[01-03,7]: set MASTER_ADDR and MASTER_PORT");
  }
  return host;
}

std::optional<std::string> slurm_address(
    const std::function<std::optional<std::string>(const char*)>& variable) {
  // A script of sbatch has numbers of ranks, too, but is no rank of a step.
  const auto step = variable("SLURM_STEP_ID"), job = variable("SLURM_JOB_ID");
  if (!step.has_value() || !job.has_value() || !variable("SLURM_PROCID").has_value()) {
    return std::nullopt;
  }
  // The node that called srun comes last: it may have no rank.
  std::string host;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const auto list = variable(name);
    if (host.empty() && list.has_value()) host = first_host(*list);
  }
  if (host.empty()) host = variable("SLURM_LAUNCH_NODE_IPADDR").value_or("");
  if (host.empty()) return std::nullopt;
  uint64_t job_number = 0, step_number = 0;
  if (!absl::SimpleAtoi(*job, &job_number) || !absl::SimpleAtoi(*step, &step_number)) {
    fail(ErrorCode::kValue, "[init] SLURM_JOB_ID is \"", *job, "\" and SLURM_STEP_ID \"", *step,
         "\": they must be numbers; or set MASTER_ADDR and MASTER_PORT");
  }
  // Below the ports that systems give to connections.
  constexpr uint64_t kFirstPort = 12000, kPorts = 20000;
  return absl::StrCat(host, ":", kFirstPort + (job_number * 31 + step_number) % kPorts);
}

}  // namespace mytorch::distributed
