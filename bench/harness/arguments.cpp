#include "bench/harness/arguments.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "conformance/arguments.h"
#include "conformance/inputs.h"
#include "dispatcher/table/defaults.h"
#include "dispatcher/table/op.h"
#include "mytorch/error.h"
#include "mytorch/tensor.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::bench {
namespace {

using conformance::OpArg;

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
  if (is_differentiable(dtype)) {
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
    return conformance::plain_value(*c_.record, arg, json, c_.device);
  }

 private:
  Tensor tensor(const OpArg& arg, const Json& spec) {
    const ScalarType dtype =
        conformance::type_of(*c_.record, arg.name, spec, dtype_from_name(c_.dtype.c_str()));
    std::vector<int64_t> shape;
    try {
      shape = spec.at("shape").get<std::vector<int64_t>>();
    } catch (const Json::exception&) {
      conformance::refuse(*c_.record, arg, spec);
    }
    const std::string layout = spec.value("layout", "contiguous");
    const conformance::Geometry g = conformance::geometry_of(shape, layout);
    if (spec.contains("of")) {
      const Tensor& of = made_.at(spec.at("of").get<std::string>());
      const int64_t elements =
          std::accumulate(g.memory.begin(), g.memory.end(), int64_t{1}, std::multiplies<>());
      if (elements > of.numel()) conformance::refuse(*c_.record, arg, spec);
      return Tensor::adopt(new_view(of.impl(), shape, g.strides, 0));
    }
    if (first_.empty()) first_ = shape;
    // Indices below the smallest size are valid for every dimension.
    const double high =
        first_.empty() ? 2 : static_cast<double>(*std::min_element(first_.begin(), first_.end()));
    Tensor memory =
        filled(spec, g.memory, dtype, dtype == kInt64 ? high : 10, c_.device, generator_);
    if (spec.contains("raised")) {
      const Tensor diagonal =
          call("diagonal", {memory, int64_t{0}, int64_t{-2}, int64_t{-1}})[0].tensor();
      call("add_", {diagonal, spec.at("raised").get<double>()});
    }
    if (layout == "contiguous") return memory;
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
