// The pointwise ops, as candidates.
#include "backends/cpu-openmp/pointwise/driver.h"
#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_pointwise(Candidates& candidates) {
  for (const PointwiseOp& op : programs().pointwise) {
    mt_candidate candidate{};
    candidate.size = sizeof(candidate);
    candidate.op = op.name;
    candidate.hash = op.hash;
    candidate.name = "vector_loop";
    candidate.flags =
        MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;
    candidate.run = &run_pointwise;
    candidate.self = const_cast<PointwiseOp*>(&op);
    candidates.push_back(candidate);
  }
}

}  // namespace mytorch::cpu
