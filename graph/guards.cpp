#include "graph/guards.h"

#include <iterator>

#include "mytorch/options_epoch.h"

namespace mytorch::graph {
namespace {

constexpr uintptr_t kAlignment = 64;

// Returns the guards of tensors that are told apart by their storages.
std::vector<TensorGuard> guards_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorGuard> guards;
  guards.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorImpl& impl = *tensors[i].impl();
    size_t alias = 0;
    while (tensors[alias].impl()->storage != impl.storage) ++alias;
    guards.push_back({impl.dtype, impl.device(), to_dims(impl.sizes()), to_dims(impl.strides()), -1,
                      reinterpret_cast<uintptr_t>(impl.abi.dl.data) % kAlignment,
                      tensors[i].requires_grad(), static_cast<int32_t>(alias)});
  }
  // Tensors that share a storage keep their distance.
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto alias = static_cast<size_t>(guards[i].alias);
    if (alias == i) continue;
    guards[i].offset = tensors[i].impl()->offset();
    guards[alias].offset = tensors[alias].impl()->offset();
  }
  return guards;
}

// Returns, for each argument, the first tensor from outside that shares its storage, or -1.
std::vector<int32_t> shared_with(const std::vector<Tensor>& arguments,
                                 const std::vector<Tensor>& outside) {
  std::vector<int32_t> found(arguments.size(), -1);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Storage* const storage = arguments[i].impl()->storage;
    for (size_t k = 0; k < outside.size() && found[i] < 0; ++k) {
      if (outside[k].impl()->storage == storage) found[i] = static_cast<int32_t>(k);
    }
  }
  return found;
}

// Returns why a grad that the graph reads is another than the recorded one, or null.
const char* grad_mismatch(const Recorded& recorded, const GradResult& entry,
                          const std::vector<Tensor>& arguments) {
  const Tensor grad = recorded.leaf(entry.leaf, arguments).grad();
  if (grad.defined() != (entry.grad != kNoValue)) {
    return grad.defined()
               ? "a parameter has a grad now, to which the function adds: clear it inside"
               : "a parameter has no grad any more";
  }
  if (!grad.defined()) return nullptr;
  const ValueInfo& info = recorded.graph.values[entry.grad];
  const TensorImpl& impl = *grad.impl();
  const bool same = impl.dtype == info.dtype && impl.sizes() == as_list(info.sizes) &&
                    impl.strides() == as_list(info.strides) && impl.offset() == info.offset;
  return same ? nullptr : "the grad of a parameter has another type or layout";
}

std::vector<uint64_t> ids_of(const std::vector<Tensor>& tensors) {
  std::vector<uint64_t> ids;
  for (const Tensor& tensor : tensors) ids.push_back(tensor.impl()->storage->abi.id);
  return ids;
}

}  // namespace

ThreadGuard ThreadGuard::now() {
  ThreadGuard guard;
  if (!guard.autocast) return guard;
  for (const auto& policy : autocast::state.casts) {
    guard.casts.insert(guard.casts.end(), std::begin(policy), std::end(policy));
  }
  for (const ScalarType dtype : autocast::state.dtype) {
    guard.casts.push_back(static_cast<uint16_t>(dtype));
  }
  return guard;
}

Guards guards_of_call(const std::vector<Tensor>& arguments, const std::vector<double>& constants) {
  Guards guards;
  guards.arguments = guards_of(arguments);
  guards.constants = constants;
  guards.thread = ThreadGuard::now();
  guards.epoch = options_epoch();
  return guards;
}

void Guards::finish(const Recorded& recorded, const std::vector<Tensor>& tensors) {
  // Options that the function sets itself, such as the training mode, are part of it.
  epoch = options_epoch();
  outside = guards_of(recorded.outside);
  outside_ids = ids_of(recorded.outside);
  shared = shared_with(tensors, recorded.outside);
}

const char* Guards::mismatch(const Guards& call, const Recorded& recorded,
                             const std::vector<Tensor>& tensors) {
  if (constants != call.constants) return "a number among the arguments has another value";
  if (arguments != call.arguments) {
    return "an argument has another type, shape, layout or device, or shares memory differently";
  }
  if (thread != call.thread) return "grad mode, inference mode or autocast has changed";
  if (epoch != call.epoch) return "an option of the library has changed";
  const std::vector<Tensor>& tensors_outside = recorded.outside;
  bool replaced = false;
  for (size_t i = 0; i < tensors_outside.size(); ++i) {
    if (tensors_outside[i].requires_grad() != outside[i].requires_grad) {
      return "a tensor from outside has another requires_grad";
    }
    replaced = replaced || tensors_outside[i].impl()->storage->abi.id != outside_ids[i];
  }
  if (replaced) {
    if (guards_of(tensors_outside) != outside) {
      return "a tensor from outside has other data, of another type, layout or device";
    }
    outside_ids = ids_of(tensors_outside);
  }
  if (shared_with(tensors, tensors_outside) != shared) {
    return "an argument and a tensor from outside share memory differently";
  }
  for (const GradResult& entry : recorded.entry_grads) {
    if (const char* reason = grad_mismatch(recorded, entry, tensors); reason != nullptr) {
      return reason;
    }
  }
  return nullptr;
}

}  // namespace mytorch::graph
