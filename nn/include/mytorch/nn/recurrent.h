// Recurrent layers. They are loops over operators: one product for the inputs of all steps, then a
// product and a few pointwise operators for each step.
#pragma once

#include <cstdint>
#include <tuple>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

enum class RNNNonlinearity { kTanh, kReLU };
RNNNonlinearity from_name(Str name, RNNNonlinearity);  // NOLINT: named by its type

struct RNNArgs {
  int64_t num_layers = 1;
  OneOf<RNNNonlinearity> nonlinearity = RNNNonlinearity::kTanh;  // or "tanh", "relu"
  bool bias = true;
  bool batch_first = false;  // whether input and output are (N, L, ...) instead of (L, N, ...)
  double dropout = 0;        // of the outputs of all layers but the last, in training
  bool bidirectional = false;
};
using RNNOptions = Options<RNNArgs, int64_t, int64_t>;

struct GRUArgs {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
};
using GRUOptions = Options<GRUArgs, int64_t, int64_t>;

struct LSTMArgs {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  int64_t proj_size = 0;  // size of a projection of the hidden state; 0 for none
};
using LSTMOptions = Options<LSTMArgs, int64_t, int64_t>;

namespace detail {

// The base of recurrent layers. The parameters have PyTorch's names: weight_ih_l0 (gates *
// hidden, input), weight_hh_l0 (gates * hidden, hidden), bias_ih_l0, bias_hh_l0, then those of the
// other direction (weight_ih_l0_reverse) and of the other layers (weight_ih_l1). All are
// initialized uniformly in +-1 / sqrt(hidden).
class RecurrentBase : public Module {
 public:
  using Module::Module;
  void reset_parameters();
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;

 protected:
  enum class Kind { kRNN, kGRU, kLSTM };
  struct State {
    Tensor hidden;
    Tensor cell;  // of LSTM
  };
  struct Result {
    Tensor output;
    State last;
  };
  RecurrentBase(Kind kind, int64_t input_size, int64_t hidden_size, const LSTMArgs& options,
                RNNNonlinearity nonlinearity = RNNNonlinearity::kTanh);
  Result run(const Tensor& input, const State& initial);

 private:
  size_t per_direction() const;
  State step(const Tensor& gates, const State& state, size_t first_weight);
  void check(const Tensor& input, const Tensor& state, const char* name, int64_t width) const;
  const char* kind_name() const;

  Kind kind_;
  int64_t input_size_ = 0;
  int64_t hidden_size_ = 0;
  LSTMArgs options_;
  RNNNonlinearity nonlinearity_;
};

}  // namespace detail

// Takes (L, N, input), (N, L, input) with `batch_first`, or (L, input), and the first hidden states
// (layers * directions, N, hidden), zeros if undefined. Returns the outputs of the last layer, (L,
// N, directions * hidden), and the last hidden states.
class RNN final : public Callable<RNN, detail::RecurrentBase> {
 public:
  using Callable::Callable;
  RNN(int64_t input_size, int64_t hidden_size, RNNArgs options = {});
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& hidden = {});
};

class GRU final : public Callable<GRU, detail::RecurrentBase> {
 public:
  using Callable::Callable;
  GRU(int64_t input_size, int64_t hidden_size, GRUArgs options = {});
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& hidden = {});
};

// The state is the pair of hidden and cell states. Returns the outputs and the last state.
class LSTM final : public Callable<LSTM, detail::RecurrentBase> {
 public:
  using Callable::Callable;
  using State = std::tuple<Tensor, Tensor>;
  LSTM(int64_t input_size, int64_t hidden_size, LSTMArgs options = {});
  std::tuple<Tensor, State> forward(const Tensor& input, const State& state = {});
  using Callable::operator();
  std::tuple<Tensor, State> operator()(const Tensor& input, const State& state) {  // for {h, c}
    return Callable::operator()(input, state);
  }
};

}  // namespace mytorch::nn
