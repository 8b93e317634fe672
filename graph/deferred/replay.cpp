// Gives a block of deferred memory its elements, by the calls of its journal.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "core/runtime/context.h"
#include "core/runtime/deferred_memory.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/frame/kernel_call.h"
#include "dispatcher/frame/pointwise.h"
#include "dispatcher/table/fields.h"
#include "graph/deferred/calls.h"
#include "mytorch/grad_mode.h"

namespace mytorch::graph {
namespace {

Tensor new_memory(uint64_t bytes, Device device) {
  const auto size = static_cast<int64_t>(bytes);
  const int64_t sizes[] = {size}, strides[] = {1};
  return Tensor::adopt(new_tensor_over(allocate_storage(device, checked_device_slot(device), bytes),
                                       IntList(sizes, 1), IntList(strides, 1), kUInt8, 0));
}

bool any_complex(const Call& call) {
  return std::any_of(call.operands.begin(), call.operands.end(),
                     [](const Operand& o) { return is_complex(o.geometry.dtype); });
}

// Calls the kernel that the frame of the operator would call.
void run_kernel_of(const Call& call, const void* args, const std::vector<Tensor>& operands) {
  const OpEntry& entry = *call.entry;
  TensorImpl* const out = operands[call.written].impl();
  const bool complex = any_complex(call) || is_complex(header(args).compute);
  switch (entry.info->meaning) {
    case Meaning::kPointwise:
    case Meaning::kReduce:
      return run_pointwise(entry, out, args, complex);
    case Meaning::kComposite:  // of these, the journal has copy_ alone
      operands[0].copy_(operands[1]);
      return;
    default:
      if (complex ? try_complex_kernel(entry, out, args) : try_kernel(entry, out, args)) return;
      run_fallback(entry, out->device_slot, context(out->device_slot, out->abi.dl.device), args);
  }
}

class Replay {
 public:
  explicit Replay(Device device) : device_(device) {}

  Tensor memory_of(const Block& block) {
    Tensor memory = new_memory(block.bytes, device_);
    std::vector<const Write*> writes;
    for (const Write* w = block.content.get(); w != nullptr; w = w->before.get()) {
      writes.push_back(w);
    }
    while (!writes.empty()) {
      run(*writes.back()->call, block.number, memory);
      writes.pop_back();
    }
    return memory;
  }

 private:
  void run(const Call& call, uint64_t block, const Tensor& memory) {
    std::map<uint64_t, Tensor> written = {{block, memory}};
    for (const Operand& operand : call.operands) {
      const uint64_t number = operand.block.number;
      if (operand.written && written.count(number) == 0) written[number] = memory_of(operand.block);
    }
    std::vector<Tensor> operands;
    for (const Operand& operand : call.operands) {
      const auto found = written.find(operand.block.number);
      operands.push_back(
          view_of(found != written.end() ? found->second : read(operand.block), operand.geometry));
    }
    if (call.write != nullptr) return call.write(operands[0]);
    const KeptArgs args(*call.entry->info, call.args->get(), [&](const mt_tensor* kept) {
      for (size_t i = 0; i < operands.size(); ++i) {
        if (&call.operands[i].header == kept) return to_abi(operands[i].impl());
      }
      return kept;  // an element on the host
    });
    run_kernel_of(call, args.get(), operands);
  }

  // Several calls may read the same.
  const Tensor& read(const Block& block) {
    Tensor& memory = read_[{block.number, block.content.get()}];
    if (!memory.defined()) memory = memory_of(block);
    return memory;
  }

  const Device device_;
  std::map<std::pair<uint64_t, const Write*>, Tensor> read_;
};

}  // namespace

Tensor view_of(const Tensor& memory, const Geometry& geometry) {
  Storage* const storage = memory.impl()->storage;
  detail::retain(storage);
  return Tensor::adopt(new_tensor_over(storage, IntList(geometry.sizes), IntList(geometry.strides),
                                       geometry.dtype, geometry.offset));
}

Tensor replay(const Block& block, Device device) {
  const LayerMask below(~0u);
  const NoGradGuard no_grad;
  const DefaultDevice host(kCPU);
  return Replay(device).memory_of(block);
}

}  // namespace mytorch::graph
