#include "dispatcher/choice/complex.h"

#include "core/runtime/context.h"
#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/table/fields.h"
#include "mytorch/abi_ops/copy_.h"
#include "mytorch/abi_ops/fill_.h"
#include "mytorch/backends.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace {

mt_dtype parts_dtype(mt_dtype of) { return to_abi(to_real(from_abi(of))); }

const OpEntry& entry_of_copies() {
  static const OpEntry* const entry = find_op("copy_");
  return *entry;
}

const OpEntry& entry_of_fills() {
  static const OpEntry* const entry = find_op("fill_");
  return *entry;
}

bool copy_real(int slot, mt_ctx* ctx, const mt_tensor* to, const mt_tensor* from) {
  mt_args_copy_ args{};
  args.header.size = sizeof(args);
  args.header.compute = to->dl.dtype;
  args.self = to;
  args.src = from;
  return run_kernel(entry_of_copies(), slot, ctx, &args);
}

bool fill_real(int slot, mt_ctx* ctx, const mt_tensor* to, double value) {
  const HostScalar number{Scalar(value)};
  mt_args_fill_ args{};
  args.header.size = sizeof(args);
  args.header.compute = to->dl.dtype;
  args.self = to;
  args.value = number.abi();
  return run_kernel(entry_of_fills(), slot, ctx, &args);
}

Scalar host_number(const mt_tensor* t) {
  const void* data = t->dl.data;
  switch (from_abi(t->dl.dtype)) {
    case kComplex64:
      return Scalar::complex(static_cast<const float*>(data)[0],
                             static_cast<const float*>(data)[1]);
    case kComplex128:
      return Scalar::complex(static_cast<const double*>(data)[0],
                             static_cast<const double*>(data)[1]);
    default:
      return from_blob(data, {}, TensorOptions(from_abi(t->dl.dtype))).item();
  }
}

}  // namespace

bool has_complex(const OpInfo& op, const void* args) {
  bool found = is_complex(header(args).compute);
  for_each_input(op, args, [&](const mt_tensor*& t, const ArgInfo&) {
    found = found || is_complex(t->dl.dtype);
  });
  return found;
}

PartsOperand::PartsOperand(const mt_tensor* of) : abi_(*of) {
  for (int i = 0; i < of->dl.ndim; ++i) {
    shape_.push_back(of->dl.shape[i]);
    // Modulo 2^64, as strides of dimensions of at most one element may be any number.
    strides_.push_back(static_cast<int64_t>(2 * static_cast<uint64_t>(of->dl.strides[i])));
  }
  shape_.push_back(2);
  strides_.push_back(1);
  abi_.dl.ndim = of->dl.ndim + 1;
  abi_.dl.dtype = parts_dtype(of->dl.dtype);
  abi_.dl.shape = shape_.data();
  abi_.dl.strides = strides_.data();
  abi_.flags &= ~static_cast<uint32_t>(MT_TENSOR_HOST);
}

PartsOperand::PartsOperand(const mt_tensor* of, int part) : PartsOperand(of) {
  shape_.pop_back();
  strides_.pop_back();
  --abi_.dl.ndim;
  abi_.dl.data = static_cast<char*>(abi_.dl.data) + part * (abi_.dl.dtype.bits / 8);
  if (!is_contiguous(as_list(shape_), as_list(strides_))) {
    abi_.flags &= ~static_cast<uint32_t>(MT_TENSOR_CONTIGUOUS);
  }
  // The vectors may have moved their elements.
  abi_.dl.shape = shape_.data();
  abi_.dl.strides = strides_.data();
}

bool run_complex_kernel(const OpEntry& entry, int slot, mt_ctx* ctx, const void* args) {
  if (&entry == &entry_of_copies()) {
    const auto& copy = *static_cast<const mt_args_copy_*>(args);
    return run_copy(slot, ctx, copy.self, copy.src);
  }
  int status = MT_DECLINED;
  OpState* const state = &state_of(const_cast<OpEntry&>(entry));
  for (const bool last : {false, true}) {
    const KernelList* list = state->lists[slot].load(std::memory_order_acquire);
    if (list != nullptr && !list->ordered.empty()) {
      const BoundKernel& choice = state->choice[slot];
      status = choice.run(choice.self, ctx, args);
      release_scratch(ctx);
    }
    if (status != MT_DECLINED || last) break;
    thread_local bool loaded = false;
    if (loaded) break;
    loaded = true;
    load_default_backends();
  }
  if (status == MT_OK) return true;
  return status == MT_DECLINED ? false : after_failure(entry, slot, ctx, args, status, nullptr);
}

bool run_copy(int slot, mt_ctx* ctx, const mt_tensor* to, const mt_tensor* from) {
  const bool to_complex = is_complex(to->dl.dtype);
  const bool from_complex = is_complex(from->dl.dtype);
  if (!to_complex && !from_complex) [[likely]]
    return copy_real(slot, ctx, to, from);
  if (!to_complex) {
    fail(ErrorCode::kType, "[copy_] a copy of ", dtype_name(from_abi(from->dl.dtype)), " into ",
         dtype_name(from_abi(to->dl.dtype)),
         " would drop the imaginary parts: take real(x), imag(x) or abs(x)");
  }
  const PartsOperand real(to, 0);
  const PartsOperand imaginary(to, 1);
  if ((from->flags & MT_TENSOR_HOST) != 0) {  // its memory may not be the device's
    const Scalar value = host_number(from);
    return fill_real(slot, ctx, real.abi(), value.real()) &&
           fill_real(slot, ctx, imaginary.abi(), value.imag());
  }
  if (from_complex && to->dl.dtype.bits == 64 && from->dl.dtype.bits == 64) {
    // Numbers of 8 bytes move whole, as integers do: their parts would be rows of two elements,
    // which a copy that transposes has no blocks for.
    mt_tensor target = *to, source = *from;
    target.dl.dtype = source.dl.dtype = to_abi(kInt64);
    return copy_real(slot, ctx, &target, &source);
  }
  if (from_complex) {
    const PartsOperand target(to);
    const PartsOperand source(from);
    return copy_real(slot, ctx, target.abi(), source.abi());
  }
  return copy_real(slot, ctx, real.abi(), from) && fill_real(slot, ctx, imaginary.abi(), 0);
}

}  // namespace mytorch
