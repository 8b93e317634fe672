// `mytorch call`: calls operators by name, for programs in other languages that compare or try
// them.
#include "mytorch/call.h"

#include <cmath>
#include <iostream>
#include <memory>
#include <string>

#include "conformance/arguments.h"
#include "conformance/elements.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/tensor_impl.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

using conformance::Element;
using conformance::Json;

constexpr const char* kHelp = R"(Reads calls from standard input, one JSON object per line:

  {"op": "add", "args": [TENSOR, 2], "named": {"alpha": 3}}

and writes a line for each, {"results": [...], "args": [...]} or {"error": "message"}; "args" has the
tensors among the positional arguments after the call. Values are
  numbers, texts, true, false, null
  [1, 2]                          int[]; float[] if a number has a fraction
  {"float": "nan"}                a float without a JSON form: nan, inf or -inf
  {"complex": [1, 2]}             a complex number
  {"type": "float32"}             a ScalarType
  {"device": "cpu"}               a Device
  {"seed": 1}                     a Generator
  {"tensors": [TENSOR, null]}     Tensor[]
A TENSOR is {"dtype": "float32", "shape": [2], "values": [1, "nan"]}, with its elements in row-major
order; complex numbers have two. With "strides" and "offset", the values are those of its memory.)";

Tensor make_tensor(const Json& json, Device device) {
  const ScalarType dtype = dtype_from_name(json.at("dtype").get<std::string>().c_str());
  const Json& values = json.at("values");
  const size_t parts = is_complex(dtype) ? 2 : 1;
  const auto count = static_cast<int64_t>(values.size() / parts);
  const std::vector<int64_t> linear = {count};
  Tensor memory = call("empty", {linear}, {{"dtype", Value(dtype)}})[0].tensor();
  auto* bytes = static_cast<char*>(memory.raw_mutable_data());
  for (int64_t i = 0; i < count; ++i) {
    const Json& value = values[static_cast<size_t>(i) * parts];
    Element element = Element::of_int(0);
    if (parts == 2) {
      element = Element::of_complex(conformance::number(value),
                                    conformance::number(values[2 * static_cast<size_t>(i) + 1]));
    } else if (is_floating_point(dtype)) {
      element = Element::of_float(conformance::number(value));
    } else {
      element = Element::of_int(value.get<int64_t>());
    }
    conformance::store(element, dtype, bytes, i);
  }
  if (!device.is_cpu()) memory = call("to.device", {memory, device})[0].tensor();
  const auto shape = json.at("shape").get<std::vector<int64_t>>();
  if (!json.contains("strides")) return call("view", {memory, shape})[0].tensor();
  return call("as_strided", {memory, shape, json.at("strides").get<std::vector<int64_t>>(),
                             json.value("offset", int64_t{0})})[0]
      .tensor();
}

Value make_value(const Json& json, Device device) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    std::vector<int64_t> ints;
    std::vector<double> floats;
    for (const Json& item : json) {
      if (item.is_number_integer()) ints.push_back(item.get<int64_t>());
      floats.push_back(conformance::number(item));
    }
    if (ints.size() == floats.size()) return ints;
    return floats;
  }
  if (json.contains("values")) return make_tensor(json, device);
  if (json.contains("float")) return conformance::number(json.at("float"));
  if (json.contains("complex")) {
    const Json& parts = json.at("complex");
    return Scalar::complex(conformance::number(parts.at(0)), conformance::number(parts.at(1)));
  }
  if (json.contains("type")) return dtype_from_name(json.at("type").get<std::string>().c_str());
  if (json.contains("device")) return device;
  if (json.contains("seed")) return Generator(json.at("seed").get<uint64_t>());
  std::vector<Tensor> tensors;
  for (const Json& item : json.at("tensors")) {
    tensors.push_back(item.is_null() ? Tensor() : make_tensor(item, device));
  }
  return tensors;
}

Json as_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return value;
}

Json as_json(const Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  Json values = Json::array();
  for (const Element& e : conformance::elements_of(tensor)) {
    values.push_back(e.is_float ? as_json(e.d) : Json(e.i));
    if (tensor.is_complex()) values.push_back(as_json(e.im));
  }
  return {{"dtype", dtype_name(tensor.dtype())},
          {"shape", tensor.sizes().vec()},
          {"strides", tensor.strides().vec()},
          {"values", std::move(values)}};
}

Json as_json(const Value& value) {
  const Value::Variant& v = value.variant();
  if (const auto* tensor = std::get_if<Tensor>(&v)) return as_json(*tensor);
  if (const auto* list = std::get_if<std::vector<Tensor>>(&v)) {
    Json tensors = Json::array();
    for (const Tensor& tensor : *list) tensors.push_back(as_json(tensor));
    return {{"tensors", std::move(tensors)}};
  }
  if (const auto* scalar = std::get_if<Scalar>(&v)) {
    if (scalar->is_complex()) {
      return {{"complex", {as_json(scalar->real()), as_json(scalar->imag())}}};
    }
    if (scalar->is_float()) return as_json(scalar->to_double());
    return scalar->is_int() ? Json(scalar->to_int()) : Json(scalar->to_bool());
  }
  return value.type_name();
}

Json answer(const Json& request, Device device) {
  try {
    std::vector<Value> args;
    std::vector<NamedValue> named;
    if (request.contains("args")) {
      for (const Json& item : request.at("args")) args.push_back(make_value(item, device));
    }
    const Json given = request.value("named", Json::object());
    for (const auto& [name, item] : given.items()) {
      named.emplace_back(given.find(name).key(), make_value(item, device));
    }
    Json reply = {{"results", Json::array()}, {"args", Json::array()}};
    for (const Value& result : call(request.at("op").get<std::string>(), args, named)) {
      reply["results"].push_back(as_json(result));
    }
    for (const Value& arg : args) {
      const auto* tensor = std::get_if<Tensor>(&arg.variant());
      reply["args"].push_back(tensor == nullptr ? Json() : as_json(*tensor));
    }
    return reply;
  } catch (const Json::exception& error) {
    return {{"error", std::string("[call] the request is not valid: ") + error.what()}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

Run add_call(CLI::App& app) {
  auto device = std::make_shared<std::string>("cpu");
  app.footer(kHelp);
  app.add_option("--device", *device, "where the tensors lie")->capture_default_str();
  return [device] {
    load_default_backends();
    const Device place(*device);
    for (std::string line; std::getline(std::cin, line);) {
      const Json request = Json::parse(line, nullptr, false);
      std::cout << (request.is_object() ? answer(request, place)
                                        : Json{{"error", "[call] the line is no JSON object"}})
                << std::endl;
    }
    return 0;
  };
}

}  // namespace mytorch::tools
