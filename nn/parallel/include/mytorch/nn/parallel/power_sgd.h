// Gradients that travel as products of two narrow matrices.
#pragma once

#include <cstdint>
#include <memory>

#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

struct PowerSGDOptions {
  // Columns of the two matrices: more of them cost more bytes and keep more of a gradient.
  int64_t matrix_approximation_rank = 1;
  // The first steps, in which gradients change most, reduce them whole.
  int64_t start_powerSGD_iter = 1000;
  // A gradient is compressed if this leaves fewer than one of so many elements.
  double min_compression_rate = 2;
  // Whether each rank adds to a gradient what compression has left out of the last one.
  bool use_error_feedback = true;
  // Whether a step begins with the matrix of the last one, instead of a random one.
  bool warm_start = true;
  // Is added to the norms of columns, the largest elements of which are 1 before they are made
  // orthogonal. A column of zeros stays one in any case.
  double orthogonalization_epsilon = 0;
  uint64_t random_seed = 0;  // the same on all ranks
};

// A communication hook that compresses gradients (Vogels et al., "PowerSGD: practical low-rank
// gradient compression for distributed optimization", NeurIPS 2019). A gradient of m rows and n
// columns, the product of the other dimensions, becomes P Q^T, where P is (m, rank) and Q (n,
// rank): one step of the power iteration, in which the ranks add up P and then Q. Vectors, complex
// gradients and those that would not become small enough are reduced whole.
//
//   nn::DistributedDataParallel parallel(net, {.hook = nn::PowerSGD({.matrix_approximation_rank =
//   4})});
//
// Computes in float32 for 16-bit gradients. Keeps the error of each gradient, which takes as much
// memory as the gradient, and Q. A gradient that is infinite or NaN stays in them, so that losses
// must not be scaled until gradients overflow. Copies share this state; every model has its own.
class PowerSGD {
 public:
  explicit PowerSGD(PowerSGDOptions options = {});
  std::function<void()> operator()(const distributed::Group& group, const GradBucket& bucket,
                                   double scale) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mytorch::nn
