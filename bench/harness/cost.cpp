#include "bench/harness/cost.h"

#include <algorithm>
#include <cmath>

#include "dispatcher/table/fields.h"
#include "dispatcher/table/op.h"
#include "mytorch/error.h"
#include "mytorch/tensor.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::bench {
namespace {

using conformance::OpRecord;
using nlohmann::json;

double product(const std::vector<int64_t>& shape) {
  double n = 1;
  for (const int64_t size : shape) n *= static_cast<double>(size);
  return n;
}

Fact fact_of(const mt_tensor* t) {
  Fact fact;
  fact.present = t != nullptr;
  if (t == nullptr) return fact;
  fact.shape.assign(t->dl.shape, t->dl.shape + t->dl.ndim);
  fact.nbytes = static_cast<int64_t>(product(fact.shape)) * (t->dl.dtype.bits / 8);
  return fact;
}

Fact fact_of(const mt_scalar& scalar) {
  Fact fact;
  fact.present = scalar.kind != MT_SCALAR_NONE;
  fact.number = scalar.kind == MT_SCALAR_FLOAT ? scalar.v.d : static_cast<double>(scalar.v.i);
  return fact;
}

[[noreturn]] void refuse(const json& tree, const std::string& why) {
  throw Error(ErrorCode::kValue, "[bench] cost " + tree.dump() + ": " + why);
}

double element(const json& tree, const std::vector<int64_t>& of, double index) {
  auto i = static_cast<int64_t>(index);
  const auto size = static_cast<int64_t>(of.size());
  if (i < 0) i += size;
  if (i < 0 || i >= size) refuse(tree, "the index is out of range");
  return static_cast<double>(of[static_cast<size_t>(i)]);
}

// Returns the number of nodes that compute a value for each element.
int computing_nodes(const mt_program& program) {
  int count = 0;
  for (int i = 0; i < program.num_nodes; ++i) {
    const std::string op = program.nodes[i].op;
    count += op != "input" && op != "scalar" && op != "const" && op != "cast" && op != "count" &&
             op != "state";
  }
  return count;
}

// Returns the bytes of distinct elements; a broadcast dimension counts as one element.
double distinct_bytes(const Tensor& t) {
  double n = static_cast<double>(t.element_size());
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) != 0) n *= static_cast<double>(t.size(d));
  }
  return n;
}

// Sums the bytes of tensors by storage.
class Memory {
 public:
  void add(const Value& value) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      add(*tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (const Tensor& t : *list) add(t);
    }
  }
  void add(const Tensor& t) {
    if (!t.defined()) return;
    const Storage* storage = t.impl()->storage;
    double& bytes = bytes_[storage];
    bytes = std::min(bytes + distinct_bytes(t), static_cast<double>(storage->bytes));
  }
  bool has(const Tensor& t) const { return t.defined() && bytes_.contains(t.impl()->storage); }
  double total() const {
    double sum = 0;
    for (const auto& [storage, bytes] : bytes_) sum += bytes;
    return sum;
  }

 private:
  std::map<const Storage*, double> bytes_;
};

}  // namespace

Fact fact_of(const Value& value) {
  Fact fact;
  const auto& v = value.variant();
  if (value.is_none()) {
    fact.present = false;
  } else if (const auto* tensor = std::get_if<Tensor>(&v)) {
    return fact_of(tensor->defined() ? to_abi(tensor->impl()) : nullptr);
  } else if (const auto* tensors = std::get_if<std::vector<Tensor>>(&v)) {
    for (const Tensor& t : *tensors) {
      fact.list.push_back(t.defined() ? t.numel() : 0);
      if (t.defined()) fact.nbytes += t.numel() * t.element_size();
    }
  } else if (const auto* scalar = std::get_if<Scalar>(&v)) {
    fact.number = scalar->to_double();
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&v)) {
    fact.list = *ints;
  }
  return fact;
}

Facts facts_of(const OpRecord& op, const std::vector<Value>& args,
               const std::vector<Value>& results) {
  Facts facts;
  for (size_t i = 0; i < op.args.size() && i < args.size(); ++i) {
    facts[op.args[i].name] = fact_of(args[i]);
  }
  for (size_t i = 0; i < op.result_names.size() && i < results.size(); ++i) {
    facts[op.result_names[i]] = fact_of(results[i]);
  }
  return facts;
}

Facts facts_of(const OpInfo& op, const void* args) {
  Facts facts;
  for (int i = 0; i < op.num_args; ++i) {
    const ArgInfo& arg = op.args[i];
    if (arg.offset == kNoField) continue;
    Fact fact;
    switch (arg.type) {
      case ArgType::kTensor:
      case ArgType::kOperand:
        fact = fact_of(field<const mt_tensor*>(args, arg.offset));
        break;
      case ArgType::kTensorList: {
        const auto& list = field<mt_tensor_list>(args, arg.offset);
        for (int64_t k = 0; k < list.size; ++k) {
          const Fact one = fact_of(list.data[k]);
          fact.list.push_back(static_cast<int64_t>(product(one.shape)));
          fact.nbytes += one.nbytes;
        }
        break;
      }
      case ArgType::kScalar:
        fact = fact_of(field<mt_scalar>(args, arg.offset));
        break;
      case ArgType::kInt:
      case ArgType::kBool:
        if (arg.optional) {
          const auto& value = field<mt_optional_int>(args, arg.offset);
          fact.present = value.present != 0;
          fact.number = static_cast<double>(value.value);
        } else {
          fact.number = static_cast<double>(field<int64_t>(args, arg.offset));
        }
        break;
      case ArgType::kIntList: {
        const auto& list = field<mt_int_list>(args, arg.offset);
        fact.present = list.data != nullptr;
        fact.list.assign(list.data, list.data + list.size);
        break;
      }
      default:
        continue;
    }
    facts[arg.name] = fact;
  }
  return facts;
}

double evaluate(const json& tree, const Facts& facts) {
  if (tree.is_boolean()) return tree.get<bool>() ? 1 : 0;
  if (tree.is_number()) return tree.get<double>();
  if (!tree.is_array() || tree.empty() || !tree[0].is_string()) refuse(tree, "not an operation");
  const std::string op = tree[0];
  const auto operand = [&](size_t i) {
    if (i >= tree.size()) refuse(tree, "an operand is missing");
    return evaluate(tree[i], facts);
  };
  static constexpr const char* kOfFacts[] = {"arg",  "numel", "nbytes", "len",
                                             "ndim", "size",  "item",   "absent"};
  if (std::find(std::begin(kOfFacts), std::end(kOfFacts), op) != std::end(kOfFacts)) {
    if (tree.size() < 2 || !tree[1].is_string()) refuse(tree, "the name is missing");
    const auto found = facts.find(tree[1].get<std::string>());
    if (found == facts.end()) refuse(tree, "unknown name");
    const Fact& fact = found->second;
    if (op == "absent") return fact.present ? 0 : 1;
    if (op == "arg") return fact.number;
    if (op == "numel") return fact.present ? product(fact.shape) : 0;
    if (op == "nbytes") return static_cast<double>(fact.nbytes);
    if (op == "len") return static_cast<double>(fact.list.size());
    if (op == "ndim") return static_cast<double>(fact.shape.size());
    return element(tree, op == "size" ? fact.shape : fact.list, operand(2));
  }
  if (op == "if") return operand(1) != 0 ? operand(2) : operand(3);
  if (op == "not") return operand(1) == 0 ? 1 : 0;
  if (op == "and" || op == "or") {
    for (size_t i = 1; i < tree.size(); ++i) {
      if ((operand(i) != 0) == (op == "or")) return op == "or" ? 1 : 0;
    }
    return op == "or" ? 0 : 1;
  }
  const double a = operand(1), b = operand(2);
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "/") return a / b;
  if (op == "//") return std::floor(a / b);
  if (op == "==") return a == b ? 1 : 0;
  if (op == "!=") return a != b ? 1 : 0;
  if (op == "<") return a < b ? 1 : 0;
  if (op == "<=") return a <= b ? 1 : 0;
  if (op == ">") return a > b ? 1 : 0;
  if (op == ">=") return a >= b ? 1 : 0;
  refuse(tree, "unknown operation");
}

double kernel_flops(const OpRecord& record, const OpInfo& op, const void* args) {
  if (record.cost.contains("flops")) {
    Facts facts = facts_of(op, args);
    for (int i = 0; i < op.num_outputs && i < static_cast<int>(record.result_names.size()); ++i) {
      if (op.outputs[i].offset == kNoField) continue;
      facts[record.result_names[static_cast<size_t>(i)]] =
          fact_of(field<const mt_tensor*>(args, op.outputs[i].offset));
    }
    return evaluate(record.cost.at("flops"), facts);
  }
  if (op.num_programs == 0) return 0;
  const int variant = std::min<int>(header(args).variant, op.num_programs - 1);
  const mt_program& program = *op.programs[variant];
  double most = 0;  // elements of the largest operand or result
  const auto grow = [&](const mt_tensor*& t, const auto&) {
    most = std::max(most, product(fact_of(t).shape));
  };
  for_each_input(op, args, grow);
  for_each_output(op, args, grow);
  return most * (computing_nodes(program) + (program.fold != nullptr ? 1 : 0));
}

double call_flops(const OpRecord& record, const OpInfo& op, const std::vector<Value>& args,
                  const std::vector<Value>& results) {
  if (record.cost.contains("flops")) {
    return evaluate(record.cost.at("flops"), facts_of(record, args, results));
  }
  if (op.num_programs == 0) return 0;
  double most = 0;
  for (const auto* values : {&args, &results}) {
    for (const Value& value : *values) {
      const Fact fact = fact_of(value);
      if (std::holds_alternative<Tensor>(value.variant()) && fact.present) {
        most = std::max(most, product(fact.shape));
      }
    }
  }
  const mt_program& program = *op.programs[0];
  return most * (computing_nodes(program) + (program.fold != nullptr ? 1 : 0));
}

Bytes call_bytes(const OpRecord& op, const std::vector<Value>& args,
                 const std::vector<Value>& results, bool inplace) {
  if (op.cost.contains("bytes")) {
    const double total = evaluate(op.cost.at("bytes"), facts_of(op, args, results));
    return {total / 2, total / 2};
  }
  Memory read, written;
  for (size_t i = 0; i < args.size(); ++i) {
    (i < op.args.size() && op.args[i].written ? written : read).add(args[i]);
  }
  for (const Value& value : results) {
    const auto* tensor = std::get_if<Tensor>(&value.variant());
    // A view of an operand moves nothing.
    if (tensor != nullptr && !inplace && (read.has(*tensor) || written.has(*tensor))) continue;
    written.add(value);
  }
  return {read.total(), written.total()};
}

}  // namespace mytorch::bench
