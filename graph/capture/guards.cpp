#include "graph/capture/guards.h"

#include <cstring>
#include <iterator>
#include <variant>

#include "mytorch/options_epoch.h"

namespace mytorch::graph {
namespace {

constexpr uintptr_t kAlignment = 64;

// Returns the first tensor that has the storage of another one, or -1.
int32_t sharing(const Tensor& tensor, const std::vector<Tensor>& tensors) {
  const Storage* const storage = tensor.impl()->storage;
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (tensors[k].impl()->storage == storage) return static_cast<int32_t>(k);
  }
  return -1;
}

// Returns the first that is the same tensor as tensors[i], of which `alias` shares the storage.
int32_t twin_of(const std::vector<Tensor>& tensors, size_t i, int32_t alias) {
  for (auto k = static_cast<size_t>(alias); k < i; ++k) {
    if (tensors[k].is_same(tensors[i])) return static_cast<int32_t>(k);
  }
  return static_cast<int32_t>(i);
}

// Returns whether tensors are as their guards say. Every call asks, so this allocates nothing.
bool hold(const std::vector<TensorGuard>& guards, const std::vector<Tensor>& tensors) {
  if (guards.size() != tensors.size()) return false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorGuard& guard = guards[i];
    const TensorImpl& impl = *tensors[i].impl();
    if (impl.dtype != guard.dtype || impl.device() != guard.device ||
        impl.sizes() != as_list(guard.sizes) || impl.strides() != as_list(guard.strides) ||
        (guard.offset >= 0 && impl.offset() != guard.offset) ||
        reinterpret_cast<uintptr_t>(impl.abi.dl.data) % kAlignment != guard.alignment ||
        tensors[i].requires_grad() != guard.requires_grad ||
        sharing(tensors[i], tensors) != guard.alias ||
        twin_of(tensors, i, guard.alias) != guard.twin) {
      return false;
    }
  }
  return true;
}

// Returns the guards of tensors that are told apart by their storages.
std::vector<TensorGuard> guards_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorGuard> guards;
  guards.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorImpl& impl = *tensors[i].impl();
    const int32_t alias = sharing(tensors[i], tensors);
    guards.push_back({impl.dtype, impl.device(), to_dims(impl.sizes()), to_dims(impl.strides()), -1,
                      reinterpret_cast<uintptr_t>(impl.abi.dl.data) % kAlignment,
                      tensors[i].requires_grad(), alias, twin_of(tensors, i, alias)});
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

bool draws_from(const Graph& graph, const Generator& generator) {
  for (const GraphNode& node : graph.nodes) {
    for (const Arg& arg : node.args) {
      const auto* const own = std::get_if<Generator>(&arg.constant.variant());
      if (own != nullptr && own->shares_state(generator)) return true;
    }
  }
  return false;
}

bool equal_bytes(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.sizes() != b.sizes()) return false;
  const auto bytes = static_cast<size_t>(a.nbytes());
  return bytes == 0 || std::memcmp(a.raw_data(), b.raw_data(), bytes) == 0;
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

const char* has_changed(const Recorded& recorded) {
  for (const std::shared_ptr<RecordedState>& state : recorded.states) {
    if (const char* reason = state->refresh(); reason != nullptr) return reason;
  }
  return nullptr;
}

Guards guards_of_call(const std::vector<Tensor>& arguments,
                      const std::vector<uint64_t>& constants) {
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
  for (const Tensor& tensor : recorded.outside) {
    outside_offsets.push_back(tensor.impl()->offset());
  }
  for (const Tensor& tensor : tensors) shared.push_back(sharing(tensor, recorded.outside));
  if (draws_from(recorded.graph, default_generator())) generator = default_generator();
  note_replaced(recorded);
}

void Guards::note_replaced(const Recorded& recorded) {
  outside_replaced.clear();
  for (const Tensor& tensor : recorded.outside) {
    outside_replaced.push_back(watch_replaced(tensor.impl()));
  }
  views_replaced.clear();
  for (const Tensor& view : recorded.views) views_replaced.push_back(watch_replaced(view.impl()));
}

const char* Guards::mismatch(const std::vector<Tensor>& tensors,
                             const std::vector<uint64_t>& numbers, const Recorded& recorded) {
  if (constants != numbers) return "a number among the arguments has another value";
  if (!hold(arguments, tensors)) {
    return "an argument has another type, shape, layout or device, or shares memory differently";
  }
  if (thread != ThreadGuard::now()) return "grad mode, inference mode or autocast has changed";
  if (epoch != options_epoch()) return "an option of the library has changed";
  if (generator.has_value() && !generator->shares_state(default_generator())) {
    return "another generator is the default one";
  }
  for (size_t i = 0; i < views_replaced.size(); ++i) {
    if (recorded.views[i].impl()->replaced.load(std::memory_order_relaxed) != views_replaced[i]) {
      return "a variable that referred to a view from outside was assigned another one";
    }
  }
  if (const char* reason = has_changed(recorded); reason != nullptr) return reason;
  for (const Recorded::HostRead& read : recorded.host_reads) {
    if (!equal_bytes(elements_of(read.tensor), read.elements)) {
      return "a tensor from outside that the function reads on the host has other elements";
    }
  }
  const std::vector<Tensor>& tensors_outside = recorded.outside;
  bool replaced = false;
  for (size_t i = 0; i < tensors_outside.size(); ++i) {
    if (tensors_outside[i].requires_grad() != outside[i].requires_grad) {
      return "a tensor from outside has another requires_grad";
    }
    if (tensors_outside[i].impl()->offset() != outside_offsets[i]) {
      return "a tensor from outside lies elsewhere in its memory";
    }
    if (tensors_outside[i].impl()->replaced.load(std::memory_order_relaxed) !=
        outside_replaced[i]) {
      return "a variable that referred to a tensor from outside was assigned another one, or hooks "
             "of the tensor have changed";
    }
    replaced = replaced || tensors_outside[i].impl()->storage->abi.id != outside_ids[i];
  }
  if (replaced) {
    if (!hold(outside, tensors_outside)) {
      return "a tensor from outside has other data, of another type, layout or device";
    }
    outside_ids = ids_of(tensors_outside);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (sharing(tensors[i], tensors_outside) != shared[i]) {
      return "an argument and a tensor from outside share memory differently";
    }
  }
  for (const GradResult& entry : recorded.entry_grads) {
    if (const char* reason = grad_mismatch(recorded, entry, tensors); reason != nullptr) {
      return reason;
    }
  }
  return nullptr;
}

}  // namespace mytorch::graph
