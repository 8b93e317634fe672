#include "conformance/arguments.h"

#include <algorithm>
#include <limits>

#include "mytorch/error.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::conformance {
namespace {

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  contiguous_strides(shape.data(), static_cast<int>(shape.size()), strides.data());
  return strides;
}

bool is_number(const Json& json) {
  return json.is_number() || json == "nan" || json == "inf" || json == "-inf";
}

}  // namespace

double number(const Json& json) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return kInfinity;
  if (json == "-inf") return -kInfinity;
  return json.is_boolean() ? json.get<bool>() : json.get<double>();
}

ScalarType type_of(const OpRecord& op, const std::string& arg, const Json& spec, ScalarType open) {
  if (spec.contains("dtype")) return dtype_from_name(spec.at("dtype").get<std::string>().c_str());
  const auto type = op.types.find(arg);
  if (type != op.types.end() && type->second == "bool") return kBool;
  if (type != op.types.end() && type->second == "index") return kInt64;
  return open;
}

Geometry geometry_of(const std::vector<int64_t>& shape, const std::string& layout) {
  Geometry g{shape, strides_of(shape), shape};
  const size_t n = shape.size();
  if (layout == "transposed" && n >= 2) {
    std::swap(g.memory[n - 1], g.memory[n - 2]);
    g.strides = strides_of(g.memory);
    std::swap(g.strides[n - 1], g.strides[n - 2]);
  } else if (layout == "sliced" && n >= 1) {
    g.memory[n - 1] *= 2;
    g.strides = strides_of(g.memory);
    g.strides[n - 1] *= 2;
  } else if (layout == "broadcast" && n >= 1 && shape[0] > 0) {
    g.memory[0] = g.distinct[0] = 1;
    g.strides = strides_of(g.memory);
    g.strides[0] = 0;
  } else if (layout == "channels_last" && n >= 3) {
    std::rotate(g.memory.begin() + 1, g.memory.begin() + 2, g.memory.end());
    g.strides = strides_of(g.memory);
    std::rotate(g.strides.begin() + 1, g.strides.end() - 1, g.strides.end());
  } else if (layout == "channels_first" && n >= 3) {
    std::rotate(g.memory.begin() + 1, g.memory.end() - 1, g.memory.end());
    g.strides = strides_of(g.memory);
    std::rotate(g.strides.begin() + 1, g.strides.begin() + 2, g.strides.end());
  } else if (layout == "heads" && n >= 3) {
    std::swap(g.memory[n - 2], g.memory[n - 3]);
    g.strides = strides_of(g.memory);
    std::swap(g.strides[n - 2], g.strides[n - 3]);
  } else if (layout == "padded" && n >= 1) {
    g.memory[n - 1] *= 2;
    g.strides = strides_of(g.memory);
  }
  return g;
}

void refuse(const OpRecord& op, const OpArg& arg, const Json& json) {
  throw Error(ErrorCode::kValue,
              "[" + op.name + "] takes " + arg.type + " as '" + arg.name + "', not " + json.dump());
}

Value plain_value(const OpRecord& op, const OpArg& arg, const Json& json, Device device) {
  if (json.is_null()) return {};
  const std::string type = arg.type.substr(0, arg.type.find_first_of("?["));
  const bool list = arg.type.find('[') != std::string::npos;
  const bool scalar = type == "Scalar" || type == "Operand";
  try {
    if (type == "Generator") return Generator(json.at("seed").get<uint64_t>());
    if (type == "ScalarType") return dtype_from_name(json.get<std::string>().c_str());
    if (type == "Device") return device;
    if (type == "str") return json.get<std::string>();
    if (list && type == "int" && json.is_number_integer()) {
      return std::vector<int64_t>{json.get<int64_t>()};
    }
    if (list && type == "int") return json.get<std::vector<int64_t>>();
    if (list && type == "float" && json.is_array()) {
      std::vector<double> values;
      for (const Json& item : json) values.push_back(number(item));
      return values;
    }
    if ((scalar || type == "bool") && json.is_boolean()) return json.get<bool>();
    if ((scalar || type == "int") && json.is_number_integer()) return json.get<int64_t>();
    if ((scalar || type == "float") && is_number(json)) return number(json);
  } catch (const Json::exception&) {
  }
  refuse(op, arg, json);
}

}  // namespace mytorch::conformance
