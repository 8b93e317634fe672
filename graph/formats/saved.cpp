#include "graph/formats/saved.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "graph/formats/parse.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {

const ProgramFiles* program_files = nullptr;

namespace {

// Throws if an argument of a node has a meaning in this process alone.
void check_arguments(const GraphNode& node) {
  for (const Arg& arg : node.args) {
    if (const auto* handle = std::get_if<Handle>(&arg.constant.variant());
        handle != nullptr && handle->object != nullptr) {
      fail(ErrorCode::kUnsupported, "[save] ", node.name(), "() works through an object of type ",
           handle->type, ", which a file cannot hold: leave it out of the compiled function");
    }
    if (const auto* generator = std::get_if<Generator>(&arg.constant.variant());
        generator != nullptr && !generator->shares_state(default_generator())) {
      fail(ErrorCode::kUnsupported, "[save] ", node.name(),
           "() draws from a generator of its own, which a file cannot hold: draw from the default "
           "generator");
    }
  }
}

std::vector<std::string> names_of(const std::vector<std::string>& given, size_t count,
                                  const char* what) {
  if (!given.empty() && given.size() != count) {
    fail(ErrorCode::kValue, "[save] the function has ", count, " ", what, "s, and ", given.size(),
         " names are given: give one for each, in order");
  }
  std::vector<std::string> names = given;
  for (size_t i = names.size(); i < count; ++i) names.push_back(absl::StrCat(what, i));
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (name.empty() || !seen.insert(name).second) {
      fail(ErrorCode::kValue, "[save] the name '", name, "' of an ", what,
           name.empty() ? " is empty" : " is given twice");
    }
  }
  return names;
}

std::vector<std::string> state_names(const std::vector<Tensor>& outside,
                                     const std::map<std::string, Tensor>& given) {
  std::vector<std::string> names(outside.size());
  std::set<std::string> seen;
  for (const auto& [name, tensor] : given) {
    for (size_t i = 0; i < outside.size() && tensor.defined(); ++i) {
      if (outside[i].impl()->storage != tensor.impl()->storage || !names[i].empty()) continue;
      if (name.empty() || name.find(':') != std::string::npos) {
        fail(ErrorCode::kValue, "[save] '", name, "' names a tensor: give a name without ':'");
      }
      names[i] = name;
      seen.insert(name);
    }
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) continue;
    names[i] = absl::StrCat("outside.", i);
    while (seen.contains(names[i])) names[i] += "_";
    seen.insert(names[i]);
  }
  return names;
}

}  // namespace

void check_saved(const SavedProgram& saved) {
  const Graph& graph = saved.recorded.graph;
  const size_t outside = saved.recorded.outside.size();
  if (saved.inputs.size() != graph.arguments.size() ||
      saved.outputs.size() != graph.results.size() || saved.state.size() != outside) {
    fail(ErrorCode::kValue, "the graph has ", graph.arguments.size(), " arguments and ",
         graph.results.size(), " results, and there are ", saved.inputs.size(), " and ",
         saved.outputs.size(), " names");
  }
  const auto check = [&](const Leaf& leaf) {
    if (leaf.origin != BufferOrigin::kOutside) {
      fail(ErrorCode::kUnsupported, "the function reads or sets the grad of argument ", leaf.index,
           ", which a program does not: return the grad as a result");
    }
    if (leaf.index < 0 || static_cast<size_t>(leaf.index) >= outside) {
      fail(ErrorCode::kValue, "the graph refers to outside(", leaf.index, ") of ", outside,
           " tensors");
    }
  };
  for (const GraphBuffer& buffer : graph.buffers) {
    if (buffer.origin == BufferOrigin::kOutside) check({BufferOrigin::kOutside, buffer.index});
    if (buffer.origin == BufferOrigin::kGrad) check(buffer.leaf);
  }
  // Kernels rely on the bytes of bools, so that the graph may not take others for bools.
  std::vector<bool> seen(graph.buffers.size());
  for (const ValueInfo& info : graph.values) {
    const GraphBuffer& buffer = graph.buffers[info.buffer];
    if (seen[info.buffer] || buffer.origin != BufferOrigin::kOutside) continue;
    seen[info.buffer] = true;
    const ScalarType dtype = saved.recorded.outside[buffer.index].dtype();
    if (dtype != info.dtype && (dtype == kBool || info.dtype == kBool)) {
      fail(ErrorCode::kValue, "outside(", buffer.index, ") is ", dtype_name(dtype),
           ", and the graph takes it for ", dtype_name(info.dtype));
    }
  }
  // Each run compares the grads that the graph reads with these entries.
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    if (graph.buffers[b].origin != BufferOrigin::kGrad) continue;
    const auto& entries = saved.recorded.entry_grads;
    const bool known = std::any_of(entries.begin(), entries.end(), [&](const GradResult& entry) {
      return entry.leaf == graph.buffers[b].leaf && entry.grad >= 0 &&
             static_cast<size_t>(entry.grad) < graph.values.size() &&
             graph.values[entry.grad].buffer == static_cast<int32_t>(b);
    });
    if (!known) fail(ErrorCode::kValue, "the graph reads a grad that the file does not describe");
  }
  for (const GradResult& grad : graph.grads) check(grad.leaf);
  for (const GradResult& entry : saved.recorded.entry_grads) {
    check(entry.leaf);
    if (entry.grad != kNoValue &&
        (entry.grad < 0 || static_cast<size_t>(entry.grad) >= graph.values.size())) {
      fail(ErrorCode::kValue, "the graph has no value %", entry.grad);
    }
  }
}

SavedProgram to_saved(const Recorded& recorded, const SaveOptions& options,
                      const std::string& text) {
  SavedProgram saved;
  for (const GraphNode& node : recorded.graph.nodes) check_arguments(node);
  try {
    saved.recorded.graph =
        parse_text(text.empty() ? to_text(recorded.graph) : text, nullptr, &saved.symbols);
    if (!saved.symbols.empty()) saved.text = text;
  } catch (const Error& error) {
    fail(ErrorCode::kInternal, "[save] the text of the graph does not read back: ", error.what());
  }
  saved.schemas = schemas_of(saved.recorded.graph);
  saved.recorded.outside = recorded.outside;
  saved.recorded.entry_grads = recorded.entry_grads;
  saved.inputs = names_of(options.inputs, recorded.graph.arguments.size(), "input");
  saved.outputs = names_of(options.outputs, recorded.graph.results.size(), "output");
  saved.state = state_names(recorded.outside, options.names);
  saved.metadata = options.metadata;
  try {
    check_saved(saved);
  } catch (const Error& error) {
    fail(error.code(), "[save] ", error.what());
  }
  return saved;
}

void save_program(const Recorded& recorded, const SaveOptions& options, const std::string& path,
                  const std::string& text) {
  Program(to_saved(recorded, options, text)).save(path);
}

}  // namespace mytorch::graph
