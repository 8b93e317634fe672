#include "dispatcher/frame/pointwise.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/runtime/device_registry.h"
#include "core/types/broadcast.h"
#include "core/types/dims.h"
#include "core/types/errors.h"
#include "core/types/holds.h"
#include "core/types/host_numbers.h"
#include "core/types/strides.h"
#include "dispatcher/frame/decompose.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/frame/promotion.h"
#include "dispatcher/table/fields.h"

namespace mytorch {
namespace {

bool is_host(const mt_tensor* t) { return (t->flags & MT_TENSOR_HOST) != 0; }

IntList sizes_of(const mt_tensor* t) { return {t->dl.shape, static_cast<size_t>(t->dl.ndim)}; }

// The compute type and the result type of a call.
struct PointwiseTypes {
  ScalarType compute;
  ScalarType result;
};

PointwiseTypes apply_rule(const OpInfo& op, ScalarType promoted) {
  switch (op.promote) {
    case Promote::kFloat:
      if (is_integral(promoted, true)) promoted = kFloat32;
      return {promoted, promoted};
    case Promote::kCompare:
      return {promoted, kBool};
    case Promote::kWiden:
      if (is_integral(promoted, true)) promoted = kInt64;
      return {promoted, promoted};
    case Promote::kNone:
    case Promote::kSame:
    case Promote::kFirst:
      break;
  }
  return {promoted, promoted};
}

// Returns whether a number leaves the type of the tensors unchanged: its category is not higher.
bool number_is_lower(ScalarType number, ScalarType tensor) {
  if (is_complex(number)) return false;
  if (is_floating_point(tensor)) return true;
  if (is_floating_point(number)) return false;
  return tensor != kBool || number == kBool;
}

// Returns whether an integer type has the value of a number, which is an integer or a bool.
bool holds(ScalarType type, const mt_tensor* number) {
  return from_abi(number->dl.dtype) == kBool ||
         mytorch::holds(type, Scalar(*static_cast<const int64_t*>(number->dl.data)));
}

// Returns the offset in the argument struct of the i-th tensor argument.
uint32_t field_of(const OpInfo& op, int i) {
  for (int k = 0; k < op.num_args; ++k) {
    const ArgType type = op.args[k].type;
    if (type != ArgType::kTensor && type != ArgType::kOperand) continue;
    if (i-- == 0) return op.args[k].offset;
  }
  return kNoField;
}

// Returns whether the operator reads the i-th tensor argument in nodes of this name alone.
bool only_in(const OpInfo& op, int i, std::string_view name) {
  const uint32_t field = field_of(op, i);
  bool read = false;
  for (int p = 0; p < op.num_programs; ++p) {
    const mt_program& program = *op.programs[p];
    for (int k = 0; k < program.num_nodes; ++k) {
      if (program.nodes[k].op != std::string_view("input") || program.nodes[k].offset != field)
        continue;
      for (int j = k + 1; j < program.num_nodes; ++j) {
        const mt_node& node = program.nodes[j];
        if (node.a[0] != k && node.a[1] != k && node.a[2] != k) continue;
        if (node.op != name) return false;
        read = true;
      }
    }
  }
  return read;
}

// Returns the end of an integer type that may stand for a number beyond it, or null: no element is
// less than a lower bound that is below all values of the type.
const int64_t* limit_for(const OpInfo& op, int i, int64_t value, ScalarType type) {
  static constexpr int64_t kEnds[][2] = {
      {0, UINT8_MAX}, {INT8_MIN, INT8_MAX}, {INT16_MIN, INT16_MAX}, {INT32_MIN, INT32_MAX}};
  const int64_t* ends = kEnds[type == kUInt8 ? 0 : type == kInt8 ? 1 : type == kInt16 ? 2 : 3];
  if (value < ends[0]) return only_in(op, i, "maximum") ? ends : nullptr;
  return only_in(op, i, "minimum") ? ends + 1 : nullptr;
}

// Throws Error(kValue) for a number that the integer type of the computation does not have, unless
// it takes part in nothing but comparisons with a bound, or only its low bits count: x + -1 is
// x - 1, also of unsigned numbers.
void check_holds(const OpInfo& op, PointwiseInputs in, ScalarType compute) {
  if (!is_integral(compute, true)) return;
  for (int i = 0; i < op.num_inputs; ++i) {
    const mt_tensor* t = in.inputs[i];
    if (t == nullptr || t->storage != nullptr) continue;
    if (!is_integral(from_abi(t->dl.dtype), true) || holds(compute, t)) continue;
    const int64_t value = *static_cast<const int64_t*>(t->dl.data);
    if (const int64_t* limit = limit_for(op, i, value, compute)) {
      in.hosts[i].tensor = *t;
      in.hosts[i].tensor.dl.data = const_cast<int64_t*>(limit);
      in.inputs[i] = &in.hosts[i].tensor;
      continue;
    }
    if (wraps(op, compute, value)) continue;
    fail(ErrorCode::kValue, "[", op.base, "] the number ", value, " is outside of ",
         dtype_name(compute),
         ", in which this is computed: give one that fits, or convert the tensor with to(kInt64)");
  }
}

// Returns whether a comparison rounds the numbers beside operands of this type. Kernels compute
// 16-bit types in float32, with numbers as they are given: x * 65536.0 is finite for small x. A
// comparison with 0.1 asks for elements that were rounded from 0.1, so its numbers are rounded,
// too.
bool rounds_numbers(const OpInfo& op, ScalarType type) {
  return op.promote == Promote::kCompare && is_16_bit_float(type);
}

void round_numbers(PointwiseInputs in, int num_inputs, ScalarType type) {
  for (int i = 0; i < num_inputs; ++i) {
    const mt_tensor* t = in.inputs[i];
    if (t == nullptr || t->storage != nullptr) continue;
    HostOperand& host = in.hosts[i];
    host.rounded = rounded_to(type, number_of(t));
    host.tensor = *t;
    host.tensor.dl.dtype = to_abi(kFloat64);
    host.tensor.dl.data = &host.rounded;
    in.inputs[i] = &host.tensor;
  }
}

// Everything that the slow path determines about a call.
struct PointwisePlan {
  Dims sizes;
  Dims strides;  // of outputs
  ScalarType compute;
  ScalarType result;
  Device device;
};

// Returns the device of the call. Turns 0-dim CPU tensors beside tensors of another device into
// HOST operands.
Device common_device(const OpInfo& op, PointwiseInputs in) {
  const mt_tensor* leader = nullptr;
  for (int i = 0; i < op.num_inputs; ++i) {
    const mt_tensor* t = in.inputs[i];
    if (t == nullptr || is_host(t)) continue;
    if (leader == nullptr || (leader->dl.ndim == 0 && leader->dl.device.type == MT_DEVICE_CPU)) {
      leader = t;
    }
  }
  if (leader == nullptr) return kCPU;
  const Device device(leader->dl.device.type, leader->dl.device.index);
  for (int i = 0; i < op.num_inputs; ++i) {
    const mt_tensor* t = in.inputs[i];
    if (t == nullptr || is_host(t)) continue;
    if (t->dl.device.type == device.type && t->dl.device.index == device.index) continue;
    if (t->dl.ndim == 0 && t->dl.device.type == MT_DEVICE_CPU) {
      in.hosts[i].tensor = *t;
      in.hosts[i].tensor.flags |= MT_TENSOR_HOST;
      in.inputs[i] = &in.hosts[i].tensor;
      continue;
    }
    fail(ErrorCode::kDevice, "[", op.base, "] the tensors are on different devices (", device.str(),
         " and ", Device(t->dl.device.type, t->dl.device.index).str(),
         "): move them to one with to(device)");
  }
  return device;
}

Dims broadcast_sizes(const OpInfo& op, PointwiseInputs in) {
  Dims sizes;
  for (int i = 0; i < op.num_inputs; ++i) {
    const mt_tensor* t = in.inputs[i];
    if (t == nullptr) continue;
    const IntList own = sizes_of(t);
    const int64_t dim = broadcast_into(sizes, own);
    if (dim == 0) continue;
    std::string shapes;
    for (int j = 0; j < op.num_inputs; ++j) {
      if (in.inputs[j] == nullptr || in.inputs[j]->storage == nullptr) continue;
      absl::StrAppend(&shapes, shapes.empty() ? "" : " and ", shape_str(sizes_of(in.inputs[j])));
    }
    fail_broadcast(op.base, shapes, sizes[sizes.size() + dim], own[own.size() + dim], dim);
  }
  return sizes;
}

// Returns packed strides in ATen's order (TensorIterator::reorder_dimensions): dimensions are
// sorted by the strides of the first operand that distinguishes them.
Dims output_strides(const OpInfo& op, PointwiseInputs in, const Dims& sizes) {
  const int ndim = static_cast<int>(sizes.size());
  bool all_contiguous = true;
  for (int i = 0; i < op.num_inputs; ++i) {
    const mt_tensor* t = in.inputs[i];
    if (t == nullptr || is_host(t)) continue;
    all_contiguous = all_contiguous && (t->flags & MT_TENSOR_CONTIGUOUS) != 0;
  }
  if (all_contiguous || ndim <= 1) {
    Dims strides(ndim);
    contiguous_strides(sizes.data(), ndim, strides.data());
    return strides;
  }
  auto stride_of = [&](const mt_tensor* t, int64_t dim) -> int64_t {
    const int64_t own = dim - (ndim - t->dl.ndim);
    return own < 0 || t->dl.shape[own] == 1 ? 0 : t->dl.strides[own];
  };
  // Returns 1 if dimension a varies more slowly than b and so comes after it, -1 for the opposite,
  // 0 if no operand distinguishes them.
  auto slower = [&](int64_t a, int64_t b) {
    for (int i = 0; i < op.num_inputs; ++i) {
      const mt_tensor* t = in.inputs[i];
      if (t == nullptr || is_host(t)) continue;
      const int64_t sa = stride_of(t, a);
      const int64_t sb = stride_of(t, b);
      if (sa == 0 || sb == 0) continue;
      if (sa != sb) return sa > sb ? 1 : -1;
      if (sizes[a] > sizes[b]) return 1;
    }
    return 0;
  };
  return packed_strides(as_list(sizes), slower);
}

// Integers are compared in a type that has all of their values: 255 is not -1, though -1 as uint8
// is 255.
ScalarType exact_type(const OpInfo& op, PointwiseInputs in, ScalarType promoted) {
  if (op.promote != Promote::kCompare || !is_integral(promoted, true)) return promoted;
  for (int i = 0; i < op.num_inputs; ++i) {
    const mt_tensor* t = in.inputs[i];
    if (t == nullptr || (op.input_promotes >> i & 1) == 0) continue;
    if (t->storage != nullptr) {
      promoted = promote_types(promoted, from_abi(t->dl.dtype));
    } else if (!holds(promoted, t)) {
      promoted = kInt64;
    }
  }
  return promoted;
}

PointwiseTypes types_of(const OpInfo& op, PointwiseInputs in) {
  if (op.accepts != nullptr) check_types(op, in.inputs);
  ResultType type;
  for (int i = 0; i < op.num_inputs; ++i) {
    const mt_tensor* t = in.inputs[i];
    if (t == nullptr || (op.input_promotes >> i & 1) == 0) continue;
    type.add(t);
    if (op.promote == Promote::kFirst) break;
  }
  if (type.empty()) {  // only bool and index operands, which have their own types
    for (int i = 0; i < op.num_inputs; ++i) {
      if (in.inputs[i] != nullptr) type.add(in.inputs[i]);
    }
  }
  const PointwiseTypes types = apply_rule(op, exact_type(op, in, type.get()));
  check_holds(op, in, types.compute);
  if (rounds_numbers(op, types.compute)) round_numbers(in, op.num_inputs, types.compute);
  return types;
}

PointwisePlan plan(const OpInfo& op, PointwiseInputs in) {
  const PointwiseTypes types = types_of(op, in);
  const Device device = common_device(op, in);
  PointwisePlan p{broadcast_sizes(op, in), {}, types.compute, types.result, device};
  p.strides = output_strides(op, in, p.sizes);
  return p;
}

ScalarType output_type(const OutputInfo& output, ScalarType promoted) {
  return output.dtype >= 0             ? static_cast<ScalarType>(output.dtype)
         : output.dtype == kRealResult ? to_real(promoted)
                                       : promoted;
}

}  // namespace

mt_dtype pointwise_compute(const OpInfo& op, PointwiseInputs in) {
  return to_abi(types_of(op, in).compute);
}

bool numbers_are_lower(const OpInfo& op, const mt_tensor* const* inputs, ScalarType tensor) {
  if (rounds_numbers(op, tensor)) return false;
  for (int i = 0; i < op.num_inputs; ++i) {
    const mt_tensor* t = inputs[i];
    if (t == nullptr || t->storage != nullptr) continue;
    const ScalarType number = from_abi(t->dl.dtype);
    if (!is_uniform_type(op, number) || !number_is_lower(number, tensor)) return false;
    if (is_integral(tensor, true) && !holds(tensor, t)) return false;
  }
  return true;
}

void general_outputs(const OpInfo& op, PointwiseInputs in, mt_args_header* header,
                     TensorImpl** outputs, const bool* wanted) {
  const PointwisePlan p = plan(op, in);
  header->compute = to_abi(p.compute);
  for (int i = 0; i < op.num_outputs; ++i) {
    if (wanted != nullptr && !wanted[i]) continue;
    outputs[i] = new_tensor_strided(as_list(p.sizes), as_list(p.strides),
                                    output_type(op.outputs[i], p.result), p.device);
  }
}

namespace {

// Returns the tensor to write for output `k`: `out`, or a temporary if `out` overlaps an input
// without being an exact alias.
TensorImpl* into_one(const OpInfo& op, PointwiseInputs in, const PointwisePlan& p, int k,
                     const Tensor& out, bool inplace, Tensor* temporary) {
  TensorImpl* const impl = out.impl();
  check_out(op, impl, as_list(p.sizes), output_type(op.outputs[k], p.result), p.device, inplace);
  for (int i = 0; i < op.num_inputs; ++i) {
    if (in.inputs[i] == nullptr) continue;
    if (overlap(impl->abi, *in.inputs[i]) == Overlap::kPartial) {
      *temporary = Tensor::adopt(
          new_tensor_strided(as_list(p.sizes), as_list(p.strides), impl->dtype, p.device));
      return temporary->impl();
    }
  }
  return impl;
}

}  // namespace

TensorImpl* general_into(const OpInfo& op, PointwiseInputs in, mt_args_header* header,
                         const Tensor& out, bool inplace, Tensor* temporary) {
  required(out, op, inplace ? "self" : "out");
  const PointwisePlan p = plan(op, in);
  header->compute = to_abi(p.compute);
  return into_one(op, in, p, 0, out, inplace, temporary);
}

void general_into_each(const OpInfo& op, PointwiseInputs in, mt_args_header* header,
                       const Tensor* const* outs, TensorImpl** into, Tensor* temporaries, int n) {
  for (int k = 0; k < n; ++k) required(*outs[k], op, op.outputs[k].name);
  check_apart(op, outs, n);
  const PointwisePlan p = plan(op, in);
  header->compute = to_abi(p.compute);
  for (int k = 0; k < n; ++k) into[k] = into_one(op, in, p, k, *outs[k], false, &temporaries[k]);
}

}  // namespace mytorch
