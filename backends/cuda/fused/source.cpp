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
    Call call{Program(*from.program), code_of(from.compute), {}, {}, {}};
    if (!call.program.takes(call.compute) || call.program.divides(call.compute)) {
      throw sdk::Declined{};
    }
    constexpr std::string_view kFolds[] = {"", "sum", "prod", "max", "min", "welford", "logsumexp"};
    if (std::find(std::begin(kFolds), std::end(kFolds), call.program.fold) == std::end(kFolds)) {
      throw sdk::Declined{};
    }
    call.compute = call.program.computes_in(call.compute);
    call.inputs.assign(from.inputs, from.inputs + call.program.inputs.size());
    call.scalars.assign(from.scalars, from.scalars + call.program.scalars.size());
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
