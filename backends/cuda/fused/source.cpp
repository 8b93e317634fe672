#include "backends/cuda/fused/source.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "backends/cuda/fused/text.h"
#include "backends/cuda/programs/key.h"
#include "cuda/nodes.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/fused.h"

namespace mytorch::cuda {
namespace {

constexpr size_t kMostNumbers = 64;  // in the parameters of a kernel

// Returns a number of a program that has a type, as one of a call.
mt_scalar scalar_of(const FusedSource::Value& value) {
  mt_scalar scalar{};
  scalar.kind = value.type >= kFloat16 ? MT_SCALAR_FLOAT : MT_SCALAR_INT;
  if (value.type >= kFloat16) {
    scalar.v.d = value.number;
  } else {
    scalar.v.i = static_cast<int64_t>(value.number);
  }
  return scalar;
}

// Returns whether the compiler makes other code for a number than for another one.
bool makes_code(const mt_scalar& scalar, const Program& program,
                const Program::Argument& argument) {
  if (argument.type == MT_TYPE_BOOL || scalar.kind == MT_SCALAR_BOOL) return true;
  const double value = scalar.kind == MT_SCALAR_INT ? static_cast<double>(scalar.v.i) : scalar.v.d;
  if (value == 0 || value == 1 || value == -1) return true;
  return std::any_of(program.nodes.begin(), program.nodes.end(), [&](const mt_node& node) {
    return std::string_view(node.op) == "pow" && node.a[1] == argument.node;
  });
}

}  // namespace

FusedSource::Number FusedSource::number(const mt_scalar& scalar, const Program& program,
                                        const Program::Argument& argument, Code compute) {
  const Program::Argument field{0, 0, argument.type, MT_FIELD_SCALAR};
  const Number fixed{number_bits(&scalar, field, compute)};
  if (makes_code(scalar, program, argument)) return fixed;
  const std::string_view type = value_name(argument.type, compute);
  const auto found = std::find_if(numbers.begin(), numbers.end(), [&](const Parameter& each) {
    return each.bits == fixed.bits && each.type == type;
  });
  if (found == numbers.end()) {
    if (numbers.size() == kMostNumbers) return fixed;
    numbers.push_back({value_name(argument.type, compute), fixed.bits});
    return {fixed.bits, static_cast<int>(numbers.size()) - 1};
  }
  return {fixed.bits, static_cast<int>(found - numbers.begin())};
}

void FusedSource::add_numbers(const mt_fused_call& from, Call* call) {
  const Program& program = call->program;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Value& value = values[static_cast<size_t>(call->inputs[i])];
    call->input_numbers.push_back(
        value.kind == MT_FUSED_NUMBER
            ? number(scalar_of(value), program, program.inputs[i], call->compute)
            : Number{});
  }
  for (size_t i = 0; i < program.scalars.size(); ++i) {
    call->scalars.push_back(number(from.scalars[i], program, program.scalars[i], call->compute));
  }
}

void FusedSource::describe(const mt_fused_program& program) {
  structure = name + '\0';
  const auto add = [&](auto value) {
    structure.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  add(exact);
  add(num_inputs);
  for (const Value& value : values) {
    add(value.kind);
    add(value.row);
    add(value.type);
  }
  const auto add_number = [&](const Number& each) {
    add(each.parameter);
    if (each.parameter < 0) add(each.bits);
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    structure += contents_of(*sdk::fused_call(program, static_cast<int32_t>(i)).program);
    add(calls[i].compute);
    for (const int32_t value : calls[i].inputs) add(value);
    for (const int32_t value : calls[i].results) add(value);
    for (const Number& each : calls[i].input_numbers) add_number(each);
    for (const Number& each : calls[i].scalars) add_number(each);
  }
  for (const int32_t value : outputs) add(value);
}

FusedSource::FusedSource(const mt_fused_program& program)
    : name(program.name),
      exact((program.flags & MT_FUSED_EXACT) != 0),
      num_inputs(program.num_inputs) {
  if (program.num_inputs + program.num_outputs > Key::kWords * 8 - fused_key::kOperands) {
    throw sdk::Declined{};
  }
  for (int32_t i = 0; i < program.num_values; ++i) {
    const mt_fused_value& value = sdk::fused_value(program, i);
    values.push_back({value.kind, value.row != 0, code_of(value.dtype), value.number});
    places = places || value.kind == MT_FUSED_TABLE || value.kind == MT_FUSED_POSITION;
  }
  for (int32_t i = 0; i < program.num_calls; ++i) {
    const mt_fused_call& from = sdk::fused_call(program, i);
    Call call{Program(*from.program), code_of(from.compute), {}, {}, {}, {}};
    if (!call.program.takes(call.compute) || call.program.divides(call.compute)) {
      throw sdk::Declined{};
    }
    constexpr std::string_view kFolds[] = {"", "sum", "prod", "max", "min", "welford", "logsumexp"};
    if (std::find(std::begin(kFolds), std::end(kFolds), call.program.fold) == std::end(kFolds)) {
      throw sdk::Declined{};
    }
    call.compute = call.program.computes_in(call.compute);
    call.inputs.assign(from.inputs, from.inputs + call.program.inputs.size());
    add_numbers(from, &call);
    call.results.assign(from.results, from.results + call.program.outputs.size());
    int phase = 0;
    for (const int32_t value : call.inputs) {
      phase = std::max(phase, values[static_cast<size_t>(value)].phase);
    }
    for (const int32_t result : call.results) {
      if (result < 0) continue;
      values[static_cast<size_t>(result)].phase = phase + (call.reduces() ? 1 : 0);
      values[static_cast<size_t>(result)].call = i;
    }
    calls.push_back(std::move(call));
  }
  rows = sdk::has_rows(program);
  outputs.assign(program.outputs, program.outputs + program.num_outputs);
  for (const Value& value : values) phases = std::max(phases, value.phase);
  if (rows) choose_kept();
  describe(program);
}

FusedSource::Phase FusedSource::phase(int number, bool keeps) const {
  Phase found;
  if (number == phases) {
    for (const int32_t output : outputs) {
      if (!values[static_cast<size_t>(output)].row) found.targets.push_back(output);
    }
  }
  for (const Call& call : calls) {
    if (!call.reduces() || number == phases) continue;
    int needs = 0;
    for (const int32_t at : call.inputs) {
      needs = std::max(needs, values[static_cast<size_t>(at)].phase);
    }
    if (needs == number) {
      found.targets.insert(found.targets.end(), call.inputs.begin(), call.inputs.end());
    }
  }
  std::vector<bool> seen(values.size()), needed(calls.size());
  std::vector<int32_t> open = found.targets;
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    const Value& value = values[static_cast<size_t>(at)];
    if (value.row || value.is_table() || value.kind == MT_FUSED_POSITION ||
        seen[static_cast<size_t>(at)]) {
      continue;
    }
    seen[static_cast<size_t>(at)] = true;
    if (value.call < 0) {
      found.inputs.push_back(at);
    } else if (keeps && value.kept >= 0 && value.kept < number) {
      found.kept.push_back(at);
    } else {
      needed[static_cast<size_t>(value.call)] = true;
      const auto& inputs = calls[static_cast<size_t>(value.call)].inputs;
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
  }
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i]) found.calls.push_back(static_cast<int>(i));
  }
  std::sort(found.inputs.begin(), found.inputs.end());
  std::sort(found.kept.begin(), found.kept.end());
  return found;
}

void FusedSource::choose_kept() {
  std::vector<int> first(calls.size(), -1);
  for (int number = 0; number <= phases; ++number) {
    for (const int at : phase(number, false).calls) {
      int& begin = first[static_cast<size_t>(at)];
      if (begin < 0) {
        begin = number;
        continue;
      }
      const Call& call = calls[static_cast<size_t>(at)];
      const bool expensive =
          std::any_of(call.program.nodes.begin(), call.program.nodes.end(), [&](const auto& node) {
            return std::find(std::begin(kCostlyOps), std::end(kCostlyOps), node.op) !=
                   std::end(kCostlyOps);
          });
      for (const int32_t result : call.results) {
        if (expensive && result >= 0) values[static_cast<size_t>(result)].kept = begin;
      }
    }
  }
}

std::vector<bool> inputs_that_stay(const FusedSource& source) {
  std::vector<int> reads(static_cast<size_t>(source.num_inputs), 0);
  for (int p = 0; p <= source.phases; ++p) {
    for (const int32_t v : source.phase(p, true).inputs) ++reads[static_cast<size_t>(v)];
  }
  std::vector<bool> stays;
  for (const int count : reads) stays.push_back(count > 1);
  return stays;
}

}  // namespace mytorch::cuda
