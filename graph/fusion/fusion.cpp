#include "graph/fusion/fusion.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/table/fields.h"
#include "graph/fusion/fusion_items.h"
#include "mytorch/check.h"

namespace mytorch::graph {
namespace {

// How far back a step looks for others. A group of calls is seldom longer.
constexpr size_t kWindow = 48;

// Whether the order of two items matters.
bool depend(const FusionItem& a, const FusionItem& b) {
  for (const MemoryAccess& x : a.accesses) {
    for (const MemoryAccess& y : b.accesses) {
      if (x.memory == y.memory && (x.written || y.written)) return true;
    }
  }
  return false;
}

}  // namespace

void Fusion::run() {
  collect();
  for (FusionItem& item : all_) place(std::move(item));
  emit();
}

void Fusion::collect() {
  auto next = parts_.nodes.begin();
  for (size_t i = 0; i <= parts_.steps.size(); ++i) {
    for (; next != parts_.nodes.end() && next->before == i; ++next) {
      add_node(static_cast<size_t>(next - parts_.nodes.begin()));
    }
    if (i < parts_.steps.size()) add_step(i);
  }
}

void Fusion::add_step(size_t index) {
  const PlanStep& step = parts_.steps[index];
  FusionItem item;
  item.steps = {index};
  LoopBody& body = bodies_.emplace_back();
  item.fusable =
      step.kernel != nullptr && !step.kernel->is_reference() && LoopBody::of(step, &body);
  if (item.fusable) {
    item.space = space_of(body.shape, body.inner);
    add_accesses(body, &item);
  } else {
    const OpInfo& op = *step.entry->info;
    const auto access = [&](const mt_tensor* tensor, bool written) {
      const auto at = places_.find(tensor);
      if (at != places_.end()) item.accesses.push_back({at->second.memory, written, nullptr});
    };
    for_each_input(op, step.args.get(),
                   [&](const mt_tensor*& t, const ArgInfo& arg) { access(t, arg.written); });
    for_each_output(op, step.args.get(),
                    [&](const mt_tensor*& t, const OutputInfo&) { access(t, true); });
  }
  note(std::move(item));
}

void Fusion::add_accesses(const LoopBody& body, FusionItem* item) const {
  std::vector<bool> written(body.operands.size());
  for (const LoopCall& call : body.calls) {
    for (const int at : call.results) {
      if (at >= 0) written[static_cast<size_t>(at)] = true;
    }
  }
  for (size_t i = 0; i < body.operands.size(); ++i) {
    const auto at = places_.find(body.operands[i].tensor);
    if (at == places_.end() || static_cast<int>(i) == body.elements) continue;
    const LoopOperand& operand = body.operands[i];
    item->accesses.push_back({at->second.memory, written[i], &operand,
                              operand.kind == LoopOperand::kTable ? &body : nullptr});
  }
}

void Fusion::add_node(size_t index) {
  FusionItem item;
  item.node = index;
  const GraphNode& node = parts_.graph.nodes[parts_.nodes[index].node];
  const auto access = [&](ValueId id) {
    const int32_t memory = parts_.buffers[parts_.graph.values[id].buffer];
    item.accesses.push_back({memory, true, nullptr});
  };
  node.for_each_operand(access);
  node.for_each_result(access);
  note(std::move(item));
}

void Fusion::note(FusionItem item) {
  const size_t step = item.steps.empty() ? kNoStep : item.steps[0];
  if (step != kNoStep) time_of_.push_back(all_.size());
  for (const MemoryAccess& access : item.accesses) {
    uses_[static_cast<size_t>(access.memory)].push_back({all_.size(), step});
  }
  all_.push_back(std::move(item));
}

void Fusion::place(FusionItem item) {
  order_.push_back(std::move(item));
  size_t at = order_.size() - 1;
  if (!joins_) return;
  while (order_[at].fusable && joined_with_earlier(&at)) {
  }
}

bool Fusion::joined_with_earlier(size_t* place) {
  bool rises = true;
  for (size_t back = 1; back <= std::min(*place, kWindow); ++back) {
    const size_t at = *place - back;
    const bool sinks = !rises && can_sink(at, *place);
    if (rises || sinks) {
      if (std::optional<FusionItem> joined = join(order_[at], order_[*place]); joined.has_value()) {
        const size_t kept = rises ? at : *place - 1;
        order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(*place));
        if (sinks) order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(at));
        if (rises) {
          order_[at] = *std::move(joined);
        } else {
          order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(kept), *std::move(joined));
        }
        *place = kept;
        return true;
      }
      FusionItem& item = order_[*place];
      if (item.apart == nullptr && depend(order_[at], item)) item.apart = why_;
    }
    rises = rises && !depend(order_[at], order_[*place]);
  }
  return false;
}

bool Fusion::can_sink(size_t at, size_t to) const {
  for (size_t k = at + 1; k < to; ++k) {
    if (depend(order_[at], order_[k])) return false;
  }
  return true;
}

void Fusion::report(const FusionItem& item, bool one) {
  if (!item.fusable) return;
  std::string line;
  for (const size_t index : item.steps) {
    absl::StrAppend(&line, line.empty() ? "" : ", ", parts_.steps[index].entry->info->base);
  }
  const std::string shape = shape_str(as_list(item.space.sizes));
  if (item.steps.size() == 1) {
    line = absl::StrCat("alone: ", line, " over ", shape);
  } else if (one) {
    line = absl::StrCat("fused: ", line, " over ", shape);
  } else {
    line = absl::StrCat("not fused, because no backend compiles it: ", line, " over ", shape);
  }
  if (item.apart != nullptr)
    absl::StrAppend(&line, "; apart from its neighbor, because ", item.apart);
  parts_.fusion_report.push_back(std::move(line));
}

void Fusion::emit() {
  std::vector<PlanStep> steps;
  std::vector<Interpreted> nodes;
  for (const FusionItem& item : order_) {
    if (item.steps.empty()) {
      nodes.push_back({steps.size(), parts_.nodes[item.node].node});
      continue;
    }
    if (item.steps.size() > 1 || is_small_call(item)) {
      std::optional<PlanStep> one = fused(item);
      report(item, one.has_value());
      if (one.has_value()) {
        steps.push_back(*std::move(one));
        continue;
      }
    } else {
      report(item, false);
    }
    for (const size_t index : item.steps) steps.push_back(std::move(parts_.steps[index]));
  }
  parts_.steps = std::move(steps);
  parts_.nodes = std::move(nodes);
}

void fuse_calls(PlanParts* parts) {
  Fusion(parts).run();
  if (!dumps(kFusion)) return;
  for (const std::string& line : parts->fusion_report) {
    detail::tell(absl::StrCat("[compile] ", line));
  }
}

}  // namespace mytorch::graph
