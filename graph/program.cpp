#include "mytorch/program.h"

#include <algorithm>
#include <list>
#include <utility>

#include "core/runtime/device_registry.h"
#include "core/tensor/batched.h"
#include "core/types/errors.h"
#include "graph/formats/parse.h"
#include "graph/formats/saved.h"
#include "graph/passes/passes.h"
#include "graph/run/checked_run.h"
#include "graph/run/plan.h"
#include "mytorch/grad_mode.h"
#include "mytorch/tensor_impl.h"

namespace mytorch {
namespace {

using graph::BufferOrigin;
using graph::GradResult;
using graph::GraphNode;
using graph::kNoValue;
using graph::Recorded;
using graph::SavedProgram;
using graph::Span;
using graph::ValueId;
using graph::ValueInfo;

constexpr size_t kMostSizes = 8;      // of a program with symbols whose plans are kept
constexpr uintptr_t kAlignment = 64;  // of fresh memory, on which the choice of kernels depends

const graph::ProgramFiles& files() {
  if (graph::program_files == nullptr) {
    fail(ErrorCode::kUnsupported, "[load] programs are files of nn/serialize: link libmytorch");
  }
  return *graph::program_files;
}

// Returns all elements from the first of a tensor to its last, also those that it leaves out.
Tensor flat(const Tensor& tensor, const ValueInfo& info) {
  const Span span = span_of(info);
  const int64_t size = span.end - std::min(info.offset, span.end), stride = 1;
  detail::retain(tensor.impl()->storage);
  return Tensor::adopt(new_tensor_over(tensor.impl()->storage, IntList(&size, 1),
                                       IntList(&stride, 1), info.dtype, tensor.impl()->offset()));
}

// Returns a tensor with the value's strides in memory of its own.
Tensor tensor_like(const ValueInfo& info, Device device) {
  const Span span = span_of(info);
  const int64_t bytes = std::max<int64_t>((span.end - info.offset) * element_size(info.dtype), 1);
  Storage* storage =
      allocate_storage(device, checked_device_slot(device), static_cast<uint64_t>(bytes));
  return Tensor::adopt(
      new_tensor_over(storage, as_list(info.sizes), as_list(info.strides), info.dtype, 0));
}

// Returns whether memory begins like fresh memory, `distance` bytes before a tensor.
bool is_aligned(const TensorImpl& impl, int64_t distance) {
  return (reinterpret_cast<uintptr_t>(impl.abi.dl.data) - static_cast<uintptr_t>(distance)) %
                 kAlignment ==
             0 &&
         reinterpret_cast<uintptr_t>(impl.storage->data) % kAlignment == 0;
}

}  // namespace

struct Program::Impl {
  Impl(SavedProgram given, CompileMode how)
      : saved(std::move(given)), recorded(saved.recorded), mode(how) {
    const graph::Graph& graph = recorded.graph;
    written.resize(graph.buffers.size());
    for (const GraphNode& node : graph.nodes) {
      node.for_each_written([&](ValueId id) { written[graph.values[id].buffer] = true; });
    }
    std::vector<int64_t> first(graph.buffers.size(), INT64_MAX);  // bytes of arguments in buffers
    for (size_t i = 0; i < graph.arguments.size(); ++i) {
      inputs.push_back(port(saved.inputs[i], graph.arguments[i]));
      int64_t& least = first[argument(i).buffer];
      least = std::min(least, argument(i).offset * element_size(argument(i).dtype));
    }
    for (size_t i = 0; i < graph.arguments.size(); ++i) {
      const int64_t bytes = argument(i).offset * element_size(argument(i).dtype);
      distances.push_back(bytes - first[argument(i).buffer]);
    }
    for (size_t i = 0; i < graph.results.size(); ++i) {
      outputs.push_back(port(saved.outputs[i], graph.results[i]));
    }
    for (const Tensor& tensor : recorded.outside) {
      outside_ids.push_back(tensor.impl()->storage->abi.id);
    }
    for (const Tensor& tensor : recorded.outside) kept.push_back(info_of(tensor));
  }

  // Returns the sizes that inputs give the symbols of the graph.
  std::vector<graph::SizeSymbol> sizes_of(const std::vector<Tensor>& given) const {
    std::vector<graph::SizeSymbol> found = saved.symbols;
    for (graph::SizeSymbol& symbol : found) {
      if (symbol.argument >= given.size() || !given[symbol.argument].defined()) continue;
      const IntList sizes = given[symbol.argument].sizes();
      if (symbol.dim < sizes.size()) symbol.size = sizes[symbol.dim];
    }
    return found;
  }

  // Returns the program for inputs of these sizes: this one, or one that shares its tensors.
  Impl& at_sizes_of(const std::vector<Tensor>& given) {
    if (saved.symbols.empty()) return *this;
    std::vector<graph::SizeSymbol> sizes = sizes_of(given);
    const auto same = [&](const SavedProgram& other) {
      return std::equal(sizes.begin(), sizes.end(), other.symbols.begin(),
                        [](const auto& a, const auto& b) { return a.size == b.size; });
    };
    if (same(saved)) return *this;
    const auto known = std::find_if(others.begin(), others.end(),
                                    [&](const auto& other) { return same(other->saved); });
    if (known != others.end()) {
      others.splice(others.begin(), others, known);
      return *others.front();
    }
    SavedProgram made = saved;
    try {
      made.recorded.graph = graph::parse_text(saved.text, &saved.schemas, &sizes);
    } catch (const Error& error) {
      fail(ErrorCode::kShape, "[run] the program does not hold at these sizes: ", error.what());
    }
    made.symbols = std::move(sizes);
    others.push_front(std::make_unique<Impl>(std::move(made), mode));
    if (others.size() > kMostSizes) others.pop_back();
    return *others.front();
  }

  Port port(const std::string& name, ValueId id) const {
    if (id == kNoValue) return {name, kFloat32, {}, {}};
    const ValueInfo& info = recorded.graph.values[id];
    return {name, info.dtype, as_list(info.sizes).vec(),
            recorded.graph.buffers[info.buffer].device};
  }
  static ValueInfo info_of(const Tensor& tensor) {
    const TensorImpl& impl = *tensor.impl();
    return {-1, impl.dtype, to_dims(impl.sizes()), to_dims(impl.strides()), impl.offset()};
  }

  const ValueInfo& argument(size_t i) const {
    return recorded.graph.values[recorded.graph.arguments[i]];
  }

  void check_input(size_t i, const Tensor& input) const {
    const Port& port = inputs[i];
    if (!input.defined()) fail(ErrorCode::kValue, "[run] input '", port.name, "' is undefined");
    check_not_batched(input, "run");
    if (input.dtype() != port.dtype) {
      fail(ErrorCode::kType, "[run] input '", port.name, "' is ", dtype_name(input.dtype()),
           ", and the program takes ", dtype_name(port.dtype), ": convert it with to()");
    }
    if (!(input.sizes() == IntList(port.sizes))) {
      fail(ErrorCode::kShape, "[run] input '", port.name, "' has shape ", shape_str(input.sizes()),
           ", and the program was recorded with ", shape_str(port.sizes));
    }
    if (input.device() != port.device) {
      fail(ErrorCode::kDevice, "[run] input '", port.name, "' is on ", input.device().str(),
           ", and the program was recorded on ", port.device.str(), ": move it with to()");
    }
  }

  // Returns whether the memory of an input belongs to a tensor that the program keeps.
  bool is_kept(const Storage* storage) const {
    const auto same = [storage](const Tensor& tensor) {
      return tensor.defined() && tensor.impl()->storage == storage;
    };
    return std::any_of(recorded.outside.begin(), recorded.outside.end(),
                       [&](const Tensor& tensor) { return same(tensor) || same(tensor.grad()); });
  }

  // Returns the inputs with the strides and the alignment that the plan relies on, each in memory
  // of its own unless the graph says otherwise.
  std::vector<Tensor> prepared(const std::vector<Tensor>& given) const {
    const graph::Graph& graph = recorded.graph;
    if (given.size() != inputs.size()) {
      std::string names;
      for (const Port& port : inputs) names += (names.empty() ? "" : ", ") + port.name;
      fail(ErrorCode::kValue, "[run] the program takes ", inputs.size(), " inputs (", names,
           "), and ", given.size(), " are given");
    }
    std::vector<Tensor> found;
    for (size_t i = 0; i < given.size(); ++i) {
      check_input(i, given[i]);
      const TensorImpl& impl = *given[i].impl();
      const int32_t buffer = argument(i).buffer;
      bool copy = impl.strides() != as_list(argument(i).strides) || !is_aligned(impl, distances[i]);
      bool shared = is_kept(impl.storage);
      for (size_t k = 0; k < i; ++k) {
        const bool states = argument(k).buffer == buffer;
        const bool is = given[k].impl()->storage == impl.storage;
        if (states) {
          const int64_t distance = impl.offset() - argument(i).offset;
          const int64_t first = given[k].impl()->offset() - argument(k).offset;
          const bool same_place =
              distance * element_size(impl.dtype) == first * element_size(given[k].impl()->dtype);
          if (!is || !same_place || copy || found[k].impl()->storage != impl.storage) {
            fail(ErrorCode::kValue, "[run] inputs '", inputs[k].name, "' and '", inputs[i].name,
                 "' shared memory when the program was recorded: give views of one tensor with the "
                 "same strides and distance");
          }
        } else if (is) {
          shared = true;
          if (written[argument(k).buffer]) refuse_shared(i);
        }
      }
      if (shared && written[buffer]) refuse_shared(i);
      if (!copy && !shared) {
        found.push_back(given[i]);
        continue;
      }
      found.push_back(tensor_like(argument(i), graph.buffers[buffer].device));
      if (impl.strides() == as_list(argument(i).strides)) {
        flat(found.back(), argument(i)).copy_(flat(given[i], argument(i)));
        continue;
      }
      if (has_internal_overlap(*found.back().impl())) {
        fail(ErrorCode::kValue, "[run] input '", inputs[i].name, "' has strides ",
             shape_str(impl.strides()), ", and the program was recorded with ",
             shape_str(as_list(argument(i).strides)), ": give a tensor expanded in the same way");
      }
      found.back().copy_(given[i].detach());
    }
    return found;
  }
  [[noreturn]] void refuse_shared(size_t i) const {
    fail(ErrorCode::kValue, "[run] input '", inputs[i].name,
         "' shares memory with another input or a tensor that the program keeps, and the program "
         "writes to it: give a clone()");
  }

  // A tensor that the program keeps may have received other data, but of the same type.
  void check_kept() {
    for (size_t i = 0; i < recorded.outside.size(); ++i) {
      const TensorImpl& impl = *recorded.outside[i].impl();
      if (impl.storage->abi.id == outside_ids[i]) continue;
      const ValueInfo now = info_of(recorded.outside[i]);
      if (now.dtype != kept[i].dtype || now.sizes != kept[i].sizes ||
          now.strides != kept[i].strides || now.offset != kept[i].offset) {
        fail(ErrorCode::kValue, "[run] the tensor '", saved.state[i],
             "' has received data of another type, shape or layout: write into it with copy_()");
      }
      outside_ids[i] = impl.storage->abi.id;
    }
  }

  void check_grads(const std::vector<Tensor>& arguments) const {
    for (const GradResult& entry : recorded.entry_grads) {
      const Tensor grad = recorded.leaf(entry.leaf, arguments).grad();
      const std::string& name = entry.leaf.origin == BufferOrigin::kArgument
                                    ? saved.inputs[entry.leaf.index]
                                    : saved.state[entry.leaf.index];
      if (entry.grad == kNoValue) {
        if (!grad.defined()) continue;
        fail(
            ErrorCode::kValue, "[run] '", name,
            "' has a grad, and had none when the program was recorded: clear it with set_grad({})");
      }
      const ValueInfo& info = recorded.graph.values[entry.grad];
      if (grad.defined()) {
        const ValueInfo now = info_of(grad);
        if (now.dtype == info.dtype && now.sizes == info.sizes && now.strides == info.strides &&
            now.offset == info.offset) {
          continue;
        }
      }
      fail(ErrorCode::kValue, "[run] '", name, "' has ",
           grad.defined() ? "a grad of another type, shape or layout than" : "no grad, unlike",
           " when the program was recorded");
    }
  }

  std::vector<Tensor> run(const std::vector<Tensor>& given) {
    if ((thread_state.wanted & kLayerCapture) != 0) {
      fail(ErrorCode::kUnsupported,
           "[run] a program calls kernels, which a compiled function cannot record: call it "
           "outside");
    }
    const NoGradGuard no_grad;
    const std::vector<Tensor> arguments = prepared(given);
    check_kept();
    check_grads(arguments);
    std::vector<Tensor> results;
    if (plan != nullptr) {
      results = plan->run(arguments);
    } else if (checked) {
      planned = optimized(recorded, {mode});
      plan = std::make_unique<graph::ReplayPlan>(planned, mode, arguments, &results);
    } else {
      results = run_checked(recorded, arguments);
      checked = true;
    }
    for (size_t i = 0; i < given.size(); ++i) {
      if (arguments[i].is_same(given[i]) || !written[argument(i).buffer]) continue;
      given[i].detach().copy_(arguments[i]);
    }
    return results;
  }

  SavedProgram saved;
  const Recorded& recorded;
  const CompileMode mode;
  std::vector<bool> written;       // by buffer
  std::vector<int64_t> distances;  // by argument: in bytes from the first that shares its memory
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<uint64_t> outside_ids;  // of their storages
  std::vector<ValueInfo> kept;        // types of the tensors from outside
  bool checked = false;               // whether a run has compared the operators with the file
  Recorded planned;                   // what the plan runs
  std::unique_ptr<graph::ReplayPlan> plan;
  std::list<std::unique_ptr<Impl>> others;  // at other sizes, the last used first
};

Program::Program(SavedProgram saved, CompileMode mode)
    : impl_(std::make_shared<Impl>(std::move(saved), mode)) {}

const std::vector<Program::Port>& Program::inputs() const { return impl_->inputs; }
const std::vector<Program::Port>& Program::outputs() const { return impl_->outputs; }
const std::vector<Program::Port>& Program::outputs(const std::vector<Tensor>& inputs) const {
  return impl_->at_sizes_of(inputs).outputs;
}
const std::map<std::string, std::string>& Program::metadata() const {
  return impl_->saved.metadata;
}

std::map<std::string, Tensor> Program::state() const {
  // Who has the tensors may write to them.
  const auto plan_anew = [](Impl& impl) {
    if (impl.plan != nullptr && impl.plan->keeps_constants()) impl.plan.reset();
  };
  plan_anew(*impl_);
  for (const auto& other : impl_->others) plan_anew(*other);
  std::map<std::string, Tensor> found;
  for (size_t i = 0; i < impl_->recorded.outside.size(); ++i) {
    found.emplace(impl_->saved.state[i], impl_->recorded.outside[i]);
  }
  return found;
}

std::string Program::text() const {
  return impl_->saved.text.empty() ? to_text(impl_->recorded.graph) : impl_->saved.text;
}

std::vector<Tensor> Program::run(const std::vector<Tensor>& inputs) {
  return impl_->at_sizes_of(inputs).run(inputs);
}

Tensor Program::run_one(const std::vector<Tensor>& inputs) {
  if (impl_->outputs.size() != 1) {
    fail(ErrorCode::kValue, "[run] the program has ", impl_->outputs.size(),
         " results: run() returns all");
  }
  return run(inputs)[0];
}

void Program::save(const std::string& path) const { files().save(impl_->saved, path); }

Program load(const std::string& path, CompileMode mode) {
  return Program(files().load(path), mode);
}

}  // namespace mytorch
