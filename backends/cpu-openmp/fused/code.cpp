#include "backends/cpu-openmp/fused/code.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "backends/cpu-openmp/common/index_range.h"
#include "backends/cpu-openmp/pointwise/compute_type.h"
#include "backends/cpu-openmp/pointwise/programs.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/fused.h"

namespace mytorch::cpu {
namespace {

bool is_half(mt_dtype dtype) { return sdk::is_floating(dtype) && dtype.bits == 16; }

simd::ConvertFn conversion(mt_dtype from, mt_dtype to) {
  if (sdk::same_dtype(from, to)) return nullptr;
  const simd::ConvertFn convert = simd::get_convert(from, to);
  if (convert == nullptr) throw sdk::Declined{};
  return convert;
}

const PointwiseOp* find_op(std::string_view name) {
  for (const PointwiseOp& op : programs().pointwise) {
    if (name == op.name) return &op;
  }
  return nullptr;
}

bool is(const mt_node& node, std::string_view op) { return op == node.op; }

// Returns the operation that computes the first output of a program.
std::string_view operation_of(const mt_program& program) {
  return program.nodes[program.outputs[0].node].op;
}

// Stores the elements of a table with these indices, or of a row with the one index.
void load(const Table& table, const int64_t* indices, bool single, int64_t column, int64_t itemsize,
          void* to, int64_t n) {
  const char* from = table.data + column * table.inner;
  if (single) {
    from += indices[0] * table.stride;
    if (table.inner == itemsize) {
      std::memcpy(to, from, static_cast<size_t>(n * itemsize));
    } else {
      gather_run(from, table.inner, n, itemsize, to);
    }
    return;
  }
  sdk::visit_itemsize(itemsize, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(static_cast<T*>(to) + i, from + indices[i] * table.stride + i * table.inner,
                  sizeof(T));
    }
  });
}

}  // namespace

mt_dtype tile_type(mt_dtype dtype) {
  return sdk::is_bool(dtype) ? kBoolType : kComputeDtype[compute_type_of(dtype)];
}

TileCode::TileCode(const mt_fused_program& program)
    : exact_((program.flags & MT_FUSED_EXACT) != 0) {
  for (int32_t i = 0; i < program.num_values; ++i) {
    values_.push_back(sdk::fused_value(program, i));
    places_.emplace_back();
    if (i < program.num_inputs) {
      places_.back() = {Place::kInput, i, tile_type(values_.back().dtype)};
    }
  }
  begin_stage();
}

// Returns the inner loops of a call's record, which eager calls use; those of records without are
// made from the nodes.
const PointwiseProgram& TileCode::program_of(const mt_fused_call& call) {
  const mt_program& program = *call.program;
  const bool narrow = !sdk::is_floating(call.compute) && is_narrow(call.compute);
  if (const PointwiseOp* op = find_op(program.name);
      op != nullptr && program.variant < static_cast<uint32_t>(op->num_variants)) {
    const PointwiseProgram& found = op->variants[program.variant];
    if (found.loops.fn[compute_type_of(call.compute)] != nullptr && (!narrow || found.narrow)) {
      return found;
    }
  }
  return made
      .emplace_back(program, call.compute,
                    std::span(program.outputs, static_cast<size_t>(program.num_outputs)))
      .program();
}

Place TileCode::new_place(mt_dtype type) {
  if (in_slots) return {Place::kSlot, num_slots++, type};
  return {Place::kTile, num_tiles++, type};
}

Place TileCode::converted(const Place& from, mt_dtype through, mt_dtype to) {
  Step step;
  if (sdk::same_dtype(through, to)) {
    step.convert = conversion(from.type, to);
  } else {
    // Through a narrower type, even from and to the same one: the values are rounded, or wrap.
    step.convert = conversion(from.type, through);
    step.then = conversion(through, to);
  }
  if (step.convert == nullptr) return from;
  const Place result = new_place(to);
  step.inputs = {from};
  step.results = {result};
  steps->push_back(std::move(step));
  cost += 2;
  return result;
}

Place TileCode::constant(double value, mt_dtype compute, mt_dtype type) {
  mt_scalar scalar{};
  scalar.kind = MT_SCALAR_FLOAT;
  scalar.v.d = value;
  if (!sdk::is_floating(compute)) {
    scalar.kind = MT_SCALAR_INT;
    scalar.v.i = static_cast<int64_t>(value);
  }
  Number number{};
  if (sdk::is_bool(type)) {
    number.i64 = value != 0 ? 1 : 0;
  } else {
    number = number_of(&scalar, {0, MT_FIELD_SCALAR}, compute);
  }
  for (const Constant& known : constants) {
    if (known.slot < 0 && sdk::same_dtype(known.type, type) && known.value.i64 == number.i64) {
      return {Place::kTile, known.tile, type};
    }
  }
  constants.push_back({num_tiles, type, number});
  return {Place::kTile, num_tiles++, type};
}

Place TileCode::as_type(int32_t index, mt_dtype compute, int32_t type) {
  const mt_fused_value& from = value(index);
  const bool logical = type == MT_TYPE_BOOL;
  const mt_dtype to = logical ? kBoolType : kComputeDtype[compute_type_of(compute)];
  if (from.kind == MT_FUSED_NUMBER) return constant(from.number, compute, to);
  if (from.kind == MT_FUSED_POSITION) {
    const Place here = add_step(Step::kPosition, sdk::dtype_of<int64_t>).results[0];
    return converted(here, to, to);
  }
  Place operand = place(index);
  if (!in_slots && operand.kind == Place::kSlot) {
    int& tile = spread_[static_cast<size_t>(index)];
    if (tile < 0) {
      tile = num_tiles++;
      constants.push_back({tile, operand.type, {}, operand.index});
    }
    operand = {Place::kTile, tile, operand.type};
  }
  if (logical || sdk::same_dtype(from.dtype, compute) || !is_narrow(compute)) {
    return converted(operand, to, to);
  }
  return converted(operand, compute, to);
}

std::vector<Place> TileCode::add_loop(const PointwiseProgram& body, const mt_fused_call& call,
                                      std::vector<Place> inputs, const std::vector<bool>& wanted) {
  const mt_program& program = *call.program;
  const ComputeType compute_type = compute_type_of(call.compute);
  Step step;
  step.kind = Step::kLoop;
  step.loop = body.loops.fn[compute_type];
  if (step.loop == nullptr || body.num_scalars > kMaxScalars) throw sdk::Declined{};
  int found = 0;
  for (int32_t k = 0, n = 0; k < program.num_nodes; ++k) {
    if (!is(program.nodes[k], "scalar")) continue;
    const mt_scalar& number = call.scalars[n++];
    for (int32_t i = 0; i < body.num_scalars; ++i) {
      if (body.scalars[i].offset != program.nodes[k].offset) continue;
      step.scalars.value[i] = number_of(&number, {0, MT_FIELD_SCALAR}, call.compute);
      ++found;
    }
  }
  if (found != body.num_scalars) throw sdk::Declined{};
  if (sdk::is_bool(call.compute)) step.scalars.not_mask = 1;
  step.scalars.self = body.self;
  step.inputs = std::move(inputs);
  for (int32_t i = 0; i < body.num_outputs; ++i) {
    const bool logical = body.outputs[i].type == MT_TYPE_BOOL;
    step.results.push_back(wanted[static_cast<size_t>(i)]
                               ? new_place(logical ? kBoolType : kComputeDtype[compute_type])
                               : Place{});
  }
  if (compute_type == kFloat32 && program.fold == nullptr) {
    step.program = &program;
    step.body = &body;
  }
  cost += body.cost + 1;
  steps->push_back(std::move(step));
  return steps->back().results;
}

Place TileCode::output(int32_t at) {
  const Place from = place(at);
  if (from.kind != Place::kInput) return from;
  Step step;
  step.convert = simd::get_convert(from.type, from.type);
  if (step.convert == nullptr) throw sdk::Declined{};
  step.inputs = {from};
  step.results = {new_place(from.type)};
  steps->push_back(std::move(step));
  return steps->back().results[0];
}

void TileCode::set_value(int32_t at, const Place& from) {
  const mt_dtype dtype = value(at).dtype;
  const bool keeps = is_half(dtype) && !exact_ && sdk::same_dtype(from.type, sdk::dtype_of<float>);
  place(at) = keeps ? from : converted(from, dtype, tile_type(dtype));
}

std::vector<Place> TileCode::inputs_of(const PointwiseProgram& body, const mt_fused_call& call) {
  const mt_program& program = *call.program;
  std::vector<Place> inputs;
  for (int32_t i = 0; i < body.num_inputs; ++i) {
    int input = 0, found = -1;
    for (int32_t k = 0; k < program.num_nodes; ++k) {
      if (!is(program.nodes[k], "input")) continue;
      if (program.nodes[k].offset == body.inputs[i].offset) found = input;
      ++input;
    }
    if (found < 0) throw sdk::Declined{};
    inputs.push_back(as_type(call.inputs[found], call.compute, body.inputs[i].type));
  }
  return inputs;
}

Step& TileCode::add_step(Step::Kind kind, mt_dtype type) {
  Step& step = steps->emplace_back();
  step.kind = kind;
  step.results = {new_place(type)};
  cost += 2;
  return step;
}

void TileCode::add_bound(const mt_fused_call& call) {
  const Place index = as_type(call.inputs[0], call.compute, MT_TYPE_INDEX);
  Step& step = add_step(Step::kBound, sdk::dtype_of<int64_t>);
  step.inputs = {index};
  step.name = call.program->name;
  step.size = call.scalars[0].v.i;
  step.number = call.scalars[1].v.i;
  place(call.results[0]) = step.results[0];
}

void TileCode::add_load(const mt_fused_call& call) {
  const mt_dtype dtype = value(call.inputs[0]).dtype;
  Step& step = add_step(Step::kLoad, dtype);
  step.inputs = {place(call.inputs[1])};
  step.table = call.inputs[0];
  const Place loaded = step.results[0];
  place(call.results[0]) = converted(loaded, tile_type(dtype), tile_type(dtype));
}

void TileCode::add_call(const mt_fused_call& call) {
  const mt_program& program = *call.program;
  if (operation_of(program) == "bound") return add_bound(call);
  if (operation_of(program) == "load") return add_load(call);
  if (program.num_nodes == 1) {  // each result is a copy
    const bool logical = program.nodes[0].type == MT_TYPE_BOOL || sdk::is_bool(call.compute);
    const Place from =
        as_type(call.inputs[0], call.compute, logical ? MT_TYPE_BOOL : MT_TYPE_COMPUTE);
    for (int32_t i = 0; i < program.num_outputs; ++i) {
      if (call.results[i] >= 0) set_value(call.results[i], from);
    }
    return;
  }
  const PointwiseProgram& body = program_of(call);
  std::vector<Place> inputs = inputs_of(body, call);
  std::vector<int32_t> results;
  std::vector<bool> wanted;
  for (int32_t i = 0; i < body.num_outputs; ++i) {
    int32_t result = -1;
    for (int32_t k = 0; k < program.num_outputs; ++k) {
      if (program.outputs[k].offset == body.outputs[i].offset) result = call.results[k];
    }
    results.push_back(result);
    wanted.push_back(result >= 0);
  }
  const std::vector<Place> made_here = add_loop(body, call, std::move(inputs), wanted);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] >= 0) set_value(results[i], made_here[i]);
  }
}

void drop_unused(std::vector<Constant>& constants, const std::vector<Step>& steps,
                 const std::vector<bool>& kept) {
  std::vector<bool> read = kept;
  for (const Step& step : steps) {
    for (const Place& place : step.inputs) {
      if (place.kind == Place::kTile) read[static_cast<size_t>(place.index)] = true;
    }
  }
  std::erase_if(constants, [&](const Constant& constant) {
    return !read[static_cast<size_t>(constant.tile)];
  });
}

int reuse_tiles(std::vector<Step>& steps, std::vector<Constant>& constants,
                const std::vector<Place*>& outputs, int num_tiles) {
  std::vector<size_t> last(static_cast<size_t>(num_tiles), 0);
  const auto use = [&](const Place& place, size_t at) {
    if (place.kind == Place::kTile) last[static_cast<size_t>(place.index)] = at;
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const Place& place : steps[i].inputs) use(place, i);
  }
  for (const Place* place : outputs) use(*place, steps.size());
  std::vector<int> tile(static_cast<size_t>(num_tiles), -1);
  std::vector<bool> constant(static_cast<size_t>(num_tiles), false);
  int count = 0;
  for (Constant& each : constants) {
    constant[static_cast<size_t>(each.tile)] = true;
    tile[static_cast<size_t>(each.tile)] = count;
    each.tile = count++;
  }
  std::vector<int> unused;
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    for (Place& result : step.results) {
      if (result.kind != Place::kTile || result.index < 0) continue;
      const auto value = static_cast<size_t>(result.index);
      if (unused.empty()) {
        tile[value] = count++;
      } else {
        tile[value] = unused.back();
        unused.pop_back();
      }
      result.index = tile[value];
    }
    for (Place& place : step.inputs) {
      if (place.kind != Place::kTile) continue;
      const auto value = static_cast<size_t>(place.index);
      place.index = tile[value];
      if (last[value] != i || constant[value]) continue;
      last[value] = SIZE_MAX;  // an operand may occur twice
      unused.push_back(tile[value]);
    }
  }
  for (Place* place : outputs) {
    if (place->kind == Place::kTile) place->index = tile[static_cast<size_t>(place->index)];
  }
  return count;
}

bool run_steps(const std::vector<Step>& steps, const Memory& memory, int64_t n) {
  for (const Step& step : steps) {
    switch (step.kind) {
      case Step::kConvert: {
        void* to = memory.at(step.results[0]);
        if (step.then == nullptr) {
          step.convert(memory.at(step.inputs[0]), to, n);
        } else {
          alignas(64) char between[kMaxWidth * 4];
          step.convert(memory.at(step.inputs[0]), between, n);
          step.then(between, to, n);
        }
        break;
      }
      case Step::kLoop: {
        const void* in[kMaxPlaces];
        void* out[kMaxPlaces];
        for (size_t k = 0; k < step.inputs.size(); ++k) in[k] = memory.at(step.inputs[k]);
        for (size_t k = 0; k < step.results.size(); ++k) {
          out[k] = step.results[k].index < 0 ? nullptr : memory.at(step.results[k]);
        }
        if (!step.loop(in, out, step.scalars, n)) return false;
        break;
      }
      case Step::kBound: {
        const auto* indices = static_cast<const int64_t*>(memory.at(step.inputs[0]));
        auto* to = static_cast<int64_t*>(memory.at(step.results[0]));
        for (int64_t i = 0; i < n; ++i) {
          if (!in_range(indices[i], step.size)) {
            *memory.bad_index = {&step, indices[i]};
            return false;
          }
          to[i] = indices[i];
        }
        break;
      }
      case Step::kLoad: {
        const Place& index = step.inputs[0];
        load(memory.tables[step.table], static_cast<const int64_t*>(memory.at(index)),
             index.kind == Place::kSlot, memory.column, sdk::itemsize(step.results[0].type),
             memory.at(step.results[0]), n);
        break;
      }
      case Step::kPosition: {
        auto* to = static_cast<int64_t*>(memory.at(step.results[0]));
        for (int64_t i = 0; i < n; ++i) to[i] = memory.column + i;
        break;
      }
    }
  }
  return true;
}

void fill_constants(std::span<const Constant> constants, bool slots, const Memory& memory,
                    int64_t width) {
  for (const Constant& constant : constants) {
    if ((constant.slot >= 0) != slots) continue;
    const void* value =
        slots ? memory.slots + constant.slot * 8 : static_cast<const void*>(&constant.value);
    repeat(value, sdk::itemsize(constant.type), width,
           memory.tiles + constant.tile * memory.tile_bytes);
  }
}

}  // namespace mytorch::cpu
