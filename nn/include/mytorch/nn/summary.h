// A table of a model's layers: shapes, parameters, operations and memory.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "mytorch/nn/module.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

struct LayerSummary {
  std::string path;                   // "layer2.0.conv1"; "" for the model
  std::string type;                   // "Conv2d"
  int64_t calls = 0;                  // in the forward; 0 for containers that nobody calls
  std::vector<int64_t> output_shape;  // of the last call whose result is a tensor
  int64_t parameters = 0;             // elements of its own parameters, without its children's
  int64_t trainable_parameters = 0;
  // Of its own: as Module::flops counts them, or, if that is 0, those of the products of matrices,
  // convolutions and attention that its forward computes outside of its children.
  double flops = 0;
  int64_t output_bytes = 0;  // of all calls
};

struct Summary {
  std::vector<LayerSummary> layers;  // in the order of Module::named_modules
  // Sums over the layers. Tied parameters count once.
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
  int64_t parameter_bytes = 0;
  int64_t buffer_bytes = 0;
  int64_t gradient_bytes = 0;  // of the trainable parameters; Adam keeps twice as much
  double flops = 0;
  int64_t output_bytes = 0;  // of the layers without children

  std::string str() const;  // the table
};
std::ostream& operator<<(std::ostream& out, const Summary& summary);

// Summarizes the calls of the model's modules while `run` calls the model, in evaluation mode and
// without recording gradients.
Summary summarize(Module& model, const std::function<void()>& run);

// Summarizes a forward of example inputs:
//
//   std::cout << nn::summary(net, mytorch::zeros({1, 3, 224, 224}));
template <class M, class... Inputs>
Summary summary(M& model, const Inputs&... inputs) {
  return summarize(model, [&] { model(inputs...); });
}

}  // namespace mytorch::nn
