#include "mytorch/nn/deferred.h"

#include <set>

#include "core/runtime/deferred_memory.h"
#include "core/runtime/stream_capture.h"
#include "graph/deferred/journal.h"
#include "mytorch/ops/empty_like.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {

DeferredInit::DeferredInit() : outer_(default_device()) {
  check_effect("DeferredInit", "makes tensors without memory");
  mytorch::detail::place_of_new = graph::deferred_device();
}

DeferredInit::~DeferredInit() { mytorch::detail::place_of_new = outer_; }

bool is_deferred(const Tensor& tensor) { return graph::is_deferred(tensor); }

bool is_deferred(const Module& module) {
  bool found = false;
  const auto look = [&](const std::string&, const Tensor& tensor) {
    found = found || graph::is_deferred(tensor);
  };
  detail::ParameterAccess::visit(module, look);
  detail::ParameterAccess::visit_buffers(module, look);
  return found;
}

Tensor materialize(const Tensor& tensor, Device device) {
  if (!graph::is_deferred(tensor)) return tensor;
  return graph::Materializer(device)(tensor).requires_grad_(tensor.requires_grad());
}

void materialize(Module& module, Device device) {
  graph::Materializer memory(device);
  detail::ParameterAccess::convert(module, [&](const Tensor& tensor) {
    return graph::is_deferred(tensor) ? memory(tensor) : tensor;
  });
}

void to_empty(Module& module, Device device) {
  std::set<const Storage*> loaded;
  for (const auto& [name, tensor] : module.state_dict()) loaded.insert(tensor.impl()->storage);
  graph::Materializer memory(device);
  detail::ParameterAccess::convert(module, [&](const Tensor& tensor) {
    if (!graph::is_deferred(tensor)) return tensor;
    return loaded.count(tensor.impl()->storage) != 0
               ? mytorch::empty_like(tensor.detach(), {}, device)
               : memory(tensor);
  });
}

}  // namespace mytorch::nn
