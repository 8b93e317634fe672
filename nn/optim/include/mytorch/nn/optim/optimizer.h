// The base class of all optimizers.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mytorch/nn/optim/options.h"
#include "mytorch/nn/optim/param_groups.h"  // IWYU pragma: export
#include "mytorch/nn/serialize.h"
#include "mytorch/std_function.h"
#include "mytorch/tensor.h"
#include "mytorch/thread_state.h"

namespace mytorch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace mytorch::serialize

namespace mytorch::nn::optim {

// Updates parameters from their gradients:
//
//   SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
//   for (const auto& [x, y] : loader) {
//     sgd.zero_grad();
//     cross_entropy(model(x), y).backward();
//     sgd.step();
//   }
//
// or, as in libtorch, SGD(model.parameters(), 0.1) and SGD(model.parameters(),
// SGDOptions(0.1).momentum(0.9)).
//
// Parameters belong to groups, each with its own options: `sgd.add_group(head.parameters(), {.lr =
// 0.01})`. Options may be changed between steps: `sgd.options(1).weight_decay = 0`. Parameters are
// updated in place. The state follows them when Module::to moves or converts them; a captured step
// must then be captured again.
//
// Parameters of 16 bits have too few digits for small updates: a bfloat16 keeps no change below
// 1/256 of its value. Unless the option `master_weights` is false, the optimizer therefore updates
// a float32 copy of each, keeps its state in float32, and rounds the copy to the parameter after
// each step. Elements of the parameter that are changed otherwise, between steps, are copied back
// to the master weights; between the replays of a captured step they are not. With the option
// `state_dtype`, state is stored in another type and converted in each step, for a bounded number
// of elements at a time: bfloat16 halves the memory of Adam's state, but an average that moves by
// less than 1/256 per step, as with beta2 = 0.999, no longer decays.
//
// step() may be captured in a Graph. Each replay counts as a step and reads the current learning
// rate, as set by set_lr or by a schedule between replays. All other options keep the values they
// had during capture.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Performs one update. Skips parameters without a gradient.
  void step();
  // Calls `closure`, which clears the gradients, computes the loss and calls backward(); performs
  // one update, and returns the loss.
  using LossClosure = std::function<Tensor()>;
  virtual Tensor step(const LossClosure& closure);
  // Clears the gradients, so that the next backward sets them; or, unless `set_to_none`, fills them
  // with zeros.
  void zero_grad(bool set_to_none = true);

  size_t num_groups() const { return groups_.size(); }
  size_t size() const;                     // the number of parameters, of all groups
  std::vector<Tensor> parameters() const;  // of all groups
  std::vector<Tensor> parameters(size_t group) const;
  // Appends a group. Throws Error(kValue), and adds nothing, if a tensor cannot be optimized, or if
  // the options are invalid or of another optimizer.
  void add_param_group(OptimizerParamGroup group);
  // The groups and their options, which may be changed between steps: `group.options().set_lr(0.1)`
  // or `static_cast<SGDOptions&>(group.options()).momentum(0.9)`. A learning rate that a captured
  // step reads changes by Optimizer::set_lr alone.
  std::vector<OptimizerParamGroup>& param_groups() {
    note_read();
    return param_groups_;
  }
  const std::vector<OptimizerParamGroup>& param_groups() const {
    note_read();
    return param_groups_;
  }
  // The options of groups that are added without options.
  OptimizerOptions& defaults() { return *defaults_; }
  const OptimizerOptions& defaults() const { return *defaults_; }
  // The options that schedules change. `momentum` is beta1 for Adam and AdamW. Optimizers without
  // momentum return 0 and throw Error(kUnsupported) from set_momentum.
  double lr(size_t group = 0) const;
  void set_lr(size_t group, double lr);
  double momentum(size_t group = 0) const;
  void set_momentum(size_t group, double momentum);

  // The numeric options of a group, by name. Throw Error(kValue), listing the names, for another.
  double option(size_t group, std::string_view name) const;
  void set_option(size_t group, std::string_view name, double value);
  // Replaces all options of a group by a copy of these. Throws Error(kValue), and changes nothing,
  // if they are invalid or of another optimizer.
  void set_options(size_t group, const OptimizerOptions& options);
  // Returns the class, and the options of each group.
  std::string str() const;

  // Returns the numeric options of each group ("group0.lr") and the state of each parameter,
  // numbered across all groups ("parameter0.momentum").
  virtual TensorMap state_dict() const;
  // Throws Error(kValue or kShape) and changes nothing if the names and shapes do not match those
  // of an optimizer of this class with these parameters.
  virtual void load_state_dict(const TensorMap& state);
  // The same with a libtorch archive.
  void save(serialize::OutputArchive& archive) const;
  void load(const serialize::InputArchive& archive);

 protected:
  static constexpr size_t kMaxState = 3;
  struct Slot {
    Tensor parameter;
    std::array<Tensor, kMaxState> state;
    int64_t step = 0;  // number of steps so far
    // The parameter in float32, if it has 16 bits and the option master_weights is on, and the
    // parameter's version() after the last step.
    Tensor master = {};
    uint64_t version = 0;
    // The step count in device memory, in place of `step`, once a step was captured. Shared by all
    // slots that step together.
    Tensor counter = {};
    int64_t steps() const { return counter.defined() ? counter.item<int64_t>() : step; }
  };
  // Slots of one group on one device with the same step count.
  struct Batch {
    const Optimizer* optimizer;
    size_t group;
    Operand lr;
    bool converted;  // whether parameters or state are stored in another type than they are updated
    bool rounds;     // whether the update also writes the parameters, see `rounded`
    std::vector<Slot*> slots = {};
    std::vector<Tensor> parameters = {};  // or their master weights
    std::vector<Tensor> gradients = {};   // of the parameters' types, or of `rounded`
    // If `rounds`, the parameters of these master weights, which receive the new values; or empty.
    std::vector<Tensor> rounded = {};
    Operand step = {};   // including this one
    bool first = false;  // whether this is the first step
    // Tensors in the type of the update, and where they are stored.
    mutable std::vector<std::pair<Tensor, Tensor>> conversions = {};
    // Returns state i of each slot, of the parameter's type, creating it with the given value if
    // missing.
    std::vector<Tensor> state(size_t i, double value = 0) const;
    Tensor state_of(size_t slot, size_t i, double value = 0) const;
  };
  // Returns a complex parameter or gradient as its parts, which are updated like independent real
  // numbers, and a real one as it is. Batches and state have the parts.
  static Tensor as_reals(const Tensor& x);
  struct StateLayout {
    std::vector<int64_t> shape;
    bool number = false;  // float64, of any parameter
  };
  // Returns the shape of state i: by default, the parameter's.
  virtual StateLayout state_layout(size_t i, const Tensor& parameter) const;

  // `state_names` names the elements of Slot::state that are used. All names are literals.
  Optimizer(const char* name, std::span<const char* const> state_names,
            std::unique_ptr<OptimizerOptions> defaults);
  void add_param_groups(ParamGroups groups);
  // Throw Error(kValue).
  void check_group(size_t group) const;
  const OptimizerOptions& group_options(size_t group) const {
    return param_groups_[group].options();
  }
  void check_rate(double lr) const;
  void check_state_dtype(std::optional<ScalarType> dtype) const;

  // Updates the parameters of a batch. Called under NoGradGuard.
  virtual void update_batch(const Batch& batch) = 0;
  // Whether the update writes Batch::rounded, and takes gradients of that type.
  virtual bool rounds() const { return false; }
  // Throws Error(kValue) if the options are of another optimizer, or if one has no meaning.
  virtual void check_options(const OptimizerOptions& options) const = 0;
  [[noreturn]] void refuse_options() const;
  // Returns why a parameter cannot be optimized, or null.
  virtual const char* refusal(const Tensor& parameter) const = 0;

 private:
  // A group's learning rate in device memory, for captured steps, and what it was last filled with.
  struct Rate {
    Tensor tensor;
    double value;
  };
  class RecordedOptions;

  std::vector<Slot> slots_of(const std::vector<Tensor>& parameters) const;
  // The type in which a parameter is updated, and the type in which its state is stored.
  struct Types {
    ScalarType update, state;
  };
  Types types(size_t group, const Tensor& parameter) const;
  bool keeps_master(size_t group, const Tensor& parameter) const;
  void follow(size_t group, Slot& slot) const;
  void take(Batch& batch, Slot& slot) const;
  void run(Batch& batch);
  Tensor empty_state(size_t group, size_t i, const Tensor& parameter) const;
  void count(Batch& batch);
  Operand rate(size_t group, Device device);
  void refresh_rates(size_t group);
  // Tell a recording of this thread that it depends on the options: on the numbers, or, if a step
  // reads them, on the learning rate as a tensor.
  void note_read() const {
    if ((thread_state.wanted & kLayerCapture) != 0) [[unlikely]]
      note_recorded(/*rate=*/true);
  }
  void note_recorded(bool rate) const;
  void adopt(std::vector<std::vector<Slot>> groups);
  double* find(size_t group, std::string_view a, std::string_view b) const;
  double* need(size_t group, std::string_view name) const;
  OptionList list(size_t group) const;

  const char* name_;
  std::span<const char* const> state_names_;
  std::unique_ptr<OptimizerOptions> defaults_;
  std::vector<OptimizerParamGroup> param_groups_;
  std::vector<std::vector<Slot>> groups_;  // the state of each parameter
  std::vector<std::vector<Rate>> rates_;   // of each group, on each device that reads it
  // What compiled functions know of this object: null when it is gone.
  mutable std::shared_ptr<Optimizer*> self_;
  mutable uint64_t noted_in_[2] = {};  // the last recordings that were told, with and without rate
};

// An optimizer with its class of options. The class Self, which derives from it and inherits its
// constructors, makes it a friend and declares
//
//   static constexpr const char* kName = "SGD";
//   static constexpr std::array kState = {"momentum"};  // names of a parameter's state
//   static void check(const SGDArgs& options);          // throws Error(kValue)
//   void update(const Batch& batch, const SGDArgs& options) override;
//
// and, if it refuses some parameters, refusal_of. What the constructors call is static, because
// they run before Self exists.
template <class Self, class Options>
class OptimizerWith : public Optimizer {
 public:
  using Args = typename Options::Args;

  explicit OptimizerWith(ParamGroups parameters, Args options = {})
      : Optimizer(Self::kName, Self::kState, std::make_unique<Options>(std::move(options))) {
    add_param_groups(std::move(parameters));
  }
  template <std::convertible_to<Options> O>
  OptimizerWith(ParamGroups parameters, const O& options)
      : OptimizerWith(std::move(parameters), Options(options).args()) {}

  void add_group(std::vector<Tensor> parameters, Args options) {
    Optimizer::add_param_group(
        {std::move(parameters), std::make_unique<Options>(std::move(options))});
  }
  // Uses the defaults.
  void add_group(std::vector<Tensor> parameters) {
    Optimizer::add_param_group(std::move(parameters));
  }
  // PyTorch's name of add_group.
  using Optimizer::add_param_group;
  void add_param_group(std::vector<Tensor> parameters, Args options) {
    add_group(std::move(parameters), std::move(options));
  }
  template <std::convertible_to<Options> O>
  void add_param_group(std::vector<Tensor> parameters, const O& options) {
    add_group(std::move(parameters), Options(options).args());
  }

  // The options of a group. Changes take effect in the next step(), which throws Error(kValue) if
  // they have no meaning; a learning rate that a captured step reads changes by set_lr alone.
  const Args& options(size_t group = 0) const {
    check_group(group);
    return static_cast<const Options&>(param_groups()[group].options()).args();
  }
  Args& options(size_t group = 0) {
    check_group(group);
    return static_cast<Options&>(param_groups()[group].options()).args();
  }

 protected:
  virtual void update(const Batch& batch, const Args& options) = 0;
  static const char* refusal_of(const Tensor& /*parameter*/) { return nullptr; }
  // The same as options(group), for reading alone.
  const Args& args_of(size_t group) const {
    return static_cast<const Options&>(group_options(group)).args();
  }
  void check_options(const OptimizerOptions& options) const final {
    const auto* own = dynamic_cast<const Options*>(&options);
    if (own == nullptr) refuse_options();
    check_rate(own->get_lr());
    check_state_dtype(own->get_state_dtype());
    Self::check(own->args());
  }

 private:
  void update_batch(const Batch& batch) final { update(batch, args_of(batch.group)); }
  const char* refusal(const Tensor& parameter) const final { return Self::refusal_of(parameter); }
};

std::ostream& operator<<(std::ostream& out, const Optimizer& optimizer);

}  // namespace mytorch::nn::optim
