// Steps of any model: what the kernels of a recorded step take, and what data parallelism and ZeRO
// add to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/machine.h"
#include "plan/search.h"

namespace mytorch::plan {

// Work of the device: a call that reads and writes `bytes`. A product of matrices has its sizes,
// attention the length of its sequences and the width of its heads.
struct Kernel {
  enum Kind { kStream, kProduct, kAttention } kind = kStream;
  std::string name = {};
  double flops = 0;  // of products and attention
  double bytes = 0;
  double m = 0, n = 0, k = 0;
  double element = 2;  // bytes of an element of a product
  double length = 0, width = 0;
  bool backward = false;
};
// Returns the product that has so many operations, and operands and a result of these numbers of
// elements: those of a matrix product exactly, in any order of m, n and k; those of a convolution
// as the smallest one, its weight, says.
Kernel product_of(std::string name, double flops, double bytes, double element,
                  std::vector<double> numels);
double kernel_seconds(const Gpu& gpu, const Kernel& kernel);

// A parameter of the model, and the numbers of the kernels that read it and that complete its
// gradient.
struct CapturedParameter {
  double bytes = 0;
  double gradient_bytes = 0;
  int gradient = -1;
  std::vector<int> uses = {};  // ascending, before the update
};

// A step of one rank. Kernels of the update come last, behind the last gradient.
struct Captured {
  std::vector<Kernel> kernels;
  int update = 0;  // number of the first kernel of the update; kernels.size() without one
  std::vector<CapturedParameter> parameters;
  std::vector<double> buffers;  // bytes of tensors that forward changes, as statistics of norms
  double state = 0;             // bytes of what the update keeps from step to step
  double activations = 0;  // most bytes of results at one time, without gradients of parameters
  double inputs = 0;       // bytes
};

// Returns the time and memory of a step on `gpus` ranks, each of which computes what was captured,
// with a stage of ZeRO, 0 to 3. Kernels begin when the host has issued them and those before have
// ended. Buckets of gradients are copied together and reduced as DistributedDataParallel does,
// which also broadcasts buffers; with ZeRO 3, parameters are gathered in buckets, two of them ahead
// of computation, in forward and again in backward. Throws Error(kValue) for kernels that are out
// of range, for buffers without a kernel before the update, for another stage, and for fewer than 1
// or more than 2^20 GPUs.
Plan plan_of(const Captured& captured, const Machine& machine, int64_t gpus, int zero);

// All stages of ZeRO, or the given one, on all GPUs: what fits, the fastest first.
Found search(const Captured& captured, const Machine& machine, int64_t gpus,
             std::optional<int> zero);

}  // namespace mytorch::plan
