#include "mytorch/autograd/checkpoint.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "autograd/access.h"
#include "autograd/autocast/state.h"
#include "autograd/recomputing.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/record.h"
#include "mytorch/autograd/saved_tensor.h"

namespace mytorch::autograd {
namespace {

thread_local int recomputing = 0;  // checkpoints nest

struct GeneratorState {
  explicit GeneratorState(const Generator& g) : generator(g), seed(g.seed()), call(g.call()) {}
  void restore() const {
    // A recorded function that draws keeps what it saves, so that a graph need not go back.
    const LayerMask unrecorded(kLayerCapture);
    generator.set_seed(seed);
    generator.set_call(call);
  }
  mutable Generator generator;
  uint64_t seed;
  uint64_t call;
};

// The form of a saved value, to detect a function that computes something else the second time.
struct SavedForm {
  std::vector<int64_t> sizes;
  ScalarType dtype;
  explicit SavedForm(const Tensor& t) : sizes(t.sizes().vec()), dtype(t.dtype()) {}
  bool operator==(const SavedForm&) const = default;
  std::string str() const { return absl::StrCat(dtype_name(dtype), " ", shape_str(sizes)); }
};

uint32_t version_of(const Tensor& value) {
  const mt_storage* const storage = value.impl()->abi.storage;
  return storage != nullptr ? static_cast<uint32_t>(storage->version) : 0;
}

// A value that was computed again, with the version of its memory.
struct CheckedValue {
  Tensor value;
  uint32_t version = 0;
};

// Represents the node in messages about saved inputs.
class CheckpointInputs final : public Node {
 public:
  const char* name() const override { return "checkpoint"; }
  void apply(Tensor*, Tensor*) override {}
};

// One call of checkpoint. The packed values share it.
class Frame : public std::enable_shared_from_this<Frame> {
 public:
  Frame(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> function,
        const std::vector<Tensor>& inputs, const CheckpointOptions& options)
      : function_(std::move(function)), autocast_(autocast::state) {
    generators_.emplace_back(default_generator());
    for (const Generator& generator : options.generators) generators_.emplace_back(generator);
    for (const Tensor& input : inputs) {
      // Saved like the inputs of an operation, so that an outer checkpoint does not keep them
      // either.
      requires_.push_back(input.defined() && requires_grad(input));
      saved_inputs_.emplace_back(input);
    }
  }

  std::vector<Tensor> forward(const std::vector<Tensor>& inputs) {
    const auto self = shared_from_this();
    SavedTensorHooks hooks(
        [self](const Tensor& value) -> SavedTensorHooks::Packed {
          self->forms_.emplace_back(value);
          if (recording_graph()) self->kept_.push_back({value.detach(), version_of(value)});
          return std::make_shared<Packed>(Packed{self, self->forms_.size() - 1});
        },
        [](const SavedTensorHooks::Packed& packed) {
          const auto& value = *static_cast<const Packed*>(packed.get());
          return value.frame->unpack(value.index);
        });
    in_forward_ = true;
    std::vector<Tensor> results = function_(inputs);
    in_forward_ = false;
    // A graph cannot draw numbers a second time: what a function that draws saves is kept.
    const auto has_drawn = [](const GeneratorState& state) {
      return state.generator.call() != state.call || state.generator.seed() != state.seed;
    };
    if (std::none_of(generators_.begin(), generators_.end(), has_drawn)) kept_.clear();
    return results;
  }

 private:
  struct Packed {
    std::shared_ptr<Frame> frame;
    size_t index;
  };

  // Returns each value once and then drops it; a second backward computes the values again.
  Tensor unpack(size_t index) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    if (in_forward_) {
      fail(ErrorCode::kUnsupported,
           "[checkpoint] the function runs backward through itself; do that "
           "outside the checkpoint");
    }
    if (index < kept_.size()) return checked(index, kept_[index]);
    if (index >= values_.size() || !values_[index].value.defined()) recompute();
    return checked(index, std::exchange(values_[index], {}));
  }

  static Tensor checked(size_t index, const CheckedValue& saved) {
    if (version_of(saved.value) != saved.version) {
      fail(ErrorCode::kValue, "[checkpoint] saved value ", index, ", ",
           SavedForm(saved.value).str(),
           ", is overwritten in place behind the operator that needs it for its gradient: use the "
           "form that returns a new tensor");
    }
    return saved.value;
  }

  void recompute() {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < saved_inputs_.size(); ++i) {
      Tensor input = saved_inputs_[i].unpack(owner_.get());
      if (requires_[i]) {
        input = input.detach();
        input.requires_grad_();
      }
      inputs.push_back(std::move(input));
    }
    std::vector<GeneratorState> now;
    for (const GeneratorState& state : generators_) now.emplace_back(state.generator);
    for (const GeneratorState& state : generators_) state.restore();
    struct Restore {
      std::function<void()> restore;
      ~Restore() { restore(); }
    } restore{[&] {
      for (const GeneratorState& state : now) state.restore();
    }};

    struct Recomputing {
      Recomputing() { ++recomputing; }
      ~Recomputing() { --recomputing; }
    } now_recomputing;
    values_.clear();
    // The default generator of the forward, whichever is that of this backward.
    const GeneratorGuard random(generators_.front().generator);
    EnableGradGuard grad;
    const AutocastScope autocast(autocast_);
    SavedTensorHooks hooks(
        [this](const Tensor& value) -> SavedTensorHooks::Packed {
          const size_t index = values_.size();
          const SavedForm form(value);
          if (index < forms_.size() && !(form == forms_[index])) {
            fail(ErrorCode::kValue, "[checkpoint] computed again, saved value ", index, " is ",
                 form.str(), "; in the forward it was ", forms_[index].str(),
                 ": the function must compute the same both times");
          }
          values_.push_back({value, version_of(value)});
          return nullptr;
        },
        // The graph made here is dropped; nothing runs backward through it.
        [](const SavedTensorHooks::Packed&) { return Tensor(); });
    function_(inputs);
    if (values_.size() != forms_.size()) {
      fail(ErrorCode::kValue, "[checkpoint] computed again, ", values_.size(),
           " values were saved; in the forward ", forms_.size(),
           ": the function must compute the same both times");
    }
  }

  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> function_;
  NodePtr<CheckpointInputs> owner_ = make_node<CheckpointInputs>(0, 0);
  std::vector<SavedTensor> saved_inputs_;
  std::vector<bool> requires_;
  std::vector<GeneratorState> generators_;
  autocast::AutocastState autocast_;  // of the forward
  std::vector<SavedForm> forms_;
  std::vector<CheckedValue> kept_;  // all values, if they cannot be computed again
  bool in_forward_ = false;
  std::recursive_mutex mutex_;  // several threads may run its backward, which may nest
  std::vector<CheckedValue> values_;
};

}  // namespace

bool is_recomputing() { return recomputing > 0; }

std::vector<Tensor> checkpoint(
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> function,
    const std::vector<Tensor>& inputs, const CheckpointOptions& options) {
  if (!grad_enabled()) return function(inputs);
  return std::make_shared<Frame>(std::move(function), inputs, options)->forward(inputs);
}

}  // namespace mytorch::autograd
