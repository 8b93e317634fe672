#include "backends/cpu-openmp/reduce/fold.h"

namespace mytorch::cpu {

const FoldFns* find_fold(Fold fold, Lane lane) {
  const bool floating = lane == kFloat32 || lane == kFloat64;
  switch (fold) {
    case Fold::kSum:
    case Fold::kProd:
      return sum_folds() + (fold == Fold::kProd ? 3 : 0) + (floating ? lane : 2);
    case Fold::kMax:
    case Fold::kMin:
    case Fold::kArgmax:
    case Fold::kArgmin:
      return best_folds() + kLanes * (static_cast<int>(fold) - static_cast<int>(Fold::kMax)) + lane;
    case Fold::kAll:
    case Fold::kAny:
      return logic_folds() + (fold == Fold::kAny ? 1 : 0);
    case Fold::kWelford:
    case Fold::kLogsumexp:
      if (!floating) return nullptr;
      return moment_folds() + (fold == Fold::kLogsumexp ? 2 : 0) + lane;
  }
  return nullptr;
}

}  // namespace mytorch::cpu
