#include "regions.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/abi_ops.h"
#include "node_ops.h"
#include "operand.h"

namespace npu {
namespace {

// A tensor in a memory of the chip, which holds its elements as doubles.
struct Place {
  size_t memory;
  Sizes shape, strides;
  int64_t offset;

  // Calls f(element) for each element, in row-major order of a shape to which it is broadcast.
  template <class F>
  void for_each(std::vector<double>& elements, const Sizes& larger, F f) const {
    Sizes steps(larger.size(), 0);
    const size_t missing = larger.size() - shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] != 1 || larger[missing + d] == 1) steps[missing + d] = strides[d];
    }
    Odometer at(larger, {steps});
    for (int64_t i = 0, n = product(larger); i < n; ++i, at.next()) {
      f(elements[static_cast<size_t>(offset + at.offset(0))]);
    }
  }
};

using Memories = std::vector<std::vector<double>>;

std::vector<double> values_of(const Place& place, Memories& memories, const Sizes& shape) {
  std::vector<double> values;
  place.for_each(memories[place.memory], shape, [&](double x) { values.push_back(x); });
  return values;
}
void set_values(const Place& place, Memories& memories, const std::vector<double>& values) {
  auto next = values.begin();
  place.for_each(memories[place.memory], place.shape, [&](double& x) { x = *next++; });
}

// out = f(self, other), or self and other multiplied as batches of matrices.
struct Step {
  NodeOp f = nullptr;  // of a pointwise operator
  bool is_product = false;
  int32_t out = -1, self = -1, other = -1;  // values; other: -1 if it is `number` or absent
  double number = 0;
  double alpha = 1;  // multiplies `other`
};

bool is_real(const sdk::Region& region, int32_t id) {
  return sdk::is_floating(region.value(id).dtype);
}

template <class... Args>
bool calls_one_of(const sdk::RegionNode& node) {
  return (node.calls<Args>() || ...);
}

// Returns whether the node is a function of one operand, whose name and schema the chip knows.
bool is_function(const sdk::RegionNode& node) {
  return calls_one_of<mt_args_abs, mt_args_neg, mt_args_sign, mt_args_sqrt, mt_args_rsqrt,
                      mt_args_exp, mt_args_exp2, mt_args_expm1, mt_args_log, mt_args_log2,
                      mt_args_log10, mt_args_log1p, mt_args_sin, mt_args_cos, mt_args_tan,
                      mt_args_asin, mt_args_acos, mt_args_atan, mt_args_sinh, mt_args_cosh,
                      mt_args_tanh, mt_args_asinh, mt_args_acosh, mt_args_atanh, mt_args_erf,
                      mt_args_erfc, mt_args_sigmoid, mt_args_floor, mt_args_ceil, mt_args_trunc>(
      node);
}

bool is_view(const sdk::Region& region, const sdk::RegionNode& node) {
  if (node.op() == "as_strided" || node.num_args() == 0 || node.values_at(0).empty()) return false;
  const int32_t from = node.values_at(0)[0];
  return from >= 0 && region.value(from).memory == region.value(node.result()).memory;
}

// Sets `step` to what the chip does for a node; returns false if it cannot compute it.
bool read_step(const sdk::Region& region, const sdk::RegionNode& node, Step* step) {
  *step = {};
  step->out = node.result();
  if (node.calls<mt_args_bmm>()) {
    step->is_product = true;
    step->self = node.value("self");
    step->other = node.value("mat2");
    return true;
  }
  const bool scaled = node.calls<mt_args_add_Tensor>() || node.calls<mt_args_sub_Tensor>();
  const bool binary =
      scaled || node.calls<mt_args_mul_Tensor>() || node.calls<mt_args_div_Tensor>();
  const std::string name(node.op().substr(0, node.op().find('.')));
  const bool is_relu = node.calls<mt_args_relu>();
  if (!binary && !is_relu && !is_function(node)) return false;
  step->f = find_node_op(is_relu ? "maximum" : name, true);
  if (step->f == nullptr || !node.is_value("self")) return false;
  step->self = node.value("self");
  if (!binary) return true;  // relu(x) = maximum(x, 0)
  if (node.is_value("other")) {
    step->other = node.value("other");
  } else {
    step->number = node.number("other");
  }
  if (scaled) step->alpha = node.number("alpha");
  return step->other < 0 || is_real(region, step->other);
}

bool takes(const sdk::Region& region, const sdk::RegionNode& node) {
  if (node.abi().form != MT_REGION_FUNCTION || node.results().size() != 1 || node.result() < 0) {
    return false;
  }
  if (!is_real(region, node.result())) return false;
  Step step;
  return is_view(region, node) || (read_step(region, node, &step) && is_real(region, step.self));
}

void claim(const sdk::Region& region, std::span<int32_t> wanted) {
  for (const sdk::RegionNode node : region.nodes()) {
    wanted[static_cast<size_t>(node.index())] = takes(region, node) ? 1 : 0;
  }
}

// What a run needs, and the queued work keeps.
struct Program {
  std::vector<Place> places;  // by value
  std::vector<size_t> sizes;  // of the memories, in elements
  std::vector<Step> steps;
  std::vector<int32_t> inputs, outputs, constants;
  std::vector<Operand> constant_data;

  void run(std::vector<Operand>& given, std::vector<Operand>& made) const;
  void run(const Step& step, Memories& memories) const;
};

class Compiled final : public sdk::CompiledRegion {
 public:
  explicit Compiled(const sdk::Region& region);
  void run(mt_ctx& ctx, const mt_region_args& args) override {
    std::vector<Operand> inputs(args.inputs, args.inputs + program_->inputs.size());
    std::vector<Operand> outputs(args.outputs, args.outputs + program_->outputs.size());
    launch(ctx, [program = program_, inputs, outputs]() mutable { program->run(inputs, outputs); });
  }

 private:
  std::shared_ptr<Program> program_ = std::make_shared<Program>();
};

Compiled::Compiled(const sdk::Region& region) {
  Program& to = *program_;
  to.sizes.resize(static_cast<size_t>(region.abi().num_memories));
  for (int32_t id = 0; id < region.num_values(); ++id) {
    const mt_region_value& value = region.value(id);
    if (!sdk::is_floating(value.dtype)) throw sdk::Declined{};
    const auto memory = static_cast<size_t>(value.memory);
    const uint64_t bytes = region.abi().memory_bytes[memory];
    to.sizes[memory] = std::max(to.sizes[memory], bytes / sdk::itemsize(value.dtype) + 1);
    const auto shape = region.shape(id), strides = region.strides(id);
    to.places.push_back(
        {memory, {shape.begin(), shape.end()}, {strides.begin(), strides.end()}, value.offset});
    if (value.kind != MT_REGION_CONSTANT) continue;
    mt_tensor tensor{};
    tensor.dl.data = const_cast<void*>(value.data);
    tensor.dl.dtype = value.dtype;
    tensor.dl.ndim = value.ndim;
    tensor.dl.shape = const_cast<int64_t*>(value.shape);
    tensor.dl.strides = const_cast<int64_t*>(value.strides);
    to.constants.push_back(id);
    to.constant_data.emplace_back(&tensor);
  }
  to.inputs.assign(region.inputs().begin(), region.inputs().end());
  to.outputs.assign(region.outputs().begin(), region.outputs().end());
  for (const sdk::RegionNode node : region.nodes()) {
    Step step;
    if (!takes(region, node)) throw sdk::Declined{};
    if (is_view(region, node)) continue;  // its elements are where those of its operand are
    read_step(region, node, &step);
    to.steps.push_back(step);
  }
}

void Program::run(std::vector<Operand>& given, std::vector<Operand>& made) const {
  Memories memories;
  for (const size_t size : sizes) memories.emplace_back(size);
  const auto load = [&](int32_t id, const Operand& from) {
    set_values(places[static_cast<size_t>(id)], memories, read<double>(from));
  };
  for (size_t i = 0; i < inputs.size(); ++i) load(inputs[i], given[i]);
  for (size_t i = 0; i < constants.size(); ++i) load(constants[i], constant_data[i]);
  for (const Step& step : steps) run(step, memories);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Place& place = places[static_cast<size_t>(outputs[i])];
    write(values_of(place, memories, place.shape), made[i]);
  }
}

void Program::run(const Step& step, Memories& memories) const {
  const Place& out = places[static_cast<size_t>(step.out)];
  const Place& self = places[static_cast<size_t>(step.self)];
  std::vector<double> results(static_cast<size_t>(product(out.shape)));
  if (step.is_product) {
    const Place& other = places[static_cast<size_t>(step.other)];
    const std::vector<double> left = values_of(self, memories, self.shape);
    const std::vector<double> right = values_of(other, memories, other.shape);
    const auto rows = static_cast<size_t>(out.shape[1]),
               columns = static_cast<size_t>(out.shape[2]);
    const auto depth = static_cast<size_t>(self.shape[2]);
    for (size_t row = 0; row < static_cast<size_t>(out.shape[0]) * rows; ++row) {
      for (size_t k = 0; k < depth; ++k) {
        const double x = left[row * depth + k];
        const double* y = right.data() + (row / rows * depth + k) * columns;
        for (size_t j = 0; j < columns; ++j) results[row * columns + j] += x * y[j];
      }
    }
  } else {
    results = values_of(self, memories, out.shape);
    std::vector<double> others(results.size(), step.number);
    if (step.other >= 0) {
      others = values_of(places[static_cast<size_t>(step.other)], memories, out.shape);
    }
    const Call call{sdk::dtype_of<double>, "region"};
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = step.f(real(results[i]), real(step.alpha * others[i]), real(0), call).f;
    }
  }
  set_values(out, memories, results);
}

}  // namespace

const mt_region_ops& region_ops() {
  static constexpr mt_region_ops kRegions = sdk::region_ops<&claim, Compiled>();
  return kRegions;
}

}  // namespace npu
