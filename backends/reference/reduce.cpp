// Reduce programs: for each element of the outputs, a fold over the reduced dimensions in row-major
// order, then the program's final nodes.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/reference/fold.h"
#include "backends/reference/interpreter.h"
#include "backends/reference/program.h"
#include "backends/reference/walk.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

// The shape to which all inputs broadcast. The frontend has checked that they do.
std::vector<int64_t> common_shape(const std::vector<sdk::TensorView>& tensors) {
  std::vector<int64_t> shape;
  for (const sdk::TensorView& tensor : tensors) {
    const size_t ndim = static_cast<size_t>(tensor.ndim());
    if (shape.size() < ndim) shape.insert(shape.begin(), ndim - shape.size(), 1);
    for (size_t d = 0; d < ndim; ++d) {
      int64_t& size = shape[shape.size() - ndim + d];
      if (size == 1) size = tensor.size(static_cast<int>(d));
    }
  }
  return shape;
}

class Reduce {
 public:
  Reduce(const mt_program& program, mt_dtype compute)
      : interpreter_(program, compute),
        outputs_(program.outputs, program.outputs + program.num_outputs),
        fold_(program.fold),
        step_(program.step),
        dim_offset_(program.dim_offset),
        dim_field_(program.dim_field),
        step_plan_(interpreter_.plan({program.step})) {
    if (make_fold(fold_, interpreter_.floating()) == nullptr) throw sdk::Declined{};
  }

  void run(const void* args) const {
    std::vector<mt_program_output> wanted;
    std::vector<int32_t> roots;
    for (const mt_program_output& output : outputs_) {
      if (sdk::tensor_at(args, output.offset) == nullptr) continue;
      wanted.push_back(output);
      roots.push_back(output.node);
    }
    if (wanted.empty()) return;
    const Plan final_plan = interpreter_.plan(roots);

    const std::vector<int32_t> input_nodes = interpreter_.inputs(step_plan_);
    std::vector<sdk::TensorView> tensors;
    for (const int32_t node : input_nodes) {
      tensors.emplace_back(sdk::tensor_at(args, interpreter_.offset(node)));
    }
    const std::vector<int64_t> shape = common_shape(tensors);
    const std::vector<bool> reduced = reduced_dims(args, shape.size());
    const auto part = [&](const std::vector<int64_t>& all, bool which) {
      std::vector<int64_t> some;
      for (size_t d = 0; d < shape.size(); ++d) {
        if (reduced[d] == which) some.push_back(all[d]);
      }
      return some;
    };

    // `outer` goes over what stays, `inner` over what is folded, from where `outer` stands.
    const std::vector<int64_t> kept_shape = part(shape, false);
    const std::vector<int64_t> folded_shape = part(shape, true);
    Walk outer(kept_shape);
    Walk inner(folded_shape);
    std::vector<Interpreter::Load> loads;
    for (size_t k = 0; k < tensors.size(); ++k) {
      std::vector<int64_t> strides(shape.size());
      sdk::broadcast_strides(tensors[k], shape, strides.data());
      outer.add(tensors[k].raw(), part(strides, false), tensors[k].itemsize());
      inner.add(tensors[k].raw(), part(strides, true), tensors[k].itemsize());
      loads.push_back(interpreter_.load(input_nodes[k], tensors[k].dtype()));
    }
    std::vector<int> places;
    std::vector<Interpreter::Store> stores;
    for (const mt_program_output& output : wanted) {
      const sdk::TensorView tensor = sdk::tensor_at(args, output.offset);
      std::vector<int64_t> strides(tensor.strides().begin(), tensor.strides().end());
      // With keepdim the output has the reduced dimensions too, of size 1.
      if (strides.size() == shape.size()) strides = part(strides, false);
      places.push_back(outer.add(tensor.raw(), std::move(strides), tensor.itemsize()));
      stores.push_back(interpreter_.store(output.node, tensor.dtype()));
    }

    int64_t count = 1;
    for (const int64_t size : folded_shape) count *= size;
    std::vector<Value> values(static_cast<size_t>(interpreter_.num_nodes()));
    interpreter_.set_constants(step_plan_, args, values);
    interpreter_.set_constants(final_plan, args, values);
    const std::unique_ptr<Fold> fold = make_fold(fold_, interpreter_.floating());
    for (bool more = outer.start(); more; more = outer.next()) {
      for (size_t k = 0; k < tensors.size(); ++k) {
        inner.rebase(static_cast<int>(k), outer.at(static_cast<int>(k)));
      }
      fold->reset();
      for (bool item = inner.start(); item; item = inner.next()) {
        for (size_t k = 0; k < tensors.size(); ++k) {
          values[static_cast<size_t>(input_nodes[k])] = loads[k](inner.at(static_cast<int>(k)));
        }
        interpreter_.run(step_plan_, values);
        fold->push(values[static_cast<size_t>(step_)]);
      }
      std::vector<Value> state = fold->state();
      wrap_state(state);
      interpreter_.run(final_plan, values, state.data(), count);
      for (size_t k = 0; k < wanted.size(); ++k) {
        stores[k](values[static_cast<size_t>(wanted[k].node)], outer.at(places[k]));
      }
    }
  }

 private:
  // Which dimensions are folded. No list, an empty one and a 0-dim input mean all of them.
  std::vector<bool> reduced_dims(const void* args, size_t ndim) const {
    std::vector<int64_t> dims;
    switch (dim_field_) {
      case MT_DIM_LIST: {
        const mt_int_list list = sdk::field_at<mt_int_list>(args, dim_offset_);
        if (list.data != nullptr) dims.assign(list.data, list.data + list.size);
        break;
      }
      case MT_DIM_INT:
        dims = {sdk::field_at<int64_t>(args, dim_offset_)};
        break;
      case MT_DIM_OPTIONAL_INT: {
        const mt_optional_int dim = sdk::field_at<mt_optional_int>(args, dim_offset_);
        if (dim.present != 0) dims = {dim.value};
        break;
      }
      default:
        break;
    }
    std::vector<bool> reduced(ndim, dims.empty());
    if (ndim == 0) return reduced;
    for (const int64_t dim : dims) {
      reduced[static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(ndim) : dim)] = true;
    }
    return reduced;
  }

  // Sums and products of integers wrap to the computation type.
  void wrap_state(std::vector<Value>& state) const {
    if (interpreter_.floating() || (fold_ != "sum" && fold_ != "prod")) return;
    for (Value& value : state) value = whole(wrap(value.i, interpreter_.compute()));
  }

  Interpreter interpreter_;
  std::vector<mt_program_output> outputs_;
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
