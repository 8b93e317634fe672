#include "program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "node_ops.h"
#include "operand.h"

namespace npu {
namespace {

constexpr int64_t kChunk = 256;  // number of elements that each node evaluates at a time

enum class Kind { kInput, kScalar, kConst, kCast, kCount, kState, kOperation };

struct Node {
  mt_node abi;
  Kind kind;
  NodeOp operation;
};

Kind kind_of(std::string_view op) {
  constexpr std::pair<const char*, Kind> kKinds[] = {
      {"input", Kind::kInput}, {"scalar", Kind::kScalar}, {"const", Kind::kConst},
      {"cast", Kind::kCast},   {"count", Kind::kCount},   {"state", Kind::kState}};
  for (const auto& [name, kind] : kKinds) {
    if (op == name) return kind;
  }
  return Kind::kOperation;
}

// The nodes of a program for one compute type, and the offsets of its outputs in the arguments.
struct Body {
  Body(const mt_program& program, mt_dtype compute_type)
      : compute(compute_type),
        floating(sdk::is_floating(compute_type)),
        op(program.name),
        outputs(program.outputs, program.outputs + program.num_outputs) {
    for (int32_t i = 0; i < program.num_nodes; ++i) {
      const mt_node& node = program.nodes[i];
      Node n{node, kind_of(node.op), nullptr};
      if (n.kind == Kind::kOperation) {
        // Operations such as `where` exist only for integers and pass reals on unchanged.
        n.operation = find_node_op(node.op, is_real(node.a[0]));
        if (n.operation == nullptr) n.operation = find_node_op(node.op, false);
        if (n.operation == nullptr) throw sdk::Declined{};
      }
      nodes.push_back(n);
    }
  }
  bool is_real(int32_t node) const {
    return floating && nodes[static_cast<size_t>(node)].abi.type == MT_TYPE_COMPUTE;
  }
  // Returns the nodes on which `roots` depend, in order.
  std::vector<int32_t> needed(const std::vector<int32_t>& roots) const {
    std::vector<bool> marked(nodes.size(), false);
    for (const int32_t root : roots) marked[static_cast<size_t>(root)] = true;
    for (size_t i = nodes.size(); i-- > 0;) {
      if (!marked[i]) continue;
      for (const int32_t a : nodes[i].abi.a) {
        if (a >= 0) marked[static_cast<size_t>(a)] = true;
      }
    }
    std::vector<int32_t> result;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (marked[i]) result.push_back(static_cast<int32_t>(i));
    }
    return result;
  }

  mt_dtype compute;
  bool floating;
  const char* op;
  std::vector<mt_program_output> outputs;
  std::vector<Node> nodes;
};

// The values of a call's input, scalar and constant nodes, copied for the stream's worker.
struct Inputs {
  std::vector<Operand> operands;  // by node; absent unless the node is an input
  std::vector<NodeValue> constants;

  Inputs(const Body& body, const void* args)
      : operands(body.nodes.size()), constants(body.nodes.size(), whole(0)) {
    for (size_t i = 0; i < body.nodes.size(); ++i) {
      const Node& node = body.nodes[i];
      if (node.kind == Kind::kInput) operands[i] = sdk::tensor_at(args, node.abi.offset);
      if (node.kind != Kind::kScalar && node.kind != Kind::kConst) continue;
      const bool given = node.kind == Kind::kScalar;
      if (body.is_real(static_cast<int32_t>(i))) {
        const double number = given ? sdk::scalar_at<double>(args, node.abi) : node.abi.value;
        // Rounds to float like a kernel does: 0.1 compared with a float is the float 0.1.
        constants[i] =
            real(sdk::is_dtype<double>(body.compute) ? number : static_cast<float>(number));
      } else {
        const int64_t number =
            given ? sdk::scalar_at<int64_t>(args, node.abi) : sdk::convert<int64_t>(node.abi.value);
        const bool computes = node.abi.type == MT_TYPE_COMPUTE;
        constants[i] = whole(computes ? wrap(number, body.compute) : number);
      }
    }
  }
};

// Evaluates nodes for up to kChunk elements at a time.
class Evaluation {
 public:
  Evaluation(const Body& body, const Inputs& inputs, const std::vector<int32_t>& plan)
      : body_(body), inputs_(inputs), plan_(plan), values_(body.nodes.size()) {
    for (const int32_t i : plan) {
      values_[static_cast<size_t>(i)].assign(kChunk, inputs.constants[static_cast<size_t>(i)]);
    }
  }
  std::vector<NodeValue>& at(int32_t node) { return values_[static_cast<size_t>(node)]; }

  // Loads up to kChunk elements of an input; offset_of(i) is the offset of the i-th one.
  template <class OffsetOf>
  void load(int32_t node, int64_t count, OffsetOf&& offset_of) {
    const Operand& from = inputs_.operands[static_cast<size_t>(node)];
    const int32_t type = body_.nodes[static_cast<size_t>(node)].abi.type;
    std::vector<NodeValue>& to = at(node);
    sdk::visit_dtype(from.dtype, [&](auto tag) {
      const auto* data = reinterpret_cast<const typename decltype(tag)::type*>(from.data());
      for (int64_t i = 0; i < count; ++i) {
        const auto element = data[offset_of(i)];
        NodeValue& result = to[static_cast<size_t>(i)];
        if (type == MT_TYPE_BOOL || (type == MT_TYPE_COMPUTE && sdk::is_bool(body_.compute))) {
          result = whole(sdk::convert<bool>(element));
        } else if (body_.is_real(node)) {
          result = real(sdk::convert<double>(element));
        } else {
          result = whole(sdk::convert<int64_t>(element));
        }
      }
    });
    if (type != MT_TYPE_COMPUTE || sdk::same_dtype(from.dtype, body_.compute)) return;
    // Numbers keep the precision of float32 beside 16-bit floats.
    const bool wide = from.is_number && body_.floating && body_.compute.bits == 16;
    sdk::visit_dtype(wide ? sdk::dtype_of<float> : body_.compute, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < count; ++i) {
        NodeValue& result = to[static_cast<size_t>(i)];
        result = body_.floating ? real(sdk::convert<double>(sdk::convert<T>(result.f)))
                                : whole(sdk::convert<int64_t>(sdk::convert<T>(result.i)));
      }
    });
  }

  // Runs the operations of the plan. `states` and `elements` are used by reductions.
  void run(int64_t count, const NodeValue* states = nullptr, int64_t elements = 0) {
    for (const int32_t i : plan_) {
      const Node& node = body_.nodes[static_cast<size_t>(i)];
      std::vector<NodeValue>& out = at(i);
      const auto operand = [&](int k, int64_t j) {
        return node.abi.a[k] < 0 ? whole(0) : at(node.abi.a[k])[static_cast<size_t>(j)];
      };
      if (node.kind == Kind::kCount) {
        out[0] = body_.is_real(i) ? real(static_cast<double>(elements)) : whole(elements);
      } else if (node.kind == Kind::kState) {
        out[0] = states[node.abi.component];
      } else if (node.kind == Kind::kCast) {
        for (int64_t j = 0; j < count; ++j) out[static_cast<size_t>(j)] = cast(i, operand(0, j));
      } else if (node.kind == Kind::kOperation) {
        const Call call{body_.compute, body_.op};
        const bool wraps = !body_.floating && node.abi.type == MT_TYPE_COMPUTE;
        for (int64_t j = 0; j < count; ++j) {
          NodeValue& result = out[static_cast<size_t>(j)];
          result = node.operation(operand(0, j), operand(1, j), operand(2, j), call);
          if (wraps) result = whole(wrap(result.i, body_.compute));
        }
      }
    }
  }

  template <class OffsetOf>
  void store(int32_t node, Operand& to, int64_t count, OffsetOf&& offset_of) {
    const std::vector<NodeValue>& from = at(node);
    sdk::visit_dtype(to.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      auto* data = reinterpret_cast<T*>(to.data());
      for (int64_t i = 0; i < count; ++i) {
        const NodeValue result = from[static_cast<size_t>(i)];
        data[offset_of(i)] =
            body_.is_real(node) ? sdk::convert<T>(result.f) : sdk::convert<T>(result.i);
      }
    });
  }

 private:
  NodeValue cast(int32_t i, NodeValue value) const {
    const mt_node& node = body_.nodes[static_cast<size_t>(i)].abi;
    const bool from_real = body_.is_real(node.a[0]);
    if (node.type == MT_TYPE_BOOL) return whole(from_real ? value.f != 0 : value.i != 0);
    if (node.type == MT_TYPE_INDEX) {
      return whole(from_real ? sdk::convert<int64_t>(value.f) : value.i);
    }
    if (!body_.floating) return whole(wrap(value.i, body_.compute));
    return from_real ? value : real(static_cast<double>(value.i));
  }

  const Body& body_;
  const Inputs& inputs_;
  const std::vector<int32_t>& plan_;
  std::vector<std::vector<NodeValue>> values_;
};

struct Outputs {
  std::vector<Operand> operands;
  std::vector<int32_t> nodes;

  // Collects the requested outputs; the others are NULL.
  Outputs(const Body& body, const void* args) {
    for (const mt_program_output& output : body.outputs) {
      const mt_tensor* tensor = sdk::tensor_at(args, output.offset);
      if (tensor == nullptr) continue;
      operands.emplace_back(tensor);
      nodes.push_back(output.node);
    }
  }
};

// The offsets of a chunk's elements, for several operands.
struct Offsets {
  Offsets(const Sizes& shape, std::vector<Sizes> strides)
      : at(shape, strides), of(strides.size(), std::vector<int64_t>(kChunk)) {}
  void advance(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < of.size(); ++k) of[k][static_cast<size_t>(i)] = at.offset(k);
      at.next();
    }
  }
  Odometer at;
  std::vector<std::vector<int64_t>> of;
};

// ---- pointwise

struct Pointwise {
  Body body;

  void run(const Inputs& inputs, Outputs& outputs) const {
    const Sizes shape = outputs.operands[0].shape;
    const std::vector<int32_t> plan = body.needed(outputs.nodes);
    std::vector<int32_t> loads;
    std::vector<Sizes> strides;
    for (const int32_t i : plan) {
      if (body.nodes[static_cast<size_t>(i)].kind != Kind::kInput) continue;
      loads.push_back(i);
      strides.push_back(inputs.operands[static_cast<size_t>(i)].strides_in(shape));
    }
    for (const Operand& output : outputs.operands) strides.push_back(output.strides);
    Offsets offsets(shape, strides);
    Evaluation evaluation(body, inputs, plan);
    const int64_t total = product(shape);
    for (int64_t begin = 0; begin < total; begin += kChunk) {
      const int64_t count = std::min(kChunk, total - begin);
      offsets.advance(count);
      const auto offset_of = [&](size_t k) {
        return [&, k](int64_t i) { return offsets.of[k][static_cast<size_t>(i)]; };
      };
      for (size_t k = 0; k < loads.size(); ++k) evaluation.load(loads[k], count, offset_of(k));
      evaluation.run(count);
      for (size_t k = 0; k < outputs.nodes.size(); ++k) {
        evaluation.store(outputs.nodes[k], outputs.operands[k], count, offset_of(loads.size() + k));
      }
    }
  }
};

// ---- reductions

// The state of a fold: up to three components, in the order of abi.h.
class Fold {
 public:
  Fold(std::string_view kind, bool reals) : reals_(reals) {
    constexpr const char* kKinds[] = {"sum",    "prod", "max", "min",     "argmax",
                                      "argmin", "all",  "any", "welford", "logsumexp"};
    const auto* found = std::find(std::begin(kKinds), std::end(kKinds), kind);
    if (found == std::end(kKinds)) throw sdk::Declined{};
    kind_ = static_cast<int>(found - std::begin(kKinds));
    if (kind_ >= 8 && !reals) throw sdk::Declined{};
  }
  void reset() {
    count_ = 0;
    constexpr double kInf = std::numeric_limits<double>::infinity();
    for (NodeValue& state : state_) state = whole(0);
    if (kind_ == 1) state_[0] = reals_ ? real(1) : whole(1);
    if (kind_ == 6) state_[0] = whole(1);
    // the identities of max and min
    if (kind_ == 2 || kind_ == 3) {
      using Limits = std::numeric_limits<int64_t>;
      const bool max = kind_ == 2;
      state_[0] = reals_ ? real(max ? -kInf : kInf) : whole(max ? Limits::min() : Limits::max());
    }
    if (kind_ == 9) state_[0] = real(-kInf);
  }
  void push(NodeValue x) {
    ++count_;
    switch (kind_) {
      case 0:
        return reals_ ? add(x.f) : void(state_[0].i = wrapping(state_[0].i, x.i, false));
      case 1:
        if (reals_) {
          state_[0].f *= x.f;
        } else {
          state_[0].i = wrapping(state_[0].i, x.i, true);
        }
        return;
      case 2:
      case 3:
      case 4:
      case 5:
        return best(x);
      case 6:
        state_[0].i = state_[0].i != 0 && x.i != 0;
        return;
      case 7:
        state_[0].i = state_[0].i != 0 || x.i != 0;
        return;
      case 8: {  // Welford 1962
        state_[0].f += 1;
        const double delta = x.f - state_[1].f;
        state_[1].f += delta / state_[0].f;
        state_[2].f += delta * (x.f - state_[1].f);
        return;
      }
      default:
        return log_sum_exp(x.f);
    }
  }
  const NodeValue* state() {
    if (kind_ == 0 && reals_ && std::isfinite(state_[0].f)) {
      state_[0].f += lost_;
    }
    lost_ = 0;
    return state_;
  }

 private:
  static int64_t wrapping(int64_t a, int64_t b, bool multiply) {
    const auto x = static_cast<uint64_t>(a);
    const auto y = static_cast<uint64_t>(b);
    return static_cast<int64_t>(multiply ? x * y : x + y);
  }
  // Adds with Neumaier's compensation.
  void add(double x) {
    const double sum = state_[0].f;
    const double total = sum + x;
    lost_ += std::abs(sum) >= std::abs(x) ? (sum - total) + x : (x - total) + sum;
    state_[0].f = total;
  }
  // Keeps the first of equal extremes. NaN wins over every number.
  void best(NodeValue x) {
    const bool largest = kind_ == 2 || kind_ == 4;
    const bool index = kind_ >= 4;
    NodeValue& held = state_[index ? 1 : 0];
    bool better = count_ == 1;
    if (!better && reals_) {
      better = !std::isnan(held.f) && (std::isnan(x.f) || (largest ? x.f > held.f : x.f < held.f));
    } else if (!better) {
      better = largest ? x.i > held.i : x.i < held.i;
    }
    if (!better) return;
    held = x;
    if (index) state_[0].i = count_ - 1;
  }
  // Maintains the maximum and the sum of exp(x - maximum). For an infinite maximum, the sum counts
  // its occurrences.
  void log_sum_exp(double x) {
    double& max = state_[0].f;
    double& sum = state_[1].f;
    if (std::isnan(x) || std::isnan(max)) {
      max = sum = std::numeric_limits<double>::quiet_NaN();
    } else if (x == max) {
      sum += 1;
    } else if (x < max) {
      sum += std::exp(x - max);
    } else {
      sum = sum * std::exp(max - x) + 1;
      max = x;
    }
  }

  int kind_ = 0;
  bool reals_;
  int64_t count_ = 0;
  double lost_ = 0;
  NodeValue state_[3] = {};
};

struct Reduce {
  Body body;
  std::string fold;
  int32_t step;
  uint32_t dim_offset;
  int32_t dim_field;

  // Returns the reduced dimensions; an empty list means all of them.
  std::vector<int64_t> dims(const void* args) const {
    if (dim_field == MT_DIM_INT) return {sdk::field_at<int64_t>(args, dim_offset)};
    if (dim_field == MT_DIM_LIST) {
      const auto list = sdk::field_at<mt_int_list>(args, dim_offset);
      if (list.data != nullptr) return {list.data, list.data + list.size};
    }
    if (dim_field == MT_DIM_OPTIONAL_INT) {
      const auto dim = sdk::field_at<mt_optional_int>(args, dim_offset);
      if (dim.present != 0) return {dim.value};
    }
    return {};
  }

  void run(const Inputs& inputs, Outputs& outputs, const std::vector<int64_t>& dims) const {
    const std::vector<int32_t> steps = body.needed({step});
    const std::vector<int32_t> finals = body.needed(outputs.nodes);
    std::vector<int32_t> loads;
    Sizes shape;
    for (const int32_t i : steps) {
      if (body.nodes[static_cast<size_t>(i)].kind != Kind::kInput) continue;
      loads.push_back(i);
      const Sizes& own = inputs.operands[static_cast<size_t>(i)].shape;
      if (own.size() > shape.size()) shape.insert(shape.begin(), own.size() - shape.size(), 1);
      for (size_t d = 0; d < own.size(); ++d) {
        int64_t& size = shape[shape.size() - own.size() + d];
        if (size == 1) size = own[d];
      }
    }
    const auto ndim = static_cast<int64_t>(shape.size());
    std::vector<bool> reduced(shape.size(), dims.empty());
    for (const int64_t dim : dims) {
      if (ndim > 0) reduced[static_cast<size_t>(dim < 0 ? dim + ndim : dim)] = true;
    }
    const auto part = [&](const Sizes& all, bool which) {
      Sizes some;
      for (size_t d = 0; d < shape.size(); ++d) {
        if (reduced[d] == which) some.push_back(all[d]);
      }
      return some;
    };
    // `outer` iterates over the remaining dimensions, `inner` over the reduced ones.
    std::vector<Sizes> outer_strides;
    std::vector<Sizes> inner_strides;
    for (const int32_t i : loads) {
      const Sizes all = inputs.operands[static_cast<size_t>(i)].strides_in(shape);
      outer_strides.push_back(part(all, false));
      inner_strides.push_back(part(all, true));
    }
    for (const Operand& output : outputs.operands) {
      const bool keeps = output.strides.size() == shape.size();
      outer_strides.push_back(keeps ? part(output.strides, false) : output.strides);
    }
    const Sizes outer_shape = part(shape, false);
    const Sizes inner_shape = part(shape, true);
    const int64_t results = product(outer_shape);
    const int64_t elements = product(inner_shape);
    Odometer outer(outer_shape, outer_strides);
    Evaluation stepping(body, inputs, steps);
    Evaluation finishing(body, inputs, finals);
    Fold folding(fold, body.is_real(step));
    for (int64_t r = 0; r < results; ++r) {
      folding.reset();
      Offsets offsets(inner_shape, inner_strides);
      for (int64_t begin = 0; begin < elements; begin += kChunk) {
        const int64_t count = std::min(kChunk, elements - begin);
        offsets.advance(count);
        for (size_t k = 0; k < loads.size(); ++k) {
          stepping.load(loads[k], count, [&](int64_t i) {
            return outer.offset(k) + offsets.of[k][static_cast<size_t>(i)];
          });
        }
        stepping.run(count);
        for (int64_t i = 0; i < count; ++i) folding.push(stepping.at(step)[static_cast<size_t>(i)]);
      }
      NodeValue state[3];
      std::copy_n(folding.state(), 3, state);
      if (!body.floating && (fold == "sum" || fold == "prod")) {
        state[0] = whole(wrap(state[0].i, body.compute));
      }
      finishing.run(1, state, elements);
      for (size_t k = 0; k < outputs.nodes.size(); ++k) {
        finishing.store(outputs.nodes[k], outputs.operands[k], 1,
                        [&](int64_t) { return outer.offset(loads.size() + k); });
      }
      outer.next();
    }
  }
};

// ---- the entries of kernels

int run_pointwise(void* self, mt_ctx* ctx, const void* args) {
  return sdk::guarded(ctx, [&] {
    const auto& program = *static_cast<const Pointwise*>(self);
    Outputs outputs(program.body, args);
    if (outputs.nodes.empty()) return;
    launch(*ctx, [&program, outputs, inputs = Inputs(program.body, args)]() mutable {
      program.run(inputs, outputs);
    });
  });
}

int run_reduce(void* self, mt_ctx* ctx, const void* args) {
  return sdk::guarded(ctx, [&] {
    const auto& program = *static_cast<const Reduce*>(self);
    Outputs outputs(program.body, args);
    if (outputs.nodes.empty()) return;
    launch(*ctx, [&program, outputs, inputs = Inputs(program.body, args),
                  dims = program.dims(args)]() mutable { program.run(inputs, outputs, dims); });
  });
}

}  // namespace

void compile(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> /*types*/,
             mt_kernel_entry& kernel) {
  const Body body(program, compute);
  if (program.fold == nullptr) {
    kernel.self = new Pointwise{body};  // never freed, because kernels live forever
    kernel.run = &run_pointwise;
  } else {
    Fold(program.fold, body.is_real(program.step));  // throws Declined for an unknown fold
    kernel.self =
        new Reduce{body, program.fold, program.step, program.dim_offset, program.dim_field};
    kernel.run = &run_reduce;
  }
  kernel.size = sizeof(mt_kernel_entry);
  kernel.name = "interpreted";
  kernel.supports = nullptr;
  kernel.flags = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;
}

}  // namespace npu
