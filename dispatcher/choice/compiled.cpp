// Kernels compiled from programs, one for each combination of types in use.
#include <utility>

#include "dispatcher/choice/state.h"
#include "dispatcher/table/fields.h"

namespace mytorch {

const mt_kernel_entry* CompiledOp::find(const void* args) {
  const OpInfo& op = *entry_->info;
  const mt_args_header& h = header(args);
  if (h.variant >= static_cast<uint32_t>(op.num_programs)) return nullptr;
  if (h.compute.code == MT_COMPLEX && (backend_->abi.flags & MT_BACKEND_COMPLEX) == 0) {
    return nullptr;
  }
  const mt_program& program = program_of(op, args);
  // The key is the variant and the types; the compiler receives the types.
  std::vector<uint32_t> key = {h.variant, dtype_bits(h.compute)};
  std::vector<mt_dtype> types;
  auto add = [&](uint32_t offset) {
    const auto* operand = field<const mt_tensor*>(args, offset);
    types.push_back(operand != nullptr ? operand->dl.dtype : mt_dtype{});
    key.push_back(dtype_bits(types.back()));
  };
  for (int i = 0; i < program.num_nodes; ++i) {
    if (std::strcmp(program.nodes[i].op, "input") == 0) add(program.nodes[i].offset);
  }
  for (int i = 0; i < program.num_outputs; ++i) add(program.outputs[i].offset);

  std::lock_guard<std::mutex> lock(mutex_);
  auto [it, fresh] = kernels_.try_emplace(std::move(key), nullptr);
  if (fresh) {
    auto kernel = std::make_unique<mt_kernel_entry>();
    kernel->size = sizeof(mt_kernel_entry);
    kernel->op = op.name;
    kernel->hash = op.hash;
    if (backend_->abi.compile(backend_->abi.self, &program, h.compute, types.data(),
                              static_cast<int32_t>(types.size()), kernel.get()) == MT_OK &&
        kernel->run != nullptr) {
      it->second = std::move(kernel);
    }
  }
  return it->second.get();
}

}  // namespace mytorch
