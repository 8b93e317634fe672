#include "dispatcher/custom/custom.h"

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/runtime/device_registry.h"
#include "core/tensor/batched.h"
#include "core/types/errors.h"
#include "core/types/status.h"
#include "dispatcher/frame/kernel_call.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/frame/pointwise.h"
#include "dispatcher/table/fields.h"
#include "dispatcher/table/layers.h"

namespace mytorch {

CustomWrapper record_custom = nullptr;
CustomWrapper cast_custom = nullptr;
CustomWrapper batch_custom = nullptr;
CustomWrapper capture_custom = nullptr;

namespace {

// The argument struct of a call, and the values that its fields point to.
class PackedArgs {
 public:
  PackedArgs(const OpInfo& op, const std::vector<Value>& args) : bytes_(op.args_size) {
    for (int i = 0; i < op.num_args; ++i) pack(op, op.args[i], args[static_cast<size_t>(i)]);
    field<mt_args_header>(bytes_.data(), 0).size = op.args_size;
  }
  void set_output(const OutputInfo& output, const Tensor& tensor) {
    field<const mt_tensor*>(bytes_.data(), output.offset) = &tensor.impl()->abi;
  }
  const void* get() const { return bytes_.data(); }

 private:
  template <class T>
  void set(const ArgInfo& arg, const T& value) {
    field<T>(bytes_.data(), arg.offset) = value;
  }
  template <class T>
  static std::optional<T> optional(const Value& value, T (Scalar::*get)() const) {
    if (value.is_none()) return std::nullopt;
    return (value.scalar().*get)();
  }

  void pack(const OpInfo& op, const ArgInfo& arg, const Value& value) {
    const auto& v = value.variant();
    switch (arg.type) {
      case ArgType::kTensor:
        set(arg, value.is_none() ? nullptr
                 : arg.optional  ? optional_abi(value.tensor())
                                 : required(value.tensor(), op, arg.name));
        break;
      case ArgType::kOperand:
        if (std::holds_alternative<Tensor>(v)) {
          set(arg, required(value.tensor(), op, arg.name));
        } else {
          numbers_.push_back(std::make_unique<HostScalar>(value.scalar()));
          set(arg, numbers_.back()->abi());
        }
        break;
      case ArgType::kTensorList:
        lists_.push_back(std::make_unique<TensorListArg>(value.tensors()));
        set(arg, lists_.back()->abi());
        break;
      case ArgType::kScalar:
        // The number outlives the call, because that of a complex one is referred to.
        if (!value.is_none()) scalars_.push_back(value.scalar());
        set(arg, value.is_none() ? mt_scalar{} : scalars_.back().abi());
        break;
      case ArgType::kInt:
      case ArgType::kBool:
        if (arg.optional) {
          set(arg, abi_value(optional(value, &Scalar::to_int)));
        } else {
          set(arg, value.scalar().to_int());
        }
        break;
      case ArgType::kFloat:
        if (arg.optional) {
          set(arg, abi_value(optional(value, &Scalar::to_double)));
        } else {
          set(arg, value.scalar().to_double());
        }
        break;
      case ArgType::kIntList:
        if (const auto* list = std::get_if<std::vector<int64_t>>(&v)) {
          set(arg, abi_value(IntList(*list)));
        }
        break;
      case ArgType::kFloatList:
        if (const auto* list = std::get_if<std::vector<double>>(&v)) {
          set(arg, abi_value(FloatList(*list)));
        }
        break;
      case ArgType::kStr:
        if (const auto* text = std::get_if<std::string>(&v)) set(arg, text->c_str());
        break;
      case ArgType::kScalarType:
        if (const auto* type = std::get_if<ScalarType>(&v)) set(arg, to_abi(*type));
        break;
      case ArgType::kDevice:
      case ArgType::kGenerator:
      case ArgType::kHandle:
        break;  // not part of the grammar of custom schemas
    }
  }

  std::vector<char> bytes_;
  std::vector<std::unique_ptr<HostScalar>> numbers_;
  std::deque<Scalar> scalars_;
  std::vector<std::unique_ptr<TensorListArg>> lists_;
};

uint32_t layers_of(const std::vector<Value>& args) {
  uint32_t flags = 0;
  for (const Value& value : args) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) flags |= layer_flags(*tensor);
    if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      flags |= layer_flags(TensorList(*list));
    }
  }
  return flags;
}

// Returns the device of the first tensor of a call.
Device device_of(const std::vector<Value>& args) {
  for (const Value& value : args) {
    const auto& v = value.variant();
    if (const auto* tensor = std::get_if<Tensor>(&v); tensor != nullptr && tensor->defined()) {
      return tensor->device();
    }
    if (const auto* list = std::get_if<std::vector<Tensor>>(&v)) {
      for (const Tensor& tensor : *list) {
        if (tensor.defined()) return tensor.device();
      }
    }
  }
  return kCPU;
}

std::vector<Value> checked_results(const CustomOperator& op, std::vector<Value> results) {
  if (results.size() != op.schema.outputs.size()) {
    fail(ErrorCode::kInternal, "[", op.info.base, "] its body returned ", results.size(),
         " results, its schema declares ", op.schema.outputs.size());
  }
  for (const Value& value : results) value.tensor();  // throws for anything else
  return results;
}

std::vector<Tensor> make_outputs(const CustomOperator& op, const std::vector<Value>& args) {
  const std::vector<ResultSpec> specs = op.spec.infer(args);
  if (specs.size() != op.schema.outputs.size()) {
    fail(ErrorCode::kInternal, "[", op.info.base, "] its infer described ", specs.size(),
         " results, its schema declares ", op.schema.outputs.size());
  }
  std::vector<Tensor> outputs;
  outputs.reserve(specs.size());
  for (const ResultSpec& spec : specs) {
    outputs.push_back(make_output({to_dims(spec.sizes), spec.dtype, spec.device, {}}));
  }
  return outputs;
}

// Returns whether an argument of a gradient's operator names an incoming gradient: "grad" or
// "grad0".
bool names_gradient(std::string_view name, size_t results) {
  if (results == 1 && name == "grad") return true;
  for (size_t i = 0; i < results; ++i) {
    if (name == absl::StrCat("grad", i)) return true;
  }
  return false;
}
bool names_result(const Schema& schema, std::string_view name) {
  if (schema.outputs.size() == 1 && name == "result") return true;
  for (size_t i = 0; i < schema.outputs.size(); ++i) {
    if (name == absl::StrCat("result", i)) return true;
  }
  return false;
}

void check_gradient(const CustomOperator& op) {
  const OpInfo& gradient = *op.gradient->info;
  for (int i = 0; i < gradient.num_args; ++i) {
    const std::string_view name = gradient.args[i].name;
    bool known = names_gradient(name, op.schema.outputs.size()) || names_result(op.schema, name);
    for (const ArgInfo& arg : op.schema.args) known = known || name == arg.name;
    if (known || gradient.args[i].default_text != nullptr) continue;
    fail(ErrorCode::kValue, "[register_operator] ", op.schema.name, ": its gradient ",
         gradient.schema, " wants '", name,
         "', which is neither an argument nor grad, grad0, ..., result, result0, ...");
  }
}

// Autograd's wrapper. libmytorch has it; the dispatcher alone does not.
std::vector<Value> record(const CustomOperator& op, const std::vector<Value>& args) {
  if (record_custom == nullptr) {
    fail(ErrorCode::kUnsupported, "[", op.info.base, "] gradients need libmytorch's autograd");
  }
  return record_custom(op, args);
}

// Autocast's wrapper.
std::vector<Value> cast(const CustomOperator& op, const std::vector<Value>& args) {
  if (cast_custom == nullptr) return next_custom(kLayerAutocast, op, args);
  return cast_custom(op, args);
}

// The wrapper of vmap.
std::vector<Value> batch(const CustomOperator& op, const std::vector<Value>& args) {
  if (batch_custom == nullptr) return next_custom(kLayerBatch, op, args);
  return batch_custom(op, args);
}

// The wrapper of graph capture.
std::vector<Value> capture(const CustomOperator& op, const std::vector<Value>& args) {
  if (capture_custom == nullptr) return next_custom(kLayerCapture, op, args);
  return capture_custom(op, args);
}

void set_wrapper(OpEntry& entry, uint32_t layer, CustomWrapper wrapper) {
  entry.wrappers[std::countr_zero(layer)][kFunction] = reinterpret_cast<void*>(wrapper);
}

}  // namespace

CustomOperator::CustomOperator(OperatorSpec given)
    : spec(std::move(given)), schema(parse_schema(spec.schema)), entry(&info) {
  info.name = schema.name.c_str();
  info.base = schema.base.c_str();
  info.schema = spec.schema.c_str();
  info.doc = spec.doc.c_str();
  info.hash = schema.hash;
  info.meaning = spec.body != nullptr ? Meaning::kComposite : Meaning::kPrimitive;
  info.promote = Promote::kNone;
  info.has_kernel = spec.infer != nullptr;
  info.differentiable = spec.gradient != "none";
  info.num_inputs = schema.num_inputs;
  info.args = schema.args.data();
  info.num_args = static_cast<int32_t>(schema.args.size());
  info.outputs = schema.outputs.data();
  info.num_outputs = static_cast<int32_t>(schema.outputs.size());
  info.args_size = schema.args_size;
  info.custom = this;
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::kValue, "[register_operator] ", schema.name, ": ", why);
  };
  if (spec.body == nullptr && spec.infer == nullptr) {
    refuse("it has neither a body nor, for kernels, the function infer");
  }
  if (spec.gradient.empty()) {
    refuse("its gradient has to be decided: \"none\", \"decompose\", or an operator's name");
  }
  if (decomposes() && (spec.body == nullptr || spec.infer != nullptr)) {
    refuse(spec.body == nullptr
               ? "without a body there is nothing to decompose into"
               : "an operator that kernels may do as one has to name its gradient, "
                 "or \"none\"");
  }
  if (spec.gradient != "none" && !decomposes()) {
    gradient = find_op(spec.gradient);
    if (gradient == nullptr) {
      refuse(absl::StrCat("there is no operator '", spec.gradient,
                          "': register the gradient's first"));
    }
    check_gradient(*this);
    set_wrapper(entry, kLayerAutograd, record);
  }
  set_wrapper(entry, kLayerBatch, batch);
  if (!decomposes()) set_wrapper(entry, kLayerCapture, capture);
  if (spec.autocast != "none") {
    if (spec.autocast != "lower" && spec.autocast != "float32" && spec.autocast != "widest") {
      refuse(absl::StrCat("its autocast policy is '", spec.autocast,
                          "', which is none of \"none\", \"lower\", \"float32\", \"widest\""));
    }
    set_wrapper(entry, kLayerAutocast, cast);
  }
}

namespace {

std::vector<Value> enter(const CustomOperator& op, const std::vector<Value>& args,
                         uint32_t wanted) {
  if (void* wrapper = first_wrapper(op.entry, kFunction, wanted)) {
    return reinterpret_cast<CustomWrapper>(wrapper)(op, args);
  }
  return run_custom(op, args);
}

}  // namespace

std::vector<Value> call_custom(const CustomOperator& op, const std::vector<Value>& args) {
  return enter(op, args, wanted_layers(layers_of(args)));
}

std::vector<Value> next_custom(uint32_t layer, const CustomOperator& op,
                               const std::vector<Value>& args) {
  const LayerMask masked(layer | (layer - 1));
  return enter(op, args, wanted_layers(layer < kLayerAutograd ? layers_of(args) : 0));
}

namespace {

// Completes the arguments with the results for the kernel to write.
void set_outputs(const CustomOperator& op, const std::vector<Tensor>& outputs, PackedArgs* packed) {
  for (size_t i = 0; i < outputs.size(); ++i) packed->set_output(op.schema.outputs[i], outputs[i]);
  if (!on_one_device(op.info, packed->get())) fail_devices(op.info, packed->get());
}

// Runs a kernel; complex operands only reach kernels that take them.
bool try_any_kernel(const CustomOperator& op, TensorImpl* out, const void* args) {
  return has_complex(op.info, args) ? try_complex_kernel(op.entry, out, args)
                                    : try_kernel(op.entry, out, args);
}

void run_without_kernel(const CustomOperator& op, TensorImpl* out, const void* args) {
  run_fallback(op.entry, out->device_slot, context(out->device_slot, out->abi.dl.device), args);
}

}  // namespace

void run_custom_into(const CustomOperator& op, const std::vector<Value>& args,
                     const std::vector<Tensor>& outputs) {
  PackedArgs packed(op.info, args);
  set_outputs(op, outputs, &packed);
  if (!try_any_kernel(op, outputs[0].impl(), packed.get())) {
    run_without_kernel(op, outputs[0].impl(), packed.get());
  }
}

std::vector<Value> run_custom(const CustomOperator& op, const std::vector<Value>& args) {
  if (op.decomposes()) return checked_results(op, op.spec.body(args));
  const LayerMask masked(kLayerAutocast | kLayerAutograd);
  if (op.spec.infer == nullptr) return checked_results(op, op.spec.body(args));
  PackedArgs packed(op.info, args);
  const std::vector<Tensor> outputs = make_outputs(op, args);
  set_outputs(op, outputs, &packed);
  TensorImpl* first = outputs[0].impl();
  if (!try_any_kernel(op, first, packed.get())) {
    if (op.spec.body == nullptr) {
      run_without_kernel(op, first, packed.get());
      return {outputs.begin(), outputs.end()};
    }
    const Substitution substitution(op.entry, first, packed.get());
    return checked_results(op, op.spec.body(args));
  }
  return {outputs.begin(), outputs.end()};
}

void register_operator(OperatorSpec spec) {
  auto op = std::make_unique<CustomOperator>(std::move(spec));
  add_op(op->entry);
  (void)op.release();  // lives forever
}

// ---- operators of backends

namespace {

// Returns the shapes and types that a backend's C function infers.
std::vector<ResultSpec> infer_in_c(const mt_operator& abi, const OpInfo& op,
                                   const std::vector<Value>& args) {
  const PackedArgs packed(op, args);
  std::vector<mt_result> results(static_cast<size_t>(op.num_outputs));
  const int status = abi.infer(abi.self, packed.get(), results.data());
  if (status != MT_OK) {
    std::string why = take_host_error();
    if (why.empty()) why = "its infer failed";
    fail_status(status, op.base, why);
  }
  std::vector<ResultSpec> specs;
  const Device device = device_of(args);
  for (const mt_result& r : results) {
    if (r.ndim < 0 || r.ndim > MT_MAX_DIMS) {
      fail(ErrorCode::kInternal, "[", op.base, "] its infer gave a result of ", r.ndim,
           " dimensions");
    }
    specs.push_back({{r.shape, r.shape + r.ndim}, from_abi(r.dtype), device});
  }
  return specs;
}

OpEntry& add_operator(const mt_operator& abi) {
  if (abi.schema == nullptr || abi.infer == nullptr) {
    fail(ErrorCode::kValue, "[register_operator] ",
         abi.schema == nullptr ? "an operator without a schema"
                               : abi.schema + std::string(" has no infer"));
  }
  // Set below, before the function can run. The operator never moves.
  auto self = std::make_shared<const OpInfo*>(nullptr);
  OperatorSpec spec{
      abi.schema, abi.doc != nullptr ? abi.doc : "", abi.gradient != nullptr ? abi.gradient : "",
      nullptr,
      [abi, self](const std::vector<Value>& args) { return infer_in_c(abi, **self, args); }};
  auto op = std::make_unique<CustomOperator>(std::move(spec));
  *self = &op->info;
  add_op(op->entry);
  return op.release()->entry;  // lives forever
}

}  // namespace

void add_operators_of(const Backend& backend) {
  std::vector<OpEntry*> added;
  try {
    for (int64_t i = 0; i < backend.abi.num_operators; ++i) {
      const auto* first = reinterpret_cast<const char*>(backend.abi.operators);
      const size_t step = backend.abi.operators->size;
      mt_operator abi{};
      std::memcpy(&abi, first + static_cast<size_t>(i) * step, std::min(step, sizeof(abi)));
      added.push_back(&add_operator(abi));
    }
  } catch (const Error& error) {  // register all operators or none
    for (OpEntry* entry : added) remove_op(*entry);
    fail(error.code(), "[backend] ", backend.path.empty() ? backend.name : backend.path,
         " brings an operator that is refused: ", error.what());
  }
}

}  // namespace mytorch
