// Training one model on several ranks, each of which keeps a part of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/distributed.h"
#include "mytorch/dtype.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/optim/clip.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

struct MixedPrecision {
  // In which a unit's parameters are gathered, and forward and backward compute; default: as they
  // are stored.
  std::optional<ScalarType> param_dtype = {};
  // In which gradients are reduced over the ranks; default: that of the gradients.
  std::optional<ScalarType> reduce_dtype = {};
  // Whether a unit's input, if it is floating, is converted to param_dtype.
  bool cast_inputs = true;
};

struct CPUOffload {
  // Whether this rank's parameters and gradients, and therefore the state of an optimizer and its
  // steps, are on the CPU. A unit's part is copied to the device before it is gathered.
  bool offload_params = false;
  // Whether that memory is pinned, if the device has such memory: copies then run beside the
  // device's computations.
  bool pin_memory = true;
};

struct FullyShardedDataParallelOptions {
  distributed::Group group = {};  // default: distributed::world()
  // On which units compute; default: the group's, or that of the parameters if this rank is alone.
  // Parameters may be on the CPU instead, from which each unit is copied when it is split, or
  // deferred (nn/deferred.h), and are then drawn at that time. Buffers move to this device.
  std::optional<Device> device = {};
  // Whether a module is a unit, whose parameters are gathered and freed together: ideally a layer
  // of many. Default: the elements of the outermost ModuleLists and Sequentials. What no unit
  // contains belongs to the module itself, the outermost unit.
  std::function<bool(const std::string& name, Module& module)> is_unit = {};
  // Whether a unit's parameters are freed after its forward and gathered again for its backward
  // (ZeRO stage 3), or kept in between (stage 2). The outermost unit's are kept.
  bool reshard_after_forward = true;
  MixedPrecision mixed_precision = {};
  CPUOffload cpu_offload = {};
  // Whether the next unit is gathered while one computes.
  bool prefetch = true;
  // Whether the parameters and buffers of rank 0 are broadcast at the start.
  bool sync_parameters = true;
  // Whether deferred parameters (nn/deferred.h) get the elements that they were made with, unit by
  // unit. Otherwise they are zeros, for a checkpoint that is loaded next. Buffers always get
  // theirs.
  bool draw_parameters = true;
};

// Splits the parameters of a model, their gradients, and therefore the state of an optimizer,
// evenly over the ranks. Each parameter becomes the tensor of those of its elements that this rank
// keeps, (n) with n from 0 to all of them; an optimizer that is made after it trains these:
//
//   nn::FullyShardedDataParallel parallel(net);
//   nn::optim::AdamW optimizer(net.parameters());
//   cross_entropy(parallel(input), target).backward();
//   optimizer.step();
//
// A unit gathers its parameters before its forward and before its backward, and frees them
// afterwards. When backward returns, gradients are averages over the ranks; a parameter that took
// no part in the backward of a unit that did has zeros. Updates element by element, as those of
// SGD, Adam or Lion, give what one rank gives; optimizers that look at rows or matrices (Adafactor,
// Muon) and clip_grad_norm_ of nn::optim would see parts.
//
// `module` must outlive this object and must not be moved, converted or copied after it. All ranks
// call the same units in the same order. Units are called by operator(), as hooks are, and not by
// forward(). Throws Error(kDevice) if a parameter is neither on the device of the units nor on the
// CPU nor deferred, and Error(kUnsupported) for parametrized modules.
class FullyShardedDataParallel {
 public:
  explicit FullyShardedDataParallel(Module& module, FullyShardedDataParallelOptions options = {});
  ~FullyShardedDataParallel();
  FullyShardedDataParallel(const FullyShardedDataParallel&) = delete;
  FullyShardedDataParallel& operator=(const FullyShardedDataParallel&) = delete;

  Tensor operator()(const Tensor& input) {
    const Forward forward(*this);
    return module_(input);
  }
  // The scope of a forward, for modules that take other arguments:
  //
  //   const auto forward = parallel.forward();
  //   Tensor y = net(ids, mask);
  class Forward {
   public:
    explicit Forward(FullyShardedDataParallel& model);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

   private:
    struct Hooks;
    std::unique_ptr<Hooks> hooks_;
  };
  [[nodiscard]] Forward forward() { return Forward(*this); }
  Module& module() const { return module_; }
  const distributed::Group& group() const;

  // Gradients are added up on each rank, whole and without being reduced, while this object lives.
  // The first backward after it reduces the sums.
  class NoSync {
   public:
    explicit NoSync(FullyShardedDataParallel& model);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    FullyShardedDataParallel& model_;
    bool saved_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // As nn::optim::clip_grad_norm_, with the norm over all ranks, of an order above 0. Collective.
  optim::GradientNorm clip_grad_norm_(double max_norm, double norm_type = 2);

  // The elements [begin, end) of a parameter, flattened in row-major order.
  struct Shard {
    std::string name;
    std::vector<std::string> names;  // all of them, if modules share the parameter
    std::vector<int64_t> sizes;      // of the whole parameter
    int64_t begin, end;
    Tensor tensor;  // (end - begin), the parameter that optimizers train
  };
  std::vector<Shard> shards() const;  // of this rank, in the order of the parameters

  // Returns whole parameters, and the buffers of this rank, by the module's names, on the CPU, as
  // module().state_dict() would have them without this object. Collective.
  TensorMap full_state_dict() const;
  // Takes this rank's parts of such a state. Throws as Module::load_state_dict.
  LoadReport load_full_state_dict(const TensorMap& state, bool strict = true);

  int64_t num_units() const;
  // Bytes of whole parameters that this rank holds now.
  int64_t gathered_bytes() const;

 private:
  struct State;
  Module& module_;
  std::shared_ptr<State> state_;
};

}  // namespace mytorch::nn
