#include "dispatcher/frame/decompose.h"

#include <cstring>
#include <limits>
#include <optional>

#include "core/types/broadcast.h"
#include "core/types/errors.h"
#include "dispatcher/choice/complex.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/frame/reduce.h"
#include "dispatcher/table/defaults.h"
#include "dispatcher/table/fields.h"
#include "dispatcher/table/programs.h"

namespace mytorch {
namespace {

bool is(const mt_node& node, const char* op) { return std::strcmp(node.op, op) == 0; }

Tensor call_one(const char* name, std::vector<Value> args) {
  const OpEntry* entry = find_op(name);
  if (entry == nullptr) {
    const auto overloads = find_overloads(name);
    if (overloads.empty()) {
      fail(ErrorCode::kInternal, "[decompose] there is no operator for the node '", name, "'");
    }
    entry = overloads.front();
  }
  const OpInfo& op = *entry->info;
  for (int i = static_cast<int>(args.size()); i < op.num_args; ++i) {
    args.push_back(default_value(op.args[i]));
  }
  std::vector<Value> results;
  op.boxed(args.data(), &results);
  return results.front().tensor();
}

Tensor as_tensor(const Value& value, ScalarType dtype, Device device) {
  if (!std::holds_alternative<Scalar>(value.variant())) return value.tensor();
  return scalar_tensor(value.scalar(), dtype, device);
}

Tensor converted(const Tensor& tensor, ScalarType dtype) {
  return tensor.dtype() == dtype ? tensor : call_one("to.dtype", {tensor, dtype});
}

Value real_part(const Value& value) {
  if (std::holds_alternative<Scalar>(value.variant())) return Value(value.scalar().real());
  return value.tensor().is_complex() ? Value(call_one("real", {value})) : value;
}

// Returns the program in which special functions are operators, with gradients of their own, if
// there is one.
const mt_program& program_to_run(const OpInfo& op, const void* args) {
  if (op.call_programs != nullptr) return *op.call_programs[header(args).variant];
  return program_of(op, args);
}

// The values of a program's nodes during a call.
class ProgramEvaluation {
 public:
  ProgramEvaluation(const OpInfo& op, const void* args)
      : args_(args), program_(program_to_run(op, args)) {
    compute_ = from_abi(header(args).compute);
    // Bools compute as numbers; at the end, nonzero values are true. The 16-bit types compute in
    // float32 and are rounded once, as in kernels.
    bools_ = compute_ == kBool;
    if (bools_) compute_ = kInt64;
    operands_ = compute_;
    if (compute_ == kFloat16 || compute_ == kBFloat16) compute_ = kFloat32;
    values_.resize(program_.num_nodes);
    for_each_input(op, args, [&](const mt_tensor*& t, const ArgInfo&) {
      if ((t->flags & MT_TENSOR_HOST) == 0) {
        device_ = Device(t->dl.device.type, t->dl.device.index);
      }
    });
  }

  const mt_program& program() const { return program_; }
  void set_states(std::vector<Tensor> states, int64_t count) {
    states_ = std::move(states);
    count_ = count;
  }
  ScalarType compute() const { return compute_; }

  const Value& get(int index) {
    Value& value = values_[index];
    if (value.is_none()) value = make(program_.nodes[index]);
    return value;
  }
  Tensor tensor(int index) { return as_tensor(get(index), compute_, device_); }

 private:
  Value make(const mt_node& node) {
    if (is(node, "input")) return input(node);
    if (is(node, "scalar")) return scalar(node);
    if (is(node, "const")) {
      return is_integral(compute_, true) ? Value(Scalar(node.value).to_int()) : Value(node.value);
    }
    if (is(node, "count")) return Value(static_cast<int64_t>(count_));
    if (is(node, "state")) return Value(states_.at(node.component));
    if (is(node, "cast")) return cast(node);
    std::vector<Value> operands;
    for (int a : node.a) {
      if (a >= 0) operands.push_back(get(a));
    }
    const bool selects = is(node, "where");
    if (std::holds_alternative<Scalar>(operands[0].variant())) {
      operands[0] = Value(as_tensor(operands[0], selects ? kBool : compute_, device_));
    }
    if (is_complex(compute_)) {
      // The sign of a complex number is z / |z|, which ATen calls sgn; an order is that of the real
      // parts (docs/records.md).
      if (is(node, "sign")) return Value(call_one("sgn", std::move(operands)));
      if (is(node, "lt") || is(node, "le") || is(node, "gt") || is(node, "ge")) {
        for (Value& operand : operands) operand = real_part(operand);
      }
    }
    return Value(call_one(node.op, std::move(operands)));
  }

  Value input(const mt_node& node) {
    const auto* t = field<const mt_tensor*>(args_, node.offset);
    if (t->storage == nullptr) {  // a number
      switch (t->dl.dtype.code) {
        case MT_FLOAT:
          return Value(*static_cast<const double*>(t->dl.data));
        case MT_INT:
          return Value(*static_cast<const int64_t*>(t->dl.data));
        case MT_COMPLEX: {
          const auto* parts = static_cast<const double*>(t->dl.data);
          return Value(Scalar::complex(parts[0], parts[1]));
        }
        default: {  // bools compute as 0 and 1
          const bool value = *static_cast<const bool*>(t->dl.data);
          return node.type == MT_TYPE_COMPUTE ? Value(int64_t{value}) : Value(value);
        }
      }
    }
    Tensor tensor;
    if ((t->flags & MT_TENSOR_HOST) != 0) {
      // A copy of the header of a 0-dim CPU tensor in the caller's frame; the memory is the
      // tensor's.
      tensor = scalar_tensor(from_blob(t->dl.data, {}, from_abi(t->dl.dtype)).item(),
                             from_abi(t->dl.dtype), device_);
    } else {
      tensor = Tensor::share(const_cast<TensorImpl*>(reinterpret_cast<const TensorImpl*>(t)));
    }
    if (node.type == MT_TYPE_COMPUTE) {
      // Operands have their common type before the computation, in which 70000 may be infinite.
      return Value(converted(converted(tensor, bools_ ? kBool : operands_), compute_));
    }
    if (node.type == MT_TYPE_BOOL && tensor.dtype() != kBool) {
      return Value(call_one("ne", {tensor, int64_t{0}}));
    }
    return Value(tensor);
  }

  Value scalar(const mt_node& node) {
    switch (node.field) {
      case MT_FIELD_INT:
        return Value(field<int64_t>(args_, node.offset));
      case MT_FIELD_FLOAT:
        return is_integral(compute_, true)
                   ? Value(Scalar(field<double>(args_, node.offset)).to_int())
                   : Value(field<double>(args_, node.offset));
      default: {
        const Scalar value(field<mt_scalar>(args_, node.offset));
        const bool whole = value.is_int() || value.is_bool() || is_integral(compute_, true);
        return whole ? Value(value.to_int()) : Value(value);
      }
    }
  }

  Value cast(const mt_node& node) {
    const Tensor from = tensor(node.a[0]);
    if (node.type == MT_TYPE_BOOL) {
      return Value(from.dtype() == kBool ? from : call_one("ne", {from, int64_t{0}}));
    }
    return Value(converted(from, compute_));
  }

  const void* args_;
  const mt_program& program_;
  ScalarType operands_;  // the common type, before 16-bit types are widened
  ScalarType compute_;
  bool bools_;  // kInt64 represents bools
  Device device_;
  std::vector<Value> values_;
  std::vector<Tensor> states_;
  int64_t count_ = 1;
};

struct Dims2 {
  std::vector<int64_t> dims;  // never empty unless the tensor is 0-dim
  bool keepdim;
};

Dims2 reduced_dims(const mt_program& p, const void* args, int64_t ndim) {
  Dims2 result{{}, p.keepdim_offset != 0 && field<int64_t>(args, p.keepdim_offset) != 0};
  auto all = [&] {
    for (int64_t i = 0; i < ndim; ++i) result.dims.push_back(i);
  };
  if (p.dim_field == MT_DIM_LIST) {
    const auto& list = field<mt_int_list>(args, p.dim_offset);
    if (list.data == nullptr || list.size == 0) {
      all();
    } else {
      for (int64_t i = 0; i < list.size; ++i) {
        result.dims.push_back(wrap_dim(list.data[i], ndim, p.name));
      }
    }
  } else if (p.dim_field == MT_DIM_INT) {
    result.dims.push_back(wrap_dim(field<int64_t>(args, p.dim_offset), ndim, p.name));
  } else if (p.dim_field == MT_DIM_OPTIONAL_INT &&
             field<mt_optional_int>(args, p.dim_offset).present != 0) {
    result.dims.push_back(wrap_dim(field<mt_optional_int>(args, p.dim_offset).value, ndim, p.name));
  } else {
    all();
  }
  return result;
}

// Returns the state of a fold, computed by plain reductions.
std::vector<Tensor> fold(const mt_program& p, const Tensor& x, const Dims2& d, int64_t count) {
  const std::string_view kind = p.fold;
  auto reduce = [&](const char* op, const Tensor& of, bool keepdim) {
    return call_one(op, {of, d.dims, keepdim});
  };
  if (kind == "sum") return {reduce("sum.dim_IntList", x, d.keepdim)};
  if (kind == "max") return {reduce("amax", x, d.keepdim)};
  if (kind == "min") return {reduce("amin", x, d.keepdim)};
  if (kind == "welford") {
    const Tensor mean = reduce("sum.dim_IntList", x, true) / count;
    const Tensor apart = x - mean;
    const Tensor m2 = reduce("sum.dim_IntList", apart * apart, d.keepdim);
    const Tensor shaped = d.keepdim ? mean : call_one("reshape", {mean, m2.sizes()});
    return {scalar_tensor(count, x.dtype(), x.device()), shaped, m2};
  }
  if (kind == "logsumexp") {
    // The maximum of no elements is minus infinity.
    const Tensor top =
        count != 0 ? reduce("amax", x, true)
                   : reduce("sum.dim_IntList", x, true) - std::numeric_limits<double>::infinity();
    // Elements equal to the maximum contribute 1, even if it is infinite and x - top is NaN.
    const Tensor apart = call_one("where", {call_one("eq", {x, top}), 0.0, x - top});
    const Tensor sum = reduce("sum.dim_IntList", call_one("exp", {apart}), d.keepdim);
    return {d.keepdim ? top : call_one("reshape", {top, sum.sizes()}), sum};
  }
  fail(ErrorCode::kUnsupported, "[", p.name, "] a fold of kind ", kind,
       " needs a kernel: it is not made of other operators");
}

// Returns the shape of a pointwise call's results.
Dims pointwise_sizes(const OpInfo& op, const void* args) {
  Dims sizes;
  for_each_input(op, args, [&](const mt_tensor* t, const ArgInfo&) {
    sizes = broadcast_shapes(as_list(sizes), IntList(t->dl.shape, static_cast<size_t>(t->dl.ndim)),
                             op.base);
  });
  return sizes;
}

// An output of a program need not depend on all operands, but has the shape to which all broadcast.
Tensor expanded(const Tensor& x, IntList sizes) {
  if (x.sizes() == sizes) return x;
  return call_one("contiguous", {call_one("expand", {x, sizes})});
}

}  // namespace

std::vector<Tensor> decompose(const OpInfo& op, const void* args, const bool* wanted) {
  ProgramEvaluation run(op, args);
  const mt_program& p = run.program();
  if (p.fold != nullptr) {
    const Tensor x = run.tensor(p.step);
    const Dims2 d = reduced_dims(p, args, x.dim());
    int64_t count = 1;
    for (int64_t dim : d.dims) count *= x.size(dim);
    run.set_states(fold(p, x, d, count), count);
  }
  const ScalarType type = from_abi(header(args).compute);
  const Dims sizes = p.fold == nullptr ? pointwise_sizes(op, args) : Dims();
  std::vector<Tensor> results(p.num_outputs);
  for (int i = 0; i < p.num_outputs; ++i) {
    if (wanted != nullptr && !wanted[i]) continue;
    const mt_node& node = p.nodes[p.outputs[i].node];
    results[i] = run.tensor(p.outputs[i].node);
    if (p.fold == nullptr) results[i] = expanded(results[i], as_list(sizes));
    if (node.type != MT_TYPE_COMPUTE) continue;
    results[i] =
        type == kBool ? call_one("ne", {results[i], int64_t{0}})
        : op.outputs[i].dtype == kRealResult && results[i].is_complex()
            ? call_one("real", {results[i]})
            : converted(results[i], op.outputs[i].dtype == kRealResult ? to_real(type) : type);
  }
  return results;
}

void run_complex_program(const OpEntry& entry, TensorImpl* out, const void* args) {
  mt_ctx* ctx = context(out->device_slot, out->abi.dl.device);
  if (run_complex_kernel(entry, out->device_slot, ctx, args)) return;
  run_program_slow(entry, out, args);
}

void run_program_slow(const OpEntry& entry, TensorImpl* out, const void* args) {
  const OpInfo& op = *entry.info;
  mt_ctx* ctx = context(out->device_slot, out->abi.dl.device);
  if (!can_decompose(op, args)) return run_fallback(entry, out->device_slot, ctx, args);
  state_of(const_cast<OpEntry&>(entry)).decomposed.fetch_add(1, std::memory_order_relaxed);
  const Substitution substitution(entry, out, args);
  const mt_program& p = program_of(op, args);
  bool wanted[8] = {};
  for (int i = 0; i < p.num_outputs; ++i) {
    wanted[i] = field<const mt_tensor*>(args, p.outputs[i].offset) != nullptr;
  }
  LayerMask below_layers(~0u);
  const std::vector<Tensor> results = decompose(op, args, wanted);
  for (int i = 0; i < p.num_outputs; ++i) {
    if (!wanted[i]) continue;
    const auto* to = field<const mt_tensor*>(args, p.outputs[i].offset);
    copy_into(Tensor::share(const_cast<TensorImpl*>(reinterpret_cast<const TensorImpl*>(to))),
              results[i]);
  }
}

}  // namespace mytorch
