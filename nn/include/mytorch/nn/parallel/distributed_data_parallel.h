// Training one model on several ranks, each with its part of the data.
#pragma once

#include <cstdint>
#include <memory>

#include "mytorch/distributed.h"
#include "mytorch/nn/module.h"

namespace mytorch::nn {

struct DistributedDataParallelOptions {
  distributed::Group group = {};  // default: distributed::world()
  // Gradients are reduced in buckets of about this size: large enough that a reduction is worth its
  // latency, small enough that it begins early. The first one is smaller, to begin earlier.
  int64_t bucket_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;
  // Buffers, such as the statistics of batch norm, are those of rank 0 at every forward in
  // training.
  bool broadcast_buffers = true;
};

// Keeps the copies of a model on all ranks equal. The constructor broadcasts the parameters and
// buffers of rank 0. Backward then averages the gradients over the ranks, bucket by bucket, while
// it goes on: when it returns, every rank has the same gradients, which are views of the buckets.
//
//   nn::DistributedDataParallel parallel(net);
//   loss(parallel(input), target).backward();
//   optimizer.step();
//
// `net` is used, trained and saved as before, and must outlive this object. All ranks call backward
// in the same order, and in each backward every parameter takes part on every rank: otherwise the
// next call throws Error(kValue), which names the parameters without a gradient.
class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(Module& module, DistributedDataParallelOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  Tensor operator()(const Tensor& input) {
    begin();
    return module_(input);
  }
  // What comes before a forward, for modules whose forward takes other arguments: checks the last
  // backward and, in training, broadcasts the buffers.
  void begin();
  Module& module() { return module_; }

  // Gradients are added up without being reduced while this object lives. The first backward after
  // it reduces the sums.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& model);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& model_;
    bool saved_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  int64_t num_buckets() const;

 private:
  struct Reducer;
  Module& module_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace mytorch::nn
