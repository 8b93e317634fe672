// Reading calls from a graph's text: the operator, its arguments, and what memory its results have.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "dispatcher/table/defaults.h"
#include "graph/formats/graph_parser.h"
#include "mytorch/generator.h"

namespace mytorch::graph {

void GraphParser::find_operator(std::string_view name, size_t at, GraphNode* node) const {
  const size_t dot = name.find('.');
  const std::string base(name.substr(0, dot));
  const std::string overload(dot == std::string_view::npos ? "" : name.substr(dot));
  const auto find = [&](size_t suffix, Form form) {
    if (base.size() <= suffix) return false;
    const std::string full = base.substr(0, base.size() - suffix) + overload;
    if (const OpEntry* entry = find_op(full)) {
      node->entry = entry;
      node->form = form;
    }
    return node->entry != nullptr;
  };
  bool found = find(0, kFunction);
  if (!found && base.ends_with("_")) found = find(1, kInplace);
  if (!found && base.ends_with("_out")) found = find(4, kOut);
  if (!found) {
    refuse_at(at, "there is no operator ", shown(name), ": `mytorch ops` lists them",
              name.find(':') != std::string_view::npos
                  ? ", and a program registers its own before it reads a graph that calls them"
                  : "");
  }
  const OpInfo& op = node->op();
  const bool has_form = node->form == kInplace ? op.boxed_inplace != nullptr
                        : node->form == kOut   ? op.boxed_out != nullptr
                                               : op.custom != nullptr || op.boxed != nullptr;
  if (!has_form) refuse_at(at, op.name, " has no such form: call the function");
  if (op.dynamic) {
    refuse_at(at, "the shape of the result of ", op.name, " depends on values, which a graph does ",
              "not hold");
  }
}

// Returns which arguments (or results, if `outputs`) of an operator the text states: all, or those
// of the schema with which it was written.
std::vector<bool> GraphParser::written_with(const OpInfo& op, size_t at, bool outputs) const {
  const int total = outputs ? op.num_outputs : op.num_args;
  std::vector<bool> stated(static_cast<size_t>(total), true);
  if (schemas_ == nullptr) return stated;
  const auto found = schemas_->find(std::string_view(op.name));
  if (found == schemas_->end()) {
    refuse_at(at, "the file states no schema of ", op.name, ": it is damaged");
  }
  if (found->second == op.hash) return stated;
  for (int i = 0; i < op.num_older; ++i) {
    if (op.older[i].hash != found->second) continue;
    for (int k = 0; k < total; ++k) {
      const uint32_t offset = outputs ? op.outputs[k].offset : op.args[k].offset;
      stated[k] = offset == kNoField || offset < op.older[i].first_new;
      if (!stated[k] && !outputs && op.args[k].default_text == nullptr) {
        refuse_at(at, op.name, " has received an argument without default since");
      }
    }
    return stated;
  }
  refuse_at(at, op.name, " has the schema ", op.schema,
            ", and the graph was written with another (",
            absl::Hex(found->second, absl::kZeroPad16),
            "), by a newer version or a program that registers another operator of this name");
}

Arg GraphParser::argument(const ArgInfo& info, const OpInfo& op) {
  skip(true);
  const size_t begin = at_;
  const auto value = [](Value v) { return Arg{Arg::kConstant, {}, std::move(v)}; };
  if (take_word("none")) {
    if (!info.optional && info.type != ArgType::kGenerator) {
      refuse_at(begin, "argument '", info.name, "' of ", op.name, " must be given");
    }
    return {};
  }
  switch (info.type) {
    case ArgType::kTensor:
      return Arg::tensor(operand());
    case ArgType::kOperand:
      return next_is('%') ? Arg::tensor(operand()) : value(scalar());
    case ArgType::kTensorList: {
      Arg arg{Arg::kTensors, {}, {}};
      expect('[', "before a list of values");
      list(']', [&] { arg.values.push_back(take_word("none") ? kNoValue : operand()); });
      return arg;
    }
    case ArgType::kScalar:
      return value(scalar());
    case ArgType::kInt:
      return value(Scalar(integer("an argument")));
    case ArgType::kBool: {
      const std::string_view found = word();
      if (found != "true" && found != "false") {
        refuse_at(begin, "argument '", info.name, "' of ", op.name, " is true or false");
      }
      return value(Scalar(found == "true"));
    }
    case ArgType::kFloat:
      return value(Scalar(real()));
    case ArgType::kIntList: {
      std::vector<int64_t> numbers;
      expect('[', "before a list of integers");
      list(']', [&] { numbers.push_back(integer("an item")); });
      return value(std::move(numbers));
    }
    case ArgType::kFloatList: {
      std::vector<double> numbers;
      expect('[', "before a list of numbers");
      list(']', [&] { numbers.push_back(real()); });
      return value(std::move(numbers));
    }
    case ArgType::kStr:
      return value(quoted());
    case ArgType::kScalarType:
      return value(dtype());
    case ArgType::kDevice:
      return value(device());
    case ArgType::kGenerator:
      if (!take_word("generator")) {
        refuse(here(), " stands where 'generator' belongs: a text names the default generator");
      }
      return value(default_generator());
    case ArgType::kHandle:
      break;
  }
  refuse_at(begin, "argument '", info.name, "' of ", op.name,
            " is an object of a running program, which a text cannot hold");
}

// Memory that no operator made holds nothing until an operator replaces it.
void GraphParser::check_memory(const GraphNode& node, const std::vector<size_t>& places) {
  if (node.op().meaning == Meaning::kView) return;
  const auto buffer_of = [&](ValueId id) { return graph_.values[id].buffer; };
  std::vector<int32_t> replaced;
  for (size_t i = 0; i < node.args.size(); ++i) {
    for (const ValueId id : node.args[i].values) {
      if (id == kNoValue || !is_empty_[buffer_of(id)]) continue;
      if (!node.overwrites(i)) {
        refuse_at(places[i], "%", id, " is memory that holds nothing yet: fill it first");
      }
      replaced.push_back(buffer_of(id));
    }
  }
  for (const int32_t buffer : replaced) is_empty_[buffer] = false;
}

void GraphParser::call(std::vector<Arg> results) {
  skip(false);
  const size_t begin = at_;
  const std::string_view name = word();
  GraphNode node;
  node.grad_mode = grad_mode_;
  find_operator(name, begin, &node);
  const OpInfo& op = node.op();
  const std::vector<bool> stated = written_with(op, begin, false);
  const int outs = node.form == kOut ? op.num_outputs : 0;
  expect('(', "after the name of an operator");
  std::vector<size_t> places;
  int schema_arg = -outs;
  list(')', [&] {
    while (schema_arg >= 0 && schema_arg < op.num_args && !stated[schema_arg]) {
      node.args.push_back({Arg::kConstant, {}, default_value(op.args[schema_arg++])});
      places.push_back(at_);
    }
    skip(true);
    places.push_back(at_);
    if (schema_arg == op.num_args) refuse(op.name, " has ", op.num_args + outs, " arguments here");
    if (schema_arg < 0) {
      node.args.push_back(Arg::tensor(operand()));
    } else {
      node.args.push_back(argument(op.args[schema_arg], op));
    }
    ++schema_arg;
  });
  for (; schema_arg < op.num_args; ++schema_arg) {
    if (schema_arg < 0 || stated[schema_arg]) {
      refuse(op.name, " has ", op.num_args + outs, " arguments here, and ", node.args.size(),
             " are given: ", op.schema);
    }
    node.args.push_back({Arg::kConstant, {}, default_value(op.args[schema_arg])});
    places.push_back(at_);
  }
  const bool writes = node.form == kInplace || (node.form == kFunction && node.overwrites(0));
  if (writes && (node.args.empty() || node.args[0].kind != Arg::kTensor)) {
    refuse_at(begin, shown(name), " writes its first argument, which is no tensor");
  }
  check_memory(node, places);
  const bool noted = take_word("wanted");
  if (noted) {
    if (!op.derived) refuse("'wanted' belongs to derived gradients alone");
    node.wanted = 0;
    expect('[', "after 'wanted'");
    list(']', [&] { node.wanted |= 1u << count("the number of a result", 7); });
  }
  if (node.form != kFunction && !results.empty()) {
    refuse_at(begin, shown(name),
              " writes its arguments and gives no results: write the call alone");
  }
  if (op.derived && (op.num_outputs > 8 || static_cast<int>(results.size()) > 8)) {
    refuse_at(begin, "a derived gradient has at most 8 results");
  }
  node.results = std::move(results);
  // Results that the operator has received since are not used.
  if (node.form == kFunction && !node.results.empty()) {
    for (const bool each : written_with(op, begin, true)) {
      if (!each) node.results.push_back(Arg::tensor(kNoValue));
    }
    if (static_cast<int>(node.results.size()) != op.num_outputs) {
      refuse_at(begin, op.name, " gives ", op.num_outputs, " results, and ", node.results.size(),
                " are written: ", op.schema);
    }
  }
  // Without a note, the results that are stated are wanted.
  if (op.derived && !noted) {
    node.wanted = 0;
    for (size_t i = 0; i < node.results.size(); ++i) {
      const Arg& result = node.results[i];
      const bool computed = !result.values.empty() && result.values[0] != kNoValue;
      node.wanted |= uint32_t{computed} << i;
    }
  }
  graph_.nodes.push_back(std::move(node));
}

}  // namespace mytorch::graph
