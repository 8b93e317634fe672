#include "graph/fusion/fusion.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "dispatcher/table/fields.h"
#include "graph/fusion/fused_op.h"
#include "graph/fusion/fused_program.h"
#include "graph/fusion/loop_body.h"
#include "graph/fusion/loop_space.h"
#include "graph/passes/passes.h"
#include "mytorch/check.h"

namespace mytorch::graph {
namespace {

// What hosts make (mytorch/abi_fused.h), and a bound for the time of fusion.
constexpr size_t kMaxInputs = 8;
constexpr size_t kMaxOutputs = 6;
constexpr size_t kMaxCalls = 256;
// A loop with reductions runs row by row: it needs rows for every processor, and rows that stay in
// its memory.
constexpr int64_t kManyRows = 64;
constexpr int64_t kLongRow = 1 << 16;
// How far back a step looks for others. A group of calls is seldom longer.
constexpr size_t kWindow = 48;
// Calls of at most this many elements cost their launch. So those that share nothing are fused,
// too, and on the CPU a call that stays alone becomes a program, whose kernel knows its numbers,
// types and operands in advance.
constexpr int64_t kSmall = 4096;

// A memory that a call uses, by an operand of its body if it has one.
struct Access {
  int32_t memory;
  bool written;
  const LoopOperand* operand;
  const LoopBody* body = nullptr;  // of a table
};

constexpr size_t kNoStep = SIZE_MAX;

// A use of a memory, by a step or a node, in the first order.
struct Use {
  size_t time;
  size_t step;  // kNoStep: a node
};

// One step, an interpreted node, or several steps that become one.
struct Item {
  std::vector<size_t> steps;  // in the order in which they run; empty for a node
  size_t node = 0;            // an index into PlanParts::nodes
  bool fusable = false;
  // Why it did not join an item on whose results it depends, or that depends on its; null if there
  // is none. The nearest one counts.
  const char* apart = nullptr;
  LoopSpace space;
  std::vector<Access> accesses;
};

struct Geometry {
  Dims sizes, strides;
};

// A tensor that is asked about, but never read.
struct Header {
  Header(const FusedOperand& operand, Geometry of)
      : geometry(std::move(of)), tensor(*operand.tensor) {
    tensor.dl.ndim = static_cast<int32_t>(geometry.sizes.size());
    tensor.dl.shape = geometry.sizes.data();
    tensor.dl.strides = geometry.strides.data();
    tensor.flags = 0;
  }
  Header(const Header&) = delete;

  Geometry geometry;
  mt_tensor tensor;
};

class Fusion {
 public:
  explicit Fusion(PlanParts* parts)
      : parts_(*parts), places_(places_of(*parts)), uses_(parts->memories.size()) {}

  void run() {
    collect();
    for (Item& item : all_) place(std::move(item));
    emit();
  }

 private:
  // Makes an item of each step and node.
  void collect() {
    auto next = parts_.nodes.begin();
    for (size_t i = 0; i <= parts_.steps.size(); ++i) {
      for (; next != parts_.nodes.end() && next->before == i; ++next) {
        add_node(static_cast<size_t>(next - parts_.nodes.begin()));
      }
      if (i < parts_.steps.size()) add_step(i);
    }
  }

  void add_step(size_t index) {
    const Step& step = parts_.steps[index];
    Item item;
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

  void add_accesses(const LoopBody& body, Item* item) const {
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

  // A node may do anything with the memories of its operands and results.
  void add_node(size_t index) {
    Item item;
    item.node = index;
    const Node& node = parts_.graph.nodes[parts_.nodes[index].node];
    const auto access = [&](ValueId id) {
      const int32_t memory = parts_.buffers[parts_.graph.values[id].buffer];
      item.accesses.push_back({memory, true, nullptr});
    };
    node.for_each_operand(access);
    node.for_each_result(access);
    note(std::move(item));
  }

  void note(Item item) {
    const size_t step = item.steps.empty() ? kNoStep : item.steps[0];
    if (step != kNoStep) time_of_.push_back(all_.size());
    for (const Access& access : item.accesses) {
      uses_[static_cast<size_t>(access.memory)].push_back({all_.size(), step});
    }
    all_.push_back(std::move(item));
  }

  // Whether the order of two items matters.
  static bool depend(const Item& a, const Item& b) {
    for (const Access& x : a.accesses) {
      for (const Access& y : b.accesses) {
        if (x.memory == y.memory && (x.written || y.written)) return true;
      }
    }
    return false;
  }

  // Adds an item to the order, in which it joins earlier ones as long as it can.
  void place(Item item) {
    order_.push_back(std::move(item));
    size_t at = order_.size() - 1;
    if (!joins_) return;
    while (order_[at].fusable && joined_with_earlier(&at)) {
    }
  }

  // Joins the item at a place with an earlier one, and moves the place. The item may move up to the
  // earlier one if it depends on none between, and the earlier one down to it if none between
  // depends on that.
  bool joined_with_earlier(size_t* place) {
    bool rises = true;
    for (size_t back = 1; back <= std::min(*place, kWindow); ++back) {
      const size_t at = *place - back;
      const bool sinks = !rises && can_sink(at, *place);
      if (rises || sinks) {
        if (std::optional<Item> joined = join(order_[at], order_[*place]); joined.has_value()) {
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
        Item& item = order_[*place];
        if (item.apart == nullptr && depend(order_[at], item)) item.apart = why_;
      }
      rises = rises && !depend(order_[at], order_[*place]);
    }
    return false;
  }

  bool can_sink(size_t at, size_t to) const {
    for (size_t k = at + 1; k < to; ++k) {
      if (depend(order_[at], order_[k])) return false;
    }
    return true;
  }

  // Returns the space of the fusion of two items, or nothing if they cannot be one loop.
  std::optional<LoopSpace> join_spaces(const LoopSpace& a, const LoopSpace& b) {
    std::optional<LoopSpace> space = common_space(a, b);
    if (!space.has_value()) return apart("they run over different shapes");
    if (space->columns == 0) return space;
    // Sums would be reordered.
    if (parts_.mode == CompileMode::kExact) return apart("kExact keeps the order of sums");
    if (space->columns > kLongRow) return apart("rows are too long");
    if (space->rows() < kManyRows) return apart("there are too few rows");
    return space;
  }

  // Notes why two items stay apart.
  std::nullopt_t apart(const char* why) {
    why_ = why;
    return std::nullopt;
  }

  FusedOperand operand_of(const LoopSpace& space, const Access& access) const {
    return in_space(space, places_, *access.operand);
  }

  // Returns the fusion of two items, or nothing if it is not possible or gains nothing.
  std::optional<Item> join(const Item& a, const Item& b) {
    if (!a.fusable) return apart("the other is no loop over elements or rows");
    std::optional<LoopSpace> space = join_spaces(a.space, b.space);
    if (!space.has_value()) return std::nullopt;
    const Step& first = parts_.steps[a.steps[0]];
    const Step& second = parts_.steps[b.steps[0]];
    if (first.slot != second.slot || first.device.index != second.device.index) {
      return apart("they run on different devices");
    }
    if (parts_.mode == CompileMode::kExact && first.kernel->backend != second.kernel->backend) {
      return apart("kExact keeps kernels of different backends");
    }
    const int64_t n = space->numel();
    bool shares = n <= kSmall;
    for (const Access& x : a.accesses) {
      for (const Access& y : b.accesses) {
        if (x.memory != y.memory) continue;
        const FusedOperand p = operand_of(*space, x), q = operand_of(*space, y);
        const bool same = p == q, written = x.written || y.written;
        // Elements of one memory must correspond if it is written, or be selected from those that
        // were written.
        if (written && !same && !(x.written && selects_from(*space, y, p))) {
          return apart("an element of one needs other elements of the other");
        }
        shares = shares || (same && (written || has_elements(*space, p))) || p.size + q.size > 0;
      }
    }
    if (!shares) return apart("they share no elements");
    Item joined = a;
    joined.space = *std::move(space);
    joined.steps.insert(joined.steps.end(), b.steps.begin(), b.steps.end());
    joined.accesses.insert(joined.accesses.end(), b.accesses.begin(), b.accesses.end());
    const FusedProgram program = program_of(joined);
    if (program.inputs().size() > kMaxInputs) return apart("they have too many operands");
    if (program.outputs().size() > kMaxOutputs) return apart("they have too many results");
    if (program.num_calls() > kMaxCalls) return apart("they are too many calls");
    if (!may_fail(joined, program)) {
      return apart("an index that is out of range must leave what they write as it was");
    }
    if (!compiles(joined, program)) return apart("the backend does not take the program");
    return joined;
  }

  // Returns whether a table has these elements in its rows.
  bool selects_from(const LoopSpace& space, const Access& table,
                    const FusedOperand& elements) const {
    if (table.body == nullptr) return false;
    const std::optional<FusedOperand> own = elements_of_table(space, places_, *table.body);
    return own.has_value() && *own == elements;
  }

  // Returns whether an operand has one element for each of the loop.
  static bool has_elements(const LoopSpace& space, const FusedOperand& operand) {
    for (size_t d = 0; d < space.sizes.size(); ++d) {
      if (operand.strides[d] == 0) return false;
    }
    return true;
  }

  // Whether a program that fails leaves nothing written that outlives the run.
  bool may_fail(const Item& item, const FusedProgram& program) const {
    if (!program.selects()) return true;
    return item.space.columns != 0 && !program.writes_table() &&
           std::none_of(item.accesses.begin(), item.accesses.end(), [&](const Access& access) {
             const Memory::Kind kind = parts_.memories[static_cast<size_t>(access.memory)].kind;
             return access.written && (kind == Memory::kSource || kind == Memory::kConstant);
           });
  }

  // Whether a backend compiles a loop with rows; one without is tried when it is complete.
  bool compiles(const Item& item, const FusedProgram& program) const {
    if (item.space.columns == 0) return true;
    const Backend* backend = backend_of(item);
    if (backend == nullptr) return false;
    const FusedOp* op = FusedOp::find(*backend, program);
    if (op == nullptr) return false;
    std::deque<Header> headers;  // for this question alone
    const KeptArgs args = args_of(*op, item, program, [&](const FusedOperand& operand) {
      return &headers.emplace_back(operand, shape_of(item.space, operand)).tensor;
    });
    return op->takes(args.get());
  }

  // Returns whether a step or node outside of an item may see what the item writes to a memory.
  bool is_seen(const Item& item, int32_t memory) const {
    if (parts_.memories[static_cast<size_t>(memory)].kind != Memory::kArena) return true;
    size_t begin = SIZE_MAX;
    for (const size_t step : item.steps) begin = std::min(begin, time_of_[step]);
    const std::vector<Use>& uses = uses_[static_cast<size_t>(memory)];
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.time > begin &&
             std::find(item.steps.begin(), item.steps.end(), use.step) == item.steps.end();
    });
  }

  FusedProgram program_of(const Item& item) const {
    FusedProgram program(parts_.mode, item.space, places_);
    for (const size_t index : item.steps) program.add(bodies_[index]);
    program.finish([&](const mt_tensor* tensor) {
      const auto at = places_.find(tensor);
      return at == places_.end() || is_seen(item, at->second.memory);
    });
    return program;
  }

  // Returns the backend that compiles the program of an item.
  const Backend* backend_of(const Item& item) const {
    const Step& first = parts_.steps[item.steps[0]];
    if (first.kernel->backend->abi.compile_fused != nullptr) return first.kernel->backend;
    if (parts_.mode == CompileMode::kExact) return nullptr;
    const Backend* best = nullptr;
    for (const Backend* each : backends()) {
      if (each->device_slot != first.slot || each->abi.compile_fused == nullptr ||
          (each->abi.flags & MT_BACKEND_REFERENCE) != 0) {
        continue;
      }
      if (best == nullptr || each->abi.compile_priority > best->abi.compile_priority) best = each;
    }
    return best;
  }

  // The shape and the strides of an operand of the argument struct: a row of one element has a last
  // dimension of size 1, and a table one more than the loop.
  static Geometry shape_of(const LoopSpace& space, const FusedOperand& operand) {
    Geometry of{space.sizes, operand.strides};
    for (size_t d = 0; d < of.sizes.size(); ++d) {
      if (of.strides[d] == 0) of.sizes[d] = 1;
    }
    const auto add = [&](int64_t size, int64_t stride) {
      of.sizes.push_back(size);
      of.strides.push_back(stride);
    };
    if (space.columns == 1) add(1, 1);
    if (operand.size != 0) add(operand.size, operand.stride);
    return of;
  }

  // `header(operand)` returns the tensor of an operand.
  template <class MakeHeader>
  static KeptArgs args_of(const FusedOp& op, const Item& item, const FusedProgram& program,
                          MakeHeader&& header) {
    KeptArgs kept(std::max<size_t>(op.info().args_size, sizeof(mt_fused_args)));
    auto& args = field<mt_fused_args>(kept.get(), 0);
    args.header.size = op.info().args_size;
    Dims shape = item.space.sizes;
    if (item.space.columns == 1) shape.push_back(1);
    args.ndim = static_cast<int32_t>(shape.size());
    args.inner = item.space.columns == 1 ? 1 : item.space.inner();
    std::copy(shape.begin(), shape.end(), args.shape);
    size_t at = 0;
    const auto add = [&](const FusedOperand& operand) {
      field<const mt_tensor*>(kept.get(), FusedOp::offset_of(at++)) = header(operand);
    };
    for (const FusedOperand& input : program.inputs()) add(input);
    for (const auto& [output, value] : program.outputs()) add(output);
    return kept;
  }

  // Returns the one step that replaces those of an item, if a backend compiles it.
  std::optional<Step> fused(const Item& item) {
    const FusedProgram program = program_of(item);
    const Backend* backend = backend_of(item);
    if (backend == nullptr || program.outputs().empty()) return std::nullopt;
    const FusedOp* op = FusedOp::find(*backend, program);
    if (op == nullptr) return std::nullopt;
    const Step& first = parts_.steps[item.steps[0]];
    KeptArgs args = args_of(*op, item, program, [&](const FusedOperand& operand) {
      const Geometry of = shape_of(item.space, operand);
      Memory& memory = parts_.memories[static_cast<size_t>(operand.place.memory)];
      return &header_like(parts_, memory, *operand.tensor, operand.place.offset, as_list(of.sizes),
                          as_list(of.strides))
                  .impl()
                  ->abi;
    });
    Step step{&op->entry(), first.slot, first.device, std::move(args), {}, {}};
    if (!op->takes(step.args.get())) return std::nullopt;
    step.fused = op;
    step.kept = std::all_of(item.steps.begin(), item.steps.end(),
                            [&](size_t index) { return parts_.steps[index].kept; });
    step.joined = item.steps.size();
    for (const auto& [operand, value] : program.outputs()) {
      const int32_t memory = operand.place.memory;
      if (std::find(step.written.begin(), step.written.end(), memory) == step.written.end()) {
        step.written.push_back(memory);
      }
    }
    return step;
  }

  // Returns whether an item is one pointwise call of few elements, with contiguous operands.
  bool is_small_call(const Item& item) const {
    if (!item.fusable || item.steps.size() != 1 || item.space.columns != 0) return false;
    const Step& step = parts_.steps[item.steps[0]];
    const LoopBody& body = bodies_[item.steps[0]];
    const int64_t numel = item.space.numel();
    if (!Device(step.device.type, step.device.index).is_cpu() || numel > kSmall ||
        body.calls.size() != 1 || body.calls[0].program->num_nodes < 2) {
      return false;
    }
    return std::all_of(body.operands.begin(), body.operands.end(), [&](const LoopOperand& operand) {
      if (operand.kind != LoopOperand::kTensor) return operand.kind == LoopOperand::kNumber;
      const mt_tensor& tensor = *operand.tensor;
      int64_t elements = 1;
      for (int32_t d = 0; d < tensor.dl.ndim; ++d) elements *= tensor.dl.shape[d];
      return elements == numel && (tensor.flags & MT_TENSOR_CONTIGUOUS) != 0;
    });
  }

  // Says what became of an item.
  void report(const Item& item, bool one) {
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

  // Replaces the steps and nodes by those of the new order.
  void emit() {
    std::vector<Step> steps;
    std::vector<Interpreted> nodes;
    for (const Item& item : order_) {
      if (item.steps.empty()) {
        nodes.push_back({steps.size(), parts_.nodes[item.node].node});
        continue;
      }
      if (item.steps.size() > 1 || is_small_call(item)) {
        std::optional<Step> one = fused(item);
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

  PlanParts& parts_;
  const bool joins_ = !is_disabled("fusion");
  const TensorPlaces places_;
  std::deque<LoopBody> bodies_;         // of each step
  std::vector<Item> all_;               // in the first order
  std::vector<size_t> time_of_;         // of each step: its place in all_
  std::vector<std::vector<Use>> uses_;  // of each memory
  std::vector<Item> order_;
  const char* why_ = nullptr;  // two items stayed apart the last time
};

}  // namespace

void fuse_calls(PlanParts* parts) {
  Fusion(parts).run();
  if (!dumps()) return;
  for (const std::string& line : parts->fusion_report) {
    detail::tell(absl::StrCat("[compile] ", line));
  }
}

}  // namespace mytorch::graph
