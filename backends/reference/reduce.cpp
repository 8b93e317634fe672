// Reduce programs: each element of the outputs is a fold over the reduced dimensions in row-major
// order, followed by the program's final nodes.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/reference/elements.h"
#include "backends/reference/fold.h"
#include "backends/reference/interpreter.h"
#include "backends/reference/program.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

class Reduce {
 public:
  Reduce(const mt_program& program, mt_dtype compute)
      : interpreter_(program, compute),
        fold_(program.fold),
        step_(program.step),
        dim_offset_(program.dim_offset),
        dim_field_(program.dim_field),
        step_plan_(interpreter_.plan(std::vector<int32_t>{program.step})) {
    if (make_fold(fold_, interpreter_.floating()) == nullptr) throw sdk::Declined{};
  }

  void run(const void* args) const {
    const std::vector<mt_program_output> wanted = interpreter_.requested(args);
    if (wanted.empty()) return;
    const Plan final_plan = interpreter_.plan(wanted);

    const std::vector<int32_t> input_nodes = interpreter_.inputs(step_plan_);
    std::vector<sdk::TensorView> tensors;
    for (const int32_t node : input_nodes) {
      tensors.emplace_back(sdk::tensor_at(args, interpreter_.offset(node)));
    }
    const std::vector<int64_t> shape = sdk::broadcast_shape(tensors);
    const uint64_t reduced =
        sdk::reduced_dims(args, dim_field_, dim_offset_, static_cast<int>(shape.size()));
    // The values of the kept or of the reduced dimensions.
    const auto select = [](uint64_t dims, std::span<const int64_t> all) {
      std::vector<int64_t> some(all.size());
      some.resize(static_cast<size_t>(sdk::select_dims(dims, all, some.data())));
      return some;
    };
    const std::vector<int64_t> kept_shape = select(~reduced, shape);
    const std::vector<int64_t> reduced_shape = select(reduced, shape);

    struct Input {
      int32_t node;
      Elements kept, reduced;  // an element's offset is the sum of both
      Interpreter::Load load;
    };
    std::vector<Input> inputs;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const sdk::TensorView& tensor = tensors[k];
      std::vector<int64_t> strides(shape.size());
      sdk::broadcast_strides(tensor, shape, strides.data());
      inputs.push_back({input_nodes[k],
                        Elements(tensor, kept_shape, select(~reduced, strides).data()),
                        Elements(tensor, reduced_shape, select(reduced, strides).data()),
                        interpreter_.load(input_nodes[k], tensor.get())});
    }
    struct Output {
      int32_t node;
      Elements elements;
      Interpreter::Store store;
    };
    std::vector<Output> outputs;
    for (const mt_program_output& output : wanted) {
      const sdk::TensorView tensor = sdk::tensor_at(args, output.offset);
      std::vector<int64_t> strides(tensor.strides().begin(), tensor.strides().end());
      // With keepdim, the output has the reduced dimensions, of size 1.
      if (strides.size() == shape.size()) strides = select(~reduced, strides);
      outputs.push_back({output.node, Elements(tensor, kept_shape, strides.data()),
                         interpreter_.store(output.node, tensor.dtype())});
    }

    const int64_t count = sdk::product(reduced_shape);
    std::vector<Value> values(static_cast<size_t>(interpreter_.num_nodes()));
    interpreter_.set_constants(step_plan_, args, values);
    interpreter_.set_constants(final_plan, args, values);
    const std::unique_ptr<Fold> fold = make_fold(fold_, interpreter_.floating());
    for (int64_t o = 0; o < outputs[0].elements.count(); ++o) {
      fold->reset();
      for (int64_t i = 0; i < count; ++i) {
        for (const Input& input : inputs) {
          const void* element = static_cast<const char*>(input.kept[o]) + input.reduced.offset(i);
          values[static_cast<size_t>(input.node)] = input.load(element);
        }
        interpreter_.run(step_plan_, values);
        fold->push(values[static_cast<size_t>(step_)]);
      }
      std::vector<Value> state = fold->state();
      wrap_state(state);
      interpreter_.run(final_plan, values, state.data(), count);
      for (const Output& output : outputs) {
        output.store(values[static_cast<size_t>(output.node)], output.elements[o]);
      }
    }
  }

 private:
  // Sums and products of integers wrap to the compute type.
  void wrap_state(std::vector<Value>& state) const {
    if (interpreter_.floating() || (fold_ != "sum" && fold_ != "prod")) return;
    for (Value& value : state) value = whole(wrap(value.i, interpreter_.compute()));
  }

  Interpreter interpreter_;
  std::string fold_;
  int32_t step_;
  uint32_t dim_offset_;
  int32_t dim_field_;
  Plan step_plan_;
};

int run_reduce(void* self, mt_ctx* ctx, const void* args) {
  return sdk::guarded(ctx, [&] { static_cast<const Reduce*>(self)->run(args); });
}

}  // namespace

void compile_reduce(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel) {
  kernel.self = std::make_unique<Reduce>(program, compute).release();
  kernel.run = &run_reduce;
}

}  // namespace mytorch::reference
