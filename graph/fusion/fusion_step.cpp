// The fused call of a group, and the question whether a kernel takes it.
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "dispatcher/choice/choice.h"
#include "dispatcher/table/fields.h"
#include "graph/fusion/fused_op.h"
#include "graph/fusion/fusion_items.h"

namespace mytorch::graph {
namespace {

// The shape of an operand in the argument struct of a fused call.
struct LoopGeometry {
  Dims sizes, strides;
};

// A tensor that is asked about, but never read.
struct QueriedTensor {
  QueriedTensor(const FusedOperand& operand, LoopGeometry of)
      : geometry(std::move(of)), tensor(*operand.tensor) {
    tensor.dl.ndim = static_cast<int32_t>(geometry.sizes.size());
    tensor.dl.shape = geometry.sizes.data();
    tensor.dl.strides = geometry.strides.data();
    tensor.flags = 0;
  }
  QueriedTensor(const QueriedTensor&) = delete;

  LoopGeometry geometry;
  mt_tensor tensor;
};

// The shape and the strides of an operand of the argument struct: a row of one element has a last
// dimension of size 1, and a table one more than the loop.
LoopGeometry shape_of(const LoopSpace& space, const FusedOperand& operand) {
  LoopGeometry of{space.sizes, operand.strides};
  for (size_t d = 0; d < of.sizes.size(); ++d) {
    if (of.strides[d] == 0) of.sizes[d] = 1;
  }
  const auto add = [&](int64_t size, int64_t stride) {
    of.sizes.push_back(size);
    of.strides.push_back(stride);
  };
  if (space.columns == 1) add(1, 1);
  if (operand.size != 0) add(operand.size, operand.stride);
  return of;
}

// `header(operand)` returns the tensor of an operand.
template <class MakeHeader>
KeptArgs args_of(const FusedOp& op, const FusionItem& item, const FusedProgram& program,
                 MakeHeader&& header) {
  KeptArgs kept(std::max<size_t>(op.info().args_size, sizeof(mt_fused_args)));
  auto& args = field<mt_fused_args>(kept.get(), 0);
  args.header.size = op.info().args_size;
  Dims shape = item.space.sizes;
  if (item.space.columns == 1) shape.push_back(1);
  args.ndim = static_cast<int32_t>(shape.size());
  args.inner = item.space.columns == 1 ? 1 : item.space.inner();
  std::copy(shape.begin(), shape.end(), args.shape);
  size_t at = 0;
  const auto add = [&](const FusedOperand& operand) {
    field<const mt_tensor*>(kept.get(), FusedOp::offset_of(at++)) = header(operand);
  };
  for (const FusedOperand& input : program.inputs()) add(input);
  for (const auto& [output, value] : program.outputs()) add(output);
  return kept;
}

}  // namespace

bool Fusion::compiles(const FusionItem& item, const FusedProgram& program) const {
  if (item.space.columns == 0) return true;
  const Backend* backend = backend_of(item);
  if (backend == nullptr) return false;
  const std::shared_ptr<const FusedOp> op = FusedOp::find(*backend, program);
  if (op == nullptr) return false;
  std::deque<QueriedTensor> headers;  // for this question alone
  const KeptArgs args = args_of(*op, item, program, [&](const FusedOperand& operand) {
    return &headers.emplace_back(operand, shape_of(item.space, operand)).tensor;
  });
  return op->takes(args.get());
}

FusedProgram Fusion::program_of(const FusionItem& item) const {
  FusedProgram program(parts_.mode, item.space, places_);
  for (const size_t index : item.steps) program.add(bodies_[index]);
  program.finish([&](const mt_tensor* tensor) {
    const auto at = places_.find(tensor);
    return at == places_.end() || is_seen(item, at->second.memory);
  });
  return program;
}

const Backend* Fusion::backend_of(const FusionItem& item) const {
  const PlanStep& first = parts_.steps[item.steps[0]];
  if (first.kernel->backend->abi.compile_fused != nullptr) return first.kernel->backend;
  if (parts_.mode == CompileMode::kExact) return nullptr;
  const Backend* best = nullptr;
  for (const Backend* each : backends()) {
    if (each->device_slot != first.slot || each->abi.compile_fused == nullptr ||
        (each->abi.flags & MT_BACKEND_REFERENCE) != 0) {
      continue;
    }
    if (best == nullptr || each->abi.compile_priority > best->abi.compile_priority) best = each;
  }
  return best;
}

std::optional<PlanStep> Fusion::fused(const FusionItem& item) {
  const FusedProgram program = program_of(item);
  const Backend* backend = backend_of(item);
  if (backend == nullptr || program.outputs().empty()) return std::nullopt;
  const std::shared_ptr<const FusedOp> op = FusedOp::find(*backend, program);
  if (op == nullptr) return std::nullopt;
  const PlanStep& first = parts_.steps[item.steps[0]];
  KeptArgs args = args_of(*op, item, program, [&](const FusedOperand& operand) {
    const LoopGeometry of = shape_of(item.space, operand);
    PlanMemory& memory = parts_.memories[static_cast<size_t>(operand.place.memory)];
    return &header_like(parts_, memory, *operand.tensor, operand.place.offset, as_list(of.sizes),
                        as_list(of.strides))
                .impl()
                ->abi;
  });
  PlanStep step{&op->entry(), first.slot, first.device, std::move(args), {}, {}};
  if (!op->takes(step.args.get())) return std::nullopt;
  step.fused = op;
  step.kept = std::all_of(item.steps.begin(), item.steps.end(),
                          [&](size_t index) { return parts_.steps[index].kept; });
  step.joined = item.steps.size();
  for (const auto& [operand, value] : program.outputs()) {
    const int32_t memory = operand.place.memory;
    if (std::find(step.written.begin(), step.written.end(), memory) == step.written.end()) {
      step.written.push_back(memory);
    }
  }
  return step;
}

bool Fusion::is_small_call(const FusionItem& item) const {
  if (!item.fusable || item.steps.size() != 1 || item.space.columns != 0) return false;
  const PlanStep& step = parts_.steps[item.steps[0]];
  const LoopBody& body = bodies_[item.steps[0]];
  const int64_t numel = item.space.numel();
  if (!Device(step.device.type, step.device.index).is_cpu() || numel > kSmallLoop ||
      body.calls.size() != 1 || body.calls[0].program->num_nodes < 2) {
    return false;
  }
  return std::all_of(body.operands.begin(), body.operands.end(), [&](const LoopOperand& operand) {
    if (operand.kind != LoopOperand::kTensor) return operand.kind == LoopOperand::kNumber;
    const mt_tensor& tensor = *operand.tensor;
    int64_t elements = 1;
    for (int32_t d = 0; d < tensor.dl.ndim; ++d) elements *= tensor.dl.shape[d];
    return elements == numel && (tensor.flags & MT_TENSOR_CONTIGUOUS) != 0;
  });
}

}  // namespace mytorch::graph
