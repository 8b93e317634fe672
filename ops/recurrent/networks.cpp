// Recurrent networks of several layers, over sequences of equal lengths, or packed ones.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "core/types/dims.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/addmm.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/dropout.h"
#include "mytorch/ops/gru_layer.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/lstm_gates.h"
#include "mytorch/ops/lstm_layer.h"
#include "mytorch/ops/rnn_layer.h"
#include "mytorch/ops/stack.h"
#include "ops/gradients.h"
#include "ops/recurrent/parameters.h"
#include "ops/recurrent/steps.h"

namespace mytorch {

using namespace recurrent;

namespace {

struct Outcome {
  Tensor output, hidden, cell;
};

// Runs the steps of an LSTM whose hidden states are projections.
Outcome projected(const Tensor& gates, const Tensor& hx, const Tensor& cx, const Parameters& p,
                  const Steps& steps, bool reverse) {
  const size_t count = steps.size();
  std::vector<Tensor> hidden(count), cells(count);
  const auto previous = [&](const std::vector<Tensor>& states, size_t i, const Tensor& initial) {
    const int64_t carried = steps[i].carried, starting = steps[i].rows - carried;
    if (carried == 0) return initial.narrow(0, 0, starting);
    const Tensor part = states[i - 1].narrow(0, 0, carried);
    return starting == 0 ? part : mytorch::cat({part, initial.narrow(0, carried, starting)}, 0);
  };
  for (size_t i = 0; i < count; ++i) {
    const Tensor sum = mytorch::addmm(steps[i].of(gates), previous(hidden, i, hx), p.w_hh.t());
    const std::vector<Tensor> gate = sum.chunk(4, 1);
    Tensor wide;
    std::tie(wide, cells[i]) =
        mytorch::lstm_gates(gate[0], gate[1], gate[2], gate[3], previous(cells, i, cx));
    hidden[i] = mytorch::linear(wide, p.w_hr);
  }
  const auto joined = [&](std::vector<Tensor>& states) {
    if (reverse) std::reverse(states.begin(), states.end());
    return mytorch::cat(states, 0);
  };
  const Tensor output = joined(hidden), all_cells = joined(cells);
  return {output, last_states(steps, output), last_states(steps, all_cells)};
}

// Runs one layer in one direction. `x` are the rows of all steps.
Outcome run_direction(Kind kind, const Tensor& x, const Tensor& hx, const Tensor& cx,
                      const Parameters& p, const Dims& batch_sizes, bool reverse) {
  const IntList sizes = as_list(batch_sizes);
  const Steps steps = make_steps(sizes, reverse);
  if (kind == Kind::kGRU) {
    Tensor bias, own;
    if (p.b_ih.defined()) {
      const int64_t n = hx.size(1);
      own = p.b_hh.narrow(0, 2 * n, n);
      bias = p.b_ih + grads::padded_to(p.b_hh.narrow(0, 0, 2 * n), {3 * n});
    }
    const Tensor output = std::get<0>(
        mytorch::gru_layer(mytorch::linear(x, p.w_ih, bias), hx, p.w_hh, own, sizes, reverse));
    return {output, last_states(steps, output), {}};
  }
  const Tensor bias = p.b_ih.defined() ? p.b_ih + p.b_hh : Tensor();
  const Tensor gates = mytorch::linear(x, p.w_ih, bias);
  if (p.w_hr.defined()) return projected(gates, hx, cx, p, steps, reverse);
  if (kind == Kind::kLSTM) {
    const auto [output, cells, sums] = mytorch::lstm_layer(gates, hx, cx, p.w_hh, sizes, reverse);
    return {output, last_states(steps, output), last_states(steps, cells)};
  }
  const Tensor output = mytorch::rnn_layer(gates, hx, p.w_hh, sizes, kind == Kind::kReLU, reverse);
  return {output, last_states(steps, output), {}};
}

struct Network {
  Kind kind;
  const char* op;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional;
};

// Runs all layers. `data` are the rows of all steps; `cx` is undefined unless the network is an
// LSTM.
Outcome run(const Network& network, const Tensor& data, const Dims& batch_sizes, const Tensor& hx,
            const Tensor& cx, TensorList params) {
  const char* op = network.op;
  const bool lstm = network.kind == Kind::kLSTM;
  check_floating(data, "input", op);
  check_value(network.num_layers > 0, op, "num_layers is ", network.num_layers);
  check_value(network.dropout >= 0 && network.dropout <= 1, op, "dropout is ", network.dropout,
              ": give a probability");
  const int64_t directions = network.bidirectional ? 2 : 1;
  const auto count = static_cast<int64_t>(params.size());
  check_value(network.num_layers <= count, op, network.num_layers, " layers need more than ", count,
              " parameters");
  const int64_t rows = network.num_layers * directions;
  const int64_t batch = batch_sizes[0];
  const auto check_states = [&](const Tensor& x, const char* name) {
    check_shape(x.dim() == 3 && x.size(0) == rows && x.size(1) == batch, op, name, " has shape ",
                x.sizes(), ", expected (layers * directions, N, size) = (", rows, ", ", batch,
                ", size)");
    check_same_type(data, "input", x, name, op);
  };
  check_states(hx, lstm ? "the hidden state" : "hx");
  if (lstm) check_states(cx, "the cell state");
  const int64_t width = hx.size(2), hidden = lstm ? cx.size(2) : width;
  const bool projects = width != hidden;
  const int64_t each = 2 + (network.has_biases ? 2 : 0) + (projects ? 1 : 0);
  check_value(count == rows * each, op, "params has ", count, " tensors, but ", rows,
              " layers and directions have ", each, " each");
  Tensor x = data;
  std::vector<Tensor> last_hidden, last_cells;
  for (int64_t layer = 0; layer < network.num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t row = layer * directions + direction;
      const auto param = [&](int64_t i) { return params[static_cast<size_t>(row * each + i)]; };
      Parameters p{param(0), param(1), {}, {}, {}};
      if (network.has_biases) {
        p.b_ih = param(2);
        p.b_hh = param(3);
      }
      if (projects) p.w_hr = param(each - 1);
      check_parameters(network.kind, p, x.size(1), width, hidden, data, op);
      Outcome done =
          run_direction(network.kind, x, hx.select(0, row), lstm ? cx.select(0, row) : Tensor(), p,
                        batch_sizes, direction == 1);
      outputs.push_back(std::move(done.output));
      last_hidden.push_back(std::move(done.hidden));
      if (lstm) last_cells.push_back(std::move(done.cell));
    }
    x = directions == 1 ? outputs[0] : mytorch::cat(outputs, 1);
    if (network.dropout > 0 && network.train && layer + 1 < network.num_layers) {
      x = mytorch::dropout(x, network.dropout, true);
    }
  }
  return {x, mytorch::stack(last_hidden), lstm ? mytorch::stack(last_cells) : Tensor()};
}

// Runs a network over (L, N, I), or (N, L, I) if `batch_first`.
Outcome run_input(const Network& network, const Tensor& input, const Tensor& hx, const Tensor& cx,
                  TensorList params, bool batch_first) {
  check_shape(input.dim() == 3, network.op, "input has shape ", input.sizes(), ", expected ",
              batch_first ? "(N, L, I)" : "(L, N, I)");
  const Tensor x = batch_first ? input.transpose(0, 1) : input;
  const int64_t steps = x.size(0), batch = x.size(1);
  check_shape(steps > 0, network.op, "input of shape ", input.sizes(), " has no steps");
  Outcome done =
      run(network, x.reshape({steps * batch, x.size(2)}), Dims(steps, batch), hx, cx, params);
  done.output = done.output.view({steps, batch, done.output.size(1)});
  if (batch_first) done.output = done.output.transpose(0, 1);
  return done;
}

Outcome run_data(const Network& network, const Tensor& data, const Tensor& batch_sizes,
                 const Tensor& hx, const Tensor& cx, TensorList params) {
  const char* op = network.op;
  check_shape(data.dim() == 2, op, "data has shape ", data.sizes(), ", expected (rows, I)");
  check_type(batch_sizes.dtype() == kInt64, op, "batch_sizes is ", batch_sizes.dtype(),
             ": it must be int64");
  check_shape(batch_sizes.dim() == 1 && batch_sizes.size(0) > 0, op, "batch_sizes has shape ",
              batch_sizes.sizes(), ": give the number of rows of each step");
  check_value(batch_sizes.device().is_cpu(), op, "batch_sizes is on ", batch_sizes.device().str(),
              ": it must be on the CPU");
  const Tensor listed = batch_sizes.contiguous();
  const auto* sizes = listed.const_data<int64_t>();
  Dims steps(sizes, sizes + listed.numel());
  int64_t rows = 0;
  for (size_t t = 0; t < steps.size(); ++t) {
    check_value(steps[t] > 0 && (t == 0 || steps[t] <= steps[t - 1]), op, "batch_sizes[", t,
                "] is ", steps[t], ": sizes are positive and do not increase");
    check_value(steps[t] <= data.size(0) - rows, op,
                "batch_sizes has more rows in total than "
                "data of shape ",
                data.sizes());
    rows += steps[t];
  }
  check_shape(rows == data.size(0), op, "data of shape ", data.sizes(), " has more rows than the ",
              rows, " of batch_sizes");
  return run(network, data, steps, hx, cx, params);
}

}  // namespace

namespace composite {

Tensors<3> lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases,
                int64_t num_layers, double dropout, bool train, bool bidirectional,
                bool batch_first) {
  check_two_states(hx, "lstm");
  Outcome done =
      run_input({Kind::kLSTM, "lstm", has_biases, num_layers, dropout, train, bidirectional}, input,
                hx[0], hx[1], params, batch_first);
  return {done.output, done.hidden, done.cell};
}

Tensors<3> lstm(const Tensor& data, const Tensor& batch_sizes, TensorList hx, TensorList params,
                bool has_biases, int64_t num_layers, double dropout, bool train,
                bool bidirectional) {
  check_two_states(hx, "lstm");
  Outcome done =
      run_data({Kind::kLSTM, "lstm", has_biases, num_layers, dropout, train, bidirectional}, data,
               batch_sizes, hx[0], hx[1], params);
  return {done.output, done.hidden, done.cell};
}

Tensors<2> gru(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
               int64_t num_layers, double dropout, bool train, bool bidirectional,
               bool batch_first) {
  Outcome done =
      run_input({Kind::kGRU, "gru", has_biases, num_layers, dropout, train, bidirectional}, input,
                hx, {}, params, batch_first);
  return {done.output, done.hidden};
}

Tensors<2> gru(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params,
               bool has_biases, int64_t num_layers, double dropout, bool train,
               bool bidirectional) {
  Outcome done =
      run_data({Kind::kGRU, "gru", has_biases, num_layers, dropout, train, bidirectional}, data,
               batch_sizes, hx, {}, params);
  return {done.output, done.hidden};
}

Tensors<2> rnn_tanh(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
                    int64_t num_layers, double dropout, bool train, bool bidirectional,
                    bool batch_first) {
  Outcome done =
      run_input({Kind::kTanh, "rnn_tanh", has_biases, num_layers, dropout, train, bidirectional},
                input, hx, {}, params, batch_first);
  return {done.output, done.hidden};
}

Tensors<2> rnn_tanh(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx,
                    TensorList params, bool has_biases, int64_t num_layers, double dropout,
                    bool train, bool bidirectional) {
  Outcome done =
      run_data({Kind::kTanh, "rnn_tanh", has_biases, num_layers, dropout, train, bidirectional},
               data, batch_sizes, hx, {}, params);
  return {done.output, done.hidden};
}

Tensors<2> rnn_relu(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
                    int64_t num_layers, double dropout, bool train, bool bidirectional,
                    bool batch_first) {
  Outcome done =
      run_input({Kind::kReLU, "rnn_relu", has_biases, num_layers, dropout, train, bidirectional},
                input, hx, {}, params, batch_first);
  return {done.output, done.hidden};
}

Tensors<2> rnn_relu(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx,
                    TensorList params, bool has_biases, int64_t num_layers, double dropout,
                    bool train, bool bidirectional) {
  Outcome done =
      run_data({Kind::kReLU, "rnn_relu", has_biases, num_layers, dropout, train, bidirectional},
               data, batch_sizes, hx, {}, params);
  return {done.output, done.hidden};
}

}  // namespace composite
}  // namespace mytorch
