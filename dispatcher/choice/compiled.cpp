#include "dispatcher/choice/compiled.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dispatcher/choice/state.h"
#include "dispatcher/table/fields.h"

namespace mytorch {
namespace {

constexpr size_t kChainsOfVariant = 16;

// Differs between nearly all types; those that share a chain share its length.
size_t chain_of_type(mt_dtype dtype) {
  return static_cast<size_t>(dtype.code << 2 ^ dtype.bits >> 3) % kChainsOfVariant;
}

// Returns the type of an operand, as dtype_bits(); 0 if it is absent.
uint32_t type_at(const void* args, uint32_t offset) {
  const auto* operand = field<const mt_tensor*>(args, offset);
  return operand != nullptr ? dtype_bits(operand->dl.dtype) : 0;
}

}  // namespace

[[gnu::always_inline]] inline bool CompiledKernel::has_types(const void* args) const {
  if (dtype_bits(header(args).compute) != compute_) return false;
  for (const CompiledOperand& operand : operands_) {
    if (type_at(args, operand.offset) != operand.type) return false;
  }
  return true;
}

bool CompiledKernel::outputs_are_apart(const void* args) const {
  for (size_t i = num_inputs_; i < operands_.size(); ++i) {
    const auto* output = field<const mt_tensor*>(args, operands_[i].offset);
    if (output == nullptr) continue;
    for (size_t k = 0; k < num_inputs_; ++k) {
      const auto* input = field<const mt_tensor*>(args, operands_[k].offset);
      if (input != nullptr && input->dl.data == output->dl.data) return false;
    }
  }
  return true;
}

CompiledOp::CompiledOp(const OpEntry& entry, const Backend& backend, const BoundKernel& otherwise)
    : entry_(entry),
      backend_(backend),
      otherwise_(otherwise),
      chains_(kChainsOfVariant * static_cast<size_t>(entry.info->num_programs)) {}

// Returns the number of a call's chain; not below chains_.size() for a variant that the operator
// does not have.
size_t CompiledOp::chain_of(const void* args) const {
  return kChainsOfVariant * header(args).variant + chain_of_type(header(args).compute);
}

// Returns the kernel for a call, or null if the backend was not asked about its types.
[[gnu::always_inline]] inline const CompiledKernel* CompiledOp::known(const void* args) const {
  const size_t chain = chain_of(args);
  if (chain >= chains_.size()) return nullptr;
  const CompiledKernel* kernel = chains_[chain].load(std::memory_order_acquire);
  while (kernel != nullptr && !kernel->has_types(args)) kernel = kernel->next_;
  return kernel;
}

const CompiledKernel* CompiledOp::find(const void* args) {
  const CompiledKernel* found = known(args);
  if (found == nullptr) {
    if (chain_of(args) >= chains_.size()) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    found = known(args);  // another thread may have added it
    if (found == nullptr) found = &add(args);
  }
  return found->abi.run != nullptr ? found : nullptr;
}

// Asks the backend for a kernel, and keeps its answer. The caller holds the mutex.
const CompiledKernel& CompiledOp::add(const void* args) {
  const OpInfo& op = *entry_.info;
  const mt_program& program = program_of(op, args);
  const mt_dtype compute = header(args).compute;
  auto made = std::make_unique<CompiledKernel>();
  std::vector<mt_dtype> types;
  const auto add_operand = [&](uint32_t offset) {
    const uint32_t type = type_at(args, offset);
    made->operands_.push_back({offset, type});
    std::memcpy(&types.emplace_back(), &type, sizeof(type));
  };
  for (int i = 0; i < program.num_nodes; ++i) {
    if (std::strcmp(program.nodes[i].op, "input") == 0) add_operand(program.nodes[i].offset);
  }
  made->num_inputs_ = types.size();
  for (int i = 0; i < program.num_outputs; ++i) add_operand(program.outputs[i].offset);
  made->compute_ = dtype_bits(compute);

  if (compute.code != MT_COMPLEX || (backend_.abi.flags & MT_BACKEND_COMPLEX) != 0) {
    mt_kernel_entry kernel{};
    kernel.size = sizeof(kernel);
    kernel.op = op.name;
    kernel.hash = op.hash;
    if (backend_.abi.compile(backend_.abi.self, &program, compute, types.data(),
                             static_cast<int32_t>(types.size()), &kernel) == MT_OK) {
      made->abi = kernel;
    }
  }
  if (made->abi.run != nullptr && takes_every_call(op, made->abi)) {
    types.push_back(compute);
    const bool complex = std::any_of(types.begin(), types.end(),
                                     [](mt_dtype type) { return type.code == MT_COMPLEX; });
    made->takes_apart_ = !complex || (made->abi.flags & MT_TAKES_COMPLEX) != 0;
    made->takes_all_ = made->takes_apart_ && (made->abi.flags & MT_TAKES_ALIAS) != 0;
  }
  auto& chain = chains_[chain_of(args)];
  made->next_ = chain.load(std::memory_order_relaxed);
  kept_.push_back(std::move(made));
  chain.store(kept_.back().get(), std::memory_order_release);
  return *kept_.back();
}

int CompiledOp::run(void* self, mt_ctx* ctx, const void* args) {
  const auto& op = *static_cast<const CompiledOp*>(self);
  const CompiledKernel* found = op.known(args);
  if (found != nullptr && found->takes(args)) [[likely]] {
    const int status = found->abi.run(found->abi.self, ctx, args);
    if (status != MT_DECLINED) [[likely]]
      return status;
  }
  return op.otherwise_.run(op.otherwise_.self, ctx, args);
}

}  // namespace mytorch
