#include "graph/steps/plan_parts.h"

#include "mytorch/tensor_impl.h"

namespace mytorch::graph {
namespace {

void release_storage(Storage* storage) {
  if (storage != nullptr && detail::release_last(storage)) storage->destroy(storage);
}

}  // namespace

PlanParts::PlanParts(const Recorded& of, CompileMode how)
    : recorded(of),
      graph(of.graph),
      mode(how),
      buffers(of.graph.buffers.size(), -1),
      empty(Tensor::adopt(new_tensor(nullptr, 0, kUInt8, Device(), 0))) {}

PlanParts::~PlanParts() {
  for (PlanMemory& memory : memories) release_memory(memory);
}

Tensor PlanParts::source(int32_t buffer, const std::vector<Tensor>& arguments) const {
  const GraphBuffer& of = graph.buffers[buffer];
  if (of.origin == BufferOrigin::kArgument) return arguments[of.index];
  return of.origin == BufferOrigin::kOutside ? recorded.outside[of.index]
                                             : recorded.leaf(of.leaf, arguments).grad();
}

int64_t PlanParts::begin_of(int32_t buffer, const Tensor& tensor) const {
  const GraphBuffer& of = graph.buffers[buffer];
  if (of.origin != BufferOrigin::kArgument) return 0;
  const ValueInfo& info = graph.values[graph.arguments[of.index]];
  return (tensor.impl()->offset() - info.offset) * element_size(info.dtype);
}

void PlanParts::set_grads(const std::vector<Tensor>& grads,
                          const std::vector<Tensor>& arguments) const {
  for (size_t i = 0; i < grads.size(); ++i) {
    recorded.leaf(graph.grads[i].leaf, arguments).set_grad(grads[i]);
  }
}

TensorPlaces places_of(const PlanParts& parts) {
  TensorPlaces places;
  for (size_t m = 0; m < parts.memories.size(); ++m) {
    for (const auto& [tensor, offset] : parts.memories[m].headers) {
      places[&tensor.impl()->abi] = {static_cast<int32_t>(m), offset};
    }
  }
  return places;
}

void place(TensorImpl* impl, int64_t offset, Storage* storage) {
  impl->storage = storage;
  impl->abi.storage = &storage->abi;
  impl->abi.dl.data = static_cast<char*>(storage->data) + offset;
}

void move(PlanMemory& memory, Storage* storage, bool counted, int64_t begin) {
  if (memory.counted) release_storage(memory.storage);
  memory.storage = storage;
  memory.storage_id = storage->abi.id;
  memory.counted = counted;
  memory.begin = begin;
  for (const auto& [tensor, offset] : memory.headers) place(tensor.impl(), begin + offset, storage);
}

const Tensor& header_like(PlanParts& parts, PlanMemory& memory, const mt_tensor& like,
                          int64_t offset, IntList sizes, IntList strides) {
  TensorImpl* impl = new_header(parts.empty.impl(), sizes, strides, from_abi(like.dl.dtype));
  const uint32_t flags = impl->abi.flags;
  for (const auto& [known, at] : memory.headers) {
    const TensorImpl& other = *known.impl();
    if (at == offset && other.dtype == impl->dtype && other.sizes() == sizes &&
        other.strides() == strides && other.abi.flags == flags) {
      const Tensor unused = Tensor::adopt(impl);
      return known;
    }
  }
  impl->abi.layout = like.layout;
  impl->abi.dl.device = like.dl.device;
  impl->abi.dl.data = like.dl.data;
  impl->abi.storage = like.storage;
  // The first member of a TensorImpl is its mt_tensor.
  const auto& original = reinterpret_cast<const TensorImpl&>(like);
  impl->storage = original.storage;
  impl->device_slot = original.device_slot;
  return memory.headers.emplace_back(Tensor::adopt(impl), offset).first;
}

void release_memory(PlanMemory& memory) {
  if (memory.counted) release_storage(memory.storage);
  memory.storage = nullptr;
  memory.storage_id = 0;
  memory.counted = false;
}

Tensor tensor_over(Storage* storage, const ValueInfo& info, int64_t begin) {
  detail::retain(storage);
  return Tensor::adopt(new_tensor_over(storage, as_list(info.sizes), as_list(info.strides),
                                       info.dtype, info.offset + begin / element_size(info.dtype)));
}

}  // namespace mytorch::graph
