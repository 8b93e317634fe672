#include "backends/cpu-openmp/reduction/fold.h"

namespace mytorch::cpu {

const FoldFns* find_fold(Fold fold, ComputeType compute_type) {
  const bool floating = compute_type == kFloat32 || compute_type == kFloat64;
  switch (fold) {
    case Fold::kSum:
    case Fold::kProd:
      return sum_folds() + (fold == Fold::kProd ? 3 : 0) + (floating ? compute_type : 2);
    case Fold::kMax:
    case Fold::kMin:
    case Fold::kArgmax:
    case Fold::kArgmin:
      return best_folds() +
             kComputeTypes * (static_cast<int>(fold) - static_cast<int>(Fold::kMax)) + compute_type;
    case Fold::kAll:
    case Fold::kAny:
      return logic_folds() + (fold == Fold::kAny ? 1 : 0);
    case Fold::kWelford:
    case Fold::kLogsumexp:
      if (!floating) return nullptr;
      return moment_folds() + (fold == Fold::kLogsumexp ? 2 : 0) + compute_type;
  }
  return nullptr;
}

}  // namespace mytorch::cpu
