// What the tests of parallelize() share: a model is trained on one rank and, split, on several.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/parallelize.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn::ranks {

// Ranks whose default generators are their own, with the same seed.
inline void run_alike(int ranks, const std::function<void(const distributed::Group&)>& body) {
  distributed::run_local(ranks, [&](const distributed::Group& g) {
    const GeneratorGuard guard{Generator(11)};
    body(g);
  });
}

inline Tensor wave64(IntList sizes, double seed) {
  const Tensor x = mytorch::empty(sizes, kFloat64);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<double>()[i] = std::sin(seed + 0.7 * static_cast<double>(i));
  }
  return x;
}

// Numbers from 0 to `below` - 1.
inline Tensor ids_of(IntList sizes, int64_t below, int64_t seed) {
  const Tensor x = mytorch::empty(sizes, kInt64);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int64_t>()[i] = (i * i * 5 + i + seed) % below;
  return x;
}

// What three steps of training give: the losses, and the state after the first step of SGD, which
// shows the gradients, and after all.
struct Trained {
  std::vector<double> losses;
  TensorMap first, last;
  uint64_t draws = 0;  // calls of the generator
};
template <class Model>
Trained train(Model& model, const std::function<Tensor(Model&, int64_t step)>& loss) {
  Trained trained;
  const Generator generator(5);
  const GeneratorGuard guard{generator};
  optim::SGD optimizer(model.parameters(), {.lr = 0.3, .momentum = 0.9});
  for (int64_t step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Tensor value = loss(model, step);
    value.backward();
    optimizer.step();
    trained.losses.push_back(value.item<double>());
    if (step == 0) trained.first = whole_state_dict(model);
  }
  trained.last = whole_state_dict(model);
  trained.draws = generator.call();
  return trained;
}

inline void expect_same_state(const TensorMap& found, const TensorMap& expected, double tolerance,
                              const std::string& what) {
  expect(found.size() == expected.size(), what + ": other names");
  for (const auto& [name, tensor] : expected) {
    expect(found.count(name) == 1, what + ": " + name + " is missing");
    expect_close(found.at(name), tensor, tolerance, what + ": " + name);
  }
}

inline void expect_same(const Trained& found, const Trained& expected, double tolerance) {
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    expect_close(found.losses[i], expected.losses[i], tolerance,
                 "loss of step " + std::to_string(i));
  }
  expect_same_state(found.first, expected.first, tolerance, "after a step");
  expect_same_state(found.last, expected.last, tolerance, "after all steps");
  expect(found.draws == expected.draws, "the generator has taken other calls");
}

// A model in float64 whose parameters depend on a seed alone.
template <class Make>
auto made(const Make& make) {
  const GeneratorGuard guard{Generator(7)};
  auto model = make();
  model.to(kFloat64);
  return model;
}

}  // namespace mytorch::nn::ranks
