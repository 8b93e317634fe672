// The host time of small libtorch calls on a GPU: the cases of bench/cuda/cases.cpp whose names
// begin with "host:", measured the same way.
//
// Each case is written in the cheapest way that libtorch's public C++ API offers, without
// gradients.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "bench/cuda/host_cost.h"

int main() {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA);
  const at::Tensor x = at::rand({8}, options), y = at::rand({8}, options);
  at::Tensor out = at::empty({8}, options);
  const auto wait = [&] { x.cpu(); };
  bench::print_host_costs({
      {"add, 8 floats", [&] { at::add(x, y); }, wait},
      {"add_out, 8 floats", [&] { at::add_out(out, x, y); }, wait},
      {"fill_, 8 floats", [&] { out.fill_(1); }, wait},
      {"empty, 8 floats", [&] { at::empty({8}, options); }, wait},
  });
  return 0;
}
