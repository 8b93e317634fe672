#include "bench/harness/arguments.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "conformance/inputs.h"
#include "dispatcher/table/defaults.h"
#include "dispatcher/table/op.h"
#include "mytorch/error.h"
#include "mytorch/tensor.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::bench {
namespace {

using conformance::OpArg;

[[noreturn]] void refuse(const Case& c, const OpArg& arg, const Json& value) {
  throw Error(ErrorCode::kValue, "[bench] " + c.record->name + " takes " + arg.type + " as '" +
                                     arg.name + "', not " + value.dump());
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

// The shape of a tensor's contiguous memory, and the strides of the tensor in it.
struct Geometry {
  std::vector<int64_t> memory;
  std::vector<int64_t> strides;
};

Geometry geometry(const std::vector<int64_t>& shape, const std::string& layout) {
  Geometry g{shape, contiguous_strides(shape)};
  const size_t n = shape.size();
  if (layout == "transposed" && n >= 2) {
    std::swap(g.memory[n - 1], g.memory[n - 2]);
    g.strides = contiguous_strides(g.memory);
    std::swap(g.strides[n - 1], g.strides[n - 2]);
  } else if (layout == "sliced" && n >= 1) {
    g.memory[n - 1] *= 2;
    g.strides = contiguous_strides(g.memory);
    g.strides[n - 1] *= 2;
  } else if (layout == "broadcast" && n >= 1) {
    g.memory[0] = 1;
    g.strides = contiguous_strides(g.memory);
    g.strides[0] = 0;
  } else if (layout == "channels_last" && n >= 3) {
    std::rotate(g.memory.begin() + 1, g.memory.begin() + 2, g.memory.end());
    g.strides = contiguous_strides(g.memory);
    std::rotate(g.strides.begin() + 1, g.strides.end() - 1, g.strides.end());
  }
  return g;
}

Value of_list(std::vector<int64_t> list) { return list; }

Tensor filled(const Json& spec, const std::vector<int64_t>& shape, ScalarType dtype,
              double default_high, Device device, Generator& generator) {
  const Value sizes = of_list(shape);
  if (dtype == kBool) {
    const Tensor numbers = call("empty", {sizes}, {{"device", Value(device)}})[0].tensor();
    call("uniform_", {numbers}, {{"generator", Value(generator)}});
    return call("lt", {numbers, 0.5})[0].tensor();
  }
  Tensor tensor =
      call("empty", {sizes}, {{"dtype", Value(dtype)}, {"device", Value(device)}})[0].tensor();
  if (is_floating_point(dtype)) {
    call("uniform_", {tensor, spec.value("low", -1.0), spec.value("high", 1.0)},
         {{"generator", Value(generator)}});
  } else {
    const auto low = static_cast<int64_t>(spec.value("low", 0.0));
    const auto high = static_cast<int64_t>(spec.value("high", default_high));
    call("random_.from", {tensor, low, std::max(high, low + 1)}, {{"generator", Value(generator)}});
  }
  return tensor;
}

class Maker {
 public:
  explicit Maker(const Case& c) : c_(c), generator_(0) {}

  Value make(const OpArg& arg, const Json& json) {
    if (json.is_null()) return {};
    if (arg.is_tensor_list() && json.is_array()) {
      std::vector<Tensor> tensors;
      for (const Json& item : json)
        tensors.push_back(item.is_null() ? Tensor() : tensor(arg, item));
      return tensors;
    }
    if (arg.is_tensor() && json.is_object()) {
      const Tensor made = tensor(arg, json);
      made_.emplace(arg.name, made);
      return made;
    }
    const std::string type = arg.type.substr(0, arg.type.find_first_of("?["));
    const bool list = arg.type.find('[') != std::string::npos;
    try {
      if (type == "Generator") return Generator(json.at("seed").get<uint64_t>());
      if (type == "ScalarType") return dtype_from_name(json.get<std::string>().c_str());
      if (type == "Device") return c_.device;
      if (type == "str") return json.get<std::string>();
      if (list && type == "float") return json.get<std::vector<double>>();
      if (list && type == "int") {
        if (json.is_number_integer()) return of_list({json.get<int64_t>()});
        return of_list(json.get<std::vector<int64_t>>());
      }
      if (type == "bool") return json.get<bool>();
      if (type == "int" && json.is_number_integer()) return json.get<int64_t>();
      if (type == "float") return json.get<double>();
      if (type == "Scalar" || type == "Operand") {
        if (json.is_boolean()) return json.get<bool>();
        if (json.is_number_integer()) return json.get<int64_t>();
        return json.get<double>();
      }
    } catch (const Json::exception&) {
    }
    refuse(c_, arg, json);
  }

 private:
  Tensor tensor(const OpArg& arg, const Json& spec) {
    const OpRecord& op = *c_.record;
    const auto type = op.types.find(arg.name);
    ScalarType dtype = dtype_from_name(c_.dtype.c_str());
    if (type != op.types.end() && type->second == "bool") dtype = kBool;
    if (type != op.types.end() && type->second == "index") dtype = kInt64;
    if (spec.contains("dtype"))
      dtype = dtype_from_name(spec.at("dtype").get<std::string>().c_str());
    std::vector<int64_t> shape;
    try {
      shape = spec.at("shape").get<std::vector<int64_t>>();
    } catch (const Json::exception&) {
      refuse(c_, arg, spec);
    }
    const Geometry g = geometry(shape, spec.value("layout", "contiguous"));
    if (spec.contains("of")) {
      const Tensor& of = made_.at(spec.at("of").get<std::string>());
      const int64_t elements =
          std::accumulate(g.memory.begin(), g.memory.end(), int64_t{1}, std::multiplies<>());
      if (elements > of.numel()) refuse(c_, arg, spec);
      return Tensor::adopt(new_view(of.impl(), shape, g.strides, 0));
    }
    if (first_.empty()) first_ = shape;
    // Indices below the smallest size are valid for every dimension.
    const double high =
        first_.empty() ? 2 : static_cast<double>(*std::min_element(first_.begin(), first_.end()));
    Tensor memory =
        filled(spec, g.memory, dtype, dtype == kInt64 ? high : 10, c_.device, generator_);
    if (g.memory == shape && g.strides == contiguous_strides(shape)) return memory;
    return Tensor::adopt(new_view(memory.impl(), shape, g.strides, 0));
  }

  const Case& c_;
  Generator generator_;
  std::map<std::string, Tensor> made_;
  std::vector<int64_t> first_;  // shape of the first tensor
};

}  // namespace

std::vector<Value> make_arguments(const Case& c) {
  const OpInfo& info = *find_op(c.record->name)->info;
  Maker maker(c);
  std::vector<Value> values(c.record->args.size());
  // Views are made after their bases.
  for (const bool views : {false, true}) {
    for (size_t i = 0; i < values.size(); ++i) {
      const OpArg& arg = c.record->args[i];
      const auto given = c.args.find(arg.name);
      const bool view = given != c.args.end() && given->is_object() && given->contains("of");
      if (view != views) continue;
      if (given != c.args.end()) {
        values[i] = maker.make(arg, *given);
      } else if (info.args[i].default_text != nullptr) {
        values[i] = default_value(info.args[i]);
      } else if (!info.args[i].optional) {
        const bool is_tensor = arg.is_tensor() || arg.is_tensor_list();
        throw Error(ErrorCode::kValue, "[bench] " + c.record->name + " needs '" + arg.name +
                                           "': give it with " +
                                           (is_tensor ? "--shapes" : "--set " + arg.name + "=..."));
      }
    }
  }
  return values;
}

std::vector<size_t> written_arguments(const Case& c) {
  std::vector<size_t> written;
  for (size_t i = 0; i < c.record->args.size(); ++i) {
    const OpArg& arg = c.record->args[i];
    const bool in_place = c.form == Form::kInplace && i == 0;
    if (arg.written || in_place || arg.name.starts_with("running_")) written.push_back(i);
  }
  return written;
}

std::vector<Value> with_copies(const std::vector<Value>& args, const std::vector<size_t>& written) {
  std::vector<Value> copies = args;
  for (const size_t i : written) {
    if (const auto* tensor = std::get_if<Tensor>(&args[i].variant())) {
      copies[i] = conformance::copy_of(*tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&args[i].variant())) {
      std::vector<Tensor> own;
      for (const Tensor& each : *list) own.push_back(conformance::copy_of(each));
      copies[i] = std::move(own);
    }
  }
  return copies;
}

void restore(const std::vector<Value>& originals, const std::vector<size_t>& written,
             std::vector<Value>& args) {
  for (const size_t i : written) {
    const auto* from = std::get_if<Tensor>(&originals[i].variant());
    if (from != nullptr && from->defined()) call("copy_", {args[i], *from});
    if (const auto* list = std::get_if<std::vector<Tensor>>(&originals[i].variant())) {
      for (size_t k = 0; k < list->size(); ++k) call("copy_", {args[i].tensors()[k], (*list)[k]});
    }
  }
}

}  // namespace mytorch::bench
