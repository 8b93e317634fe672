#include "plan/data_parallel.h"

#include <algorithm>

namespace mytorch::plan {
namespace {

class Exchange {
 public:
  Exchange(const std::vector<Unit>& units, const Layout& l, const Precision& precision,
           const Machine& machine)
      : units_(units),
        precision_(precision),
        machine_(machine),
        all_{l.data * l.context, l.tensor},
        sharing_{l.data * l.context / l.expert, l.tensor * l.expert},
        zero_(l.zero) {}

  // The first forward, with parameters that other ranks have updated.
  double forward() const {
    std::vector<Computation> computations;
    std::vector<Communication> communications;
    for (const Unit& unit : units_) {
      const int i = static_cast<int>(computations.size());
      // With ZeRO 3, two units are gathered at a time.
      communications.push_back({gather(unit), zero_ == 3 ? std::max(i - 2, -1) : -1});
      computations.push_back({unit.forward, i});
    }
    return added_seconds(computations, communications, machine_);
  }

  double backward() const {
    std::vector<Computation> computations;
    for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
      computations.push_back({unit->backward});
    }
    std::vector<Communication> communications = reductions();
    if (zero_ == 3) communications = gathered(communications, computations);
    return added_seconds(computations, communications, machine_);
  }

 private:
  double gather(const Unit& unit) const {
    return all_gather_seconds(machine_, all_, unit.shared * precision_.parameter) +
           all_gather_seconds(machine_, sharing_, unit.experts * precision_.parameter);
  }

  // Of buckets of gradients, in the order in which they are full.
  std::vector<Communication> reductions() const {
    std::vector<Communication> found;
    const auto add = [&](double Unit::*parameters, const Ranks& ranks) {
      if (ranks.size == 1) return;
      std::vector<Gradient> gradients;
      const int count = static_cast<int>(units_.size());
      for (int i = 0; i < count; ++i) {
        const Unit& unit = units_[static_cast<size_t>(count - 1 - i)];
        const double bytes = unit.*parameters * precision_.gradient;
        if (bytes > 0) gradients.push_back({bytes, i});
      }
      for (const Bucket& bucket : buckets_of(gradients, kFirstBucket, kBucket)) {
        found.push_back({zero_ == 0 ? all_reduce_seconds(machine_, ranks, bucket.bytes)
                                    : reduce_scatter_seconds(machine_, ranks, bucket.bytes),
                         bucket.last});
      }
    };
    add(&Unit::shared, all_);
    add(&Unit::experts, sharing_);
    std::stable_sort(
        found.begin(), found.end(),
        [](const Communication& a, const Communication& b) { return a.after < b.after; });
    return found;
  }

  // Puts the gathering of parameters before the reductions that come when they are needed, and has
  // computations wait for it.
  std::vector<Communication> gathered(const std::vector<Communication>& reduced,
                                      std::vector<Computation>& computations) const {
    std::vector<Communication> all;
    size_t next = 0;  // of the reductions
    const int count = static_cast<int>(computations.size());
    for (int i = 0; i < count; ++i) {
      // Of unit i, while unit i - 1 computes: behind the reductions of those before it.
      for (; next < reduced.size() && reduced[next].after < i - 1; ++next) {
        all.push_back(reduced[next]);
      }
      computations[static_cast<size_t>(i)].after = static_cast<int>(all.size());
      all.push_back({gather(units_[static_cast<size_t>(count - 1 - i)]), std::max(i - 2, -1)});
    }
    all.insert(all.end(), reduced.begin() + static_cast<std::ptrdiff_t>(next), reduced.end());
    return all;
  }

  const std::vector<Unit>& units_;
  const Precision& precision_;
  const Machine& machine_;
  Ranks all_, sharing_;
  int zero_;
};

}  // namespace

double added_seconds(const std::vector<Computation>& computations,
                     const std::vector<Communication>& communications, const Machine& machine) {
  const double together = run(computations, communications, machine.data_overlap).seconds;
  std::vector<Computation> alone = computations;
  for (Computation& computation : alone) computation.after = -1;
  return together - run(alone, {}, 1).seconds;
}

double data_seconds(const std::vector<Unit>& units, const Layout& layout,
                    const Precision& precision, const Machine& machine, double micro_batches) {
  if (layout.data * layout.context == 1) return 0;
  const Exchange exchange(units, layout, precision, machine);
  const double n = micro_batches;
  switch (layout.zero) {
    case 0:
      return exchange.backward();
    case 1:
      return exchange.forward() + exchange.backward();
    case 2:
      return exchange.forward() + n * exchange.backward();
    default:
      return n * (exchange.forward() + exchange.backward());
  }
}

}  // namespace mytorch::plan
