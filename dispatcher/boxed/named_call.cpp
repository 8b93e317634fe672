// mytorch::call: overloads, conversions and defaults, as in ATen.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/types/errors.h"
#include "dispatcher/boxed/boxed.h"
#include "dispatcher/custom/custom.h"
#include "dispatcher/table/defaults.h"
#include "dispatcher/table/op.h"
#include "mytorch/call.h"

namespace mytorch {

const Tensor& Value::tensor() const {
  if (const auto* t = std::get_if<Tensor>(&v_)) return *t;
  fail(ErrorCode::kType, "[call] the value is ", type_name(), ", not a Tensor");
}

const std::vector<Tensor>& Value::tensors() const {
  if (const auto* t = std::get_if<std::vector<Tensor>>(&v_)) return *t;
  fail(ErrorCode::kType, "[call] the value is ", type_name(), ", not Tensor[]");
}

Scalar Value::scalar() const {
  if (const auto* s = std::get_if<Scalar>(&v_)) return *s;
  fail(ErrorCode::kType, "[call] the value is ", type_name(), ", not a number");
}

std::string Value::type_name() const {
  static constexpr const char* kNames[] = {"None",   "Tensor",    "Tensor[]", "Scalar",
                                           "int[]",  "float[]",   "str",      "ScalarType",
                                           "Device", "Generator", "handle"};
  if (const auto* s = std::get_if<Scalar>(&v_)) {
    return s->is_float() ? "float" : s->is_int() ? "int" : "bool";
  }
  if (const auto* h = std::get_if<Handle>(&v_)) return h->type;
  if (const auto* t = std::get_if<ScalarType>(&v_); t != nullptr && !is_known(*t)) {
    return "an unknown ScalarType";
  }
  return kNames[v_.index()];
}

namespace {

const char* arg_type_name(ArgType type) {
  static constexpr const char* kNames[] = {"Tensor",     "Tensor[]", "Operand",   "Scalar",  "int",
                                           "bool",       "float",    "int[]",     "float[]", "str",
                                           "ScalarType", "Device",   "Generator", "Handle"};
  return kNames[static_cast<int>(type)];
}

// Converts `value` to the type of an argument, as ATen does. Returns false if ATen does not convert
// it.
bool convert(const ArgInfo& arg, Value& value) {
  if (value.is_none()) return arg.optional;
  const auto& v = value.variant();
  const auto* scalar = std::get_if<Scalar>(&v);
  switch (arg.type) {
    case ArgType::kTensor:
      return std::holds_alternative<Tensor>(v);
    case ArgType::kOperand:
      return std::holds_alternative<Tensor>(v) || scalar != nullptr;
    case ArgType::kTensorList:
      return std::holds_alternative<std::vector<Tensor>>(v);
    case ArgType::kScalar:
      return scalar != nullptr;
    case ArgType::kInt:
      return scalar != nullptr && scalar->is_int();
    case ArgType::kBool:
      return scalar != nullptr && !scalar->is_float();
    case ArgType::kFloat:
      return scalar != nullptr;
    case ArgType::kIntList:
      if (scalar != nullptr && scalar->is_int()) {
        value = Value(std::vector<int64_t>{scalar->to_int()});
        return true;
      }
      return std::holds_alternative<std::vector<int64_t>>(v);
    case ArgType::kFloatList:
      if (scalar != nullptr && !scalar->is_complex()) {
        value = Value(std::vector<double>{scalar->to_double()});
        return true;
      }
      if (const auto* ints = std::get_if<std::vector<int64_t>>(&v)) {
        value = Value(std::vector<double>(ints->begin(), ints->end()));
        return true;
      }
      return std::holds_alternative<std::vector<double>>(v);
    case ArgType::kStr:
      return std::holds_alternative<std::string>(v);
    case ArgType::kScalarType:
      return std::holds_alternative<ScalarType>(v) && is_known(std::get<ScalarType>(v));
    case ArgType::kDevice:
      if (const auto* name = std::get_if<std::string>(&v)) {
        value = Value(Device(*name));
        return true;
      }
      return std::holds_alternative<Device>(v);
    case ArgType::kGenerator:
      return std::holds_alternative<Generator>(v);
    case ArgType::kHandle:
      return std::holds_alternative<Handle>(v);
  }
  return false;
}

struct BoundArgs {
  std::vector<Value> args;
  std::string why;  // empty if the overload takes the call
};

BoundArgs bind_args(const OpInfo& op, const std::vector<Value>& positional,
                    const std::vector<NamedValue>& named) {
  BoundArgs bound;
  bound.args.resize(op.num_args);
  std::vector<bool> given(op.num_args, false);
  if (positional.size() > static_cast<size_t>(op.num_args)) {
    bound.why = absl::StrCat("it takes ", op.num_args, " arguments, not ", positional.size());
    return bound;
  }
  auto set = [&](int i, const Value& value) {
    bound.args[i] = value;
    given[i] = true;
    if (!convert(op.args[i], bound.args[i])) {
      bound.why = absl::StrCat("'", op.args[i].name, "' takes ", arg_type_name(op.args[i].type),
                               op.args[i].optional ? "?" : "", ", not ", value.type_name());
    }
  };
  for (size_t i = 0; i < positional.size() && bound.why.empty(); ++i) {
    if (op.args[i].kw_only) {
      bound.why = absl::StrCat("'", op.args[i].name, "' must be given by name");
    } else {
      set(static_cast<int>(i), positional[i]);
    }
  }
  for (const auto& [name, value] : named) {
    if (!bound.why.empty()) return bound;
    int at = 0;
    while (at < op.num_args && name != op.args[at].name) ++at;
    if (at == op.num_args) {
      bound.why = absl::StrCat("it has no argument '", piece(name), "'");
    } else if (given[at]) {
      bound.why = absl::StrCat("'", piece(name), "' is given twice");
    } else {
      set(at, value);
    }
  }
  for (int i = 0; i < op.num_args && bound.why.empty(); ++i) {
    if (given[i]) continue;
    if (op.args[i].default_text == nullptr) {
      bound.why = absl::StrCat("'", op.args[i].name, "' is missing");
    } else {
      bound.args[i] = default_value(op.args[i]);
    }
  }
  return bound;
}

// The outputs among the named values of a call: a single `out`, a list `out`, or each output by its
// name or as out0, out1, ...
struct Outs {
  std::vector<Value> values;  // in the order of the schema; None if not given
  int given = 0;
  std::vector<NamedValue> rest;
  std::string why;  // empty if the outputs are valid
};

Outs take_outs(const OpInfo& op, const std::vector<NamedValue>& named) {
  Outs outs;
  outs.values.resize(op.num_outputs);
  auto is_argument = [&](std::string_view name) {
    for (int i = 0; i < op.num_args; ++i) {
      if (name == op.args[i].name) return true;
    }
    return false;
  };
  auto place = [&](std::string_view name) {
    for (int i = 0; i < op.num_outputs && op.num_outputs > 1; ++i) {
      if (name == op.outputs[i].name || name == absl::StrCat("out", i)) return i;
    }
    return name == "out" ? 0 : -1;
  };
  auto set = [&](std::string_view name, int at, const Value& value) {
    if (!std::holds_alternative<Tensor>(value.variant())) {
      outs.why = absl::StrCat("'", piece(name), "' takes Tensor, not ", value.type_name());
    } else if (at < op.num_outputs && outs.values[at].is_none()) {
      outs.values[at] = value;
    } else if (at < op.num_outputs) {
      outs.why = absl::StrCat("'", piece(name), "' is given twice");
    }
    ++outs.given;
  };
  for (const auto& [name, value] : named) {
    const int at = is_argument(name) ? -1 : place(name);
    if (at < 0) {
      outs.rest.emplace_back(name, value);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant());
               list != nullptr && name == "out") {
      for (size_t i = 0; i < list->size(); ++i) set(name, static_cast<int>(i), (*list)[i]);
    } else {
      set(name, at, value);
    }
  }
  return outs;
}

using Boxed = void (*)(const Value*, std::vector<Value>*);

std::vector<Value> run(const OpInfo& op, Boxed form, const std::vector<Value>& args) {
  if (form == nullptr) {
    fail(ErrorCode::kValue, "[", op.base, "] ", op.name, " has no such form");
  }
  std::vector<Value> results;
  form(args.data(), &results);
  return results;
}

std::vector<Value> run_functional(const OpInfo& op, const std::vector<Value>& args) {
  return op.custom != nullptr ? call_custom(*op.custom, args) : run(op, op.boxed, args);
}

}  // namespace

std::vector<Value> call(std::string_view name, std::vector<Value> args,
                        std::vector<NamedValue> named) {
  const size_t dot = name.find('.');
  std::string base(name.substr(0, dot));
  const std::string overload(dot == std::string_view::npos ? "" : name.substr(dot + 1));
  std::vector<OpEntry*> overloads = find_overloads(base);
  // "add_" is the in-place form of add, unless an op of that name exists (copy_).
  bool inplace = false;
  if (overloads.empty() && base.size() > 1 && base.back() == '_') {
    base.pop_back();
    overloads = find_overloads(base);
    inplace = true;
  }
  if (overloads.empty()) {
    fail(ErrorCode::kValue, "[call] there is no operator '", name, "': see `mytorch ops`");
  }
  if (dot != std::string_view::npos) {
    base = overloads.front()->info->base;  // not an alias
    const std::string full = overload.empty() ? base : absl::StrCat(base, ".", overload);
    std::vector<OpEntry*> named_so;
    std::string known;
    for (OpEntry* entry : overloads) {
      if (full == entry->info->name) named_so.push_back(entry);
      absl::StrAppend(&known, known.empty() ? "" : ", ", entry->info->name);
    }
    if (named_so.empty()) {
      fail(ErrorCode::kValue, "[call] there is no operator '", full, "'; there are ", known);
    }
    overloads = std::move(named_so);
  }
  std::string reasons;
  for (const OpEntry* entry : overloads) {
    const OpInfo& op = *entry->info;
    const Outs outs = take_outs(op, named);
    BoundArgs bound = bind_args(op, args, outs.rest);
    if (bound.why.empty()) bound.why = outs.why;
    if (bound.why.empty() && inplace && outs.given != 0) {
      bound.why = "the in-place form writes its first argument and takes no 'out'";
    }
    if (!bound.why.empty()) {
      absl::StrAppend(&reasons, "\n  ", op.schema, ": ", bound.why);
      continue;
    }
    if (inplace) return run(op, op.boxed_inplace, bound.args);
    if (outs.given == 0) return run_functional(op, bound.args);
    if (op.boxed_out != nullptr && outs.given != op.num_outputs) {
      fail(ErrorCode::kValue, "[", op.base, "] has ", op.num_outputs, " results, but ", outs.given,
           outs.given == 1 ? " output is given" : " outputs are given");
    }
    bound.args.insert(bound.args.begin(), outs.values.begin(), outs.values.end());
    return run(op, op.boxed_out, bound.args);
  }
  fail(ErrorCode::kType, "[", base, "] no overload takes these arguments:", reasons);
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const OpEntry* entry : all_ops()) names.emplace_back(entry->info->name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace mytorch
