// Programs: recorded functions that run without their source.
//
//   auto step = compile([&](const Tensor& x) { return model->forward(x); });
//   step(x);
//   step.save("model.mtg", {.inputs = {"x"}, .outputs = {"y"}, .names = model->state_dict()});
//
//   Program program = load("model.mtg");
//   Tensor y = program(x);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mytorch/compile_mode.h"
#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/tensor.h"

namespace mytorch {

namespace graph {
struct SavedProgram;
}

// Names of what a program takes, gives and keeps.
struct SaveOptions {
  // One name per tensor argument; by default "input0", "input1", ...
  std::vector<std::string> inputs = {};
  // One name per result; by default "output0", ...
  std::vector<std::string> outputs = {};
  // Names of tensors from outside, such as a model's state_dict(). The others are named
  // "outside.0", ...
  std::map<std::string, Tensor> names = {};
  // Texts of your own, which the program keeps.
  std::map<std::string, std::string> metadata = {};
};

// A function of tensors, read from a file: a graph of operators with its constants and weights.
// Copies share the weights. One thread at a time may run it.
class Program {
 public:
  // An input or a result.
  struct Port {
    std::string name;
    ScalarType dtype = kFloat32;
    std::vector<int64_t> sizes;  // of the recording
    Device device;
  };

  // For load(); graph/formats/saved.h.
  explicit Program(graph::SavedProgram saved, CompileMode mode = CompileMode::kDefault);

  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;
  // Returns the results for inputs of these sizes, which differ if the program has symbols.
  const std::vector<Port>& outputs(const std::vector<Tensor>& inputs) const;
  const std::map<std::string, std::string>& metadata() const;
  // Returns the tensors that the program keeps, by name: weights, constants and the state that it
  // changes. Writes to them are seen by the next run.
  std::map<std::string, Tensor> state() const;
  // Returns the graph: its operators in order, with types and shapes.
  std::string text() const;

  // Dimensions that the program leaves open (CompileOptions::dynamic_dims) may have any size; plans
  // for the last few sizes are kept.
  //
  // Runs the program, with the effects of the recorded function on the tensors that it keeps and on
  // its inputs. The inputs have the types, shapes and devices of inputs(); other strides are
  // converted. Results are new tensors without history. The first run checks each operator against
  // the file, the second plans kernels and memory, further ones run the kernels.
  //
  // Throws Error(kValue) for another number of inputs and for inputs that share memory where those
  // recorded did not, or the reverse; Error(kType), Error(kShape) and Error(kDevice) for other
  // types, shapes and devices; and Error(kValue) if an operator gives another result than the file
  // states.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  // The same for a program of one result.
  template <class... T>
  Tensor operator()(const T&... inputs) {
    return run_one({inputs...});
  }

  // Writes the program, with the present state. The file is replaced atomically. Throws Error(kIo).
  void save(const std::string& path) const;

 private:
  Tensor run_one(const std::vector<Tensor>& inputs);
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Reads a program that Compiled::save() or Program::save() wrote. Loading runs nothing. With
// CompileMode::kExact, its results are those of the recorded function, bit for bit. Throws
// Error(kIo), naming the file and the reason, if the file is damaged, was written by a newer
// version, or calls operators that this process does not have.
Program load(const std::string& path, CompileMode mode = CompileMode::kDefault);

}  // namespace mytorch
