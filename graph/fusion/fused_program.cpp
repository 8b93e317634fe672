#include "graph/fusion/fused_program.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "dispatcher/table/fields.h"
#include "graph/fusion/loop_builder.h"

namespace mytorch::graph {
namespace {

// Returns whether an input has this kind of value.
bool is_input(const mt_fused_value& value) {
  return value.kind == MT_FUSED_INPUT || value.kind == MT_FUSED_TABLE;
}

}  // namespace

bool FusedOperand::operator==(const FusedOperand& other) const {
  return place.memory == other.place.memory && place.offset == other.place.offset &&
         size == other.size && stride == other.stride &&
         dtype_bits(tensor->dl.dtype) == dtype_bits(other.tensor->dl.dtype) &&
         strides == other.strides;
}

FusedOperand in_space(const LoopSpace& space, const TensorPlaces& places,
                      const LoopOperand& operand) {
  const auto at = places.find(operand.tensor);
  return {operand.tensor, at == places.end() ? TensorPlace{-1, 0} : at->second,
          strides_in(space, operand.shape, operand.strides), operand.size, operand.stride};
}

int32_t FusedProgram::append(int32_t kind, mt_dtype dtype, bool row) {
  values_.push_back({kind, row ? 1 : 0, dtype, 0, 0});
  return static_cast<int32_t>(values_.size()) - 1;
}

bool FusedProgram::is_row(const Dims& strides) const {
  if (space_.columns == 0) return false;
  return std::all_of(strides.end() - space_.inner(), strides.end(),
                     [](int64_t stride) { return stride == 0; });
}

int32_t FusedProgram::number(mt_dtype dtype, double number) {
  const auto [at, added] =
      numbers_.try_emplace({std::bit_cast<uint64_t>(number), dtype_bits(dtype)}, 0);
  if (added) {
    at->second = append(MT_FUSED_NUMBER, dtype, true);
    values_.back().number = number;
  }
  return at->second;
}

// Returns the value of an operand that a call reads, but for one that a call computes.
int32_t FusedProgram::value_of(const LoopOperand& operand) {
  if (operand.kind == LoopOperand::kNumber) return number(operand.dtype, operand.number);
  if (operand.kind == LoopOperand::kPosition) {
    if (position_ < 0) position_ = append(MT_FUSED_POSITION, operand.dtype, space_.columns == 1);
    return position_;
  }
  const bool table = operand.kind == LoopOperand::kTable;
  return input_value(table ? MT_FUSED_TABLE : MT_FUSED_INPUT, operand.dtype,
                     in_space(space_, places_, operand));
}

std::optional<FusedOperand> elements_of_table(const LoopSpace& space, const TensorPlaces& places,
                                              const LoopBody& body) {
  if (body.elements < 0) return std::nullopt;
  const LoopOperand& elements = body.operands[static_cast<size_t>(body.elements)];
  const LoopOperand& table = body.operands[static_cast<size_t>(body.table)];
  // The loop of the body are the rows.
  const LoopSpace rows = space_of(body.shape, 0);
  if (space.columns != table.size || space.rows() != rows.numel()) return std::nullopt;
  return in_space(space, places, elements);
}

int32_t FusedProgram::computed_table(const LoopBody& body) const {
  const std::optional<FusedOperand> elements = elements_of_table(space_, places_, body);
  if (!elements.has_value()) return -1;
  for (const auto& [operand, value] : current_) {
    if (operand == *elements && values_[static_cast<size_t>(value)].kind == MT_FUSED_RESULT) {
      return value;
    }
  }
  return -1;
}

std::optional<FusedOperand> FusedProgram::table_of(int32_t input) const {
  const auto before = std::count_if(values_.begin(), values_.begin() + input, is_input);
  FusedOperand table = inputs_[static_cast<size_t>(before)];
  int64_t count = 1;
  for (size_t d = space_.sizes.size(); count < space_.columns; count *= space_.sizes[d]) {
    --d;
    if (count == 1) table.stride = table.strides[d];
    if (table.strides[d] != table.stride * count) return std::nullopt;
    table.strides[d] = 0;
  }
  table.size = space_.columns;
  return table;
}

int32_t FusedProgram::selected(int32_t value, int32_t index, std::map<int32_t, int32_t>* known) {
  const mt_fused_value from = values_[static_cast<size_t>(value)];
  if (from.row != 0) return value;
  if (from.kind == MT_FUSED_POSITION) return index;
  if (const auto at = known->find(value); at != known->end()) return at->second;
  FusedCall call{"load", load_program(), from.dtype, {}, {}, {}};
  if (from.kind == MT_FUSED_INPUT) {
    std::optional<FusedOperand> table = table_of(value);
    if (!table.has_value()) return -1;
    call.inputs = {input_value(MT_FUSED_TABLE, from.dtype, *std::move(table)), index};
    call.results = {-1};
  } else {
    const auto made = std::find_if(calls_.begin(), calls_.end(), [&](const FusedCall& each) {
      return std::find(each.results.begin(), each.results.end(), value) != each.results.end();
    });
    if (made == calls_.end()) return -1;  // a table of which the row reads one element for each
    call = *made;
    for (int32_t& input : call.inputs) {
      input = selected(input, index, known);
      if (input < 0) return -1;
    }
  }
  const int32_t result = append(MT_FUSED_RESULT, from.dtype, true);
  for (int32_t& each : call.results)
    each = each == value || from.kind == MT_FUSED_INPUT ? result : -1;
  calls_.push_back(std::move(call));
  return (*known)[value] = result;
}

// Sets the value of a tensor that the program writes.
void FusedProgram::set_value(const LoopOperand& operand, int32_t value) {
  const FusedOperand output = in_space(space_, places_, operand);
  for (auto* list : {&current_, &outputs_}) {
    const auto known = std::find_if(list->begin(), list->end(),
                                    [&](const auto& each) { return each.first == output; });
    if (known == list->end()) {
      list->emplace_back(output, value);
    } else {
      known->second = value;
    }
  }
}

int32_t FusedProgram::input_value(int32_t kind, mt_dtype dtype, FusedOperand input) {
  for (const auto& [known, at] : current_) {
    if (known == input) return at;
  }
  const int32_t value = append(kind, dtype, is_row(input.strides));
  current_.emplace_back(input, value);
  inputs_.push_back(std::move(input));
  return value;
}

void FusedProgram::add(const LoopBody& body) {
  selects_ = selects_ || body.selects;
  std::vector<int32_t> computed(body.operands.size(), -1);
  const int32_t table = computed_table(body);
  for (const LoopCall& call : body.calls) {
    if (table < 0 || call.inputs[0] != body.table) {
      add_call(body, call, &computed);
      continue;
    }
    // Of what the program computes, the selected element is computed alone if it can be.
    std::map<int32_t, int32_t> known;
    const int32_t one = selected(table, computed[static_cast<size_t>(call.inputs[1])], &known);
    if (one < 0) {
      for (const LoopCall& each : body.computed) add_call(body, each, &computed);
    } else {
      set_value(body.operands[static_cast<size_t>(call.results[0])], one);
    }
  }
}

void FusedProgram::add_call(const LoopBody& body, const LoopCall& from,
                            std::vector<int32_t>* computed) {
  FusedCall call{from.name, from.program, from.compute, {}, from.scalars, {}};
  for (size_t i = 0; i < from.inputs.size(); ++i) {
    const auto at = static_cast<size_t>(from.inputs[i]);
    const LoopOperand& operand = body.operands[at];
    if ((*computed)[at] >= 0) {
      call.inputs.push_back((*computed)[at]);
    } else {
      call.inputs.push_back(value_of(operand));
    }
  }
  for (const int at : from.results) {
    if (at < 0) {
      call.results.push_back(-1);
      continue;
    }
    const LoopOperand& operand = body.operands[static_cast<size_t>(at)];
    const bool row = is_row(in_space(space_, places_, operand).strides);
    const int32_t value = append(MT_FUSED_RESULT, operand.dtype, row);
    call.results.push_back(value);
    if (operand.kind == LoopOperand::kTemporary) {
      (*computed)[static_cast<size_t>(at)] = value;
      continue;
    }
    set_value(operand, value);
  }
  calls_.push_back(std::move(call));
}

bool FusedProgram::writes_table() const {
  return std::any_of(inputs_.begin(), inputs_.end(), [&](const FusedOperand& input) {
    return input.size != 0 &&
           std::any_of(outputs_.begin(), outputs_.end(), [&](const auto& output) {
             return output.first.place.memory == input.place.memory;
           });
  });
}

void FusedProgram::remove_unused() {
  std::vector<bool> needed(values_.size());
  for (const auto& [operand, value] : outputs_) needed[static_cast<size_t>(value)] = true;
  for (size_t i = calls_.size(); i-- > 0;) {
    FusedCall& call = calls_[i];
    bool wanted = false;
    for (int32_t& result : call.results) {
      if (result >= 0 && !needed[static_cast<size_t>(result)]) result = -1;
      wanted = wanted || result >= 0;
    }
    if (!wanted) {
      calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    for (const int32_t value : call.inputs) needed[static_cast<size_t>(value)] = true;
  }
  // Inputs come first.
  std::vector<int32_t> place(values_.size(), -1);
  std::vector<mt_fused_value> kept;
  std::vector<FusedOperand> inputs;
  for (const bool first : {true, false}) {
    size_t input = 0;
    for (size_t i = 0; i < values_.size(); ++i) {
      const bool found = is_input(values_[i]);
      const size_t number = found ? input++ : 0;
      if (found != first || !needed[i]) continue;
      if (found) inputs.push_back(inputs_[number]);
      place[i] = static_cast<int32_t>(kept.size());
      kept.push_back(values_[i]);
    }
  }
  const auto renumber = [&](int32_t& value) {
    if (value >= 0) value = place[static_cast<size_t>(value)];
  };
  for (FusedCall& call : calls_) {
    for (int32_t& value : call.inputs) renumber(value);
    for (int32_t& value : call.results) renumber(value);
  }
  for (auto& [operand, value] : outputs_) renumber(value);
  values_ = std::move(kept);
  inputs_ = std::move(inputs);
  current_.clear();
  numbers_.clear();
}

std::string FusedProgram::name() const {
  constexpr size_t kNamed = 6;
  std::string name = "fused";
  for (size_t i = 0; i < std::min(calls_.size(), kNamed); ++i) {
    absl::StrAppend(&name, "_", calls_[i].name);
  }
  if (calls_.size() > kNamed) absl::StrAppend(&name, "_and_", calls_.size() - kNamed, "_more");
  return name;
}

}  // namespace mytorch::graph
