// One step of a recurrent network.
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/gru_gates.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/lstm_gates.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/tanh.h"
#include "ops/recurrent/parameters.h"

namespace mytorch {

using namespace recurrent;

namespace {

// Checks the arguments of one step and returns its parameters.
Parameters cell_parameters(Kind kind, const Tensor& input, const Tensor& hx, const Tensor& w_ih,
                           const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh,
                           const char* op) {
  check_floating(input, "input", op);
  check_shape((input.dim() == 1 || input.dim() == 2) && hx.dim() == input.dim(), op, "input ",
              input.sizes(), " and state ", hx.sizes(), " are not (N, I) and (N, H)");
  check_shape(input.dim() == 1 || input.size(0) == hx.size(0), op, "input ", input.sizes(),
              " and state ", hx.sizes(), " have different batches");
  check_same_type(input, "input", hx, "the state", op);
  Parameters p{w_ih, w_hh, b_ih, b_hh, {}};
  check_parameters(kind, p, input.size(-1), hx.size(-1), hx.size(-1), input, op);
  return p;
}

Tensor rnn_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                const Tensor& b_ih, const Tensor& b_hh, bool relu, const char* op) {
  const Parameters p = cell_parameters(Kind::kTanh, input, hx, w_ih, w_hh, b_ih, b_hh, op);
  const Tensor sum = mytorch::linear(input, p.w_ih, p.b_ih) + mytorch::linear(hx, p.w_hh, p.b_hh);
  return relu ? mytorch::relu(sum) : mytorch::tanh(sum);
}

}  // namespace

namespace composite {

Tensors<2> lstm_cell(const Tensor& input, TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh) {
  constexpr const char* kOp = "lstm_cell";
  check_two_states(hx, kOp);
  const Parameters p = cell_parameters(Kind::kLSTM, input, hx[0], w_ih, w_hh, b_ih, b_hh, kOp);
  check_shape(hx[1].sizes() == hx[0].sizes(), kOp, "the cell state has shape ", hx[1].sizes(),
              ", but the hidden state has shape ", hx[0].sizes());
  check_same_type(input, "input", hx[1], "the cell state", kOp);
  const Tensor sum =
      mytorch::linear(input, p.w_ih, p.b_ih) + mytorch::linear(hx[0], p.w_hh, p.b_hh);
  const std::vector<Tensor> gate = sum.chunk(4, -1);
  return mytorch::lstm_gates(gate[0], gate[1], gate[2], gate[3], hx[1]);
}

Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                const Tensor& b_ih, const Tensor& b_hh) {
  const Parameters p = cell_parameters(Kind::kGRU, input, hx, w_ih, w_hh, b_ih, b_hh, "gru_cell");
  const Tensor own = mytorch::linear(input, p.w_ih, p.b_ih);
  const Tensor product = mytorch::linear(hx, p.w_hh, p.b_hh);
  const int64_t n = hx.size(-1);
  const Tensor sum = own.narrow(-1, 0, 2 * n) + product.narrow(-1, 0, 2 * n);
  return mytorch::gru_gates(sum.narrow(-1, 0, n), sum.narrow(-1, n, n), own.narrow(-1, 2 * n, n),
                            product.narrow(-1, 2 * n, n), hx);
}

Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh) {
  return rnn_cell(input, hx, w_ih, w_hh, b_ih, b_hh, false, "rnn_tanh_cell");
}

Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh) {
  return rnn_cell(input, hx, w_ih, w_hh, b_ih, b_hh, true, "rnn_relu_cell");
}

}  // namespace composite
}  // namespace mytorch
