// Fused programs with rows, which reductions reduce or indices select: row by row. A stage computes
// the elements that the reductions of the stage fold, then, of each row, what depends on their
// results. Values that a later stage reads again are kept for the whole row.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu-openmp/common/index_range.h"
#include "backends/cpu-openmp/fused/code.h"
#include "backends/cpu-openmp/fused/fused.h"
#include "backends/cpu-openmp/fused/join.h"
#include "backends/cpu-openmp/pointwise/compute_type.h"
#include "backends/cpu-openmp/pointwise/programs.h"
#include "backends/cpu-openmp/reduction/fold.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/fused.h"
#include "mytorch/backend/parallel.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kGrain = 64 * 1024;  // additions that justify waking another thread
constexpr int64_t kWidth = kMaxWidth;
constexpr int kMostTiles = 24;
constexpr int kMostSlots = 256;
constexpr int64_t kMaxRowBytes = 4 << 20;

const ReduceProgram* find_reduction(const mt_program& program) {
  for (const ReduceOp& op : programs().reduce) {
    if (std::string_view(program.name) != op.name) continue;
    return program.variant < static_cast<uint32_t>(op.num_variants) ? &op.variants[program.variant]
                                                                    : nullptr;
  }
  return nullptr;
}

struct FoldStep {
  const FoldFns* fns;
  Place operand;
  int slot;  // of the first component of the state
};

struct Stage {
  std::vector<Step> slot_steps;  // of each row, before the elements
  std::vector<Step> steps;       // of each tile
  std::vector<FoldStep> folds;
  size_t first_constant = 0, last_constant = 0;
};

class FusedRows {
 public:
  explicit FusedRows(const mt_fused_program& program);
  FusedRows(const FusedRows&) = delete;
  const char* unsupported(const mt_fused_args& args) const;
  void run(mt_ctx& ctx, const mt_fused_args& args) const;

 private:
  struct RowOperand {
    bool row = false;
    bool output = false;
    bool table = false;
    mt_dtype dtype{};
    Place place;  // of its value: kInput for elements that are read in place
  };
  // A call of this many rows.
  struct RowCall {
    int64_t rows = 1, columns = 1;
    int outer = 0;
    int64_t sizes[sdk::kMaxDims];
    std::vector<std::array<int64_t, sdk::kMaxDims>> strides;  // in bytes
    std::vector<char*> data;
    std::vector<Table> tables;  // of the inputs
  };

  const mt_fused_call& call(int32_t at) const { return calls_[static_cast<size_t>(at)]; }
  void build();
  void add_elements(const std::vector<int32_t>& targets);
  void add_reduction(const mt_fused_call& call, Stage& stage, std::vector<Step>& after);
  void join();
  void place_values();
  // Return false after a bad index, or an integer division by zero.
  bool run_rows(const RowCall& call, int64_t begin, int64_t end, BadIndex* bad) const;
  bool run_row(const RowCall& call, const char* const* bases, const Memory& memory,
               const void** inputs) const;

  const std::string name_;
  TileCode code_;
  std::vector<mt_fused_call> calls_;
  std::vector<int> phase_, call_of_;  // of each value
  std::vector<bool> added_;           // calls of elements
  std::vector<RowOperand> operands_;  // inputs, then outputs
  std::vector<Stage> stages_;
  std::vector<std::pair<int, mt_dtype>> counts_;  // slots with the number of columns
  int num_inputs_;
  bool exact_;
  int64_t cost_ = 0;
  int num_tiles_ = 0;
  int num_rows_ = 0;  // values kept for the whole row
};

FusedRows::FusedRows(const mt_fused_program& program)
    : name_(program.name),
      code_(program),
      num_inputs_(program.num_inputs),
      exact_((program.flags & MT_FUSED_EXACT) != 0) {
  for (int32_t i = 0; i < program.num_calls; ++i) calls_.push_back(sdk::fused_call(program, i));
  phase_.assign(static_cast<size_t>(program.num_values), 0);
  call_of_.assign(static_cast<size_t>(program.num_values), -1);
  added_.assign(calls_.size(), false);
  for (size_t c = 0; c < calls_.size(); ++c) {
    const mt_program& body = *calls_[c].program;
    int phase = 0, input = 0;
    for (int32_t k = 0; k < body.num_nodes; ++k) {
      if (std::string_view(body.nodes[k].op) != "input") continue;
      phase = std::max(phase, phase_[static_cast<size_t>(calls_[c].inputs[input++])]);
    }
    for (int32_t k = 0; k < body.num_outputs; ++k) {
      const int32_t result = calls_[c].results[k];
      if (result < 0) continue;
      phase_[static_cast<size_t>(result)] = phase + (body.fold != nullptr ? 1 : 0);
      call_of_[static_cast<size_t>(result)] = static_cast<int>(c);
    }
  }
  for (int32_t k = 0; k < program.num_inputs + program.num_outputs; ++k) {
    const bool output = k >= program.num_inputs;
    const int32_t at = output ? program.outputs[k - program.num_inputs] : k;
    const mt_fused_value& value = code_.value(at);
    const bool table = value.kind == MT_FUSED_TABLE;
    operands_.push_back({value.row != 0, output, table, value.dtype, {}});
    if (output || table) continue;
    if (value.row != 0) {
      code_.place(at) = {Place::kSlot, code_.num_slots++, tile_type(value.dtype)};
    } else {
      code_.place(at) = {Place::kInput, k, value.dtype};
    }
    operands_.back().place = code_.place(at);
  }
  build();
  for (int32_t k = 0; k < program.num_outputs; ++k) {
    operands_[static_cast<size_t>(num_inputs_) + static_cast<size_t>(k)].place =
        code_.output(program.outputs[k]);
  }
  join();
  place_values();
  if (num_tiles_ > kMostTiles || code_.num_slots > kMostSlots) throw sdk::Declined{};
}

void FusedRows::build() {
  int phases = 0;
  for (const int phase : phase_) phases = std::max(phases, phase);
  std::vector<Step> after;  // the ends of the reductions of the stage before
  for (int phase = 0; phase <= phases; ++phase) {
    Stage& stage = stages_.emplace_back();
    code_.begin_stage();
    stage.slot_steps = std::move(after);
    after.clear();
    code_.steps = &stage.slot_steps;
    code_.in_slots = true;
    for (const mt_fused_call& each : calls_) {
      if (each.program->fold != nullptr) continue;
      const int32_t* made = std::find_if(each.results, each.results + each.program->num_outputs,
                                         [](int32_t at) { return at >= 0; });
      if (code_.value(*made).row != 0 && phase_[static_cast<size_t>(*made)] == phase) {
        code_.add_call(each);
      }
    }
    code_.in_slots = false;
    code_.steps = &stage.steps;
    stage.first_constant = code_.constants.size();
    std::vector<int32_t> targets;
    std::vector<const mt_fused_call*> reductions;
    for (const mt_fused_call& each : calls_) {
      if (each.program->fold == nullptr || phase_[static_cast<size_t>(each.inputs[0])] != phase) {
        continue;
      }
      reductions.push_back(&each);
      targets.push_back(each.inputs[0]);
    }
    if (phase == phases) {
      for (size_t v = 0; v < phase_.size(); ++v) {
        // Every value of elements that is left is an output, or leads to one.
        if (code_.value(static_cast<int32_t>(v)).row == 0) {
          targets.push_back(static_cast<int32_t>(v));
        }
      }
    }
    add_elements(targets);
    for (const mt_fused_call* each : reductions) add_reduction(*each, stage, after);
    stage.last_constant = code_.constants.size();
  }
}

// Appends the calls of elements that the targets need, and the conversions of inputs.
void FusedRows::add_elements(const std::vector<int32_t>& targets) {
  std::vector<bool> needed(calls_.size()), read(phase_.size());
  std::vector<int32_t> open = targets;
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    if (code_.value(at).row != 0 || read[static_cast<size_t>(at)]) continue;
    read[static_cast<size_t>(at)] = true;
    const int made = call_of_[static_cast<size_t>(at)];
    if (made < 0 || added_[static_cast<size_t>(made)]) continue;
    needed[static_cast<size_t>(made)] = true;
    const mt_program& body = *call(made).program;
    int input = 0;
    for (int32_t k = 0; k < body.num_nodes; ++k) {
      if (std::string_view(body.nodes[k].op) == "input") open.push_back(call(made).inputs[input++]);
    }
  }
  for (int32_t k = 0; k < num_inputs_; ++k) {
    Place& place = code_.place(k);
    if (!read[static_cast<size_t>(k)] || place.kind != Place::kInput || place.index < 0) continue;
    const mt_dtype tile = tile_type(place.type);
    if (!sdk::same_dtype(place.type, tile)) place = code_.converted(place, tile, tile);
  }
  for (size_t c = 0; c < calls_.size(); ++c) {
    if (!needed[c]) continue;
    code_.add_call(calls_[c]);
    added_[c] = true;
  }
}

void FusedRows::add_reduction(const mt_fused_call& each, Stage& stage, std::vector<Step>& after) {
  const ReduceProgram* found = find_reduction(*each.program);
  if (found == nullptr || !sdk::is_floating(each.compute) || found->fold == Fold::kArgmax ||
      found->fold == Fold::kArgmin) {
    throw sdk::Declined{};
  }
  const FoldFns* fns = find_fold(found->fold, compute_type_of(each.compute));
  if (fns == nullptr) throw sdk::Declined{};
  Place operand;
  if (found->step == nullptr) {
    operand = code_.as_type(each.inputs[0], each.compute, MT_TYPE_COMPUTE);
  } else {
    // Such a sum is computed again in double if float32 cannot hold its terms (reduce/kernels.cpp).
    if (found->fold == Fold::kSum && compute_type_of(each.compute) == kFloat32) {
      throw sdk::Declined{};
    }
    operand = code_.add_loop(*found->step, each, code_.inputs_of(*found->step, each), {true})[0];
  }
  if (!sdk::same_dtype(operand.type, fns->input)) {
    operand = code_.converted(operand, fns->input, fns->input);
  }
  const int state = code_.num_slots;
  code_.num_slots += fns->components;
  stage.folds.push_back({fns, operand, state});
  code_.cost += 2;

  std::vector<Step>* const elements = std::exchange(code_.steps, &after);
  code_.in_slots = true;
  const auto component = [&](int at) { return Place{Place::kSlot, state + at, fns->types[at]}; };
  const mt_dtype tile = kComputeDtype[compute_type_of(each.compute)];
  std::vector<Place> ends;
  if (found->end != nullptr) {
    std::vector<Place> inputs;
    for (int32_t i = 0; i < found->end->num_inputs; ++i) {
      const OperandField& input = found->end->inputs[i];
      if (input.type != MT_TYPE_COMPUTE) throw sdk::Declined{};
      if (input.offset == kCountLeaf) {
        counts_.emplace_back(code_.num_slots, tile);
        inputs.push_back({Place::kSlot, code_.num_slots++, tile});
      } else {
        inputs.push_back(code_.converted(component(static_cast<int>(input.offset)), tile, tile));
      }
    }
    ends = code_.add_loop(*found->end, each, std::move(inputs),
                          std::vector<bool>(static_cast<size_t>(found->end->num_outputs), true));
  }
  size_t next = 0;
  for (int32_t k = 0; k < found->num_outputs; ++k) {
    const ReduceOutput& output = found->outputs[k];
    const Place place = output.component >= 0 ? component(output.component) : ends[next++];
    for (int32_t i = 0; i < each.program->num_outputs; ++i) {
      if (each.program->outputs[i].offset != output.offset || each.results[i] < 0) continue;
      code_.set_value(each.results[i], place);
    }
  }
  code_.in_slots = false;
  code_.steps = elements;
}

// Joins the steps of each stage.
void FusedRows::join() {
  const auto count = static_cast<size_t>(code_.num_tiles);
  const auto note = [](const Place& place, std::vector<bool>* read) {
    if (place.kind == Place::kTile && place.index >= 0) {
      (*read)[static_cast<size_t>(place.index)] = true;
    }
  };
  cost_ = 2;
  for (size_t s = 0; s < stages_.size(); ++s) {
    std::vector<bool> read(count, false);  // by others than the steps of the stage
    for (size_t other = 0; other < stages_.size(); ++other) {
      for (const FoldStep& fold : stages_[other].folds) note(fold.operand, &read);
      if (other == s) continue;
      for (const Step& step : stages_[other].steps) {
        for (const Place& place : step.inputs) note(place, &read);
      }
    }
    for (const RowOperand& operand : operands_) {
      if (operand.output) note(operand.place, &read);
    }
    cost_ += join_steps(stages_[s].steps, code_.constants, read, exact_);
    cost_ += 2 * static_cast<int64_t>(stages_[s].folds.size());
  }
}

// Decides which values are kept for the whole row, and which tiles share memory.
void FusedRows::place_values() {
  const auto count = static_cast<size_t>(code_.num_tiles);
  std::vector<int> made(count, -1), last(count, -1);
  for (const Constant& constant : code_.constants) made[static_cast<size_t>(constant.tile)] = -2;
  const auto use = [&](const Place& place, int stage) {
    if (place.kind != Place::kTile || place.index < 0) return;
    last[static_cast<size_t>(place.index)] =
        std::max(last[static_cast<size_t>(place.index)], stage);
  };
  const auto stages = static_cast<int>(stages_.size());
  for (int s = 0; s < stages; ++s) {
    for (const Step& step : stages_[static_cast<size_t>(s)].steps) {
      for (const Place& place : step.inputs) use(place, s);
      for (const Place& place : step.results) {
        if (place.kind == Place::kTile && place.index >= 0) {
          made[static_cast<size_t>(place.index)] = s;
        }
      }
    }
    for (const FoldStep& fold : stages_[static_cast<size_t>(s)].folds) use(fold.operand, s);
  }
  for (const RowOperand& operand : operands_) {
    if (operand.output) use(operand.place, stages - 1);
  }
  std::vector<int> row(count, -1);
  for (size_t t = 0; t < count; ++t) {
    if (made[t] >= 0 && last[t] > made[t]) row[t] = num_rows_++;
  }
  const auto move = [&](Place& place) {
    if (place.kind != Place::kTile || place.index < 0 ||
        row[static_cast<size_t>(place.index)] < 0) {
      return;
    }
    place.index = row[static_cast<size_t>(place.index)];
    place.kind = Place::kRow;
  };
  // All steps in the order of execution; a fold is a step without a function here.
  std::vector<Step> all;
  for (Stage& stage : stages_) {
    for (Step& step : stage.slot_steps) all.push_back(std::move(step));
    for (Step& step : stage.steps) all.push_back(std::move(step));
    for (const FoldStep& fold : stage.folds) {
      all.emplace_back();
      all.back().inputs = {fold.operand};
    }
  }
  for (Step& step : all) {
    for (Place& place : step.inputs) move(place);
    for (Place& place : step.results) move(place);
  }
  std::vector<Place*> outputs;
  for (RowOperand& operand : operands_) {
    if (!operand.output) continue;
    move(operand.place);
    outputs.push_back(&operand.place);
  }
  num_tiles_ = reuse_tiles(all, code_.constants, outputs, code_.num_tiles);
  auto next = all.begin();
  for (Stage& stage : stages_) {
    for (Step& step : stage.slot_steps) step = std::move(*next++);
    for (Step& step : stage.steps) step = std::move(*next++);
    for (FoldStep& fold : stage.folds) fold.operand = (next++)->inputs[0];
  }
}

const char* FusedRows::unsupported(const mt_fused_args& args) const {
  int64_t columns = 1;
  for (int d = args.ndim - args.inner; d < args.ndim; ++d) columns *= args.shape[d];
  if (num_rows_ * columns * 8 > kMaxRowBytes) return "the rows are too long";
  for (size_t k = 0; k < operands_.size(); ++k) {
    sdk::FusedTable table;
    if (operands_[k].table
            ? !sdk::read_table(args, args.operands[k], &table)
            : !operands_[k].row && !sdk::has_contiguous_rows(args, args.operands[k])) {
      return "the rows of an operand are not contiguous";
    }
  }
  return nullptr;
}

bool FusedRows::run_row(const RowCall& call, const char* const* bases, const Memory& given,
                        const void** inputs) const {
  Memory memory = given;
  const auto converted = [](mt_dtype from, mt_dtype to, const void* x, void* y, int64_t n) {
    if (sdk::same_dtype(from, to)) {
      std::memcpy(y, x, static_cast<size_t>(n * sdk::itemsize(from)));
    } else {
      simd::get_convert(from, to)(x, y, n);
    }
  };
  for (size_t k = 0; k < static_cast<size_t>(num_inputs_); ++k) {
    const RowOperand& operand = operands_[k];
    if (operand.row && !operand.table) {
      converted(operand.dtype, operand.place.type, bases[k], memory.at(operand.place), 1);
    }
  }
  for (size_t s = 0; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    const bool last = s + 1 == stages_.size();
    memory.column = 0;
    if (!run_steps(stage.slot_steps, memory, 1)) return false;
    fill_constants(std::span(code_.constants)
                       .subspan(stage.first_constant, stage.last_constant - stage.first_constant),
                   true, memory, std::min(call.columns, kWidth));
    if (stage.steps.empty() && stage.folds.empty() && !last) continue;
    for (const FoldStep& fold : stage.folds) {
      States states{};
      for (int c = 0; c < fold.fns->components; ++c) {
        states.component[c] = memory.slots + (fold.slot + c) * 8;
      }
      fold.fns->reset(states, 1);
    }
    for (int64_t column = 0; column < call.columns; column += kWidth) {
      const int64_t n = std::min(call.columns - column, kWidth);
      memory.column = column;
      for (size_t k = 0; k < static_cast<size_t>(num_inputs_); ++k) {
        inputs[k] = bases[k] + column * sdk::itemsize(operands_[k].dtype);
      }
      if (!run_steps(stage.steps, memory, n)) return false;
      for (const FoldStep& fold : stage.folds) {
        States states{};
        for (int c = 0; c < fold.fns->components; ++c) {
          states.component[c] = memory.slots + (fold.slot + c) * 8;
        }
        fold.fns->along(states, 0, memory.at(fold.operand), n, column);
      }
      if (!last) continue;
      for (size_t k = static_cast<size_t>(num_inputs_); k < operands_.size(); ++k) {
        const RowOperand& operand = operands_[k];
        if (operand.row) continue;
        converted(operand.place.type, operand.dtype, memory.at(operand.place),
                  const_cast<char*>(bases[k]) + column * sdk::itemsize(operand.dtype), n);
      }
    }
  }
  memory.column = 0;
  for (size_t k = static_cast<size_t>(num_inputs_); k < operands_.size(); ++k) {
    const RowOperand& operand = operands_[k];
    if (!operand.row) continue;
    converted(operand.place.type, operand.dtype, memory.at(operand.place),
              const_cast<char*>(bases[k]), 1);
  }
  return true;
}

bool FusedRows::run_rows(const RowCall& call, int64_t begin, int64_t end, BadIndex* bad) const {
  constexpr std::align_val_t kAligned{64};
  const int64_t row_bytes = (call.columns * 8 + 63) / 64 * 64;
  const auto free_aligned = [](char* memory) { ::operator delete[](memory, kAligned); };
  const auto bytes = static_cast<size_t>(num_tiles_ * kWidth * 8 + num_rows_ * row_bytes);
  const std::unique_ptr<char[], decltype(free_aligned)> block(
      static_cast<char*>(::operator new[](std::max<size_t>(bytes, 64), kAligned)), free_aligned);
  alignas(64) char slots[kMostSlots * 8];
  const void* inputs[kMaxInputs];
  Memory memory;
  memory.inputs = inputs;
  memory.tiles = block.get();
  memory.tile_bytes = kWidth * 8;
  memory.rows = block.get() + num_tiles_ * kWidth * 8;
  memory.row_bytes = row_bytes;
  memory.slots = slots;
  std::vector<Table> tables = call.tables;
  memory.tables = tables.data();
  memory.bad_index = bad;
  fill_constants(code_.constants, false, memory, std::min(call.columns, kWidth));
  const auto columns = static_cast<double>(call.columns);
  for (const auto& [slot, type] : counts_) {
    if (type.bits == 64) {
      std::memcpy(slots + slot * 8, &columns, 8);
    } else {
      const auto narrow = static_cast<float>(columns);
      std::memcpy(slots + slot * 8, &narrow, 4);
    }
  }
  const char* bases[kMaxInputs + kMaxOutputs];
  for (int64_t row = begin; row < end; ++row) {
    for (size_t k = 0; k < operands_.size(); ++k) bases[k] = call.data[k];
    int64_t rest = row;
    for (int d = call.outer - 1; d >= 0; --d) {
      const int64_t index = rest % call.sizes[d];
      rest /= call.sizes[d];
      for (size_t k = 0; k < operands_.size(); ++k) {
        bases[k] += index * call.strides[k][static_cast<size_t>(d)];
      }
    }
    for (size_t k = 0; k < tables.size(); ++k) tables[k].data = bases[k];
    if (!run_row(call, bases, memory, inputs)) return false;
  }
  return true;
}

void FusedRows::run(mt_ctx& ctx, const mt_fused_args& args) const {
  RowCall call;
  call.outer = args.ndim - args.inner;
  std::copy_n(args.shape, call.outer, call.sizes);
  for (int d = 0; d < args.ndim; ++d) {
    (d < call.outer ? call.rows : call.columns) *= args.shape[d];
  }
  if (call.rows * call.columns == 0) return;
  const std::span<const int64_t> shape(args.shape, static_cast<size_t>(args.ndim));
  for (size_t k = 0; k < operands_.size(); ++k) {
    const sdk::TensorView view(args.operands[k]);
    auto& strides = call.strides.emplace_back();
    if (k < static_cast<size_t>(num_inputs_)) call.tables.emplace_back();
    if (operands_[k].table) {
      sdk::FusedTable table;
      sdk::read_table(args, args.operands[k], &table);
      std::copy_n(table.strides, args.ndim, strides.data());
      call.tables[k] = {nullptr, table.inner * view.itemsize(), table.stride * view.itemsize()};
    } else {
      sdk::broadcast_strides(args.operands[k], shape, strides.data());
    }
    for (int64_t& stride : strides) stride *= view.itemsize();
    call.data.push_back(view.data<char>());
  }
  std::atomic<bool> refused{false};
  std::mutex mutex;
  BadIndex bad;
  const int64_t cost = call.columns * cost_;
  sdk::parallel_for(ctx, 0, call.rows, std::max<int64_t>(1, kGrain / cost),
                    [&](int64_t begin, int64_t end) noexcept {
                      BadIndex own;
                      if (run_rows(call, begin, end, &own)) return;
                      refused.store(true);
                      const std::lock_guard<std::mutex> lock(mutex);
                      if (own.step != nullptr) bad = own;
                    });
  if (bad.step != nullptr) {
    fail_index(bad.step->name, bad.index, bad.step->number, bad.step->size);
  }
  if (refused.load()) {
    throw sdk::Error(MT_ERROR_VALUE, "[" + name_ + "] integer division by zero");
  }
}

const char* supports(void* self, const void* args) {
  return static_cast<const FusedRows*>(self)->unsupported(*static_cast<const mt_fused_args*>(args));
}

int run(void* self, mt_ctx* ctx, const void* args) noexcept {
  return sdk::guarded(ctx, [&] {
    static_cast<const FusedRows*>(self)->run(*ctx, *static_cast<const mt_fused_args*>(args));
  });
}

}  // namespace

void compile_rows(const mt_fused_program& program, mt_kernel_entry& kernel) {
  if (program.num_inputs > kMaxInputs || program.num_outputs > kMaxOutputs) throw sdk::Declined{};
  sdk::give_kernel(program, std::make_unique<FusedRows>(program), kernel);
  kernel.run = &run;
  kernel.supports = &supports;
  kernel.size = sizeof(mt_kernel_entry);
  kernel.name = "fused_rows";
}

}  // namespace mytorch::cpu
