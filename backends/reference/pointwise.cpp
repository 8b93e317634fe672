// Pointwise programs: one evaluation per element of the outputs' shape.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/reference/elements.h"
#include "backends/reference/interpreter.h"
#include "backends/reference/program.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

class Pointwise {
 public:
  Pointwise(const mt_program& program, mt_dtype compute) : interpreter_(program, compute) {}

  void run(const void* args) const {
    const std::vector<mt_program_output> wanted = interpreter_.requested(args);
    if (wanted.empty()) return;

    const Plan plan = interpreter_.plan(wanted);
    std::vector<Value> values(static_cast<size_t>(interpreter_.num_nodes()));
    interpreter_.set_constants(plan, args, values);

    const std::span<const int64_t> shape =
        sdk::TensorView(sdk::tensor_at(args, wanted[0].offset)).shape();
    struct Input {
      int32_t node;
      Elements elements;
      Interpreter::Load load;
    };
    struct Output {
      int32_t node;
      Elements elements;
      Interpreter::Store store;
    };
    std::vector<Input> inputs;
    std::vector<Output> outputs;
    for (const int32_t node : interpreter_.inputs(plan)) {
      const mt_tensor* tensor = sdk::tensor_at(args, interpreter_.offset(node));
      inputs.push_back({node, Elements(tensor, shape), interpreter_.load(node, tensor)});
    }
    for (const mt_program_output& output : wanted) {
      const sdk::TensorView tensor = sdk::tensor_at(args, output.offset);
      outputs.push_back(
          {output.node, Elements(tensor), interpreter_.store(output.node, tensor.dtype())});
    }

    // All of an element's inputs are read before any output is written, so outputs may be inputs.
    for (int64_t i = 0; i < outputs[0].elements.count(); ++i) {
      for (const Input& input : inputs) {
        values[static_cast<size_t>(input.node)] = input.load(input.elements[i]);
      }
      interpreter_.run(plan, values);
      for (const Output& output : outputs) {
        output.store(values[static_cast<size_t>(output.node)], output.elements[i]);
      }
    }
  }

 private:
  Interpreter interpreter_;
};

int run_pointwise(void* self, mt_ctx* ctx, const void* args) {
  return sdk::guarded(ctx, [&] { static_cast<const Pointwise*>(self)->run(args); });
}

}  // namespace

void compile_pointwise(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel) {
  kernel.self = std::make_unique<Pointwise>(program, compute).release();
  kernel.run = &run_pointwise;
}

void compile(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> /*types*/,
             mt_kernel_entry& kernel) {
  // Each call reads the types, because one kernel serves all of them.
  const bool complex = compute.code == MT_COMPLEX;
  (complex                   ? compile_complex
   : program.fold == nullptr ? compile_pointwise
                             : compile_reduce)(program, compute, kernel);
  kernel.size = sizeof(mt_kernel_entry);
  kernel.name = "interpreter";
  kernel.supports = nullptr;
  kernel.flags = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS |
                 (complex ? uint32_t{MT_TAKES_COMPLEX} : 0);
}

}  // namespace mytorch::reference
