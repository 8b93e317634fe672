// Runs a network eagerly, compiled by kernels, and compiled by the graph compiler.
//
//   try graph.so
#include <cstdio>

#include "mytorch/backends.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"

using namespace mytorch;

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: try graph.so\n");
    return 2;
  }
  const NoGradGuard no_grad;
  nn::Sequential model(nn::Linear(64, 96), nn::ReLU(), nn::Linear(96, 96), nn::Tanh(),
                       nn::Linear(96, 10));
  const auto network = [&](const Tensor& x) { return sigmoid(model(x) * 0.5 + 1); };
  const Tensor x = randn({32, 64}), expected = network(x);

  auto by_kernels = compile(network);
  for (int i = 0; i < 3; ++i) by_kernels(x);
  load_backend(argv[1]);
  auto by_regions = compile(network);
  bool close = true;
  for (int i = 0; i < 3; ++i) close = close && allclose(by_regions(x), expected, 1e-4, 1e-5);

  const CompileStats stats = by_regions.stats();
  std::printf("%lld kernels, or %lld regions and %lld kernels\n",
              static_cast<long long>(by_kernels.stats().kernel_calls),
              static_cast<long long>(stats.regions),
              static_cast<long long>(stats.kernel_calls - stats.regions));
  for (const std::string& line : stats.region_report) std::printf("  %s\n", line.c_str());
  if (!close) std::fprintf(stderr, "the results differ\n");
  return close && stats.regions > 0 ? 0 : 1;
}
