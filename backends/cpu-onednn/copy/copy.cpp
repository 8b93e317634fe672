// Copies that permute elements, and conversions of smaller integers to float32: oneDNN compiles a
// loop nest for given strides. cpu-openmp has non-temporal stores for large copies, so this kernel
// is the last choice. Copies that fit in the caches or have few channels are often faster here;
// measured choice finds them.
#include <cstring>

#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/copy_.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using sdk::TensorView;
using Type = dnnl::memory::data_type;

// Returns the types in which elements are copied. Without a conversion, elements are copied as
// integers of the same size, which preserves every bit of a NaN.
struct Types {
  Type from = Type::undef, to = Type::undef;
};

Type integer_type(mt_dtype dtype) {
  if (sdk::is_dtype<int32_t>(dtype)) return Type::s32;
  if (sdk::is_dtype<int8_t>(dtype)) return Type::s8;
  return sdk::is_dtype<uint8_t>(dtype) || sdk::is_dtype<bool>(dtype) ? Type::u8 : Type::undef;
}

// Returns undefined types if oneDNN differs or is slow. It rounds and saturates floats to integers,
// which the record truncates. It converts other pairs, such as 16-bit floats without AVX-512, one
// element at a time, at a hundredth of the speed. It has no 64-bit types.
Types types_of(const TensorView& to, const TensorView& from) {
  if (sdk::same_dtype(to.dtype(), from.dtype())) {
    if (to.itemsize() == 4) return {Type::s32, Type::s32};
    return to.itemsize() == 1 ? Types{Type::u8, Type::u8} : Types{};
  }
  const Type integer = integer_type(from.dtype());
  return to.is<float>() && integer != Type::undef ? Types{integer, Type::f32} : Types{};
}

constexpr int kMostDims = DNNL_MAX_NDIMS;

bool same_order(const TensorView& a, const TensorView& b) {
  for (int d = 0; d < a.ndim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

const char* copy_supports(const mt_args_copy_& args) {
  const TensorView to = args.self, from = args.src;
  const Types types = types_of(to, from);
  if (types.to == Type::undef) {
    return "[dtype] only copies of 8- and 32-bit types, and of such integers to float32";
  }
  if (!sdk::same_shape(to, from)) return "the source broadcasts";
  if (const char* why = size_reason(to)) return why;
  if (to.ndim() > kMostDims) return "there are more than 12 dimensions";
  if (same_order(to, from)) return "the elements keep their order";
  return is_packed(to) && is_packed(from) ? nullptr : "an operand has gaps between its elements";
}

Desc describe_as(Type type, const TensorView& tensor) {
  Dims shape, strides;
  for (int d = 0; d < tensor.ndim(); ++d) {
    if (tensor.size(d) == 1) continue;
    shape.push_back(tensor.size(d));
    strides.push_back(tensor.stride(d));
  }
  if (shape.empty()) shape = strides = {1};
  return {shape, type, strides};
}

void copy(mt_ctx& ctx, const mt_args_copy_& args) {
  const TensorView to = args.self, from = args.src;
  run(ctx, Key(MT_HASH_copy_, {args.self, args.src}), {from, to}, [&] {
    const Types types = types_of(to, from);
    const Desc source = describe_as(types.from, from), target = describe_as(types.to, to);
    const Description made = reordering(attributes(), source, target);
    // Other implementations copy one element at a time.
    if (std::strstr(made.impl_info_str(), "jit") == nullptr) throw sdk::Declined{};
    Plan plan(made);
    plan.input(DNNL_ARG_FROM, source);
    plan.output(DNNL_ARG_TO, target);
    return plan;
  });
}

}  // namespace

void register_copy(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&copy, &copy_supports>(
      "onednn", MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS,
      kLast));
}

}  // namespace mytorch::onednn
