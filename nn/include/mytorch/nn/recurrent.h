// Recurrent layers and cells. A layer is one product for the inputs of all steps, then one product
// and one pointwise operator for each step; backward is of the same form.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"
#include "mytorch/nn/packed_sequence.h"

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

struct RNNCellArgs {
  bool bias = true;
  OneOf<RNNNonlinearity> nonlinearity = RNNNonlinearity::kTanh;  // or "tanh", "relu"
};
using RNNCellOptions = Options<RNNCellArgs, int64_t, int64_t>;

struct GRUCellArgs {
  bool bias = true;
};
using GRUCellOptions = Options<GRUCellArgs, int64_t, int64_t>;

struct LSTMCellArgs {
  bool bias = true;
};
using LSTMCellOptions = Options<LSTMCellArgs, int64_t, int64_t>;

struct RecurrentAllArgs : LSTMArgs {
  int64_t input_size = 0;
  int64_t hidden_size = 0;
  OneOf<RNNNonlinearity> nonlinearity = RNNNonlinearity::kTanh;  // of RNN
};
struct CellAllArgs {
  int64_t input_size = 0;
  int64_t hidden_size = 0;
  bool bias = true;
  OneOf<RNNNonlinearity> nonlinearity = RNNNonlinearity::kTanh;  // of RNNCell
};

namespace detail {

// The base of recurrent layers. The parameters have PyTorch's names: weight_ih_l0 (gates *
// hidden, input), weight_hh_l0 (gates * hidden, hidden), bias_ih_l0, bias_hh_l0, then those of the
// other direction (weight_ih_l0_reverse) and of the other layers (weight_ih_l1). All are
// initialized uniformly in +-1 / sqrt(hidden).
class RecurrentBase : public Module {
 public:
  using PackedSequence = utils::rnn::PackedSequence;
  using Module::Module;
  void reset_parameters();
  void flatten_parameters() {}  // libtorch's; the parameters need no common memory
  // Returns the parameters of each layer and direction.
  std::vector<std::vector<Tensor>> all_weights();
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;

  BuiltOptions<RecurrentAllArgs> options;

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
  RecurrentBase(Kind kind, const RecurrentAllArgs& options);
  Result run(const Tensor& input, const State& initial);
  // The output are the rows of `input.data()`.
  Result run(const PackedSequence& input, const State& initial);
  static PackedSequence repacked(const PackedSequence& input, const Result& result);

 private:
  size_t per_direction() const;
  std::vector<Tensor> weights();
  State checked_state(const State& initial, int64_t batch, const Tensor& like) const;
  Result call(const Tensor& input, const Tensor& batch_sizes, const State& state);
  const char* kind_name() const;

  Kind kind_;
};

// The base of cells. The parameters have PyTorch's names and shapes: weight_ih (gates * hidden,
// input), weight_hh (gates * hidden, hidden), bias_ih, bias_hh.
class CellBase : public Module {
 public:
  using Module::Module;
  void reset_parameters();
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;

  Tensor weight_ih, weight_hh;
  Tensor bias_ih, bias_hh;  // undefined without bias
  BuiltOptions<CellAllArgs> options;

 protected:
  CellBase(const char* name, int64_t gates, const CellAllArgs& options);
  // Returns `state`, or zeros if it is undefined. Throws Error(kShape) if it does not fit.
  Tensor checked_state(const Tensor& input, const Tensor& state, const char* name) const;

 private:
  const char* name_ = "";
};

}  // namespace detail

// Takes (L, N, input), (N, L, input) with `batch_first`, or (L, input), and the first hidden states
// (layers * directions, N, hidden), zeros if undefined. Returns the outputs of the last layer, (L,
// N, directions * hidden), and the last hidden states. A PackedSequence gives a PackedSequence; the
// states are in the order in which its sequences were packed.
class RNN final : public Callable<RNN, detail::RecurrentBase> {
 public:
  using Callable::Callable;
  RNN(int64_t input_size, int64_t hidden_size, RNNArgs options = {});
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& hidden = {});
  std::tuple<PackedSequence, Tensor> forward(const PackedSequence& input,
                                             const Tensor& hidden = {});
  std::tuple<PackedSequence, Tensor> forward_with_packed_input(const PackedSequence& input,
                                                               const Tensor& hidden = {}) {
    return forward(input, hidden);
  }
};

class GRU final : public Callable<GRU, detail::RecurrentBase> {
 public:
  using Callable::Callable;
  GRU(int64_t input_size, int64_t hidden_size, GRUArgs options = {});
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& hidden = {});
  std::tuple<PackedSequence, Tensor> forward(const PackedSequence& input,
                                             const Tensor& hidden = {});
  std::tuple<PackedSequence, Tensor> forward_with_packed_input(const PackedSequence& input,
                                                               const Tensor& hidden = {}) {
    return forward(input, hidden);
  }
};

// The state is the pair of hidden and cell states. Returns the outputs and the last state.
class LSTM final : public Callable<LSTM, detail::RecurrentBase> {
 public:
  using Callable::Callable;
  using State = std::tuple<Tensor, Tensor>;
  LSTM(int64_t input_size, int64_t hidden_size, LSTMArgs options = {});
  std::tuple<Tensor, State> forward(const Tensor& input, const State& state = {});
  std::tuple<PackedSequence, State> forward(const PackedSequence& input, const State& state = {});
  std::tuple<PackedSequence, State> forward_with_packed_input(const PackedSequence& input,
                                                              const State& state = {}) {
    return forward(input, state);
  }
  using Callable::operator();
  std::tuple<Tensor, State> operator()(const Tensor& input, const State& state);  // for {h, c}
  std::tuple<PackedSequence, State> operator()(const PackedSequence& input, const State& state);
};

// One step of a recurrent layer: takes inputs (N, input), or (input), and the hidden states (N,
// hidden), zeros if undefined. Returns the next hidden states.
class RNNCell final : public Callable<RNNCell, detail::CellBase> {
 public:
  using Callable::Callable;
  RNNCell(int64_t input_size, int64_t hidden_size, RNNCellArgs options = {});
  Tensor forward(const Tensor& input, const Tensor& hidden = {});
};

class GRUCell final : public Callable<GRUCell, detail::CellBase> {
 public:
  using Callable::Callable;
  GRUCell(int64_t input_size, int64_t hidden_size, GRUCellArgs options = {});
  Tensor forward(const Tensor& input, const Tensor& hidden = {});
};

// The state is the pair of hidden and cell states: `auto [h, c] = cell(x, {h0, c0})`.
class LSTMCell final : public Callable<LSTMCell, detail::CellBase> {
 public:
  using Callable::Callable;
  using State = std::tuple<Tensor, Tensor>;
  LSTMCell(int64_t input_size, int64_t hidden_size, LSTMCellArgs options = {});
  State forward(const Tensor& input, const State& state = {});
  using Callable::operator();
  State operator()(const Tensor& input, const State& state);  // for {h, c}
};

}  // namespace mytorch::nn
