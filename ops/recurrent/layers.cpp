// Layers of recurrent networks in one direction: LSTM, GRU and RNN.
//
// One product computes the gates' parts of the inputs of all steps of a layer. A step is one
// product of the hidden states, added to these in memory, and one pointwise operator.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/addmm.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/gru_gates.h"
#include "mytorch/ops/lstm_gates.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/tanh.h"
#include "ops/recurrent/steps.h"

namespace mytorch {

using namespace recurrent;

namespace {

void check_state(const Tensor& state, const char* name, int64_t rows, int64_t columns,
                 const Tensor& like, const char* op) {
  check_shape(state.dim() == 2 && state.size(0) == rows && state.size(1) == columns, op, name,
              " has shape ", state.sizes(), ", expected ", shape_str({rows, columns}));
  check_same_type(like, "the input", state, name, op);
}

// Checks the arguments of a layer: the sizes of steps, and those of gates and weight for `parts`
// gates of the size of the state.
void check_layer(const Tensor& gates, const Tensor& hx, const Tensor& weight_hh,
                 IntList batch_sizes, int64_t parts, const char* op) {
  check_floating(gates, "gates", op);
  check_value(!batch_sizes.empty(), op, "batch_sizes is empty: give the rows of each step");
  int64_t rows = 0;
  for (size_t t = 0; t < batch_sizes.size(); ++t) {
    check_value(batch_sizes[t] >= 0 && (t == 0 || batch_sizes[t] <= batch_sizes[t - 1]), op,
                "batch_sizes[", t, "] is ", batch_sizes[t],
                ": sizes are positive and do not increase");
    rows += batch_sizes[t];
    check_value(rows >= 0 && rows <= (gates.dim() > 0 ? gates.size(0) : 0), op,
                "batch_sizes has more rows in total than gates of shape ", gates.sizes());
  }
  check_shape(hx.dim() == 2, op, "hx has shape ", hx.sizes(), ", expected (N, H)");
  const int64_t n = hx.size(1);
  check_shape(gates.dim() == 2 && gates.size(0) == rows && gates.size(1) == parts * n, op,
              "gates have shape ", gates.sizes(), ", expected (rows of all steps, ", parts,
              " H) = ", shape_str({rows, parts * n}));
  check_state(hx, "hx", batch_sizes[0], n, gates, op);
  check_shape(weight_hh.dim() == 2 && weight_hh.size(0) == parts * n && weight_hh.size(1) == n, op,
              "weight_hh has shape ", weight_hh.sizes(), ", expected ", shape_str({parts * n, n}));
  check_same_type(gates, "gates", weight_hh, "weight_hh", op);
}

Tensor new_rows(const Tensor& gates, int64_t columns) {
  return mytorch::empty({gates.size(0), columns}, gates.dtype(), gates.device());
}

}  // namespace

namespace composite {

Tensors<3> lstm_layer(const Tensor& gates, const Tensor& hx, const Tensor& cx,
                      const Tensor& weight_hh, IntList batch_sizes, bool reverse) {
  constexpr const char* kOp = "lstm_layer";
  check_layer(gates, hx, weight_hh, batch_sizes, 4, kOp);
  const int64_t n = hx.size(1);
  check_state(cx, "cx", hx.size(0), n, gates, kOp);
  const Steps steps = make_steps(batch_sizes, reverse);
  const Tensor output = new_rows(gates, n), cells = new_rows(gates, n);
  const Tensor sums = new_rows(gates, 4 * n), weight = spread_rows(weight_hh.t());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Tensor sum = steps[i].of(sums);
    mytorch::addmm_out(sum, steps[i].of(gates), before(steps, i, output, hx), weight);
    const auto gate = [&](int64_t k) { return sum.narrow(1, k * n, n); };
    mytorch::lstm_gates_out(steps[i].of(output), steps[i].of(cells), gate(0), gate(1), gate(2),
                            gate(3), before(steps, i, cells, cx));
  }
  return {output, cells, sums};
}

Tensors<2> gru_layer(const Tensor& gates, const Tensor& hx, const Tensor& weight_hh,
                     const Tensor& bias_hh, IntList batch_sizes, bool reverse) {
  constexpr const char* kOp = "gru_layer";
  check_layer(gates, hx, weight_hh, batch_sizes, 3, kOp);
  const int64_t n = hx.size(1);
  if (bias_hh.defined()) {
    check_shape(bias_hh.dim() == 1 && bias_hh.size(0) == n, kOp, "bias_hh has shape ",
                bias_hh.sizes(), ", expected ", shape_str({n}));
    check_same_type(gates, "gates", bias_hh, "bias_hh", kOp);
  }
  const Steps steps = make_steps(batch_sizes, reverse);
  const Tensor output = new_rows(gates, n), sums = new_rows(gates, 3 * n);
  const Tensor weight = spread_rows(weight_hh.t());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Tensor sum = steps[i].of(sums), own = steps[i].of(gates);
    const Tensor hidden = before(steps, i, output, hx);
    const auto gate = [&](const Tensor& x, int64_t k) { return x.narrow(1, k * n, n); };
    mytorch::copy_(sum.narrow(1, 0, 2 * n), own.narrow(1, 0, 2 * n));
    Tensor product = gate(sum, 2);
    if (bias_hh.defined()) {
      mytorch::copy_(product, bias_hh);
    } else {
      mytorch::fill_(product, 0);
    }
    mytorch::addmm_out(sum, sum, hidden, weight);
    mytorch::gru_gates_out(steps[i].of(output), gate(sum, 0), gate(sum, 1), gate(own, 2), product,
                           hidden);
  }
  return {output, sums};
}

Tensor rnn_layer(const Tensor& gates, const Tensor& hx, const Tensor& weight_hh,
                 IntList batch_sizes, bool relu, bool reverse) {
  check_layer(gates, hx, weight_hh, batch_sizes, 1, "rnn_layer");
  const Steps steps = make_steps(batch_sizes, reverse);
  const Tensor weight = spread_rows(weight_hh.t());
  Tensor output = new_rows(gates, hx.size(1));
  for (size_t i = 0; i < steps.size(); ++i) {
    const Tensor sum = steps[i].of(output);
    mytorch::addmm_out(sum, steps[i].of(gates), before(steps, i, output, hx), weight);
    if (relu) {
      mytorch::relu_out(sum, sum);
    } else {
      mytorch::tanh_out(sum, sum);
    }
  }
  return output;
}

}  // namespace composite
}  // namespace mytorch
