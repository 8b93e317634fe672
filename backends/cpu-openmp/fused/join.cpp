#include "backends/cpu-openmp/fused/join.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "backends/cpu-openmp/fused/machine_code.h"
#include "mytorch/backend/dtype.h"

namespace mytorch::cpu {
namespace {

const mt_dtype kFloat = sdk::dtype_of<float>;

struct Named {
  std::string_view name;
  Operation::Code code;
  int arity;
};
constexpr Named kOperations[] = {
    {"add", Operation::kAdd, 2},         {"sub", Operation::kSub, 2},
    {"mul", Operation::kMul, 2},         {"div", Operation::kDiv, 2},
    {"maximum", Operation::kMaximum, 2}, {"minimum", Operation::kMinimum, 2},
    {"neg", Operation::kNeg, 1},         {"abs", Operation::kAbs, 1},
    {"sign", Operation::kSign, 1},       {"sqrt", Operation::kSqrt, 1},
    {"rsqrt", Operation::kRsqrt, 1},     {"floor", Operation::kFloor, 1},
    {"ceil", Operation::kCeil, 1},       {"trunc", Operation::kTrunc, 1},
    {"round", Operation::kRound, 1},     {"eq", Operation::kEq, 2},
    {"ne", Operation::kNe, 2},           {"lt", Operation::kLt, 2},
    {"le", Operation::kLe, 2},           {"gt", Operation::kGt, 2},
    {"ge", Operation::kGe, 2},           {"isnan", Operation::kIsnan, 1},
    {"logical_and", Operation::kAnd, 2}, {"logical_or", Operation::kOr, 2},
    {"logical_xor", Operation::kXor, 2}, {"logical_not", Operation::kNot, 1},
};

// Consecutive steps as one expression.
class Run {
 public:
  explicit Run(std::span<const Constant> constants) : constants_(constants) {}

  // Appends a step. Returns false, and changes nothing, if the expression cannot hold it.
  bool add(const Step& step) {
    const size_t operations = expression_.operations.size(), inputs = inputs_.size();
    const size_t given = given_.size();
    std::vector<int32_t> results(step.results.size(), -1);
    const bool fits =
        (step.kind == Step::kConvert ? convert(step, &results[0]) : body(step, &results)) &&
        inputs_.size() <= kMaxPlaces;
    if (!fits) {
      expression_.operations.resize(operations);
      inputs_.resize(inputs);
      given_.resize(given);
      std::erase_if(leaves_, [&](const auto& leaf) {
        return leaf.second >= static_cast<int32_t>(operations);
      });
      return false;
    }
    for (size_t k = 0; k < results.size(); ++k) {
      if (results[k] >= 0) made_[step.results[k].index] = {results[k], step.results[k]};
    }
    ++steps_;
    return true;
  }
  // Returns whether machine code saves a tile: a single step has a loop that is as good.
  bool pays() const { return steps_ > 1 || (steps_ == 1 && reads_number_); }

  // Returns the step that computes the tiles for which `read` holds, if there is one.
  template <class F>
  std::optional<Step> joined(const F& read) {
    Step step;
    step.kind = Step::kLoop;
    step.inputs = inputs_;
    for (const auto& [tile, value] : made_) {
      if (!read(tile)) continue;
      expression_.results.push_back(value.first);
      step.results.push_back(value.second);
    }
    if (step.results.empty() || step.results.size() > kMaxPlaces) return std::nullopt;
    contract();
    step.code = machine_code(expression_);
    if (step.code == nullptr) return std::nullopt;
    step.loop = *step.code;
    const std::shared_ptr<float[]> given(new float[given_.size()]);
    std::copy(given_.begin(), given_.end(), given.get());
    step.given = given;
    step.scalars.self = step.given.get();
    return step;
  }
  int64_t cost() const {
    return static_cast<int64_t>(expression_.operations.size() / 2 + inputs_.size() + 1);
  }

 private:
  int32_t append(Operation operation) {
    expression_.operations.push_back(operation);
    return static_cast<int32_t>(expression_.operations.size()) - 1;
  }
  int32_t number(float value) {
    Operation operation{Operation::kNumber};
    operation.number = value;
    return append(operation);
  }
  // A number of the program, with which others share the code. Equal ones share a register.
  int32_t given(float value) {
    const auto same = [value](float other) {
      return std::bit_cast<uint32_t>(other) == std::bit_cast<uint32_t>(value);
    };
    const auto found = std::find_if(given_.begin(), given_.end(), same);
    Operation operation{Operation::kParameter};
    operation.parameter = static_cast<int32_t>(found - given_.begin());
    if (found == given_.end()) given_.push_back(value);
    return append(operation);
  }
  const Operation& at(int32_t value) const {
    return expression_.operations[static_cast<size_t>(value)];
  }
  bool mask(int32_t value) const { return is_mask(at(value).code); }

  // Returns the value at a place, or -1.
  int32_t operand(const Place& place) {
    if (place.kind == Place::kSlot) return -1;
    if (place.kind == Place::kTile) {
      if (const auto found = made_.find(place.index); found != made_.end()) {
        return found->second.first;
      }
      for (const Constant& constant : constants_) {
        if (constant.tile != place.index || constant.slot >= 0) continue;
        reads_number_ = true;
        return sdk::same_dtype(place.type, kFloat) ? given(constant.value.f32) : -1;
      }
    }
    Operation leaf{Operation::kInput};
    if (sdk::is_bool(place.type)) {
      leaf.code = Operation::kBools;
    } else if (sdk::same_dtype(place.type, sdk::dtype_of<sdk::BFloat16>)) {
      leaf.code = Operation::kBfloat16;
    } else if (sdk::same_dtype(place.type, sdk::dtype_of<sdk::Half>)) {
      leaf.code = Operation::kFloat16;
    } else if (!sdk::same_dtype(place.type, kFloat)) {
      return -1;
    }
    const std::pair key(static_cast<int>(place.kind), place.index);
    if (const auto found = leaves_.find(key); found != leaves_.end()) {
      return at(found->second).code == leaf.code ? found->second : -1;
    }
    leaf.input = static_cast<int32_t>(inputs_.size());
    inputs_.push_back(place);
    return leaves_[key] = append(leaf);
  }

  int32_t from_mask(int32_t a) { return append({Operation::kFromMask, a}); }
  int32_t to_mask(int32_t a) { return append({Operation::kNe, a, number(0)}); }

  bool convert(const Step& step, int32_t* result) {
    if (step.then != nullptr) return false;
    const bool logical = sdk::is_bool(step.results[0].type);
    if (!logical && !sdk::same_dtype(step.results[0].type, kFloat)) return false;
    const int32_t from = operand(step.inputs[0]);
    if (from < 0) return false;
    *result = mask(from) == logical ? from : logical ? to_mask(from) : from_mask(from);
    return true;
  }

  bool body(const Step& step, std::vector<int32_t>* results) {
    if (step.kind != Step::kLoop || step.program == nullptr) return false;
    const mt_program& program = *step.program;
    std::vector<int32_t> values(static_cast<size_t>(program.num_nodes), -1);
    for (size_t k = 0; k < results->size(); ++k) {
      if (step.results[k].index < 0) continue;
      if (step.results[k].kind != Place::kTile) return false;
      for (int32_t i = 0; i < program.num_outputs; ++i) {
        if (program.outputs[i].offset != step.body->outputs[k].offset) continue;
        (*results)[k] = node(step, program.outputs[i].node, values);
      }
      const int32_t found = (*results)[k];
      if (found < 0 || mask(found) != sdk::is_bool(step.results[k].type)) return false;
    }
    return true;
  }

  // Returns the value of a node, or -1.
  int32_t node(const Step& step, int32_t index, std::vector<int32_t>& values) {
    int32_t& value = values[static_cast<size_t>(index)];
    if (value < 0) value = new_node(step, step.program->nodes[index], values);
    return value;
  }
  int32_t new_node(const Step& step, const mt_node& of, std::vector<int32_t>& values) {
    if (of.type == MT_TYPE_INDEX) return -1;
    const std::string_view name = of.op;
    const bool logical = of.type == MT_TYPE_BOOL;
    if (name == "input") {
      for (int32_t i = 0; i < step.body->num_inputs; ++i) {
        if (step.body->inputs[i].offset != of.offset) continue;
        const int32_t found = operand(step.inputs[static_cast<size_t>(i)]);
        return found >= 0 && mask(found) == logical ? found : -1;
      }
      return -1;
    }
    if (name == "scalar" || name == "const") {
      if (logical) return -1;
      if (name == "const") return number(static_cast<float>(of.value));
      for (int32_t i = 0; i < step.body->num_scalars; ++i) {
        if (step.body->scalars[i].offset == of.offset) return given(step.scalars.value[i].f32);
      }
      return -1;
    }
    int32_t a[3] = {-1, -1, -1};
    for (int k = 0; k < 3; ++k) {
      if (of.a[k] >= 0 && (a[k] = node(step, of.a[k], values)) < 0) return -1;
    }
    if (name == "cast") {
      if (mask(a[0]) == logical) return a[0];
      return logical ? to_mask(a[0]) : from_mask(a[0]);
    }
    if (name == "where") {
      if (logical || !mask(a[0]) || mask(a[1]) || mask(a[2])) return -1;
      return append({Operation::kWhere, a[0], a[1], a[2]});
    }
    const auto* const found = std::find_if(std::begin(kOperations), std::end(kOperations),
                                           [name](const Named& each) { return each.name == name; });
    if (found == std::end(kOperations)) return -1;
    const bool of_masks = found->code >= Operation::kAnd;
    for (int k = 0; k < found->arity; ++k) {
      if (a[k] < 0 || mask(a[k]) != of_masks) return -1;
    }
    if (logical != is_mask(found->code)) return -1;
    return append({found->code, a[0], a[1], a[2]});
  }

  // Sums of products that nothing else uses are rounded once.
  void contract() {
    std::vector<int> uses(expression_.operations.size(), 0);
    for (const Operation& each : expression_.operations) {
      for (const int32_t operand : {each.a, each.b, each.c}) {
        if (operand >= 0) ++uses[static_cast<size_t>(operand)];
      }
    }
    for (const int32_t result : expression_.results) ++uses[static_cast<size_t>(result)];
    const auto product = [&](int32_t value) {
      return at(value).code == Operation::kMul && uses[static_cast<size_t>(value)] == 1;
    };
    for (Operation& each : expression_.operations) {
      if (each.code != Operation::kAdd && each.code != Operation::kSub) continue;
      const bool sum = each.code == Operation::kAdd;
      if (product(each.a)) {
        const Operation& of = at(each.a);
        each = {sum ? Operation::kMulAdd : Operation::kMulSub, of.a, of.b, each.b};
      } else if (product(each.b)) {
        const Operation& of = at(each.b);
        each = {sum ? Operation::kMulAdd : Operation::kNegMulAdd, of.a, of.b, each.a};
      }
    }
  }

  const std::span<const Constant> constants_;
  Expression expression_;
  std::vector<Place> inputs_;
  std::vector<float> given_;
  int steps_ = 0;
  bool reads_number_ = false;
  std::map<std::pair<int, int>, int32_t> leaves_;  // by the kind and number of a place
  std::map<int, std::pair<int32_t, Place>> made_;  // by tile
};

}  // namespace

int64_t join_steps(std::vector<Step>& steps, std::span<const Constant> constants,
                   const std::vector<bool>& kept, bool exact) {
  int64_t cost = 0;
  const auto cost_of = [](const Step& step) {
    return step.body != nullptr ? step.body->cost + int64_t{1} : int64_t{2};
  };
  if (exact || !makes_machine_code()) {
    for (const Step& step : steps) cost += cost_of(step);
    return cost;
  }
  std::vector<size_t> last(kept.size(), 0);  // the step that reads a tile last, plus 1
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const Place& place : steps[i].inputs) {
      if (place.kind == Place::kTile) last[static_cast<size_t>(place.index)] = i + 1;
    }
  }
  std::vector<Step> left;
  for (size_t begin = 0; begin < steps.size();) {
    Run run(constants);
    size_t end = begin;
    while (end < steps.size() && run.add(steps[end])) ++end;
    const auto read = [&](int tile) {
      return kept[static_cast<size_t>(tile)] || last[static_cast<size_t>(tile)] > end;
    };
    std::optional<Step> joined;
    if (run.pays()) joined = run.joined(read);
    if (joined) {
      cost += run.cost();
      left.push_back(std::move(*joined));
    } else {
      end = std::max(end, begin + 1);
      for (size_t i = begin; i < end; ++i) {
        cost += cost_of(steps[i]);
        left.push_back(std::move(steps[i]));
      }
    }
    begin = end;
  }
  steps = std::move(left);
  return cost;
}

}  // namespace mytorch::cpu
