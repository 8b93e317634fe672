// Kernels built for an older schema of their operator take the calls in which every argument that
// they do not know has its default value.
#include <algorithm>
#include <cstring>

#include "dispatcher/choice/state.h"
#include "dispatcher/table/defaults.h"
#include "dispatcher/table/fields.h"

namespace mytorch {
namespace {

bool same_scalar(const mt_scalar& given, const Value& value) {
  if (value.is_none()) return given.kind == MT_SCALAR_NONE;
  return given.kind == value.scalar().abi().kind && Scalar(given) == value.scalar();
}

// A number passed as an operand has no storage and is compared by value.
bool same_number(const mt_tensor* given, const Value& value) {
  if (given == nullptr) return value.is_none();
  if (value.is_none() || given->storage != nullptr) return false;
  switch (given->dl.dtype.code) {
    case MT_FLOAT:
      return value.scalar().is_float() &&
             *static_cast<const double*>(given->dl.data) == value.scalar().to_double();
    case MT_INT:
      return value.scalar().is_int() &&
             *static_cast<const int64_t*>(given->dl.data) == value.scalar().to_int();
    case MT_COMPLEX:
      return false;  // no default is complex
    default:
      return value.scalar().is_bool() &&
             *static_cast<const bool*>(given->dl.data) == value.scalar().to_bool();
  }
}

template <class List, class T>
bool same_list(const List& given, const std::vector<T>* value) {
  if (value == nullptr) return given.data == nullptr;
  return given.data != nullptr &&
         std::equal(given.data, given.data + given.size, value->begin(), value->end());
}

// Returns whether the field of an argument holds the default of the schema.
bool at_default(const ArgInfo& arg, const void* args) {
  if (arg.default_text == nullptr) return false;
  const Value value = default_value(arg);
  switch (arg.type) {
    case ArgType::kTensor:
    case ArgType::kOperand:
      return same_number(field<const mt_tensor*>(args, arg.offset), value);
    case ArgType::kTensorList:
      return field<mt_tensor_list>(args, arg.offset).size == 0;
    case ArgType::kScalar:
      return same_scalar(field<mt_scalar>(args, arg.offset), value);
    case ArgType::kInt:
    case ArgType::kBool:
      if (arg.optional) {
        const auto& given = field<mt_optional_int>(args, arg.offset);
        if (value.is_none() || given.present == 0) return value.is_none() && given.present == 0;
        return given.value == value.scalar().to_int();
      }
      return field<int64_t>(args, arg.offset) == value.scalar().to_int();
    case ArgType::kFloat:
      if (arg.optional) {
        const auto& given = field<mt_optional_float>(args, arg.offset);
        if (value.is_none() || given.present == 0) return value.is_none() && given.present == 0;
        return given.value == value.scalar().to_double();
      }
      return field<double>(args, arg.offset) == value.scalar().to_double();
    case ArgType::kIntList:
      return same_list(field<mt_int_list>(args, arg.offset),
                       std::get_if<std::vector<int64_t>>(&value.variant()));
    case ArgType::kFloatList:
      return same_list(field<mt_float_list>(args, arg.offset),
                       std::get_if<std::vector<double>>(&value.variant()));
    case ArgType::kStr: {
      const char* given = field<const char*>(args, arg.offset);
      if (value.is_none() || given == nullptr) return value.is_none() && given == nullptr;
      return std::get<std::string>(value.variant()) == given;
    }
    case ArgType::kScalarType: {
      const auto& given = field<mt_dtype>(args, arg.offset);
      return value.is_none() ? given.bits == 0
                             : same_dtype(given, to_abi(std::get<ScalarType>(value.variant())));
    }
    case ArgType::kDevice: {
      const auto& given = field<mt_device>(args, arg.offset);
      if (value.is_none()) return given.type == 0;
      const Device& device = std::get<Device>(value.variant());
      return given.type == device.type && given.index == device.index;
    }
    case ArgType::kHandle:  // no field of an argument struct
    case ArgType::kGenerator:
      return false;  // the kernel would lose the call number that the host has taken
  }
  return false;
}

}  // namespace

uint32_t known_fields(const OpInfo& op, uint64_t hash) {
  if (hash == op.hash) return UINT32_MAX;
  for (int i = 0; i < op.num_older; ++i) {
    if (op.older[i].hash == hash) return op.older[i].first_new;
  }
  return 0;
}

const char* unknown_argument(const OpInfo& op, uint32_t knows, const void* args) {
  for (int i = 0; i < op.num_args; ++i) {
    const ArgInfo& arg = op.args[i];
    if (arg.offset != kNoField && arg.offset >= knows && !at_default(arg, args)) return arg.name;
  }
  const char* wanted = nullptr;
  for_each_output(op, args, [&](const mt_tensor*&, const OutputInfo& output) {
    if (output.offset >= knows) wanted = output.name;
  });
  return wanted;
}

}  // namespace mytorch
