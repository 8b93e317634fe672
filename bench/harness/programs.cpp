#include "bench/harness/programs.h"

#include <memory>

#include "mytorch/error.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/optim/adam.h"
#include "mytorch/nn/optim/sgd.h"
#include "mytorch/nn/recurrent.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/rand.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/tensor.h"

namespace mytorch::bench {
namespace {

// Keeps a result from being optimized away.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

template <class Body>
Loop repeat(Body body) {
  return [body](int64_t n) {
    for (int64_t i = 0; i < n; ++i) body();
  };
}

Tensor leaf(IntList shape, Device d) {
  Tensor x = rand(shape, kFloat32, d);
  x.requires_grad_();
  return x;
}

// ---- the cost of a call: the cases of bench/overhead.cpp, by the same names

Loop product(int64_t n, Device d) {
  return repeat([a = rand({n, n}, kFloat32, d), b = rand({n, n}, kFloat32, d)] { keep(mm(a, b)); });
}

template <class Body>
Loop recording(Body body) {
  return [body](int64_t n) {
    const EnableGradGuard grad;
    for (int64_t i = 0; i < n; ++i) body();
  };
}

// ---- optimizers: 10 million parameters in tensors of typical sizes

constexpr double kParameters = 10e6;

std::vector<Tensor> parameters_with_gradients(Device d) {
  std::vector<Tensor> parameters;
  const auto add = [&](IntList shape) {
    const Tensor parameter = leaf(shape, d);
    parameter.set_grad(rand(shape, kFloat32, d));
    parameters.push_back(parameter);
  };
  for (int layer = 0; layer < 9; ++layer) {
    add({1024, 1024});
    add({1024});
  }
  add({1024, 544});
  add({544});
  for (int i = 0; i < 10; ++i) add({64});
  return parameters;
}

template <class Optimizer, class Options>
Loop step_of(Options options, Device d) {
  auto optimizer = std::make_shared<Optimizer>(parameters_with_gradients(d), options);
  return repeat([optimizer] { optimizer->step(); });
}

// ---- recurrent networks: two layers of size 512, 128 steps of 64 sequences

constexpr int64_t kSize = 512, kSteps = 128, kSequences = 64;

// The products of inputs and states with the weights of each layer, for `gates` matrices of each.
double recurrent_flops(int gates) {
  return 2.0 * 2 * gates * kSize * 2 * kSize * kSteps * kSequences;
}

template <class Network, class Args>
Loop forward_of(Device d, Args args) {
  const auto network = std::make_shared<Network>(kSize, kSize, args);
  network->to(d);
  const Tensor x = rand({kSteps, kSequences, kSize}, kFloat32, d);
  return repeat([network, x] { keep(std::get<0>((*network)(x))); });
}

// Forward, the mean of the outputs as a loss, backward, and a step of SGD.
template <class Network, class Args>
Loop training_step_of(Device d, Args args) {
  const auto network = std::make_shared<Network>(kSize, kSize, args);
  network->to(d);
  const auto sgd =
      std::make_shared<nn::optim::SGD>(network->parameters(), nn::optim::SGDArgs{.lr = 1e-3});
  const Tensor x = rand({kSteps, kSequences, kSize}, kFloat32, d);
  return recording([network, sgd, x] {
    sgd->zero_grad();
    mean(std::get<0>((*network)(x))).backward();
    sgd->step();
  });
}

std::vector<Program> all_programs() {
  const auto add_up = [](const char* name, auto make) { return Program{name, 0, 0, 1, make}; };
  std::vector<Program> all = {
      add_up("empty", [](Device d) { return repeat([d] { keep(empty({8}, kFloat32, d)); }); }),
      add_up("view",
             [](Device d) {
               return repeat([x = rand({8}, kFloat32, d)] { keep(x.view({2, 4})); });
             }),
      add_up("transpose",
             [](Device d) {
               return repeat([x = rand({2, 4}, kFloat32, d)] { keep(x.transpose(0, 1)); });
             }),
      add_up("add_out",
             [](Device d) {
               return repeat([a = rand({8}, kFloat32, d), b = rand({8}, kFloat32, d),
                              out = rand({8}, kFloat32, d)] { mytorch::add_out(out, a, b); });
             }),
      add_up("add",
             [](Device d) {
               return repeat([a = rand({8}, kFloat32, d), b = rand({8}, kFloat32, d)] {
                 keep(mytorch::add(a, b));
               });
             }),
      add_up("add_inplace",
             [](Device d) {
               return repeat(
                   [a = rand({8}, kFloat32, d), b = zeros({8}, kFloat32, d)] { keep(a.add_(b)); });
             }),
      add_up("relu",
             [](Device d) {
               return repeat([a = rand({8}, kFloat32, d)] { keep(mytorch::relu(a)); });
             }),
      add_up(
          "sum",
          [](Device d) { return repeat([a = rand({8}, kFloat32, d)] { keep(mytorch::sum(a)); }); }),
      add_up("mm_2x2", [](Device d) { return product(2, d); }),
      add_up("mm_64x64", [](Device d) { return product(64, d); }),
      add_up("add_grad",
             [](Device d) {
               return recording(
                   [a = leaf({8}, d), b = rand({8}, kFloat32, d)] { keep(mytorch::add(a, b)); });
             }),
      add_up("mul_grad",
             [](Device d) {
               return recording(
                   [a = leaf({8}, d), b = rand({8}, kFloat32, d)] { keep(mytorch::mul(a, b)); });
             }),
      add_up("chain100",
             [](Device d) {
               return recording([x = leaf({8}, d), y = ones({8}, kFloat32, d)] {
                 Tensor z = x;
                 for (int i = 0; i < 100; ++i) z = z * y;
                 mytorch::sum(z).backward();
                 x.set_grad({});
               });
             }),
  };
  all.back().calls = 100;
  all[9].flops = 2.0 * 64 * 64 * 64;
  namespace optim = nn::optim;
  // Each step reads the parameters, gradients and state, and writes the parameters and state.
  all.push_back({"sgd_10M", 5 * 4 * kParameters, 0, 1, [](Device d) {
                   return step_of<optim::SGD>(optim::SGDArgs{.lr = 1e-3, .momentum = 0.9}, d);
                 }});
  all.push_back({"adam_10M", 7 * 4 * kParameters, 0, 1,
                 [](Device d) { return step_of<optim::Adam>(optim::AdamArgs{.lr = 1e-3}, d); }});
  all.push_back({"adamw_10M", 7 * 4 * kParameters, 0, 1,
                 [](Device d) { return step_of<optim::AdamW>(optim::AdamWArgs{.lr = 1e-3}, d); }});
  const nn::LSTMArgs two{.num_layers = 2};
  all.push_back({"lstm_forward", 0, recurrent_flops(4), 1,
                 [=](Device d) { return forward_of<nn::LSTM>(d, two); }});
  // Backward multiplies twice as often as forward.
  all.push_back({"lstm_step", 0, 3 * recurrent_flops(4), 1,
                 [=](Device d) { return training_step_of<nn::LSTM>(d, two); }});
  all.push_back({"gru_step", 0, 3 * recurrent_flops(3), 1, [](Device d) {
                   return training_step_of<nn::GRU>(d, nn::GRUArgs{.num_layers = 2});
                 }});
  all.push_back({"rnn_step", 0, 3 * recurrent_flops(1), 1, [](Device d) {
                   return training_step_of<nn::RNN>(d, nn::RNNArgs{.num_layers = 2});
                 }});
  return all;
}

}  // namespace

const Program& find_program(const std::string& name) {
  static const std::vector<Program>* const all = new std::vector<Program>(all_programs());
  std::string names;
  for (const Program& program : *all) {
    if (program.name == name) return program;
    names += (names.empty() ? "" : ", ") + program.name;
  }
  throw Error(ErrorCode::kValue,
              "[bench] unknown program '" + name + "'; the programs are " + names);
}

}  // namespace mytorch::bench
