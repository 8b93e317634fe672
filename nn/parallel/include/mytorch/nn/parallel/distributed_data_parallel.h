// Training one model on several ranks, each with its part of the data.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/module.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

// Gradients that are reduced together. Converts to and from its memory, so that a hook may also
// take a `const Tensor& bucket`.
struct GradBucket {
  GradBucket() = default;
  GradBucket(const Tensor& memory)  // NOLINT(google-explicit-constructor): one gradient
      : memory(memory), gradients{memory}, parameters{memory} {}
  operator const Tensor&() const { return memory; }  // NOLINT(google-explicit-constructor)

  Tensor memory;                   // 1-dim
  std::vector<Tensor> gradients;   // views of `memory`, with the shapes of the parameters
  std::vector<Tensor> parameters;  // in the same order
  int64_t index = 0;               // of the bucket
  bool is_last = true;             // of this backward
};

// Replaces a bucket of gradients by the sum over the ranks of `scale` times the bucket. It begins
// the reduction and returns what completes it, which is called when backward has ended.
using CommunicationHook = std::function<std::function<void()>(
    const distributed::Group& group, const GradBucket& bucket, double scale)>;
// Reduce gradients in 16 bits, which halves the bytes of float32. bfloat16 keeps 8 bits of each
// gradient and the range of float32; float16 keeps 11 bits, and makes gradients from 65520 infinite
// and those below 2^-25 zero.
std::function<void()> compress_bf16(const distributed::Group& group, const Tensor& bucket,
                                    double scale);
std::function<void()> compress_fp16(const distributed::Group& group, const Tensor& bucket,
                                    double scale);

struct DistributedDataParallelOptions {
  distributed::Group group = {};  // default: distributed::world()
  // Gradients are reduced in buckets of about this size: large enough that a reduction is worth its
  // latency, small enough that it begins early. The first one is smaller, to begin earlier.
  int64_t bucket_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;
  // Buffers, such as the statistics of batch norm, are those of rank 0 at every forward in
  // training.
  bool broadcast_buffers = true;
  // Whether a backward may leave parameters out, different ones on each rank. Those that no rank
  // used keep their gradient; for the others, a rank without one has added zero. Costs a walk
  // through the graph for each call, and a reduction of one number for each parameter.
  bool find_unused_parameters = false;
  // Whether every backward goes through the same parameters as the first one, and gives each as
  // many gradients. The first backward records this, and its gradients are reduced when it ends.
  // Later ones reduce a gradient when its last part has come, so that parameters may be left out,
  // or get gradients from a backward inside of backward, without a walk through the graph and
  // without further messages. Another graph is an Error(kValue), which names a parameter. Takes
  // precedence over find_unused_parameters.
  bool static_graph = false;
  CommunicationHook hook = {};  // instead of a reduction in the gradients' type
};

struct JoinOptions {
  // Whether gradients are averages over the ranks that still have data, or over all ranks, which
  // gives every example of the epoch the same weight.
  bool average_over_active = false;
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
// in the same order, and in each backward every parameter takes part on every rank, unless
// find_unused_parameters or static_graph is set: otherwise the next call throws Error(kValue),
// which names the parameters without a gradient.
class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(Module& module, DistributedDataParallelOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  Tensor operator()(const Tensor& input) {
    begin();
    Tensor output = module_(input);
    find_unused({output});
    return output;
  }
  // What comes before a forward, for modules whose forward takes other arguments: checks the last
  // backward and, in training, broadcasts the buffers.
  void begin();
  // What may come after it, with find_unused_parameters: finds the parameters that the results do
  // not depend on. Without it these are known only when backward ends, and reductions wait.
  void find_unused(const std::vector<Tensor>& results);
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

  // Runs `training`, in which the ranks may call forward, each time with a backward, different
  // numbers of times. A rank that has ended adds zeros to the reductions of the others until they
  // have ended, too; then all have the parameters and buffers of one that trained to the end. The
  // state of optimizers differs afterwards. In `training` the ranks call no other collectives of
  // the group.
  void join(const std::function<void()>& training, JoinOptions options = {});

  int64_t num_buckets() const;

 private:
  struct Reducer;
  Module& module_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace mytorch::nn
