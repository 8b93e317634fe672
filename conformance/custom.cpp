#include "conformance/custom.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>

#include "conformance/compare.h"
#include "conformance/guarded.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/custom/custom.h"
#include "dispatcher/table/defaults.h"
#include "mytorch/error.h"

namespace mytorch::conformance {
namespace {

// ---- records

std::string type_text(const ArgInfo& arg) {
  static constexpr const char* kNames[] = {"Tensor",     "Tensor[]", "Operand",   "Scalar",  "int",
                                           "bool",       "float",    "int[]",     "float[]", "str",
                                           "ScalarType", "Device",   "Generator", "Handle"};
  return std::string(kNames[static_cast<int>(arg.type)]) + (arg.optional ? "?" : "");
}

using Shape = std::vector<int64_t>;

Json spec_of(const Shape& shape) { return {{"shape", shape}}; }

// Returns a value for a non-tensor argument without a default.
Json plain_value(const OpArg& arg) {
  const std::string type = arg.type;
  if (type == "int") return 1;
  if (type == "bool") return false;
  if (type == "float" || type == "Scalar" || type == "Operand") return 0.5;
  if (type == "int[]") return Json::array({1});
  if (type == "float[]") return Json::array({0.5});
  if (type == "ScalarType") return "float32";
  if (type == "str") return "";
  return nullptr;  // of an optional argument
}

// Returns the arguments of a call; tensor(k) describes the k-th tensor.
Json arguments_with(const OpRecord& op, const std::function<Json(int k)>& tensor) {
  Json args = Json::object();
  int k = 0;
  for (const OpArg& arg : op.args) {
    if (arg.is_tensor_list()) {
      args[arg.name] = Json::array({tensor(k), tensor(k)});
      ++k;
    } else if (arg.is_tensor()) {
      args[arg.name] = tensor(k++);
    } else if (arg.required) {
      args[arg.name] = plain_value(arg);
    }
  }
  return args;
}

// Suggests samples: equal shapes, and the shapes of products, layers, norms and windows.
std::vector<Json> suggested_samples(const OpRecord& op) {
  static const std::vector<Shape> kPatterns[] = {
      {{2, 3}},
      {{4}},
      {{3, 3}},
      {{2, 3, 4}},
      {{2, 3}, {3, 4}, {4}},
      {{2, 3}, {4, 3}, {4}},
      {{2, 3, 4}, {2, 4, 3}, {4}},
      {{2, 3, 4}, {4}},
      {{2, 3, 4, 5}},
      {{2, 3, 5, 5}, {4, 3, 3, 3}, {4}},
      {{0, 3}},
      {{}},
  };
  std::vector<Json> samples;
  const auto add = [&](const Json& args) {
    Json sample = {{"op", op.name}, {"args", args}, {"suggested", true}};
    if (std::find(samples.begin(), samples.end(), sample) == samples.end()) {
      samples.push_back(std::move(sample));
    }
  };
  for (const std::vector<Shape>& pattern : kPatterns) {
    add(arguments_with(op, [&](int k) {
      return spec_of(pattern[std::min<size_t>(static_cast<size_t>(k), pattern.size() - 1)]);
    }));
  }
  // Positive numbers for logarithms and roots; indices after the first operand; absent optional
  // operands; numbers as operands.
  add(arguments_with(op, [](int) {
    return Json{{"shape", {2, 3}}, {"low", 0.25}, {"high", 0.75}};
  }));
  for (const Shape& index : {Shape{4}, Shape{2, 3}}) {
    add(arguments_with(op, [&](int k) {
      if (k == 0) return spec_of({2, 3});
      return Json{{"shape", index}, {"dtype", "int64"}, {"low", 0}, {"high", 2}};
    }));
  }
  Json args = arguments_with(op, [](int) { return spec_of({2, 3}); });
  Json numbers = args;
  for (const OpArg& arg : op.args) {
    if (arg.type == "Tensor?") args[arg.name] = nullptr;
    if (arg.type == "Operand") numbers[arg.name] = 0.5;
  }
  add(args);
  add(numbers);
  return samples;
}

OpRecord record_of(const Schema& schema, const Json& description) {
  OpRecord op;
  op.name = schema.name;
  op.schema = description.at("schema");
  op.doc = description.at("doc");
  op.meaning = "custom";
  op.promote = "none";
  op.autocast = description.at("autocast");
  op.has_kernel = description.at("has_kernel");
  op.gradient = description.at("gradient");
  op.derived_gradient = description.at("by");
  op.once_differentiable = description.at("once");
  for (const ArgInfo& info : schema.args) {
    OpArg arg{info.name, type_text(info), false, false, info.default_text == nullptr};
    arg.differentiable = arg.is_tensor() && op.differentiable();
    op.args.push_back(arg);
  }
  for (const OutputInfo& output : schema.outputs) op.result_names.emplace_back(output.name);
  op.samples = suggested_samples(op);
  return op;
}

// ---- checks

bool is_refused(const Error& error) {
  return error.code() == ErrorCode::kType || error.code() == ErrorCode::kValue ||
         error.code() == ErrorCode::kShape || error.code() == ErrorCode::kUnsupported;
}

bool are_finite(const std::vector<Value>& results) {
  for (const Value& value : results) {
    for (const Element& e : elements_of(value.tensor())) {
      if (!std::isfinite(e.as_double())) return false;
    }
  }
  return true;
}

class CustomCase {
 public:
  CustomCase(const Case& c, uint64_t seed, Device device, const Fail& fail)
      : c_(c),
        seed_(seed),
        device_(device),
        fail_(fail),
        op_(*find_op(c.op->name)->info->custom),
        arguments_(make_arguments(c, seed, device, c.dtype)) {}

  void check(bool gradients) {
    const Arguments before = copy_of(arguments_);
    results_ = call_named(c_.op->name, arguments_);
    // Errors that a device finds are reported when it is synchronized.
    for (const Value& result : results_) elements_of(result.tensor());
    compare("inputs", [&] { return unchanged(before); });
    compare("again", [&] { return different(run(arguments_), true); });
    if (op_.spec.body == nullptr) {
      for (const bool strided : {false, true}) {
        compare(strided ? "results (strided)" : "results", [&] { return written(strided); });
      }
    }
    for (const char* layout : {"transposed", "sliced"}) {
      compare(layout, [&] { return different(run(in_layout(layout)), false); });
    }
    if (!device_.is_cpu() && has_kernel_on_cpu()) {
      compare("cpu",
              [&] { return different(run(make_arguments(c_, seed_, kCPU, c_.dtype)), false); });
    }
    if (gradients && are_finite(results_)) check_gradient(c_, seed_, device_, fail_);
  }

 private:
  // what() returns a description of the problem, or "", or throws.
  void compare(const std::string& check, const std::function<std::string()>& what) {
    try {
      const std::string wrong = what();
      if (!wrong.empty()) fail_(check, wrong);
    } catch (const Error& error) {
      fail_(check, std::string("failed: ") + error.what());
    }
  }

  std::vector<Value> run(const Arguments& arguments) { return call_named(c_.op->name, arguments); }

  std::string unchanged(const Arguments& before) {
    for (size_t i = 0; i < arguments_.values.size(); ++i) {
      const auto* tensor = std::get_if<Tensor>(&arguments_.values[i].second.variant());
      if (tensor == nullptr || !tensor->defined()) continue;
      if (storage_bytes(*tensor) != storage_bytes(before.values[i].second.tensor())) {
        return "the call changed its argument '" + arguments_.values[i].first +
               "', which it must only read";
      }
    }
    return "";
  }

  std::string different(const std::vector<Value>& found, bool exact) {
    for (size_t i = 0; i < results_.size(); ++i) {
      const std::string what =
          difference(*c_.op, arguments_, found[i], results_[i], {exact, 1}, !exact);
      if (!what.empty()) return "result " + std::to_string(i) + " " + what;
    }
    return "";
  }

  // Writes to memory with two different patterns, so that an unwritten element differs once.
  std::string written(bool strided) {
    for (const int first : {1, 40}) {
      std::vector<Guarded> guarded;
      std::vector<Tensor> outputs;
      for (const Value& value : results_) {
        guarded.emplace_back(value.tensor(), strided, first);
        outputs.push_back(guarded.back().tensor);
      }
      std::vector<Value> args(op_.schema.args.size());
      for (size_t i = 0; i < args.size(); ++i) {
        const Value* given = arguments_.find(op_.schema.args[i].name);
        args[i] = given != nullptr ? *given : default_value(op_.schema.args[i]);
      }
      run_custom_into(op_, args, outputs);
      std::string what = different({outputs.begin(), outputs.end()}, !strided);
      if (!what.empty()) return what;
      for (const Guarded& each : guarded) {
        if (!each.intact()) return "the kernel wrote outside of its result";
      }
    }
    return "";
  }

  Arguments in_layout(const char* layout) {
    Json sample = *c_.sample;
    for (auto& [name, value] : sample["args"].items()) {
      if (value.is_object() && value.contains("shape")) value["layout"] = layout;
      if (!value.is_array()) continue;
      for (Json& item : value) {
        if (item.is_object()) item["layout"] = layout;
      }
    }
    Case c = c_;
    c.sample = &sample;
    return make_arguments(c, seed_, device_, c_.dtype);
  }

  bool has_kernel_on_cpu() const {
    return op_.spec.body != nullptr || !kernels(op_.entry, kCpuSlot).empty();
  }

  const Case& c_;
  uint64_t seed_;
  Device device_;
  const Fail& fail_;
  const CustomOperator& op_;
  Arguments arguments_;
  std::vector<Value> results_;
};

}  // namespace

std::vector<OpRecord> custom_records() {
  std::vector<OpRecord> records;
  for (const OpEntry* entry : all_ops()) {
    const CustomOperator* op = entry->info->custom;
    if (op == nullptr) continue;
    const bool by_operator = op->gradient != nullptr;
    records.push_back(
        record_of(op->schema, {{"schema", op->spec.schema},
                               {"doc", op->spec.doc},
                               {"autocast", op->spec.autocast},
                               {"has_kernel", entry->info->has_kernel},
                               {"gradient", by_operator ? "derived" : op->spec.gradient},
                               {"by", by_operator ? op->spec.gradient : ""},
                               {"once", by_operator && !op->gradient->info->differentiable}}));
  }
  return records;
}

std::vector<OpRecord> all_records(const std::string& folder) {
  std::vector<OpRecord> records = load_catalog(folder);
  for (OpRecord& record : custom_records()) records.push_back(std::move(record));
  return records;
}

Json describe_custom(const OpRecord& record) {
  return {{"schema", record.schema},           {"doc", record.doc},
          {"autocast", record.autocast},       {"has_kernel", record.has_kernel},
          {"gradient", record.gradient},       {"by", record.derived_gradient},
          {"once", record.once_differentiable}};
}

OpRecord custom_record(const Json& description) {
  return record_of(parse_schema(description.at("schema")), description);
}

void read_samples(const std::string& file, std::vector<OpRecord>& records) {
  std::ifstream stream(file);
  const Json all = stream ? Json::parse(stream, nullptr, false) : Json();
  if (!all.is_array()) {
    throw Error(
        ErrorCode::kIo,
        "[check] " + file + (stream ? " is not a JSON list of samples" : " cannot be read"));
  }
  std::set<std::string> replaced;
  for (const Json& sample : all) {
    const std::string name = sample.is_object() ? sample.value("op", "") : "";
    const auto op = std::find_if(records.begin(), records.end(),
                                 [&](const OpRecord& record) { return record.name == name; });
    if (op == records.end()) {
      throw Error(ErrorCode::kValue, "[check] " + file + ": the plug-in brings no operator '" +
                                         name + "': " + sample.dump());
    }
    const Json args = sample.value("args", Json());
    for (const auto& [arg, value] : args.items()) {
      if (op->arg(arg) == nullptr) {
        throw Error(ErrorCode::kValue,
                    "[check] " + file + ": " + op->schema + " has no argument '" + arg + "'");
      }
    }
    if (!args.is_object()) {
      throw Error(ErrorCode::kValue, "[check] " + file + ": missing args in " + sample.dump());
    }
    if (replaced.insert(name).second) op->samples.clear();
    op->samples.push_back(sample);
  }
}

bool check_custom(const Case& c, uint64_t seed, Device device, bool gradients, const Fail& fail,
                  std::string* refused) {
  CustomCase custom(c, seed, device, fail);
  try {
    custom.check(gradients);
    return true;
  } catch (const Error& error) {
    if (!is_refused(error)) fail("functional", std::string("failed: ") + error.what());
    *refused = error.what();
    return false;
  }
}

}  // namespace mytorch::conformance
