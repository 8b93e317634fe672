#include "backends/cpu-onednn/engine/plan.h"

#include <algorithm>
#include <array>

#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/packed_weights.h"

namespace mytorch::onednn {
namespace {

template <class Handle>
bool exists(const Handle& handle) {
  return handle.get(true) != nullptr;
}

dnnl::memory without_data(const Desc& desc) { return {desc, engine(), nullptr}; }

void point_at(const dnnl::memory& memory, void* data) {
  dnnl::error::wrap_c_api(dnnl_memory_set_data_handle(memory.get(), data),
                          "oneDNN did not take a pointer");
}

void execute(const dnnl::primitive& primitive, std::span<const dnnl_exec_arg_t> arguments) {
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive.get(), stream(), static_cast<int>(arguments.size()),
                             arguments.data()),
      "oneDNN failed to run a primitive");
}

void reorder(const dnnl::primitive& primitive, const Desc& scratchpad, char* scratch,
             dnnl_memory_t from, dnnl_memory_t to) {
  std::array<dnnl_exec_arg_t, 3> arguments = {{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {}}};
  if (scratchpad.get_size() == 0) return execute(primitive, std::span(arguments).first(2));
  const dnnl::memory memory = without_data(scratchpad);
  point_at(memory, scratch);
  arguments[2] = {DNNL_ARG_SCRATCHPAD, memory.get()};
  execute(primitive, arguments);
}

}  // namespace

Attr attributes() {
  Attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// ---- plans --------------------------------------------------------------------------------------

Plan::Plan(const Description& description) : description_(description) {
  if (is_reference(description)) throw sdk::Declined{};
  primitive_ = dnnl::primitive(description.get());
  scratchpad_ = description.scratchpad_desc();
}

void Plan::add(int argument, const Desc& given, Role role) {
  Operand operand{argument, role, given, description_.query_md(dnnl::query::exec_arg_md, argument),
                  {},       {}};
  if (operand.wanted.is_zero()) operand.given = operand.wanted;  // not an operand of this primitive
  if (operand.wanted != operand.given && !operand.given.is_zero()) {
    const bool out = role == Role::kOutput;
    const dnnl::reorder::primitive_desc made(engine(), out ? operand.wanted : given, engine(),
                                             out ? given : operand.wanted, attributes());
    operand.reorder = dnnl::primitive(made.get());
    operand.reorder_scratchpad = made.scratchpad_desc();
  }
  operands_.push_back(operand);
}

int Plan::conversions() const {
  return static_cast<int>(std::count_if(operands_.begin(), operands_.end(),
                                        [](const Operand& o) { return exists(o.reorder); }));
}

// ---- calls --------------------------------------------------------------------------------------

BoundPlan::BoundPlan(const Plan& plan) : plan_(plan) {
  size_t bytes = 0, reorders = 0;
  const auto take = [&](const Desc& desc) {
    const size_t at = bytes;
    bytes += (desc.get_size() + 63) / 64 * 64;
    return at;
  };
  for (const Plan::Operand& o : plan.operands_) {
    Operand own;
    if (!o.given.is_zero()) {
      own.wanted = without_data(o.wanted);
      if (exists(o.reorder)) {
        own.given = without_data(o.given);
        own.scratch = take(o.wanted);
        reorders = std::max(reorders, o.reorder_scratchpad.get_size());
      }
      own.place = arguments_.size();
      arguments_.push_back({o.argument, own.wanted.get()});
    }
    operands_.push_back(own);
  }
  if (plan.scratchpad_.get_size() != 0) {
    scratchpad_ = without_data(plan.scratchpad_);
    scratchpad_at_ = take(plan.scratchpad_);
    arguments_.push_back({DNNL_ARG_SCRATCHPAD, scratchpad_.get()});
  }
  reorders_at_ = bytes;
  scratch_bytes_ = bytes + reorders;
}

// Returns the operand in the primitive's layout, from the cache or in scratch memory.
dnnl::memory BoundPlan::converted(char* scratch, size_t i, const Data& data) {
  const Plan::Operand& o = plan_.operands_[i];
  const Operand& own = operands_[i];
  const auto fill = [&](const dnnl::memory& to) {
    reorder(o.reorder, o.reorder_scratchpad, scratch + reorders_at_, own.given.get(), to.get());
  };
  if (o.role == Plan::Role::kWeights && data.storage != nullptr) {
    dnnl::memory kept =
        packed_weights().find_or_pack(*data.storage, data.pointer, o.given, o.wanted, fill);
    if (exists(kept)) return kept;
  }
  point_at(own.wanted, scratch + own.scratch);
  fill(own.wanted);
  return own.wanted;
}

void BoundPlan::run(mt_ctx& ctx, std::span<const Data> data) {
  // A single allocation: the host keeps one block between calls and allocates any further memory in
  // each call, which for large operands takes as long as a reorder.
  char* const scratch =
      scratch_bytes_ == 0 ? nullptr : sdk::scratch<char>(ctx, static_cast<int64_t>(scratch_bytes_));
  // Keeps weights alive that other threads may evict from the cache during the call.
  dnnl::memory kept;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Plan::Operand& o = plan_.operands_[i];
    const Operand& own = operands_[i];
    if (!exists(own.wanted)) continue;
    if (!exists(o.reorder)) {
      point_at(own.wanted, data[i].pointer);
      continue;
    }
    point_at(own.given, data[i].pointer);
    if (o.role == Plan::Role::kOutput) {
      point_at(own.wanted, scratch + own.scratch);
    } else {
      const dnnl::memory memory = converted(scratch, i, data[i]);
      arguments_[own.place].memory = memory.get();
      if (o.role == Plan::Role::kWeights) kept = memory;
    }
  }
  if (exists(scratchpad_)) point_at(scratchpad_, scratch + scratchpad_at_);
  execute(plan_.primitive_, arguments_);
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Plan::Operand& o = plan_.operands_[i];
    if (o.role != Plan::Role::kOutput || !exists(o.reorder)) continue;
    reorder(o.reorder, o.reorder_scratchpad, scratch + reorders_at_, operands_[i].wanted.get(),
            operands_[i].given.get());
  }
}

}  // namespace mytorch::onednn
