// Conversions: kernels that take only contiguous operands of one type and shape receive converted
// copies of operands that are not.
#include <cstring>
#include <vector>

#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "core/types/host_numbers.h"
#include "dispatcher/choice/complex.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/table/args_copy.h"
#include "dispatcher/table/fields.h"

namespace mytorch {
namespace {

// Conversions use copy_, so its own operands are never converted.
bool is_copy(const OpInfo& op) { return std::strcmp(op.name, "copy_") == 0; }

// Returns whether an output is exactly one of the inputs. Other overlaps never reach a kernel.
bool aliases_input(const OpInfo& op, const void* args, const mt_tensor* output) {
  bool found = false;
  for_each_input(op, args, [&](const mt_tensor*& t, const ArgInfo& arg) {
    found = found || (!arg.written && overlap(*t, *output) != Overlap::kNone);
  });
  return found;
}

IntList sizes_of(const mt_tensor* t) { return {t->dl.shape, static_cast<size_t>(t->dl.ndim)}; }

// The requirements of a kernel on one operand.
struct OperandRequirement {
  bool contiguous;
  bool typed;
  mt_dtype dtype;
  bool shaped;
  IntList shape;

  bool met_by(const mt_tensor* t) const {
    if (contiguous && (t->flags & MT_TENSOR_CONTIGUOUS) == 0) return false;
    if (typed && !same_dtype(t->dl.dtype, dtype)) return false;
    return !shaped || sizes_of(t) == shape;
  }
};

// Returns the shape of a pointwise call: that of any output present.
IntList call_shape(const OpInfo& op, const void* args) {
  IntList shape;
  for_each_output(op, args, [&](const mt_tensor*& t, const OutputInfo&) { shape = sizes_of(t); });
  return shape;
}

OperandRequirement wanted_input(const OpInfo& op, const mt_kernel_entry& kernel, const void* args,
                                const ArgInfo& arg) {
  const bool typed = (op.meaning == Meaning::kPointwise || op.meaning == Meaning::kReduce) &&
                     arg.promotes && (kernel.flags & MT_TAKES_MIXED_DTYPES) == 0;
  const bool shaped = op.meaning == Meaning::kPointwise && (kernel.flags & MT_TAKES_BROADCAST) == 0;
  return {(kernel.flags & MT_TAKES_STRIDED) == 0, typed, header(args).compute, shaped,
          shaped ? call_shape(op, args) : IntList()};
}

// Returns whether an operand is a number that a kernel for one type would get rounded to 16 bits.
bool loses_number(const mt_tensor* operand, const OperandRequirement& wanted) {
  if (!wanted.typed || operand->storage != nullptr) return false;
  const ScalarType type = from_abi(wanted.dtype);
  if (!is_16_bit_float(type)) return false;
  const double value = number_of(operand);
  return rounded_to(type, value) != value;
}

// Outputs of the promoted type are computed in the compute type.
OperandRequirement wanted_output(const OpInfo& op, const mt_kernel_entry& kernel, const void* args,
                                 const OutputInfo& output) {
  const bool typed = op.meaning == Meaning::kPointwise && output.dtype < 0 &&
                     op.promote != Promote::kCompare && (kernel.flags & MT_TAKES_MIXED_DTYPES) == 0;
  return {(kernel.flags & MT_TAKES_STRIDED) == 0, typed, header(args).compute, false, {}};
}

const OpEntry& copy_entry() {
  static const OpEntry* const entry = find_op("copy_");
  return *entry;
}

void copy(const OpInfo& op, int slot, mt_ctx* ctx, const mt_tensor* to, const mt_tensor* from) {
  if (run_copy(slot, ctx, to, from)) return;
  fail(ErrorCode::kUnsupported, "[", op.base, "] no kernel of copy_ on ", device_type(slot).name,
       " converts ", dtype_name(from_abi(from->dl.dtype)), " to ",
       dtype_name(from_abi(to->dl.dtype)));
}

bool can_copy(int slot) {
  return copy_entry().slots[slot].load(std::memory_order_acquire) != &OpEntry::kDeclines;
}

Tensor temporary(int slot, const mt_tensor* operand, const OperandRequirement& wanted,
                 const mt_ctx* ctx) {
  const IntList sizes = wanted.shaped ? wanted.shape : sizes_of(operand);
  const mt_dtype dtype = wanted.typed ? wanted.dtype : operand->dl.dtype;
  return Tensor::adopt(new_tensor(sizes.data(), static_cast<int>(sizes.size()), from_abi(dtype),
                                  Device(ctx->device.type, ctx->device.index), slot));
}

}  // namespace

Fit fit(const OpInfo& op, const mt_kernel_entry& kernel, int slot, const void* args) {
  if ((kernel.flags & MT_TAKES_COMPLEX) == 0 && has_complex(op, args)) return {false, false};
  bool takes = true;
  const bool alias = (kernel.flags & MT_TAKES_ALIAS) != 0;
  for_each_input(op, args, [&](const mt_tensor*& t, const ArgInfo& arg) {
    takes = takes && wanted_input(op, kernel, args, arg).met_by(t);
  });
  for_each_output(op, args, [&](const mt_tensor*& t, const OutputInfo& output) {
    takes = takes && wanted_output(op, kernel, args, output).met_by(t) &&
            (alias || !aliases_input(op, args, t));
  });
  // A conversion cannot serve the copy itself: its kernel must accept any strides and types.
  return {takes, !is_copy(op) && can_copy(slot)};
}

int run_converted(OpState& state, int slot, const mt_kernel_entry& kernel, mt_ctx* ctx,
                  const void* args) {
  const OpInfo& op = *state.entry->info;
  bool loses = false;
  for_each_input(op, args, [&](const mt_tensor*& operand, const ArgInfo& arg) {
    loses = loses || loses_number(operand, wanted_input(op, kernel, args, arg));
  });
  if (loses) return MT_DECLINED;
  ArgsCopy converted(op, args);
  void* simple = converted.get();
  std::vector<Tensor> kept;
  struct Back {
    const mt_tensor* to;
    const mt_tensor* from;
  };
  std::vector<Back> back;
  auto replace = [&](const mt_tensor*& operand, const OperandRequirement& wanted, bool read,
                     bool written, bool always = false) {
    if (!always && wanted.met_by(operand)) return;
    kept.push_back(temporary(slot, operand, wanted, ctx));
    const mt_tensor* contiguous = &kept.back().impl()->abi;
    if (read) copy(op, slot, ctx, contiguous, operand);
    if (written) back.push_back({operand, contiguous});
    operand = contiguous;
    state.conversions.fetch_add(1, std::memory_order_relaxed);
  };
  for_each_input(op, simple, [&](const mt_tensor*& operand, const ArgInfo& arg) {
    replace(operand, wanted_input(op, kernel, args, arg), true, arg.written);
  });
  for_each_output(op, simple, [&](const mt_tensor*& operand, const OutputInfo& output) {
    // Check the original arguments, because inputs may have been replaced above.
    const bool shared = (kernel.flags & MT_TAKES_ALIAS) == 0 && aliases_input(op, args, operand);
    replace(operand, wanted_output(op, kernel, args, output), false, true, shared);
  });
  if (kernel.supports != nullptr && kernel.supports(kernel.self, simple) != nullptr) {
    return MT_DECLINED;
  }
  const int status = kernel.run(kernel.self, ctx, simple);
  if (status == MT_OK) {
    for (const Back& b : back) copy(op, slot, ctx, b.to, b.from);
  }
  return status;
}

}  // namespace mytorch
