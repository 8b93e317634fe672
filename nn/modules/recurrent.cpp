#include "mytorch/nn/recurrent.h"

#include <cmath>
#include <vector>

#include "mytorch/nn/init.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/gru.h"
#include "mytorch/ops/gru_cell.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/lstm.h"
#include "mytorch/ops/lstm_cell.h"
#include "mytorch/ops/rnn_relu.h"
#include "mytorch/ops/rnn_relu_cell.h"
#include "mytorch/ops/rnn_tanh.h"
#include "mytorch/ops/rnn_tanh_cell.h"
#include "mytorch/ops/squeeze.h"
#include "mytorch/ops/unsqueeze.h"
#include "mytorch/ops/zeros.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

constexpr const char* kRNNNonlinearities[] = {"tanh", "relu"};

}  // namespace

RNNNonlinearity from_name(Str name, RNNNonlinearity /*type*/) {
  return static_cast<RNNNonlinearity>(index_of_name("RNN", name, kRNNNonlinearities));
}

namespace detail {

const char* RecurrentBase::kind_name() const {
  return kind_ == Kind::kRNN ? "RNN" : kind_ == Kind::kGRU ? "GRU" : "LSTM";
}

RecurrentBase::RecurrentBase(Kind kind, const RecurrentAllArgs& options)
    : options(options), kind_(kind) {
  const int64_t input_size = options.input_size, hidden_size = options.hidden_size;
  check_at_least(kind_name(), 1,
                 {{"input_size", input_size},
                  {"hidden_size", hidden_size},
                  {"num_layers", options.num_layers}});
  check_at_least(kind_name(), 0, {{"proj_size", options.proj_size}});
  check_probability(kind_name(), options.dropout);
  if (options.proj_size >= hidden_size) {
    fail(ErrorCode::kValue, "[LSTM] proj_size ", options.proj_size,
         " is not smaller than hidden_size ", hidden_size);
  }
  const int64_t gates = kind == Kind::kRNN ? 1 : kind == Kind::kGRU ? 3 : 4;
  const int64_t width = options.proj_size > 0 ? options.proj_size : hidden_size;
  const int64_t directions = options.bidirectional ? 2 : 1;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string suffix = absl::StrCat("_l", layer, direction == 0 ? "" : "_reverse");
      const int64_t in = layer == 0 ? input_size : directions * width;
      hold_parameter("weight_ih" + suffix, empty({gates * hidden_size, in}, kFloat32));
      hold_parameter("weight_hh" + suffix, empty({gates * hidden_size, width}, kFloat32));
      if (options.bias) {
        hold_parameter("bias_ih" + suffix, empty({gates * hidden_size}, kFloat32));
        hold_parameter("bias_hh" + suffix, empty({gates * hidden_size}, kFloat32));
      }
      if (options.proj_size > 0) {
        hold_parameter("weight_hr" + suffix, empty({width, hidden_size}, kFloat32));
      }
    }
  }
  RecurrentBase::reset_parameters();
}

void RecurrentBase::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(options->hidden_size));
  for (const Tensor& parameter : parameters()) init::uniform_(parameter, -bound, bound);
}

size_t RecurrentBase::per_direction() const {
  return 2 + (options->bias ? 2u : 0u) + (options->proj_size > 0 ? 1u : 0u);
}

std::vector<Tensor> RecurrentBase::weights() {
  std::vector<Tensor> list;
  const int64_t rows = options->num_layers * (options->bidirectional ? 2 : 1);
  for (size_t i = 0; i < static_cast<size_t>(rows) * per_direction(); ++i) {
    list.push_back(held_parameter(i));
  }
  return list;
}

std::vector<std::vector<Tensor>> RecurrentBase::all_weights() {
  const std::vector<Tensor> list = weights();
  const auto each = static_cast<std::ptrdiff_t>(per_direction());
  std::vector<std::vector<Tensor>> result;
  for (auto at = list.begin(); at != list.end(); at += each) result.emplace_back(at, at + each);
  return result;
}

// Returns the initial states (layers * directions, batch, size), zeros if they are undefined.
RecurrentBase::State RecurrentBase::checked_state(const State& initial, int64_t batch,
                                                  const Tensor& like) const {
  const int64_t rows = options->num_layers * (options->bidirectional ? 2 : 1);
  const auto checked = [&](const Tensor& state, const char* what, int64_t width) {
    const std::vector<int64_t> expected = {rows, batch, width};
    if (!state.defined()) return zeros(expected, like.dtype(), like.device());
    if (!(state.sizes() == IntList(expected))) {
      fail(ErrorCode::kShape, "[", kind_name(), "] the ", what, " state has shape ",
           shape_str(state.sizes()),
           ", expected (layers * directions, N, size) = ", shape_str(expected));
    }
    return state;
  };
  State state;
  state.hidden = checked(initial.hidden, "hidden",
                         options->proj_size > 0 ? options->proj_size : options->hidden_size);
  if (kind_ == Kind::kLSTM) state.cell = checked(initial.cell, "cell", options->hidden_size);
  return state;
}

// Calls the operator over sequences of equal lengths, or over packed ones if `batch_sizes` is
// defined.
RecurrentBase::Result RecurrentBase::call(const Tensor& input, const Tensor& batch_sizes,
                                          const State& state) {
  const std::vector<Tensor> params = weights();
  const LSTMArgs& o = options.args();
  const bool packed = batch_sizes.defined();
  if (kind_ == Kind::kLSTM) {
    const std::vector<Tensor> hx = {state.hidden, state.cell};
    const auto [output, hidden, cell] =
        packed ? lstm(input, batch_sizes, hx, params, o.bias, o.num_layers, o.dropout, training(),
                      o.bidirectional)
               : lstm(input, hx, params, o.bias, o.num_layers, o.dropout, training(),
                      o.bidirectional, o.batch_first);
    return {output, {hidden, cell}};
  }
  using Results = std::tuple<Tensor, Tensor>;
  using OverInput = Results (*)(const Tensor&, const Tensor&, TensorList, bool, int64_t, double,
                                bool, bool, bool);
  using OverPacked = Results (*)(const Tensor&, const Tensor&, const Tensor&, TensorList, bool,
                                 int64_t, double, bool, bool);
  OverInput over_input = gru;
  OverPacked over_packed = gru;
  if (kind_ == Kind::kRNN && options->nonlinearity == RNNNonlinearity::kTanh) {
    over_input = rnn_tanh;
    over_packed = rnn_tanh;
  } else if (kind_ == Kind::kRNN) {
    over_input = rnn_relu;
    over_packed = rnn_relu;
  }
  const auto [output, hidden] =
      packed ? over_packed(input, batch_sizes, state.hidden, params, o.bias, o.num_layers,
                           o.dropout, training(), o.bidirectional)
             : over_input(input, state.hidden, params, o.bias, o.num_layers, o.dropout, training(),
                          o.bidirectional, o.batch_first);
  return {output, {hidden, {}}};
}

RecurrentBase::Result RecurrentBase::run(const Tensor& input, const State& initial) {
  const bool batched = input.dim() == 3;
  if ((!batched && input.dim() != 2) || input.size(-1) != options->input_size) {
    fail(ErrorCode::kShape, "[", kind_name(), "] input ", shape_str(input.sizes()),
         " does not have 3 dimensions, or 2 without a batch, the last of size ",
         options->input_size);
  }
  if (batched) {
    const int64_t batch = input.size(options->batch_first ? 0 : 1);
    return call(input, {}, checked_state(initial, batch, input));
  }
  const auto with_batch = [](const Tensor& x) { return x.defined() ? x.unsqueeze(1) : x; };
  const State state{with_batch(initial.hidden), with_batch(initial.cell)};
  const int64_t batch_dim = options->batch_first ? 0 : 1;
  Result result = call(input.unsqueeze(batch_dim), {}, checked_state(state, 1, input));
  result.output = result.output.squeeze(batch_dim);
  result.last.hidden = result.last.hidden.squeeze(1);
  if (result.last.cell.defined()) result.last.cell = result.last.cell.squeeze(1);
  return result;
}

RecurrentBase::Result RecurrentBase::run(const PackedSequence& input, const State& initial) {
  const Tensor& data = input.data();
  if (!data.defined() || data.dim() != 2 || data.size(1) != options->input_size) {
    fail(ErrorCode::kShape, "[", kind_name(), "] the packed sequences have data ",
         data.defined() ? shape_str(data.sizes()) : "undefined", ", expected (rows, ",
         options->input_size, ")");
  }
  const Tensor& sizes = input.batch_sizes();
  const int64_t batch = sizes.numel() > 0 ? sizes.const_data<int64_t>()[0] : 0;
  const auto reordered = [](const Tensor& state, const Tensor& order) {
    return state.defined() && order.defined() ? index_select(state, 1, order) : state;
  };
  const State given = checked_state(initial, batch, data);
  Result result = call(data, sizes,
                       {reordered(given.hidden, input.sorted_indices()),
                        reordered(given.cell, input.sorted_indices())});
  result.last.hidden = reordered(result.last.hidden, input.unsorted_indices());
  result.last.cell = reordered(result.last.cell, input.unsorted_indices());
  return result;
}

RecurrentBase::PackedSequence RecurrentBase::repacked(const PackedSequence& input,
                                                      const Result& result) {
  return {result.output, input.batch_sizes(), input.sorted_indices(), input.unsorted_indices()};
}

// Each step multiplies each row by all matrices; pointwise operators are left out.
double RecurrentBase::flops(const Tensor& /*input*/, const Tensor& output) const {
  int64_t weights = 0;
  for (const Tensor& parameter : parameters()) {
    if (parameter.dim() == 2) weights += parameter.numel();
  }
  const int64_t rows = output.numel() / output.size(-1);
  return 2.0 * static_cast<double>(weights) * static_cast<double>(rows);
}

std::string RecurrentBase::describe() const {
  return absl::StrCat(
      kind_name(), "(", options->input_size, ", ", options->hidden_size,
      options->num_layers == 1 ? "" : absl::StrCat(", num_layers=", options->num_layers),
      options->bias ? "" : ", bias=false", options->batch_first ? ", batch_first=true" : "",
      options->dropout == 0 ? "" : absl::StrCat(", dropout=", options->dropout),
      options->bidirectional ? ", bidirectional=true" : "",
      options->proj_size == 0 ? "" : absl::StrCat(", proj_size=", options->proj_size), ")");
}

CellBase::CellBase(const char* name, int64_t gates, const CellAllArgs& options)
    : options(options), name_(name) {
  const int64_t input_size = options.input_size, hidden_size = options.hidden_size;
  check_at_least(name, 1, {{"input_size", input_size}, {"hidden_size", hidden_size}});
  weight_ih = empty({gates * hidden_size, input_size}, kFloat32);
  weight_hh = empty({gates * hidden_size, hidden_size}, kFloat32);
  if (options.bias) {
    bias_ih = empty({gates * hidden_size}, kFloat32);
    bias_hh = empty({gates * hidden_size}, kFloat32);
  }
  register_parameter("weight_ih", weight_ih);
  register_parameter("weight_hh", weight_hh);
  register_parameter("bias_ih", bias_ih);
  register_parameter("bias_hh", bias_hh);
  CellBase::reset_parameters();
}

void CellBase::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(options->hidden_size));
  for (const Tensor& parameter : parameters()) init::uniform_(parameter, -bound, bound);
}

Tensor CellBase::checked_state(const Tensor& input, const Tensor& state, const char* name) const {
  if ((input.dim() != 1 && input.dim() != 2) || input.size(-1) != options->input_size) {
    fail(ErrorCode::kShape, "[", name_, "] input ", shape_str(input.sizes()), " is not (N, ",
         options->input_size, ") or (", options->input_size, ")");
  }
  std::vector<int64_t> expected = input.sizes().vec();
  expected.back() = options->hidden_size;
  if (!state.defined()) return zeros(expected, input.dtype(), input.device());
  if (!(state.sizes() == IntList(expected))) {
    fail(ErrorCode::kShape, "[", name_, "] the ", name, " state has shape ",
         shape_str(state.sizes()), ", but input ", shape_str(input.sizes()), " takes ",
         shape_str(expected));
  }
  return state;
}

double CellBase::flops(const Tensor& input, const Tensor& /*output*/) const {
  const double rows = input.dim() == 1 ? 1 : static_cast<double>(input.size(0));
  return 2 * rows * static_cast<double>(weight_ih.numel() + weight_hh.numel());
}

std::string CellBase::describe() const {
  return absl::StrCat(name_, "(", options->input_size, ", ", options->hidden_size,
                      bias_ih.defined() ? "" : ", bias=false", ")");
}

}  // namespace detail

RNN::RNN(int64_t input_size, int64_t hidden_size, RNNArgs options)
    : Callable(Kind::kRNN, RecurrentAllArgs{{.num_layers = options.num_layers,
                                             .bias = options.bias,
                                             .batch_first = options.batch_first,
                                             .dropout = options.dropout,
                                             .bidirectional = options.bidirectional},
                                            input_size,
                                            hidden_size,
                                            options.nonlinearity}) {}

std::tuple<Tensor, Tensor> RNN::forward(const Tensor& input, const Tensor& hidden) {
  const Result result = run(input, {hidden, {}});
  return {result.output, result.last.hidden};
}

std::tuple<RNN::PackedSequence, Tensor> RNN::forward(const PackedSequence& input,
                                                     const Tensor& hidden) {
  const Result result = run(input, {hidden, {}});
  return {repacked(input, result), result.last.hidden};
}

GRU::GRU(int64_t input_size, int64_t hidden_size, GRUArgs options)
    : Callable(Kind::kGRU, RecurrentAllArgs{{.num_layers = options.num_layers,
                                             .bias = options.bias,
                                             .batch_first = options.batch_first,
                                             .dropout = options.dropout,
                                             .bidirectional = options.bidirectional},
                                            input_size,
                                            hidden_size}) {}

std::tuple<Tensor, Tensor> GRU::forward(const Tensor& input, const Tensor& hidden) {
  const Result result = run(input, {hidden, {}});
  return {result.output, result.last.hidden};
}

std::tuple<GRU::PackedSequence, Tensor> GRU::forward(const PackedSequence& input,
                                                     const Tensor& hidden) {
  const Result result = run(input, {hidden, {}});
  return {repacked(input, result), result.last.hidden};
}

LSTM::LSTM(int64_t input_size, int64_t hidden_size, LSTMArgs options)
    : Callable(Kind::kLSTM, RecurrentAllArgs{options, input_size, hidden_size}) {}

std::tuple<Tensor, LSTM::State> LSTM::forward(const Tensor& input, const State& state) {
  const Result result = run(input, {std::get<0>(state), std::get<1>(state)});
  return {result.output, {result.last.hidden, result.last.cell}};
}

std::tuple<LSTM::PackedSequence, LSTM::State> LSTM::forward(const PackedSequence& input,
                                                            const State& state) {
  const Result result = run(input, {std::get<0>(state), std::get<1>(state)});
  return {repacked(input, result), {result.last.hidden, result.last.cell}};
}

// ---- cells ----

RNNCell::RNNCell(int64_t input_size, int64_t hidden_size, RNNCellArgs options)
    : Callable("RNNCell", 1,
               CellAllArgs{input_size, hidden_size, options.bias, options.nonlinearity}) {}

Tensor RNNCell::forward(const Tensor& input, const Tensor& hidden) {
  const Tensor state = checked_state(input, hidden, "hidden");
  return options->nonlinearity == RNNNonlinearity::kReLU
             ? rnn_relu_cell(input, state, weight_ih, weight_hh, bias_ih, bias_hh)
             : rnn_tanh_cell(input, state, weight_ih, weight_hh, bias_ih, bias_hh);
}

GRUCell::GRUCell(int64_t input_size, int64_t hidden_size, GRUCellArgs options)
    : Callable("GRUCell", 3, CellAllArgs{input_size, hidden_size, options.bias}) {}

Tensor GRUCell::forward(const Tensor& input, const Tensor& hidden) {
  return gru_cell(input, checked_state(input, hidden, "hidden"), weight_ih, weight_hh, bias_ih,
                  bias_hh);
}

LSTMCell::LSTMCell(int64_t input_size, int64_t hidden_size, LSTMCellArgs options)
    : Callable("LSTMCell", 4, CellAllArgs{input_size, hidden_size, options.bias}) {}

LSTMCell::State LSTMCell::forward(const Tensor& input, const State& state) {
  const std::vector<Tensor> hx = {checked_state(input, std::get<0>(state), "hidden"),
                                  checked_state(input, std::get<1>(state), "cell")};
  return lstm_cell(input, hx, weight_ih, weight_hh, bias_ih, bias_hh);
}

// Not in the header: there, each costs the files that include it the instances of Callable.
std::tuple<Tensor, LSTM::State> LSTM::operator()(const Tensor& input, const State& state) {
  return Callable::operator()(input, state);
}
std::tuple<LSTM::PackedSequence, LSTM::State> LSTM::operator()(const PackedSequence& input,
                                                               const State& state) {
  return Callable::operator()(input, state);
}
LSTMCell::State LSTMCell::operator()(const Tensor& input, const State& state) {
  return Callable::operator()(input, state);
}

}  // namespace mytorch::nn
