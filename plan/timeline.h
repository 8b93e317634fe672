// When the computations and communications of a step end that run side by side.
#pragma once

#include <vector>

namespace mytorch::plan {

// Computations run one after the other in their order, as the kernels of a stream do.
struct Computation {
  double seconds = 0;  // without communication beside it
  // The communication that must be over before it begins, or -1.
  int after = -1;
  double issued = 0;  // when the host has issued it
};
// So do communications, on a channel of their own.
struct Communication {
  double seconds = 0;
  int after = -1;  // the computation that must be over before it begins
};

struct Ends {
  std::vector<double> computations, communications;
  double seconds = 0;  // when all of them are over
};

// Runs both from second 0. While a communication runs, computations advance at `rate` of their
// speed (0 < rate <= 1), because they share memory and multiprocessors with it. Throws
// Error(kValue) for an `after` that is out of range, for times that are negative or not finite, and
// if computations and communications wait for each other.
Ends run(const std::vector<Computation>& computations,
         const std::vector<Communication>& communications, double rate);

// Gradients that are reduced together, in the order in which backward computes them.
struct Bucket {
  double bytes = 0;
  int last = -1;  // the computation that makes the last of its gradients
};
// A gradient of so many bytes, which the computation of that number makes.
struct Gradient {
  double bytes = 0;
  int computation = -1;
};
// Fills buckets as DistributedDataParallel does: gradients in their order, up to `most` bytes
// together, up to `first` in the first bucket, and at least one in each.
std::vector<Bucket> buckets_of(const std::vector<Gradient>& gradients, double first, double most);

}  // namespace mytorch::plan
