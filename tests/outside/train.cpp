// Trains small networks (conformance/models.h) on a device:
//
//   train DEVICE [native]
//
// Fails if the loss does not fall to a quarter of its initial value or, with `native`, if an
// operator ran on the CPU.
#include <cstdio>
#include <cstring>

#include "conformance/models.h"
#include "dispatcher/choice/choice.h"
#include "mytorch/mytorch.h"

namespace {

bool learns(const std::string& model, mytorch::Device device) {
  const auto training = mytorch::conformance::make_training(model, device, 10);
  const float first = training.step();
  constexpr int kSteps = 30;
  float last = first;
  for (int step = 0; step < kSteps; ++step) last = training.step();
  std::printf("%s: loss %.4f -> %.4f in %d steps\n", model.c_str(), static_cast<double>(first),
              static_cast<double>(last), kSteps);
  return last < first / 4;
}

}  // namespace

int main(int argc, char** argv) {
  const bool native = argc > 2 && std::strcmp(argv[2], "native") == 0;
  mytorch::allow_fallback(!native);
  mytorch::manual_seed(1);
  const mytorch::Device device(argc > 1 ? argv[1] : "cpu");
  bool learned = true;
  for (const std::string& model : mytorch::conformance::model_names()) {
    learned = learns(model, device) && learned;
  }
  uint64_t fallbacks = 0;
  for (const mytorch::SlowPaths& s : mytorch::slow_paths()) fallbacks += s.fallbacks;
  std::printf("%llu calls on the CPU\n", static_cast<unsigned long long>(fallbacks));
  return learned && (!native || fallbacks == 0) ? 0 : 1;
}
