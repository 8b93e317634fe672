#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"

#include <exception>
#include <map>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/node.h"
#include "mytorch/ops/as_strided.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"
#include "nn/parallel/norm_of_ranks.h"
#include "nn/parallel/sharded_state.h"
#include "nn/parallel/split_parameters.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {

using sharded::Flat;
using sharded::Parameter;
using sharded::Unit;

FullyShardedDataParallel::FullyShardedDataParallel(Module& module,
                                                   FullyShardedDataParallelOptions options)
    : module_(module), state_(std::make_shared<State>()) {
  State& s = *state_;
  s.group = options.group.defined() ? options.group : distributed::world();
  s.options = std::move(options);
  s.device = s.options.device.value_or(s.group.device());
  if (s.group.size() > 1 && !(s.device == s.group.device())) {
    fail(ErrorCode::kDevice, "[FullyShardedDataParallel] device is ", s.device.str(),
         ", and the group is on ", s.group.device().str(), ": leave the option out");
  }
  s.split(module);
  s.move_buffers(module);
  if (s.options.sync_parameters) {
    const NoGradGuard no_grad;
    for (const Tensor& buffer : module.buffers()) s.group.broadcast(buffer, 0);
  }
  for (size_t i = 0; i < s.units.size(); ++i) {
    // The hooks must not keep the state, which has their handles.
    State* state = state_.get();
    s.units[i].hooks.push_back(s.units[i].module->register_forward_pre_hook(
        [state, i](Module&, const Tensor& input) { return state->before(i, input); }));
    s.units[i].hooks.push_back(s.units[i].module->register_forward_hook(
        [state, i](Module&, const Tensor&, const Tensor& output) { state->after(i, output); }));
  }
}

FullyShardedDataParallel::~FullyShardedDataParallel() {
  state_->alive = false;
  for (Unit& unit : state_->units) {
    for (HookHandle& hook : unit.hooks) hook.remove();
  }
}

// ---- scopes ----

struct FullyShardedDataParallel::Forward::Hooks {
  std::shared_ptr<State> state;
  int exceptions = std::uncaught_exceptions();
  std::unique_ptr<autograd::SavedTensorHooks> saved = {};
};

FullyShardedDataParallel::Forward::Forward(FullyShardedDataParallel& model)
    : hooks_(std::make_unique<Hooks>()) {
  using autograd::SavedTensorHooks;
  const std::shared_ptr<State> state = model.state_;
  state->begin();
  hooks_->state = state;
  // Other tensors go to the hooks around the forward, if there are any.
  std::shared_ptr<const SavedTensorHooks::Functions> outer;
  if (autograd::thread_data.hooks != nullptr) outer = autograd::thread_data.hooks->functions();
  struct Outer {
    SavedTensorHooks::Packed packed;
  };
  struct Saved {
    State::Packed own;
    SavedTensorHooks::Packed outer;
  };
  hooks_->saved = std::make_unique<SavedTensorHooks>(
      [state = state.get(), outer](const Tensor& tensor) -> SavedTensorHooks::Packed {
        auto saved = std::make_shared<Saved>();
        const auto found = state->gathered.find(sharded::storage_of(tensor));
        if (found == state->gathered.end()) {
          if (outer != nullptr) {
            saved->outer = outer->pack(tensor);
          } else {
            saved->own = {.tensor = tensor, .version = tensor.version()};
          }
          return saved;
        }
        const auto [unit, flat] = found->second;
        saved->own = {.tensor = {},
                      .version = state->units[unit].flats[flat].shard.version(),
                      .unit = unit,
                      .flat = flat,
                      .sizes = tensor.sizes().vec(),
                      .strides = tensor.strides().vec(),
                      .offset = tensor.storage_offset()};
        return saved;
      },
      [state, outer](const SavedTensorHooks::Packed& packed) {
        const auto& saved = *static_cast<const Saved*>(packed.get());
        if (saved.outer != nullptr) return outer->unpack(saved.outer);
        const State::Packed& own = saved.own;
        if (own.tensor.defined()) {
          if (own.tensor.version() != own.version) {
            fail(ErrorCode::kValue, "[FullyShardedDataParallel] a ", dtype_name(own.tensor.dtype()),
                 " tensor of shape ", shape_str(own.tensor.sizes()),
                 " that backward needs was overwritten after the forward: write to a clone()");
          }
          return own.tensor;
        }
        const Flat& flat = state->units[own.unit].flats[own.flat];
        if (flat.shard.version() != own.version) {
          fail(ErrorCode::kValue, "[FullyShardedDataParallel] the parameters of ",
               own.unit == 0 ? "the module" : state->units[own.unit].name,
               " were changed between forward and backward: step the optimizer after backward");
        }
        state->before_backward(own.unit);
        return mytorch::as_strided(flat.full, own.sizes, own.strides, own.offset).detach();
      });
}

FullyShardedDataParallel::Forward::~Forward() {
  hooks_->saved.reset();
  try {
    hooks_->state->end(std::uncaught_exceptions() > hooks_->exceptions);
  } catch (const Error&) {  // the group has failed, and its next call says so
  }
}

FullyShardedDataParallel::NoSync::NoSync(FullyShardedDataParallel& model)
    : model_(model), saved_(std::exchange(model.state_->sync, false)) {}
FullyShardedDataParallel::NoSync::~NoSync() { model_.state_->sync = saved_; }

// ---- what the ranks have together ----

optim::GradientNorm FullyShardedDataParallel::clip_grad_norm_(double max_norm, double norm_type) {
  if (!(max_norm >= 0)) {
    fail(ErrorCode::kValue, "[clip_grad_norm_] max_norm is ", max_norm, ": give 0 or more");
  }
  const NoGradGuard no_grad;
  const auto splits = parallel::split_parameters(module_);
  parallel::NormOfRanks norm(norm_type, state_->device);
  for (const Shard& shard : shards()) {
    const auto split = splits.find(shard.name);
    norm.add(shard.tensor, split == splits.end() ? nullptr : &split->second.group);
  }
  return norm.clip(max_norm, {state_->group});
}

std::vector<FullyShardedDataParallel::Shard> FullyShardedDataParallel::shards() const {
  std::map<std::string, Shard> found;
  for (const Unit& unit : state_->units) {
    for (const Flat& flat : unit.flats) {
      for (const Parameter& p : flat.parameters) {
        found[p.names[0]] = {p.names[0], p.names, p.sizes, p.begin, p.end, p.shard};
      }
    }
  }
  std::vector<Shard> list;
  detail::ParameterAccess::visit(module_, [&](const std::string& name, Tensor&) {
    if (const auto at = found.find(name); at != found.end()) list.push_back(at->second);
  });
  return list;
}

TensorMap FullyShardedDataParallel::full_state_dict() const {
  const NoGradGuard no_grad;
  TensorMap state;
  for (const Unit& unit : state_->units) {
    for (const Flat& flat : unit.flats) {
      const Tensor full = mytorch::empty({flat.total}, flat.dtype, state_->device);
      state_->group.all_gather(full, mytorch::to(flat.shard, state_->device));
      const Tensor here = full.to(kCPU);
      for (const Parameter& p : flat.parameters) {
        const Tensor whole = here.narrow(0, p.offset, p.numel).view(p.sizes).clone();
        for (const std::string& name : p.names) state[name] = whole;
      }
    }
  }
  for (const auto& [name, tensor] : module_.state_dict()) {
    if (state.count(name) == 0) state[name] = tensor.detach().to(kCPU).clone();
  }
  return state;
}

LoadReport FullyShardedDataParallel::load_full_state_dict(const TensorMap& state, bool strict) {
  const NoGradGuard no_grad;
  TensorMap parts = state;
  std::string misfits;
  for (const Unit& unit : state_->units) {
    for (const Flat& flat : unit.flats) {
      for (const Parameter& p : flat.parameters) {
        for (const std::string& name : p.names) {
          const auto found = parts.find(name);
          if (found == parts.end() || !found->second.defined()) continue;
          if (!(found->second.sizes() == IntList(p.sizes))) {
            absl::StrAppend(&misfits, misfits.empty() ? "" : "; ", "'", name, "' has shape ",
                            shape_str(found->second.sizes()), ", the module's is ",
                            shape_str(p.sizes));
            continue;
          }
          found->second =
              found->second.detach().contiguous().view({-1}).narrow(0, p.begin, p.end - p.begin);
        }
      }
    }
  }
  if (!misfits.empty()) fail(ErrorCode::kShape, "[load_full_state_dict] ", misfits);
  return module_.load_state_dict(parts, strict);
}

const distributed::Group& FullyShardedDataParallel::group() const { return state_->group; }

int64_t FullyShardedDataParallel::num_units() const {
  return static_cast<int64_t>(state_->units.size());
}

int64_t FullyShardedDataParallel::gathered_bytes() const {
  int64_t bytes = 0;
  for (const Unit& unit : state_->units) {
    for (const Flat& flat : unit.flats) {
      if (flat.full.defined()) bytes += flat.full.nbytes();
    }
  }
  return bytes;
}

}  // namespace mytorch::nn
